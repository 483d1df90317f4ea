//! What machine code of a sweep is like, without emitting it: its vector width, and the accesses that vectors do not make.

use super::codegen::loop_ir::{
    Access, GuardedSource, LoadSource, LoopNest, ParamRead, Sweep, VectorAccess,
};
use super::codegen::loop_nest::LineForm;
use super::codegen::loop_program::GridSteps;
use super::codegen::short_axes::GridSource;
use super::codegen::shuffle::{LANES, RuntimeLanes, Shuffle};
use super::codegen::supports::partial_nest;
use super::codegen::transposed_tiles::TILE_LINES;
use super::codegen::vector_width::Vectors;
use super::codegen::vectorize::QUAD;
use super::shape::ACCESS;
use adfuse_ir::DType;
use adfuse_ir::kernel::facts::{KernelFacts, SweepFacts};
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Instructions of sixteen groups, one of each line of a block, whose elements are read by a transposed tile. Sixteen loads, 64 shuffles
/// and sixteen stores took as long as this many.
const TILED: i64 = 192;

/// Bytes of a line of the cache.
const CACHE_LINE: i64 = 64;

/// The facts of the steps that are made, while a program is gone through.
pub(super) struct FactCollector {
    vectors: Vectors,
    pub(super) step: KernelFacts,
    /// Primitives and accesses of all sweeps.
    pub(super) work: i64,
}

impl FactCollector {
    /// One that has noted nothing, for a machine with vectors of this width.
    pub(super) fn new(vectors: Vectors) -> FactCollector {
        FactCollector { vectors, step: KernelFacts::default(), work: 0 }
    }

    /// Lanes of 32 bits of the vectors.
    pub(super) fn lanes(&self) -> u32 {
        self.vectors.bits() / 32
    }

    /// Notes a sweep.
    pub(super) fn sweep(&mut self, sweep: &Sweep<'_>) {
        let wide = self.vectors == Vectors::Avx512;
        let (mut nest, fits) = partial_nest(sweep, false, if wide { 16 } else { 8 });
        let calls = calls(&nest);
        let whole = calls == 0 && self.vectors != Vectors::Narrow;
        let facts = match whole && fits.is_ok() {
            true => of_nest(&nest, self.vectors.bits() / 32, 0),
            false => {
                // Cranelift's vectors have no masks.
                if wide {
                    nest = LoopNest::new(sweep, false, LineForm::Plain);
                }
                let single = nest.stores.contains(&VectorAccess::Single) || nest.target.is_some();
                let lane_by_lane = calls as usize
                    + nest
                        .order
                        .iter()
                        .filter(|&&v| {
                            matches!(nest.body.insts[v].op, SOp::Param(k)
                            if nest.loads.get(k as usize) == Some(&VectorAccess::Single))
                        })
                        .count();
                let vectors = !single && 2 * lane_by_lane < nest.order.len() + nest.writes.len();
                of_nest(&nest, if vectors { QUAD } else { 1 }, calls)
            }
        };
        let each = i64::try_from(nest.body.insts.len()).unwrap_or(i64::MAX).saturating_add(ACCESS);
        let elements = i64::try_from(facts.elements).unwrap_or(i64::MAX);
        self.work = self.work.saturating_add(elements.saturating_mul(each));
        self.step.sweeps.push(facts);
    }
}

