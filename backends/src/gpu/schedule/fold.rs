//! Flat loops that fold over points: a launch for each order and set of folded axes, and the tree of its parts.

use super::fold_order::{FoldResult, FoldShape};
use super::grid::Grid;
use super::scalar_form::written;
use super::shape::{free, load, loaded, only, output_type};
use super::text::{DecisionLine, Reader, Writer, wrong};
use super::tree_fold::{Tree, TreeFold, joined};
use super::vectorize::vectors_along;
use super::work::{Flat, Lowering};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Extents, Order, Program, Run, Sink, Stage, Storage, volume};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{SInst, SOp};
use adfuse_ir::{DType, Diagnostic, Fp};
use smallvec::SmallVec;
use std::slice;

/// Instructions of a loop's body after unrolling, at most.
const UNROLLED: i64 = 400;
/// Neighbouring results of a thread that folds chains.
pub(crate) const WIDE: i64 = 4;
/// Threads that are left where each has neighbouring results, at least.
pub(crate) const LEAST_THREADS: i64 = 1 << 15;
/// Instructions of a body that several neighbouring results have, at most.
const WIDE_INSTRUCTIONS: usize = 150;
/// Warps up to which a fold in the order of lanes leaves a chip without work enough, and the elements of a warp at least.
const FEW_WARPS: i64 = 1 << 12;
const LEAST_BLOCK: i64 = 256;
/// Chains up to which a chip is left without loads enough under way, and the elements of a chain at least.
const FEW_CHAINS: i64 = 1 << 19;
pub(crate) const LEAST_CHAIN: i64 = 8;
/// Loads of an element up to which two blocks share the registers of a multiprocessor: all of them may be under way together.
const MOST_LOADS: usize = 40;
/// Elements up to which a fold in any order is a thread's, though they are neighbours.
const SHORT: i64 = 8;

/// How a fold over points is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoldDecision {
    /// Warps fold in the lane order, threads fold chains.
    pub(crate) order: Order,
    pub(crate) grid: Grid,
    /// Elements whose loads are under way together.
    pub(crate) unroll: i64,
    /// Neighbouring results of a thread that folds chains, neighbouring elements of a lane; 1 in the lane order of strict mode.
    pub(crate) width: i64,
    pub(crate) tree: Tree,
}

/// A flat loop with one set of folds.
pub(crate) struct FoldLoop {
    pub(crate) domain: Extents,
    pub(crate) stage: Stage,
    pub(crate) shape: FoldShape,
}

/// As it is run.
pub(crate) struct ScheduledFold {
    pub(crate) domain: Extents,
    pub(crate) stage: Stage,
    pub(crate) shape: FoldShape,
    pub(crate) decision: FoldDecision,
    pub(crate) folds: Vec<FoldResult>,
    pub(crate) trees: Vec<TreeFold>,
}

/// The folds of a loop by their shapes, each with the numbers of their sinks.
fn shapes(flat: &Flat, fp: Fp) -> Vec<(FoldShape, Vec<usize>)> {
    let mut found: Vec<(FoldShape, Vec<usize>)> = Vec::new();
    for (k, sink) in flat.stage.sinks.iter().enumerate() {
        let Sink::Fold { monoid, runs, .. } = sink else { continue };
        let dtype = output_type(&flat.stage, k);
        let shape = shape(&flat.domain, runs.first(), (*monoid, dtype), fp);
        match found.iter_mut().find(|(s, _)| *s == shape) {
            Some((_, list)) => list.push(k),
            None => found.push((shape, vec![k])),
        }
    }
    found
}

fn shape(domain: &[i64], run: Option<&Run>, (monoid, d): (Monoid, DType), fp: Fp) -> FoldShape {
    let axes: Vec<usize> =
        run.map_or(Vec::new(), |r| r.axes.iter().map(|&a| usize::from(a)).collect());
    let kept: Vec<usize> = (0..domain.len()).filter(|a| !axes.contains(a)).collect();
    let count = volume(axes.iter().map(|&a| domain[a]));
    let kept_extents: Extents = kept.iter().map(|&a| domain[a]).collect();
    let mut order = run.map_or(Order::Chain, |r| r.order);
    if free(monoid, d) {
        // In any order: by warps along the fastest axis, by threads along others.
        let fastest = domain.iter().rposition(|&n| n != 1);
        let along = fastest.is_some_and(|a| axes.contains(&a));
        order = if along && count > SHORT { Order::Lane } else { Order::Chain };
    }
    let mut block = order.block() as i64;
    // Where warps or chains are few each folds less, and the parts are joined as they are anyway.
    let any = fp != Fp::Strict;
    if any && count > block {
        let (least, few) = match order {
            Order::Lane => (LEAST_BLOCK, FEW_WARPS),
            Order::Chain => (LEAST_CHAIN, FEW_CHAINS),
        };
        let parts = |block: i64| volume(&kept_extents).saturating_mul((count + block - 1) / block);
        while block > least && parts(block) < few {
            block /= 2;
        }
    }
    FoldShape { axes, order, any, block, count, kept, kept_extents }
}

