//! A kernel of rows as it is run: its layout, the columns that it folds, and the tree of what chains leave.

use super::column_folds::ColumnFold;
use super::cooperative_row::{BLOCK, Team};
use super::fold_order::{FoldResult, FoldShape};
use super::grid::resident_fits;
use super::inline::data_sources;
use super::place_match::PlaceMatch;
use super::row_decision::{RowDecision, RowWalk};
use super::row_residency::{RowFrame, RowLayout, parts_bytes, read_tiles, unchanging, walked};
use super::row_unroll::most_turns;
use super::row_vectors::takes_short_groups;
use super::shape::output_type;
use super::tree_fold::{TreeFold, joined};
use super::work::Lowering;
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Extents, Kernel, Order, Program, Sink, volume};
use adfuse_ir::{Diagnostic, Fp};

/// What the chains of a column's fold leave.
pub(crate) struct Chains {
    pub(crate) stage: usize,
    pub(crate) sink: usize,
    pub(crate) fold: FoldResult,
    pub(crate) shape: FoldShape,
    pub(crate) domain: Extents,
}

/// A kernel of rows as it is run.
pub(crate) struct ScheduledRows {
    pub(crate) decision: RowDecision,
    pub(crate) layout: RowLayout,
    pub(crate) columns: Option<ColumnFold>,
    pub(crate) chains: Vec<Chains>,
    pub(crate) trees: Vec<TreeFold>,
}

/// A kernel and what its decision is held against.
pub(crate) struct RowKernel<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) columns: Option<ColumnFold>,
    pub(crate) target: GpuTarget,
    pub(crate) fp: Fp,
}

