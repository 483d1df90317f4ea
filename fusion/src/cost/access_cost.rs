//! The cost of access patterns along the vectorized loop: strided or indexed elements, branches, guard boundaries
//! inside lines, and folds that vectors do not do.

use super::fold_cost::{FoldPattern, pattern};
use super::footprint::{IterationSpace, Mask, of};
use crate::plan::machine_model::MachineModel;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{BufferData, Operand, Param, Piece, Program, Sink, Stage, Storage};
use smallvec::SmallVec;

/// What takes longer than neighbours that are read together.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct AccessPattern {
    /// Elements a fixed step, other than one, from the one before.
    pub(super) strided: u64,
    /// Elements whose place is computed for each: from data, quotients or remainders.
    pub(super) placed: u64,
    /// Elements before each of which it is found out whether, or from where, they are read.
    pub(super) branched: u64,
    /// How often a line is cut where a guard begins or ends.
    pub(super) cuts: u64,
    /// Elements that are folded one after the other, from an array.
    pub(super) folded: u64,
    /// Elements of arrays whose axes are interchanged before they are folded.
    pub(super) interchanged: u64,
}

/// What one parameter or sink does at each place of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineAccess {
    /// It is contiguous or invariant along the line.
    Even,
    Strided,
    Placed,
    Branched,
}

/// The most ways through guards, of a stage's parameters together, that vectors choose between.
const MOST_WAYS: usize = 16;

impl AccessPattern {
    /// The time of it in operations.
    pub(super) fn slots(&self, device: &MachineModel) -> f64 {
        self.strided as f64 * device.stride_ops
            + self.placed as f64 * device.place_ops
            + self.branched as f64 * device.branch_ops
            + self.cuts as f64 * device.cut_ops
            + self.folded as f64 * device.fold_ops
            + self.interchanged as f64 * device.interchange_ops
    }

    fn add(&mut self, each: LineAccess, points: u64) {
        let count = match each {
            LineAccess::Even => return,
            LineAccess::Strided => &mut self.strided,
            LineAccess::Placed => &mut self.placed,
            LineAccess::Branched => &mut self.branched,
        };
        *count = count.saturating_add(points);
    }

    fn join(&mut self, other: &AccessPattern) {
        self.strided = self.strided.saturating_add(other.strided);
        self.placed = self.placed.saturating_add(other.placed);
        self.branched = self.branched.saturating_add(other.branched);
        self.cuts = self.cuts.saturating_add(other.cuts);
        self.folded = self.folded.saturating_add(other.folded);
        self.interchanged = self.interchanged.saturating_add(other.interchanged);
    }

    fn fold(&mut self, pattern: FoldPattern, points: u64) {
        if pattern != FoldPattern::Vector {
            self.folded = self.folded.saturating_add(points);
        }
        if pattern == FoldPattern::Interchanged {
            self.interchanged = self.interchanged.saturating_add(points);
        }
    }
}

/// The axis that vectors run along.
pub(super) fn inner(stage: &Stage, places: &IterationSpace, vector: Option<u8>) -> Option<usize> {
    // Schedules are for stages without axes.
    let named = vector.map(usize::from).filter(|_| stage.axes.is_empty());
    named.or_else(|| last(places))
}

/// The axis that vectors run along, if no schedule names one: the last that is longer than one.
fn last(places: &IterationSpace) -> Option<usize> {
    places.extents().iter().rposition(|&n| n > 1)
}

