//! Sizes of buffers, and the first step that reads one.

use super::step_uses::StepUses;
use adfuse_ir::kernel::{BufferData, Space};

/// What is planned for at most: with so little, nothing that engines add up overflows.
pub(crate) const MOST_BYTES: u64 = 1 << 62;

/// A number of bytes in words.
pub(crate) fn in_bytes(bytes: u64) -> String {
    format!("{bytes} {}", if bytes == 1 { "byte" } else { "bytes" })
}

/// Bytes of the engine's memory that a buffer takes; `None` where they are too many to count.
pub(crate) fn bytes(data: &BufferData) -> Option<u64> {
    if data.space == Space::Host {
        return Some(0);
    }
    // As `BufferData::bytes` counts, which does not look for overflow.
    let count = |n: &i64| n.unsigned_abs();
    let elements = match &data.strides {
        None => data.dims.iter().try_fold(1, |all: u64, n| all.checked_mul(count(n).max(1))),
        Some(strides) => data.dims.iter().zip(strides).try_fold(1, |all: u64, (n, s)| {
            all.checked_add(count(n).saturating_sub(1).checked_mul(count(s))?)
        }),
    };
    // No element takes more than eight bytes.
    elements?.checked_mul(8).filter(|&most| most <= MOST_BYTES)?;
    Some(data.bytes())
}

/// The numbers of the steps that have read all when they begin to write.
pub(crate) fn first_reading(
    uses: &dyn StepUses,
    reads_again: &[bool],
) -> impl Iterator<Item = usize> {
    let again = |n: &usize| reads_again.get(*n) == Some(&true);
    (0..uses.steps()).filter(move |n| !again(n))
}
