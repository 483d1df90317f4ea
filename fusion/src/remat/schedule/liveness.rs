//! Liveness: the peak and the time of a sequence of operations, and the one definition of both.
//!
//! A step's value is live from that step to the last one that reads it before the operation runs again. Nothing is
//! freed during a step, so its operands and its result are live together. A value without readers is live during its
//! own step. All results of an operation are live while it runs. The last value of an output is live to the end. A view shares the memory of the step that it views, and
//! keeps it live.

use super::cost_graph::{CostGraph, OpId, OpRole};
use cranelift_entity::EntityRef;

/// Totals of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScheduleTotals {
    /// The most bytes resident during a step.
    pub(crate) peak: u64,
    /// The first step at which they are; 0 if there are no steps.
    pub(crate) at: usize,
    /// The time of all steps.
    pub(crate) time: u64,
}

/// Measures sequences of one graph; what it knows of the last one stays until the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct LivenessMeter {
    /// For each operation the place of its value: that of its last step so far, or of an input.
    latest: Vec<u32>,
    /// For each place the last step that needs what is in it; [`END`] to the end. Places are the
    /// steps, then the inputs.
    last: Vec<u32>,
    /// For each step the place whose memory its value is in.
    memory: Vec<u32>,
    /// For each step the bytes freed after it.
    freed: Vec<u64>,
}

const NONE: u32 = u32::MAX;
/// After all steps.
pub(crate) const END: u32 = u32::MAX - 1;

impl LivenessMeter {
    /// Measures a sequence whose first runs are in the order of the graph; nothing if the sums exceed 64
    /// bits.
    pub(crate) fn measure(&mut self, g: &CostGraph, steps: &[OpId]) -> Option<ScheduleTotals> {
        let n = steps.len();
        self.latest.clear();
        self.latest.resize(g.ops().len(), NONE);
        self.last.clear();
        self.last.resize(n, NONE);
        self.memory.clear();
        self.memory.extend(0..n as u32);
        for &id in g.sources() {
            self.latest[id.index()] = self.last.len() as u32;
            self.last.push(if g.ops()[id].role == OpRole::Source { END } else { 0 });
        }
        let mut time = 0u64;
        for (step, &op) in steps.iter().enumerate() {
            let operation = &g.ops()[op];
            time = time.checked_add(operation.time)?;
            for &input in &operation.inputs {
                let place = self.latest[input.index()];
                let last = &mut self.last[place as usize];
                *last = if *last == END { END } else { step as u32 };
            }
            if let Some(of) = operation.alias {
                let of = self.latest[of.index()] as usize;
                self.memory[step] = self.memory.get(of).copied().unwrap_or(of as u32);
            }
            self.latest[op.index()] = step as u32;
            self.last[step] = step as u32;
        }
        for id in g.outputs() {
            self.last[self.latest[id.index()] as usize] = END;
        }
        if g.has_views() {
            for step in (0..n).rev() {
                let (of, last) = (self.memory[step] as usize, self.last[step]);
                self.last[of] = self.last[of].max(last);
            }
        }
        let (peak, at) = self.sum(g, steps)?;
        Some(ScheduleTotals { peak, at, time })
    }

    /// Adds up what is resident at each step.
    fn sum(&mut self, g: &CostGraph, steps: &[OpId]) -> Option<(u64, usize)> {
        self.freed.clear();
        self.freed.resize(steps.len(), 0);
        let mut now = 0u64;
        let sources = g.sources().iter().map(|&id| &g.ops()[id]);
        for (op, &last) in sources.zip(&self.last[steps.len()..]) {
            now = now.checked_add(op.bytes)?;
            if let Some(freed) = self.freed.get_mut(last as usize) {
                *freed = freed.checked_add(op.bytes)?;
            }
        }
        let (mut peak, mut at) = (now, 0);
        for (step, &op) in steps.iter().enumerate() {
            let bytes = g.ops()[op].bytes;
            now = now.checked_add(bytes)?;
            if let Some(freed) = self.freed.get_mut(self.last[step] as usize) {
                *freed = freed.checked_add(bytes)?;
            }
            // Results that nobody keeps are there during the step, too.
            let during = now.checked_add(g.further_bytes(op))?;
            if during > peak {
                (peak, at) = (during, step);
            }
            // What is freed was added before.
            now -= self.freed[step];
        }
        Some((peak, at))
    }

    /// The bytes resident at each step of the sequence that was measured last, which is `steps`.
    pub(crate) fn resident(&self, g: &CostGraph, steps: &[OpId]) -> Vec<u64> {
        let (mut now, mut resident) = (0u64, Vec::with_capacity(steps.len()));
        for &id in g.sources() {
            now += g.ops()[id].bytes;
        }
        for (&op, freed) in steps.iter().zip(&self.freed) {
            // The measured sums are within 64 bits.
            now += g.ops()[op].bytes;
            resident.push(now + g.further_bytes(op));
            now -= freed;
        }
        resident
    }

    /// The last step that needs the memory in which a step's value is; [`END`] to the end.
    pub(crate) fn last(&self, step: usize) -> u32 {
        self.last[self.memory[step] as usize]
    }

    /// Whether a step's value is in memory of its own, which lives beyond it.
    pub(crate) fn is_own(&self, step: usize) -> bool {
        self.memory[step] as usize == step
    }

    /// The step, or input beyond all steps, in whose memory a step's value is.
    pub(crate) fn memory(&self, step: usize) -> usize {
        self.memory[step] as usize
    }
}