/// What a stage reads and stores, along the axis that the schedule has vectors run along.
pub(super) fn stage(
    program: &Program,
    stage: &Stage,
    places: &IterationSpace,
    vector: Option<u8>,
) -> AccessPattern {
    let inner = inner(stage, places, vector);
    let mut found = along(program, &stage.params, places, inner);
    for sink in &stage.sinks {
        if let Some(pattern) = pattern(stage, sink, places.extents()) {
            found.fold(pattern, places.points());
        }
        match sink {
            Sink::Store { buffer, index } => {
                let Some(inner) = inner else { continue };
                let Some(data) = program.buffers.get(*buffer) else { continue };
                let masks = places.params(&stage.params);
                found.add(element(data, index, inner, &masks), places.points());
            }
            Sink::Fold { runs, then, .. } => {
                found.join(&self::stage(program, then, &places.after(runs), None));
            }
            Sink::Reduce { .. } | Sink::Scan { .. } | Sink::Keep(_) | Sink::Leave(_) => {}
        }
    }
    found
}

/// What an operand of a contraction reads, or the updates of a scatter. An element of a buffer in equal
/// steps is read where it is, by what packs operands anyway.
pub(super) fn operand(
    program: &Program,
    params: &[Param],
    places: &IterationSpace,
) -> AccessPattern {
    if let [Param::Load(pieces)] = params
        && let [piece] = pieces.as_slice()
        && piece.guards.is_empty()
        && let Operand::Buffer(b) = piece.from
        && let Some(data) = program.buffers.get(b)
        && data.steps(&piece.index, places.extents().len()).is_some()
    {
        return AccessPattern::default();
    }
    along(program, params, places, last(places))
}

fn along(
    program: &Program,
    params: &[Param],
    places: &IterationSpace,
    inner: Option<usize>,
) -> AccessPattern {
    let mut found = AccessPattern::default();
    let Some(inner) = inner.filter(|_| places.points() > 0) else { return found };
    let masks = places.params(params);
    let length = places.extents().get(inner).copied().unwrap_or(1).max(1);
    let mut ways = 0;
    let mut cuts = GuardBoundaries::default();
    for param in params {
        let Param::Load(pieces) = param else { continue };
        let one = |p: &Piece| match p.from {
            Operand::Literal(_) => Some(LineAccess::Even),
            Operand::Buffer(b) => {
                program.buffers.get(b).map(|data| element(data, &p.index, inner, &masks))
            }
        };
        if let [piece] = pieces.as_slice() {
            found.add(one(piece).unwrap_or(LineAccess::Even), places.points());
            continue;
        }
        if pieces.iter().all(|p| fixed(p, inner, &masks)) {
            continue;
        }
        ways += pieces.len();
        let chosen = pieces.iter().all(|p| {
            let affine = p.guards.iter().all(|g| is_affine(&g.expr));
            affine && neighbours(program, p, inner, &masks)
        });
        if !chosen || ways > MOST_WAYS {
            found.add(LineAccess::Branched, places.points());
            continue;
        }
        pieces.iter().flat_map(|p| &p.guards).for_each(|g| cuts.guard(g, inner, length, &masks));
    }
    let lines = places.points() / length.unsigned_abs();
    found.cuts = found.cuts.saturating_add(lines.saturating_mul(cuts.count()));
    found
}

/// How a buffer's element lies along a line.
fn element(data: &BufferData, index: &[IndexExpr], inner: usize, masks: &[Mask]) -> LineAccess {
    match memory_step(data, index, inner, masks) {
        None => LineAccess::Placed,
        Some(0 | 1) => LineAccess::Even,
        Some(_) => LineAccess::Strided,
    }
}

/// Whether a piece is a literal, or elements beside one another that are not packed.
fn neighbours(program: &Program, piece: &Piece, inner: usize, masks: &[Mask]) -> bool {
    let Operand::Buffer(b) = piece.from else { return true };
    program.buffers.get(b).is_some_and(|data| {
        let affine = piece.index.iter().all(is_affine);
        let step = memory_step(data, &piece.index, inner, masks);
        data.storage == Storage::Plain && affine && step == Some(1)
    })
}

/// Whether a piece is the same, and read or not, all along a line.
fn fixed(piece: &Piece, inner: usize, masks: &[Mask]) -> bool {
    piece.expressions().all(|e| step(e, inner, masks) == Some(0))
}

