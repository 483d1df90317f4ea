//! Policies: which move is tried next.

use super::moves::Move;
use super::space::PlanSpace;
use super::state::PlanState;

/// Chooses among moves. A search stands on nothing else, so a learned policy can lead one: a state has
/// its numbers by [`PlanSpace::features`].
pub trait Policy {
    /// The position of the move that is tried next. There is at least one. They are those that have not
    /// been tried yet, those of a kind together; some may turn out not to be legal.
    fn choose(&mut self, space: &PlanSpace<'_>, state: &PlanState, moves: &[Move]) -> usize;
}

/// All kinds of moves alike, and all moves of a kind.
#[derive(Clone, Debug)]
pub struct Uniform(SplitMix64);

impl Uniform {
    /// The choices of a seed.
    pub fn new(seed: u64) -> Uniform {
        Uniform(SplitMix64::new(seed))
    }
}

impl Policy for Uniform {
    fn choose(&mut self, _: &PlanSpace<'_>, _: &PlanState, moves: &[Move]) -> usize {
        // Moves of a kind lie together.
        let first = |k: usize| k == 0 || moves[k - 1].kind() != moves[k].kind();
        let starts: Vec<usize> = (0..moves.len()).filter(|&k| first(k)).collect();
        let kind = self.0.below(starts.len());
        let (from, end) = (starts[kind], starts.get(kind + 1).map_or(moves.len(), |&e| e));
        from + self.0.below(end - from)
    }
}

/// Numbers that look random and follow from a seed: SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below another, which is not 0.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// From 0 to 1, without 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
