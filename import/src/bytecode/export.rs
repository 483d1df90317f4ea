//! What `jax.export` serializes: a FlatBuffers table with the bytecode of the module among its fields.

use super::container::MAGIC;

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at.checked_add(2)?)?;
    Some(usize::from(u16::from_le_bytes(word.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_le_bytes(word.try_into().ok()?)).ok()
}

/// The field of the root table that is a vector of bytes with a module in it. Which field that is has changed, so each
/// is tried.
pub(super) fn module(bytes: &[u8]) -> Option<&[u8]> {
    let table = u32_at(bytes, 0)?;
    // The table begins with the distance back to the list of its fields, whose first word is its own length.
    let back = u32_at(bytes, table)? as u32 as i32;
    let fields = usize::try_from(i64::try_from(table).ok()? - i64::from(back)).ok()?;
    let length = u16_at(bytes, fields)?;
    (4..length).step_by(2).find_map(|k| {
        let field = u16_at(bytes, fields.checked_add(k)?).filter(|&f| f != 0)?;
        let at = table.checked_add(field)?;
        let vector = at.checked_add(u32_at(bytes, at)?)?;
        let begin = vector.checked_add(4)?;
        let content = bytes.get(begin..begin.checked_add(u32_at(bytes, vector)?)?)?;
        content.starts_with(MAGIC).then_some(content)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_found_wherever_the_fields_are() {
        // Root at 12; its fields at 4: two of them, the second of which is the vector at 24.
        let mut bytes =
            vec![12, 0, 0, 0, 8, 0, 12, 0, 0, 0, 4, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([6, 0, 0, 0]);
        bytes.extend(MAGIC);
        bytes.extend([1, 2]);
        let found = module(&bytes).expect("a module");
        assert_eq!((&found[..4], found.len()), (MAGIC, 6));
        for end in 0..bytes.len() {
            assert_eq!(module(&bytes[..end]), None);
        }
    }
}
