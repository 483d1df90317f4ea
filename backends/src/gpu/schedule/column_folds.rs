//! Folds of columns: what a kernel of rows folds over its points, element by element of the rows.
//!
//! The gradient of a scale or a bias is such a fold. A team that walks a chain of rows keeps a partial result
//! for each of its elements in registers, so that the rows are read once: a chain of 64 rows is a block
//! of the strict order, and what the chains leave goes into the tree.

use super::cooperative_row::{BLOCK, Team};
use super::fold::{LEAST_CHAIN, LEAST_THREADS, WIDE};
use super::inline::{Inliner, defs};
use super::scalar_form::instructions;
use super::shape::{free, output_type};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::Fp;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Kernel, Order, Sink, Stage, volume};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// Multiprocessors that chains may leave without a block, and threads of each other one, at least.
const ENOUGH: [i64; 2] = [36, 128];
/// The same, from which on chains are not made shorter.
const FULL: [i64; 2] = [12, 256];
/// Registers of a thread for partial results of columns, and for all else.
const ROOM: i64 = 128;
const OTHERS: i64 = 56;
/// Threads of a block for which registers are counted, at least: two blocks of fewer share them.
const COUNTED_THREADS: i64 = 256;
/// Rows of a chain at least, where the order is free.
const SHORTEST: i64 = 8;
/// Instructions of a stage, written once for each element that a thread has.
const TEXT: i64 = 16_000;

/// Rows below which a warp that walks them has few bytes under way: other loops have threads that go down neighbouring columns.
const SHORT_ROW: i64 = 256;

/// How the columns of a kernel are folded: the points are chains of rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ColumnFold {
    /// The axes of the domain along which columns fold, the slowest first.
    pub(crate) axes: Vec<usize>,
    /// Rows that fold into one.
    pub(crate) count: i64,
    /// The other axes of the domain.
    pub(crate) kept: Vec<usize>,
    /// Rows of a chain.
    pub(crate) chain: i64,
}

impl ColumnFold {
    /// How the columns fold that can be folded as the rows are walked; `None` where none can be.
    pub(crate) fn of(kernel: &Kernel, fp: Fp, target: &GpuTarget) -> Option<ColumnFold> {
        let mut all = folds(kernel);
        let axes = all.find_map(|(stage, k)| along(kernel, stage, k, fp))?;
        let count = volume(axes.iter().map(|&a| kernel.domain[a]));
        let kept: Vec<usize> = (0..kernel.domain.len()).filter(|a| !axes.contains(a)).collect();
        let found = ColumnFold { axes, count, kept, chain: Order::Chain.block() as i64 };
        let team = Team::of_columns(kernel, fp);
        let mut words = 0;
        for (stage, k) in folds(kernel) {
            if found.takes(kernel, stage, k, fp) {
                let size = (output_type(stage, k).bytes() as i64 + 3) / 4;
                words += team.cells(volume(&stage.axes)) * size;
            }
        }
        let long = |s: &Stage| {
            team.cells(volume(&s.axes)).saturating_mul(instructions(&s.program, fp)) > TEXT
        };
        let block = target.allocated_threads(team.block()).max(COUNTED_THREADS);
        let registers = i64::from(target.registers) / block;
        if team.threads < WARP
            || words > ROOM
            || words + OTHERS > registers.min(target.thread_registers.into())
            || !(2..1 << 30).contains(&count)
            || kernel.stages.iter().any(long)
        {
            return None;
        }
        // Where the order is free chains may be shorter, and there are more of them.
        let least = if fp == Fp::Strict { found.chain } else { SHORTEST };
        let chip = i64::from(target.multiprocessors);
        let fills = |[idle, threads]: [i64; 2]| (chip - idle) * threads;
        let threads = |chain: i64| {
            let others = volume(found.kept.iter().map(|&a| kernel.domain[a]));
            ((count + chain - 1) / chain).saturating_mul(others).saturating_mul(team.threads)
        };
        let mut chain = found.chain;
        while chain > least && threads(chain) < fills(FULL) {
            chain /= 2;
        }
        (threads(chain) >= fills(ENOUGH)).then_some(ColumnFold { chain, ..found })
    }

    /// Chains that the rows of a column have.
    pub(crate) fn chains(&self) -> i64 {
        (self.count + self.chain - 1) / self.chain
    }

    /// Whether an output of a stage is folded so.
    pub(crate) fn takes(&self, kernel: &Kernel, stage: &Stage, k: usize, fp: Fp) -> bool {
        along(kernel, stage, k, fp).is_some_and(|axes| axes == self.axes)
    }
}