/// Splits a flat loop: one loop that stores, unless a fold visits every point and can store too, and one loop for each set of folds.
pub(crate) fn divided(program: &Program, flat: &Flat, fp: Fp) -> (Option<Flat>, Vec<FoldLoop>) {
    let shapes = shapes(flat, fp);
    let stores: Vec<usize> = (0..flat.stage.sinks.len())
        .filter(|&k| matches!(flat.stage.sinks[k], Sink::Store { .. }))
        .collect();
    // Stores are part of the first fold that visits every point. Without one they have a loop of their own.
    let host = shapes.iter().position(|(s, _)| s.count > 0 && volume(&flat.domain) > 0);
    let alone = (host.is_none() && !stores.is_empty() && volume(&flat.domain) > 0).then(|| {
        let stage = only(&flat.stage, &stores);
        Flat { domain: flat.domain.clone(), stage }
    });
    let mut loops = Vec::new();
    for (n, (shape, folds)) in shapes.into_iter().enumerate() {
        let mut sinks = folds.clone();
        if host == Some(n) {
            sinks.extend(&stores);
        }
        let mut stage = only(&flat.stage, &sinks);
        if host.is_some_and(|host| host < n) {
            stage = reread(program, &flat.stage, &folds).unwrap_or(stage);
        }
        if shape.results() > 0 {
            loops.push(FoldLoop { domain: flat.domain.clone(), stage, shape });
        }
    }
    (alone, loops)
}

/// Folds of values that an earlier launch has stored, of what is in memory; `None` where one is not.
fn reread(program: &Program, stage: &Stage, folds: &[usize]) -> Option<Stage> {
    let mut found = Stage::default();
    for (number, &k) in (0u32..).zip(folds) {
        let value = stage.program.outputs[k];
        let dtype = stage.program.insts[value].dtype;
        let stored =
            stage.sinks.iter().zip(&stage.program.outputs).find_map(|(sink, v)| match sink {
                Sink::Store { buffer, index } if *v == value => Some((*buffer, index.clone())),
                _ => None,
            });
        let (b, index) = stored?;
        // Packed elements have lost bits.
        let data = &program.buffers[b];
        if data.storage != Storage::Plain || data.dtype != dtype {
            return None;
        }
        found.params.push(load(b, index));
        found.program.params.push(dtype);
        let op = SOp::Param(number);
        let value = found.program.insts.push(SInst { op, args: SmallVec::new(), dtype });
        found.program.outputs.push(value);
        found.sinks.push(stage.sinks[k].clone());
    }
    Some(found)
}

impl FoldLoop {
    /// Threads that fold one block of the lane order, groups of `width` neighbours each: a warp, or a part of one where fewer fold.
    pub(crate) fn team(shape: &FoldShape, width: i64) -> i64 {
        let groups = (shape.count + width - 1) / width;
        (groups.min(WARP) as u64).next_power_of_two() as i64
    }

    /// Elements that each thread folds one after the other in a chain, or groups of neighbours in the order of lanes.
    pub(crate) fn turns(shape: &FoldShape, width: i64) -> i64 {
        let elements = shape.count.min(shape.block);
        match shape.order {
            Order::Lane => {
                let each = FoldLoop::team(shape, width) * width;
                (elements + each - 1) / each
            }
            Order::Chain => elements,
        }
    }

    /// How many neighbouring results a thread has: four where they are in a row in memory, and threads enough are
    /// left.
    fn width(&self, program: &Program, instructions: usize) -> i64 {
        let FoldLoop { domain, stage, shape } = self;
        // Neighbouring threads have neighbours along this axis.
        let last = shape.kept.iter().rev().find(|&&a| domain[a] != 1);
        let Some(&last) = last.filter(|&&a| domain[a] % WIDE == 0) else { return 1 };
        let threads = shape.results() / WIDE * shape.blocks();
        let alone = stage.sinks.iter().filter(|s| matches!(s, Sink::Fold { .. })).count() <= 2;
        if !alone || threads < LEAST_THREADS || instructions > WIDE_INSTRUCTIONS {
            return 1;
        }
        match vectors_along(program, stage, (domain, last), WIDE) {
            0 => 1,
            _ => WIDE,
        }
    }

    /// Whether places of elements are folded.
    fn finds_places(&self) -> bool {
        self.stage.sinks.iter().any(|sink| match sink {
            Sink::Fold { monoid, .. } => monoid.is_arg(),
            _ => false,
        })
    }

    /// How many neighbours a lane folds: four where the order is free and they are in a row in memory.
    fn lane_width(&self, program: &Program, instructions: usize) -> i64 {
        let FoldLoop { domain, stage, shape } = self;
        let places = self.finds_places();
        let fits = |&axis: &usize| domain[axis] % WIDE == 0;
        let Some(axis) = shape.fastest(domain).filter(fits) else { return 1 };
        if !shape.any || places || shape.count <= SHORT || instructions > WIDE_INSTRUCTIONS {
            return 1;
        }
        match vectors_along(program, stage, (domain, axis), WIDE) {
            0 => 1,
            _ => WIDE,
        }
    }