/// Functions that code calls for each element: no vectors have them.
fn calls(nest: &LoopNest) -> u32 {
    let called = |inst: &SInst| inst.op == SOp::Prim(Prim::Rem) && inst.dtype.is_float();
    let count = nest.order.iter().filter(|&&v| called(&nest.body.insts[v])).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn of_nest(nest: &LoopNest, lanes: u32, calls: u32) -> SweepFacts {
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    let extents = &nest.walk.extents;
    let elements = extents.iter().map(|&n| count(n)).fold(1, u64::saturating_mul);
    let line = count(nest.line_length());
    let sum = |all: u32, v: SVal| all.saturating_add(slots(nest, v));
    let fixed = nest.body.insts.keys().filter(|v| !nest.moves[v.index()]);
    let mut facts = SweepFacts {
        elements,
        line,
        lanes,
        slots: nest.order.iter().copied().fold(folded(nest), sum),
        line_slots: fixed.fold(0, sum),
        calls,
        cuts: u32::try_from(nest.breaks.len()).unwrap_or(u32::MAX),
        ..SweepFacts::default()
    };
    let tiles = nest.transposed(lanes);
    // The last block of an axis takes as long as a full one.
    let lines = extents.iter().rev().nth(1).map_or(1, |&n| n.max(1));
    let blocks = (lines - 1) / TILE_LINES + 1;
    let tiled = u32::try_from(blocks.saturating_mul(TILED) / lines).unwrap_or(u32::MAX);
    for (k, read) in nest.reads.iter().enumerate().filter(|(k, _)| nest.varies[*k]) {
        match (nest.loads[k], read) {
            _ if tiles.iter().any(|(tiled, _)| *tiled == k) => {
                facts.slots = facts.slots.saturating_add(tiled);
            }
            (VectorAccess::Single, _) => facts.placed += 1,
            (VectorAccess::Even, ParamRead::Guarded(sources)) => {
                if let [GuardedSource { from: LoadSource::Array(a), .. }] = sources.as_slice() {
                    match shuffled(nest, a) {
                        Some(extra) if lanes as usize == LANES => {
                            facts.slots = facts.slots.saturating_add(extra)
                        }
                        _ => stride(nest, a, &mut facts),
                    }
                }
            }
            (VectorAccess::Grid, ParamRead::Guarded(sources)) => {
                if let Some(GridSource { array, .. }) = GridSource::of(sources) {
                    facts.slots = facts.slots.saturating_add(extra(&nest.grid_steps(array.form)));
                }
            }
            _ => {}
        }
    }
    for (access, how) in nest.writes.iter().zip(&nest.stores) {
        match how {
            VectorAccess::Single => facts.placed += 1,
            VectorAccess::Even => stride(nest, access, &mut facts),
            _ => {}
        }
    }
    facts
}

/// The instructions of a value for a group of elements.
fn slots(nest: &LoopNest, v: SVal) -> u32 {
    let inst = &nest.body.insts[v];
    let wide = |d: DType| if d.bytes() > 4 { 2 } else { 1 };
    let widest = inst.args.iter().map(|&a| wide(nest.body.insts[a].dtype));
    let widest = widest.fold(wide(inst.dtype), u32::max);
    match inst.op {
        SOp::Param(_) | SOp::Const(_) => 0,
        SOp::Prim(prim) => widest * prim.def().weight.max(1),
        SOp::Func(_) => widest,
    }
}

/// Folds of a sweep are an operation each.
fn folded(nest: &LoopNest) -> u32 {
    u32::try_from(nest.folds.iter().flatten().count()).unwrap_or(u32::MAX)
}

/// The instructions that a read in equal steps takes beyond a load, where vectors make it of loads and permutations and it
/// goes through its cache lines in order.
fn shuffled(nest: &LoopNest, access: &Access) -> Option<u32> {
    let step = nest.step(access.form);
    let near = step.checked_abs().is_some_and(|n| n < CACHE_LINE / 4);
    let steps = GridSteps { outer: step, inner: SmallVec::new() };
    (near && access.dtype.bytes() == 4).then(|| extra(&steps))
}

fn extra(steps: &GridSteps) -> u32 {
    let offsets = std::array::from_fn(|l| steps.offset(l as i64));
    Shuffle::of(&offsets, u16::MAX, RuntimeLanes::Full).extra()
}

/// Counts an access in equal steps that vectors do not make at once.
fn stride(nest: &LoopNest, access: &Access, facts: &mut SweepFacts) {
    let bytes = i64::try_from(access.dtype.bytes()).unwrap_or(8);
    match nest.step(access.form).saturating_abs() {
        0 => {}
        1 if nest.step(access.form) == 1 => {}
        step if step.saturating_mul(bytes) < CACHE_LINE => facts.near += 1,
        _ => facts.far += 1,
    }
}
