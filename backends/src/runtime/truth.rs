//! Truth values as bytes: 0 is false and 1 is true, in every memory of every engine.
//!
//! Arrays never hold other bytes. Bytes from elsewhere are checked where they enter: machine code computes with them,
//! and a Rust `bool` of another byte is undefined behavior.

/// The position of the first byte that is neither true nor false.
pub(crate) fn stray(bytes: &[u8]) -> Option<usize> {
    /// Bytes that are looked at together: enough for vectors, few enough to find the byte again.
    const CHUNK: usize = 1024;
    let any = |chunk: &[u8]| chunk.iter().fold(0, |all, b| all | b) > 1;
    let (n, chunk) = bytes.chunks(CHUNK).enumerate().find(|(_, chunk)| any(chunk))?;
    Some(n * CHUNK + chunk.iter().position(|&b| b > 1)?)
}

/// Has bytes of any kind be truth values, as [`Literal`](adfuse_ir::Literal) has bits be.
pub(crate) fn canonical(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|b| *b &= 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::{DType, Literal};

    #[test]
    fn the_first_stray_byte_is_found() {
        for len in [0usize, 1, 7, 1023, 1024, 1025, 5000] {
            let mut bytes: Vec<u8> = (0..len).map(|i| (i % 2) as u8).collect();
            assert_eq!(stray(&bytes), None);
            for at in [0, 1, 1022, 1023, 1024, 4999] {
                if at < len {
                    let kept = std::mem::replace(&mut bytes[at], 128);
                    assert_eq!(stray(&bytes), Some(at));
                    bytes[at] = kept;
                }
            }
        }
    }

    #[test]
    fn any_bytes_become_what_literals_make_of_them() {
        let mut bytes: Vec<u8> = (0..=255).collect();
        canonical(&mut bytes);
        let due: Vec<u8> =
            (0..=255).map(|b| Literal::from_bits(DType::Bool, b).bits() as u8).collect();
        assert_eq!(bytes, due);
        assert_eq!(stray(&bytes), None);
    }
}