fn folds(kernel: &Kernel) -> impl Iterator<Item = (&Stage, usize)> {
    let of = |s: &Stage| (0..s.sinks.len()).collect::<Vec<_>>();
    kernel.stages.iter().flat_map(move |s| of(s).into_iter().map(move |k| (s, k)))
}

/// The axes of the domain that an output folds over, where it folds over no others, and in an order that chains of
/// rows have.
fn along(kernel: &Kernel, stage: &Stage, k: usize, fp: Fp) -> Option<Vec<usize>> {
    let Sink::Fold { monoid, runs, .. } = &stage.sinks[k] else { return None };
    let [run] = runs.as_slice() else { return None };
    let any = free(*monoid, output_type(stage, k)) || fp != Fp::Strict;
    let axes: Vec<usize> = run.axes.iter().map(|&a| usize::from(a)).collect();
    let rows = axes.iter().all(|&a| a < kernel.domain.len());
    let ordered = run.order == Order::Chain || any;
    (rows && ordered && !monoid.is_arg() && !stage.axes.is_empty()).then_some(axes)
}

/// A kernel without axes that folds columns, as one of rows along its last axis; `None` where it folds none
/// that way.
pub(crate) fn panel(kernel: &Kernel, fp: Fp, target: &GpuTarget) -> Option<Kernel> {
    let rank = kernel.domain.len();
    let last = kernel.domain.iter().rposition(|&n| n != 1)?;
    let n = kernel.domain[last];
    if n < SHORT_ROW && has_threads(kernel, fp) {
        return None;
    }
    let defs = defs(kernel);
    let (rows, tiles) = (SecondaryMap::new(), SecondaryMap::new());
    let inliner = Inliner { kernel, defs: &defs, rows: &rows, tiles: &tiles };
    let wanted = |s: &Sink| matches!(s, Sink::Store { .. } | Sink::Fold { .. });
    let mut outputs = Vec::new();
    for (s, stage) in kernel.stages.iter().enumerate() {
        outputs.extend((0..stage.sinks.len()).filter(|&k| wanted(&stage.sinks[k])).map(|k| (s, k)));
    }
    let mut stage = inliner.stage(&outputs)?;
    stage.sinks = outputs.iter().map(|&(s, k)| kernel.stages[s].sinks[k].clone()).collect();
    // Pieces of rows that are blocks of the lane order, so that more warps have some.
    let split = n > BLOCK && n % BLOCK == 0;
    let mut domain: Extents = kernel.domain[..last].iter().copied().collect();
    let mut at: Vec<IndexExpr> = (0..last).map(IndexExpr::axis).collect();
    match split {
        true => {
            domain.push(n / BLOCK);
            at.push(IndexExpr::axis(last).times(BLOCK).sum(IndexExpr::axis(last + 1)));
            stage.axes = Extents::from_iter([BLOCK]);
        }
        false => {
            at.push(IndexExpr::axis(last));
            stage.axes = Extents::from_iter([n]);
        }
    }
    at.resize(rank, IndexExpr::Const(0));
    stage = stage.at(&at);
    for sink in &mut stage.sinks {
        let Sink::Fold { runs, then, .. } = sink else { continue };
        **then = then.at(&at);
        for run in runs {
            let both = |a: &u8| match usize::from(*a) == last && split {
                true => SmallVec::<[u8; 2]>::from_iter([*a, *a + 1]),
                false => SmallVec::from_iter([*a]),
            };
            run.axes = run.axes.iter().flat_map(both).collect();
        }
    }
    let made =
        Kernel { name: kernel.name.clone(), domain, stages: vec![stage], ..Kernel::default() };
    ColumnFold::of(&made, fp, target).is_some().then_some(made)
}

/// Whether a thread for each four neighbouring results of each chain is enough for a chip, with chains as short as they may be.
fn has_threads(kernel: &Kernel, fp: Fp) -> bool {
    let chain = if fp == Fp::Strict { Order::Chain.block() as i64 } else { LEAST_CHAIN };
    let of = |sink: &Sink| match sink {
        Sink::Fold { runs, .. } => {
            let run = runs.first()?;
            let folded = |a: usize| run.axes.iter().any(|&b| usize::from(b) == a);
            let product = |of: bool| {
                let axes = (0..kernel.domain.len()).filter(|&a| folded(a) == of);
                volume(axes.map(|a| kernel.domain[a]))
            };
            let chains = product(true) / chain;
            Some((product(false) / WIDE).saturating_mul(chains) >= LEAST_THREADS)
        }
        _ => None,
    };
    let mut folds = kernel.stages.iter().flat_map(|s| &s.sinks).filter_map(of).peekable();
    folds.peek().is_some() && folds.all(|enough| enough)
}
