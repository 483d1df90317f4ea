//! What programs and their steps cost, as data.

use super::operations::Ops;

/// What a program costs.
#[derive(Clone, PartialEq, Debug)]
pub struct Cost {
    /// What each step costs, in order.
    pub steps: Vec<StepCost>,
    /// Bytes that all steps read and write.
    pub bytes_moved: u64,
    /// Bytes that have to move whatever the steps: of each input, what the step that reads the most
    /// of it reads, once; and every output that a step writes, once.
    pub least_bytes: u64,
    /// Kernels begun.
    pub launches: u32,
    /// Seconds, the steps one after the other.
    pub seconds: f64,
}

impl Cost {
    /// Operations on floats of all steps; a multiply-add is two.
    pub fn flops(&self) -> u64 {
        self.steps.iter().map(|s| s.ops.flops()).fold(0, u64::saturating_add)
    }
}

/// What a step costs.
#[derive(Clone, PartialEq, Debug)]
pub struct StepCost {
    /// Bytes read from buffers.
    pub reads: u64,
    /// Bytes written to buffers.
    pub writes: u64,
    /// Operations.
    pub ops: Ops,
    /// Kernels begun.
    pub launches: u32,
    /// Registers of one lane, in 32-bit words: the most that the values and accumulators of one of
    /// its programs take at once.
    pub registers: u32,
    /// The part of the threads that a core can hold for which there are registers, times the part of
    /// the live values that are not spilled; 1 where registers do not matter.
    pub occupancy: f64,
    /// Operations done more often than there are different values to compute: the same values of
    /// coordinates and loads again at other coordinates. 0 where that is not known.
    pub recomputed: u64,
    /// Whether all that it touches stays in the last cache.
    pub resident: bool,
    /// Seconds.
    pub seconds: f64,
    /// Seconds if all its loops had whole vectors of neighbours, nothing were moved or computed twice, and no array were
    /// gone through beside them: what is to be had by other loops, such as those of the step divided, is the difference.
    pub ideal_seconds: f64,
    /// What takes most of them.
    pub bound: Bottleneck,
}

/// What the time of a step goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bottleneck {
    /// Moving bytes.
    Memory,
    /// Operations.
    Compute,
    /// Beginning kernels.
    Launch,
}
