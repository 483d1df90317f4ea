//! Contractions as they are run: where sums of parts go, and what folds them.

use super::convolution::{WindowForm, WindowTile, WindowTiling};
use super::shape::{axes, identity, load};
use super::tiling::{ProductTiling, TileDecision};
use super::warpgroup_price::PLANNED_RATE;
use super::work::Lowering;
use crate::gpu::target::GpuTarget;
use adfuse_ir::kernel::{Buffer, Extents, Member, Order, Run, Sink, Stage, volume};
use adfuse_ir::op::Monoid;
use adfuse_ir::{At, DType, Diagnostic, Kind};
use smallvec::SmallVec;

/// Steps of the depth that are counted in 32 bits.
const MOST_STEPS: i64 = 1 << 30;

/// A product with its tiles, and memory for the sums of parts where the depth is split.
pub(crate) struct ScheduledProduct {
    pub(crate) member: Member,
    pub(crate) decision: TileDecision,
    pub(crate) tiling: ProductTiling,
    pub(crate) parts: Option<Buffer>,
}

/// A product as it is run.
///
/// # Errors
/// [`Kind::Limit`] for depths that no launch counts.
pub(crate) fn scheduled(
    low: &mut Lowering,
    member: Member,
    decision: TileDecision,
) -> Result<ScheduledProduct, Diagnostic> {
    let m = &member;
    let tiling = ProductTiling::new(&low.program, m, &decision);
    if tiling.steps > MOST_STEPS {
        let m = format!("a sum of {} products is more than a launch counts", volume(&m.depth));
        return Err(Diagnostic::new(At::default(), Kind::Limit, m));
    }
    let parts = (tiling.parts > 1).then(|| {
        let (batch, rows, cols) = (volume(&m.batch), volume(&m.rows), volume(&m.cols));
        let dims = [tiling.parts, batch, rows, cols].into_iter().collect();
        low.temp(m.sum, dims)
    });
    Ok(ScheduledProduct { member, decision, tiling, parts })
}

/// A product with windows, decided.
pub(crate) struct ScheduledWindows {
    pub(crate) member: Member,
    pub(crate) form: WindowForm,
    pub(crate) tile: WindowTile,
    pub(crate) tiling: WindowTiling,
    /// Where sums of parts of the depth go.
    pub(crate) parts: Option<Buffer>,
    /// For each sink that adds up rows, where the sums of warps go: a place for each tile along the columns and each warp.
    pub(crate) sums: Vec<Option<Buffer>>,
}

impl ScheduledWindows {
    /// Multiply-adds of `f32` that an H200 does in the time of the product, by the planner's model of it.
    pub(crate) fn timed_multiply_adds(&self, target: &GpuTarget) -> u64 {
        let ScheduledWindows { member, form, tile, tiling, .. } = self;
        (tile.seconds(form, member, tiling, target) * PLANNED_RATE) as u64
    }
}

/// A loop that follows a product, over some extents: a fold of its sums, or of parts of them.
pub(crate) type FoldStage = (Extents, Stage);

/// A product with windows as it is run, and the folds that follow it: each warp leaves sums of the rows of its tile.
pub(crate) fn scheduled_windows(
    low: &mut Lowering,
    (mut member, form): (Member, WindowForm),
    (tile, tiling): (WindowTile, WindowTiling),
) -> (ScheduledWindows, Vec<FoldStage>) {
    let result = member.result();
    let cols = member.batch.len() + member.rows.len()..result.len();
    let mut row_parts = result.clone();
    for (k, n) in row_parts[cols.clone()].iter_mut().enumerate() {
        *n = if k == 0 { volume(&tiling.tiles[1]) * tile.warps[1] } else { 1 };
    }
    let mut folds = Vec::new();
    let mut sums = Vec::new();
    for sink in &mut member.then.sinks {
        let Sink::Fold { then, .. } = sink else {
            sums.push(None);
            continue;
        };
        let extents = if tile.parts == 1 { &row_parts } else { &result };
        let from = low.temp(DType::F32, extents.clone());
        let run = Run { axes: cols.clone().map(|a| a as u8).collect(), order: Order::Lane };
        let runs = SmallVec::from_iter([run]);
        let fold = Sink::Fold { monoid: Monoid::Sum, runs, then: then.clone() };
        let stage = Stage {
            params: vec![load(from, axes(result.len()))],
            program: identity(DType::F32),
            sinks: vec![fold],
            ..Stage::default()
        };
        folds.push((extents.clone(), stage));
        if tile.parts > 1 {
            // Sums are whole when those of parts are added up.
            *sink = Sink::Store { buffer: from, index: axes(result.len()) };
        }
        sums.push((tile.parts == 1).then_some(from));
    }
    let m = &member;
    let parts = (tile.parts > 1).then(|| {
        let dims = [tile.parts, volume(&m.batch), volume(&m.rows), volume(&m.cols)];
        low.temp(DType::F32, dims.into_iter().collect())
    });
    (ScheduledWindows { member, form, tile, tiling, parts, sums }, folds)
}