    /// Elements of a loop's body: as many as its text allows, and as divide the turns.
    fn unroll(&self, instructions: usize, (most, width): (i64, i64)) -> i64 {
        let turns = FoldLoop::turns(&self.shape, width);
        let heavy = (UNROLLED / (instructions as i64 + 1)).clamp(1, most);
        (1..=heavy).rev().find(|u| turns % u == 0).unwrap_or(1)
    }

    pub(crate) fn decide(&self, program: &Program, fp: Fp) -> FoldDecision {
        let instructions = written(&self.stage.program, fp).insts.len();
        let order = self.shape.order;
        let (unroll, width) = match order {
            _ if self.shape.count == 0 => (1, 1),
            Order::Lane => {
                let width = self.lane_width(program, instructions);
                let most = if width > 1 { 2 } else { 8 };
                (self.unroll(instructions * width as usize, (most, width)), width)
            }
            Order::Chain => {
                let width = self.width(program, instructions);
                let most = if width > 1 { 4 } else { 8 };
                (self.unroll(instructions * width as usize, (most, 1)), width)
            }
        };
        let mut grid = Grid::default();
        if unroll * width == 1 && self.loads() > MOST_LOADS {
            grid.resident = 1;
        }
        FoldDecision { order, grid, unroll, width, tree: Tree::default() }
    }

    /// Loads of an element.
    fn loads(&self) -> usize {
        let read = self.stage.params.iter().enumerate();
        let read = read.filter(|(k, _)| self.stage.program.reads_param(*k));
        read.map(|(_, param)| loaded(slice::from_ref(param)).len()).sum()
    }

    /// Errs where the loop cannot be run so.
    pub(crate) fn check(&self, d: &FoldDecision, target: &GpuTarget) -> Result<(), String> {
        d.grid.check(target)?;
        d.tree.check(target)?;
        let shape = &self.shape;
        if d.order != shape.order {
            return Err("this fold has the other order".to_owned());
        }
        let wide = if d.order == Order::Lane { d.width.max(1) } else { 1 };
        let turns = FoldLoop::turns(shape, wide).max(1);
        if d.unroll < 1 || turns % d.unroll != 0 {
            return Err(format!("{turns} elements are not unrolled by {}", d.unroll));
        }
        let places = self.finds_places();
        let last = match d.order {
            Order::Chain => shape.kept_extents.iter().rfind(|&&n| n != 1).copied().unwrap_or(1),
            Order::Lane if places || !shape.any => 1,
            Order::Lane => shape.fastest(&self.domain).map_or(1, |axis| self.domain[axis]),
        };
        match d.width {
            1 => Ok(()),
            2 | 4 | 8 if shape.count > 0 && last % d.width == 0 => Ok(()),
            w => Err(format!("threads do not have {w} neighbours of this fold")),
        }
    }

    /// The loop as it is run, with memory for parts.
    pub(crate) fn scheduled(self, low: &mut Lowering, decision: FoldDecision) -> ScheduledFold {
        let FoldLoop { domain, stage, shape } = self;
        let (results, blocks) = (shape.results(), shape.blocks());
        let mut folds = Vec::new();
        for (k, sink) in stage.sinks.iter().enumerate() {
            let Sink::Fold { monoid, then, .. } = sink else { continue };
            let dtype = output_type(&stage, k);
            let parts = (blocks > 1).then(|| {
                // By lanes, parts of one result are neighbours; of chains, parts of neighbouring results are.
                let dims = match shape.order {
                    Order::Lane => Extents::from_iter([results, blocks]),
                    Order::Chain => Extents::from_iter([blocks, results]),
                };
                let value = low.temp(dtype, dims.clone());
                (value, monoid.is_arg().then(|| low.temp(DType::I32, dims)))
            });
            folds.push(FoldResult { monoid: *monoid, dtype, then: then.as_ref().clone(), parts });
        }
        let mut trees = Vec::new();
        for fold in &folds {
            if let Some(parts) = fold.parts {
                trees.push(joined(low, &domain, (&shape, fold), (parts, blocks), decision.tree));
            }
        }
        ScheduledFold { domain, stage, shape, decision, folds, trees }
    }
}

impl DecisionLine for FoldDecision {
    fn write(&self, to: &mut Writer) {
        let order = match self.order {
            Order::Lane => "lane",
            Order::Chain => "chain",
        };
        to.line("order", &[("by", &order)]);
        self.grid.write(to);
        to.line("loop", &[("unroll", &self.unroll), ("width", &self.width)]);
        self.tree.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<FoldDecision, Diagnostic> {
        let line = from.line("order", &["by"])?;
        let order = match line.word("by")? {
            ("lane", _) => Order::Lane,
            ("chain", _) => Order::Chain,
            (other, span) => return Err(wrong(span, format!("there is no order `{other}`"))),
        };
        let grid = Grid::read(from)?;
        let line = from.line("loop", &["unroll", "width"])?;
        let (unroll, width) = (line.int("unroll")?, line.int("width")?);
        Ok(FoldDecision { order, grid, unroll, width, tree: Tree::read(from)? })
    }
}