impl RowKernel<'_> {
    /// The kernel as a decision lays it out; in words why it cannot be.
    pub(crate) fn laid_out(
        &self,
        program: &Program,
        decision: &RowDecision,
    ) -> Result<Result<RowLayout, String>, Diagnostic> {
        let walked = walked(self.kernel, self.columns.as_ref());
        let RowDecision { team, copies, ref recomputed, .. } = *decision;
        let frame = RowFrame::new(program, self.kernel, (team, &walked), recomputed, copies)?;
        if copies > 0 && frame.arrays.is_empty() {
            return Ok(Err("there is nothing to prefetch".to_owned()));
        }
        let kept = |t| frame.lives.iter().any(|l| l.tile == t);
        if let Some(t) = decision.registers.iter().find(|&&t| !kept(t)) {
            return Ok(Err(format!("{t} is no tile that threads keep")));
        }
        let hoists = unchanging(&frame.kernel, team, decision.walk, &walked);
        if let Some((s, k)) = decision.hoisted.iter().find(|&load| !hoists.contains(load)) {
            return Ok(Err(format!("load {s}.{k} is not the same for all rows of a chain")));
        }
        Ok(Ok(RowLayout::new(frame, decision)))
    }

    /// Errs where teams do not share these rows so.
    pub(crate) fn check(&self, program: &Program, d: &RowDecision) -> Result<(), String> {
        let target = &self.target;
        let Team { threads, teams, piece, width } = d.team;
        let sizes: Vec<i64> = self
            .kernel
            .stages
            .iter()
            .filter(|s| !s.axes.is_empty())
            .map(|s| volume(&s.axes))
            .collect();
        let longest = sizes.iter().copied().max().unwrap_or(1);
        let several = threads > WARP;
        let fits = match several {
            true => teams == 1 && threads % WARP == 0,
            false => threads >= 1 && threads.count_ones() == 1 && teams >= 1,
        };
        let block = threads.saturating_mul(teams);
        if !fits || block > target.block_threads.into() {
            return Err(format!("a block does not have {teams} rows of {threads} threads"));
        }
        // In the lane order all lanes that an element needs are there, and a row has its blocks.
        let whole = piece == BLOCK && (several || longest <= BLOCK);
        // Warps that share one block of the order leave its elements for each other.
        let split = several && longest <= BLOCK && threads / WARP * piece >= longest;
        let ordered =
            self.fp != Fp::Strict || width == 1 && (whole || split) && threads >= longest.min(WARP);
        let vectors = [1, 2, 4].contains(&width)
            && (sizes.iter().all(|n| n % width == 0)
                || takes_short_groups(program, self.kernel, width));
        let aligned =
            vectors && piece >= WARP * width && piece % (WARP * width) == 0 && piece <= BLOCK;
        if !ordered || !aligned {
            return Err(format!(
                "blocks of {piece} elements, {width} a thread, have another order"
            ));
        }
        resident_fits(d.resident, block, target)?;
        self.check_walk(d)?;
        let known = read_tiles(self.kernel);
        let (_, data) = data_sources(self.kernel);
        for t in &d.recomputed {
            if !known.contains(t) || data.contains(t) || d.registers.contains(t) {
                return Err(format!("{t} is no tile that can be computed again"));
            }
        }
        let twice = |list: &[_]| (1..list.len()).any(|k| list[..k].contains(&list[k]));
        match twice(&d.registers) || twice(&d.recomputed) {
            true => Err("a tile is named twice".to_owned()),
            false => d.tree.check(target),
        }
    }

    /// Errs where teams do not walk these rows so.
    fn check_walk(&self, d: &RowDecision) -> Result<(), String> {
        let fits = match (d.walk, &self.columns) {
            (RowWalk::Chain(rows), Some(_)) => {
                let chain = Order::Chain.block() as i64;
                let free = self.fp != Fp::Strict && (1..=chain).contains(&rows);
                d.team.threads >= WARP && (rows == chain || free && rows.count_ones() == 1)
            }
            (RowWalk::Stride, None) => {
                d.team.teams == 1 && d.team.threads >= WARP && volume(&self.kernel.domain) < 1 << 30
            }
            (RowWalk::One, None) => d.copies == 0,
            _ => false,
        };
        match fits && (0..=2).contains(&d.copies) {
            true => Ok(()),
            false => Err("teams do not walk these rows so".to_owned()),
        }
    }

    /// Errs where registers or shared memory do not have what they are to have.
    pub(crate) fn check_layout(&self, layout: &RowLayout) -> Result<(), String> {
        let parts = parts_bytes(&layout.kernel, layout.team, self.fp);
        let bytes = layout.bytes.saturating_mul(layout.team.teams).saturating_add(parts);
        if bytes > self.target.shared.into() {
            return Err(format!("{bytes} bytes are more than shared memory has"));
        }
        let shared = layout.kernel.stages.iter().enumerate().filter(|(_, s)| layout.is_shared(s));
        let mut unrolls = layout.unrolls.iter();
        for (number, stage) in shared {
            let found = unrolls.next().filter(|u| u.stage == number);
            let Some(unroll) = found else {
                return Err(format!("it is not said how stage {number} is unrolled"));
            };
            let turns = most_turns(layout, number);
            if layout.has_registers(stage) && unroll.text < turns {
                return Err(format!(
                    "stage {number} has elements in registers, and its {turns} groups are not unrolled"
                ));
            }
            let found = PlaceMatch::of(stage, layout.kernel.domain.len());
            let found = found.filter(|_| !layout.has_registers(stage)).map(|found| found.param);
            if unroll.matched.is_some() && unroll.matched != found {
                return Err(format!("stage {number} does not compare places with that parameter"));
            }
            if unroll.text > turns.max(1 << 12) || !(1..=256).contains(&unroll.inflight) {
                return Err(format!("stage {number} is not unrolled so far"));
            }
        }
        match unrolls.next() {
            None => Ok(()),
            Some(unroll) => Err(format!("stage {} is not unrolled", unroll.stage)),
        }
    }

    /// The kernel as it is run, with memory for what chains leave.
    pub(crate) fn scheduled(
        self,
        low: &mut Lowering,
        decision: RowDecision,
        layout: RowLayout,
    ) -> ScheduledRows {
        let mut columns = self.columns;
        if let (RowWalk::Chain(rows), Some(columns)) = (decision.walk, &mut columns) {
            columns.chain = rows;
        }
        let (mut chains, mut trees) = (Vec::new(), Vec::new());
        if let Some(columns) = &columns {
            chains = chains_of(low, &layout.kernel, columns);
            for c in &chains {
                if let Some(parts) = c.fold.parts {
                    let fold = (&c.shape, &c.fold);
                    let parts = (parts, columns.chains());
                    trees.push(joined(low, &c.domain, fold, parts, decision.tree));
                }
            }
        }
        ScheduledRows { decision, layout, columns, chains, trees }
    }
}

/// The folds of columns, with room for what their chains leave.
fn chains_of(low: &mut Lowering, kernel: &Kernel, columns: &ColumnFold) -> Vec<Chains> {
    let mut found = Vec::new();
    let blocks = columns.chains();
    for (number, stage) in kernel.stages.iter().enumerate() {
        for (sink, what) in stage.sinks.iter().enumerate() {
            let Sink::Fold { monoid, then, .. } = what else { continue };
            let domain: Extents = kernel.domain.iter().chain(&stage.axes).copied().collect();
            let kept: Vec<usize> =
                (0..domain.len()).filter(|a| !columns.axes.contains(a)).collect();
            let shape = FoldShape {
                axes: columns.axes.clone(),
                order: Order::Chain,
                any: false,
                block: Order::Chain.block() as i64,
                count: columns.count,
                kept_extents: kept.iter().map(|&a| domain[a]).collect(),
                kept,
            };
            let dtype = output_type(stage, sink);
            let dims = Extents::from_iter([blocks, shape.results()]);
            let parts = (blocks > 1).then(|| (low.temp(dtype, dims), None));
            let fold = FoldResult { monoid: *monoid, dtype, then: then.as_ref().clone(), parts };
            found.push(Chains { stage: number, sink, fold, shape, domain });
        }
    }
    found
}
