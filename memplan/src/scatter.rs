//! Numbers that look random and are the same on every machine and in every run.

/// The `index`th number of the sequence `seed`, by the finalizer of SplitMix64 (Steele, Lea and Flood
/// 2014).
pub(crate) fn scatter(seed: u64, index: u64) -> u64 {
    finalize(finalize(seed).wrapping_add(index))
}

/// The `index`th of a sequence of wide numbers.
pub(crate) fn scatter_wide(index: u64) -> u128 {
    u128::from(scatter(1, index)) << 64 | u128::from(scatter(2, index))
}

fn finalize(word: u64) -> u64 {
    let z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