/// Elements of memory between neighbours along a line; `None` where that differs from place to place.
pub(super) fn memory_step(
    data: &BufferData,
    index: &[IndexExpr],
    inner: usize,
    masks: &[Mask],
) -> Option<i64> {
    let (mut all, mut dense) = (0i64, 1i64);
    for (k, e) in index.iter().enumerate().rev() {
        let stride = data.strides.as_ref().map_or(Some(dense), |s| s.get(k).copied())?;
        all = all.checked_add(step(e, inner, masks)?.checked_mul(stride)?)?;
        dense = dense.saturating_mul(data.dims.get(k).copied()?.max(1));
    }
    Some(all)
}

fn is_affine(e: &IndexExpr) -> bool {
    match e {
        IndexExpr::Axis(_) | IndexExpr::Const(_) => true,
        IndexExpr::Add(a, b) => is_affine(a) && is_affine(b),
        IndexExpr::Mul(a, _) => is_affine(a),
        IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) | IndexExpr::Data { .. } => false,
    }
}

/// By how much an expression grows with a coordinate; `None` where that differs from place to place.
pub(super) fn step(e: &IndexExpr, axis: usize, masks: &[Mask]) -> Option<i64> {
    match e {
        IndexExpr::Axis(a) => Some(i64::from(usize::from(*a) == axis)),
        IndexExpr::Const(_) => Some(0),
        IndexExpr::Add(a, b) => step(a, axis, masks)?.checked_add(step(b, axis, masks)?),
        IndexExpr::Mul(a, c) => step(a, axis, masks)?.checked_mul(*c),
        IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) | IndexExpr::Data { .. } => {
            let on = of(e, masks).checked_shr(axis as u32).unwrap_or(0) & 1;
            (on == 0).then_some(0)
        }
    }
}

/// Where guards cut a line, each place once.
#[derive(Default)]
struct GuardBoundaries {
    places: SmallVec<[i64; 8]>,
    /// Guards whose place depends on the line, an end each.
    moving: SmallVec<[(Guard, bool); 2]>,
}

impl GuardBoundaries {
    fn guard(&mut self, guard: &Guard, inner: usize, length: i64, masks: &[Mask]) {
        let Some(by) = step(&guard.expr, inner, masks).filter(|&s| s != 0) else { return };
        let others = of(&guard.expr, masks) & !1u64.checked_shl(inner as u32).unwrap_or(0);
        for (end, bound) in [(false, guard.range.start), (true, guard.range.end)] {
            if others != 0 {
                let known = (guard.clone(), end);
                if !self.moving.contains(&known) {
                    self.moving.push(known);
                }
                continue;
            }
            // The first place past the bound, going up or down.
            let (off, bound) = (i128::from(constant(&guard.expr)), i128::from(bound));
            let at = match by > 0 {
                true => {
                    (bound - off).div_euclid(by.into())
                        + i128::from((bound - off).rem_euclid(by.into()) != 0)
                }
                false => (off - bound).div_euclid(-i128::from(by)) + 1,
            };
            if let Ok(at) = i64::try_from(at)
                && at > 0
                && at < length
                && !self.places.contains(&at)
            {
                self.places.push(at);
            }
        }
    }

    fn count(&self) -> u64 {
        (self.places.len() + self.moving.len()) as u64
    }
}

/// An affine expression where all coordinates are 0.
fn constant(e: &IndexExpr) -> i64 {
    match e {
        IndexExpr::Const(c) => *c,
        IndexExpr::Add(a, b) => constant(a).saturating_add(constant(b)),
        IndexExpr::Mul(a, c) => constant(a).saturating_mul(*c),
        IndexExpr::Axis(_)
        | IndexExpr::FloorDiv(..)
        | IndexExpr::Mod(..)
        | IndexExpr::Data { .. } => 0,
    }
}
