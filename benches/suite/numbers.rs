//! Data of benches: numbers that are the same in every run.

/// Numbers from -1 to 1, the same in every run.
pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Classes from 0 to below `number`, the same in every run.
pub fn classes(count: usize, number: i32, seed: u64) -> Vec<i32> {
    let class = |v: f32| (((v + 1.0) / 2.0 * number as f32) as i32).min(number - 1);
    numbers(count, seed).into_iter().map(class).collect()
}
