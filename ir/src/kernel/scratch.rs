//! Scratch memory of steps.

use super::buffer::Extents;
use super::program::{Program, Step};
use super::stage::{Order, Run, Sink, Stage};

/// The most partial results that a fold over the domain keeps for one element. Aligned groups of
/// blocks are subtrees of the tree that joins them, so more blocks than this join in groups.
const MOST_PARTS: u64 = 64;

impl Order {
    /// Elements that fold into one partial result before the tree joins them.
    pub fn block(self) -> u64 {
        match self {
            Order::Lane => 1024,
            Order::Chain => 64,
        }
    }
}

impl Program {
    /// Bytes beside the buffers that a step needs while it runs.
    ///
    /// A [`Sink::Fold`] over axes of the domain keeps partial results: for each element of its result,
    /// and each place along the runs that fold after the last one with an axis of the domain, as many
    /// as that run has blocks, at most 64; none where there is one block only. `argmax` and `argmin`
    /// keep the value beside the place. A library's function says what it needs. A loop keeps its carries twice, and its
    /// checkpoints ([`Loop::slots`](super::Loop::slots)); what its blocks need beside their buffers, and where those
    /// are, depends on how they are planned and is not counted here. Other steps need nothing.
    pub fn scratch(&self, step: &Step) -> u64 {
        match step {
            Step::Kernel(kernel) => {
                let of = |s: &Stage| folds(s, &kernel.domain);
                kernel.stages.iter().map(of).fold(0, u64::saturating_add)
            }
            Step::Contract(contract) => {
                let of = |m: &super::Member| folds(&m.then, &m.result());
                contract.members.iter().map(of).fold(0, u64::saturating_add)
            }
            Step::Library(library) => library.scratch,
            Step::Loop(step) => step.slots(&self.buffers),
            Step::Attend(_)
            | Step::Scatter(_)
            | Step::Argsort(_)
            | Step::Transfer(_)
            | Step::Exchange(_)
            | Step::Print(_)
            | Step::Branch(_)
            | Step::Bundle(_) => 0,
        }
    }
}

/// Bytes of the partial results of a stage's folds.
fn folds(stage: &Stage, domain: &[i64]) -> u64 {
    let extents: Extents = domain.iter().chain(&stage.axes).copied().collect();
    let of = |(k, sink): (usize, &Sink)| match sink {
        Sink::Fold { monoid, runs, .. } => {
            let value = stage.program.outputs.get(k).and_then(|&v| stage.program.insts.get(v));
            let dtype = value.map_or(crate::DType::F64, |v| v.dtype);
            let place = if monoid.is_arg() { crate::DType::I32.bytes() } else { 0 };
            parts(&extents, domain.len(), runs).saturating_mul(dtype.bytes() + place)
        }
        _ => 0,
    };
    stage.sinks.iter().enumerate().map(of).fold(0, u64::saturating_add)
}

/// The partial results of a fold, in numbers.
fn parts(extents: &[i64], domain: usize, runs: &[Run]) -> u64 {
    let extent = |a: usize| extents.get(a).map_or(0, |&n| n.unsigned_abs());
    let size = |run: &Run| run.axes.iter().map(|&a| extent(a.into())).fold(1, u64::saturating_mul);
    let split = |run: &Run| run.axes.iter().any(|&a| usize::from(a) < domain);
    let Some(outermost) = runs.iter().rposition(split) else { return 0 };
    let blocks = size(&runs[outermost]).div_ceil(runs[outermost].order.block()).min(MOST_PARTS);
    if blocks < 2 {
        return 0;
    }
    let folded = |a: usize| runs.iter().any(|r| r.axes.iter().any(|&b| usize::from(b) == a));
    let kept = (0..extents.len()).filter(|&a| !folded(a)).map(extent);
    let later = runs[outermost + 1..].iter().map(size);
    kept.chain(later).fold(blocks, u64::saturating_mul)
}
