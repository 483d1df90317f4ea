//! What machine code of a sweep is like, without emitting it: its vector width, and the accesses that vectors do not make.

use super::codegen::loop_ir::{
    Access, FormRanges, GuardedSource, LoadSource, LoopNest, ParamRead, Sweep, VectorAccess,
    WalkedFold,
};
use super::codegen::loop_nest::LineForm;
use super::codegen::loop_program::GridSteps;
use super::codegen::short_axes::GridSource;
use super::codegen::shuffle::{LANES, RuntimeLanes, Shuffle};
use super::codegen::supports::partial_nest;
use super::codegen::transposed_tiles::TILE_LINES;
use super::codegen::vector_width::Vectors;
use super::codegen::vectorize::QUAD;
use super::machine_code::SweepId;
use adfuse_ir::DType;
use adfuse_ir::kernel::facts::{KernelFacts, SweepFacts};
use adfuse_ir::kernel::volume;
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal};
use cranelift_entity::EntityRef;

/// Instructions that make a NaN the canonical one: a comparison and a choice.
const CANONICAL: u32 = 2;

/// Instructions of sixteen groups, one of each line of a block, whose elements are read by a transposed tile. Sixteen loads, 64 shuffles
/// and sixteen stores took as long as this many.
const TILED: i64 = 192;

/// Instructions that gather a bit for each lane of a group: sixteen loads, and those that find the words and shift them.
const GATHERED_BITS: u32 = 40;

/// Instructions that load neighbouring bits that begin anywhere in a byte.
const UNALIGNED_BITS: u32 = 16;

/// Instructions that make a mask of a guard for a group, and those that ask for a guard once for a line.
const GUARD_MASK: u32 = 6;
const STILL_GUARD: u32 = 5;

/// Instructions that make the coordinates of a group over several axes, which have 64 bits: one broadcasts the first, two add the pattern.
const PATTERN_COORDINATES: u32 = 3;

/// Bytes of a line of the cache.
const CACHE_LINE: i64 = 64;

/// The facts of the steps that are made, while a program is gone through.
pub(super) struct FactCollector {
    vectors: Vectors,
    pub(super) step: KernelFacts,
    /// Instructions of the scalar program of each sweep, as [`SweepCompiler::size`].
    sizes: Vec<i64>,
}

impl FactCollector {
    /// One that has noted nothing, for a machine with vectors of this width.
    pub(super) fn new(vectors: Vectors) -> FactCollector {
        FactCollector { vectors, step: KernelFacts::default(), sizes: Vec::new() }
    }

    /// Lanes of 32 bits of the vectors.
    pub(super) fn lanes(&self) -> u32 {
        self.vectors.bits() / 32
    }

    /// As [`SweepCompiler::size`].
    pub(super) fn size(&self, id: SweepId) -> i64 {
        self.sizes.get(id.0).copied().unwrap_or(0)
    }

    /// Notes how often the code of a sweep is called.
    pub(super) fn runs(&mut self, id: SweepId, runs: i64) {
        if let Some(sweep) = self.step.sweeps.get_mut(id.0) {
            sweep.runs = runs.max(0).unsigned_abs();
        }
    }

    /// Notes a pass over sums that are stored: each is read and compared with itself. NaNs, of which there are few, are
    /// replaced.
    pub(super) fn stored_sums(&mut self, results: i64, sum: DType) {
        let elements = results.max(0).unsigned_abs();
        let moves = match sum {
            DType::F32 | DType::F64 => 2 * wide(sum),
            _ => return,
        };
        let lanes = self.lanes();
        self.step.sweeps.push(SweepFacts {
            elements,
            line: elements,
            lanes,
            moves,
            ..SweepFacts::default()
        });
        self.sizes.push(0);
    }

    /// Notes a sweep.
    pub(super) fn sweep(&mut self, sweep: &Sweep<'_>) -> SweepId {
        let wide = self.vectors == Vectors::Avx512;
        let (mut nest, fits) = partial_nest(sweep, false, if wide { 16 } else { 8 });
        let calls = if wide { 0 } else { calls(&nest) };
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
        self.step.sweeps.push(facts);
        self.sizes.push(nest.body.insts.len() as i64);
        SweepId(self.sizes.len() - 1)
    }
}

/// Functions that code without AVX-512 calls for each element: its vectors do not have them.
fn calls(nest: &LoopNest) -> u32 {
    let called = |inst: &SInst| inst.op == SOp::Prim(Prim::Rem) && inst.dtype.is_float();
    let count = nest.order.iter().filter(|&&v| called(&nest.body.insts[v])).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn of_nest(nest: &LoopNest, lanes: u32, calls: u32) -> SweepFacts {
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    let extents = &nest.walk.extents;
    let elements = count(volume(extents));
    let line = count(nest.line_length());
    let sum = |all: u32, v: SVal| all.saturating_add(slots(nest, v));
    let fixed = nest.body.insts.keys().filter(|v| !nest.moves[v.index()]);
    let mut facts = SweepFacts {
        elements,
        line,
        lanes,
        slots: nest.order.iter().copied().fold(folded(nest), sum),
        moves: read(nest).saturating_add(written(nest)),
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
    let mut asked: Vec<&FormRanges> = Vec::new();
    for (k, read) in nest.reads.iter().enumerate().filter(|(k, _)| nest.varies[*k]) {
        match (nest.loads[k], read) {
            _ if tiles.iter().any(|(tiled, _)| *tiled == k) => {
                facts.slots = facts.slots.saturating_add(tiled);
            }
            (VectorAccess::Single, _) => facts.placed += 1,
            (VectorAccess::Coord, ParamRead::Coord(form)) if nest.forms[*form].grid.is_some() => {
                facts.slots = facts.slots.saturating_add(PATTERN_COORDINATES);
            }
            (VectorAccess::Placed, _) => {
                let gathers = wide(nest.types[k]) * Shuffle::Gather.extra();
                facts.slots = facts.slots.saturating_add(gathers);
            }
            (VectorAccess::Bits, read) => {
                let array = read.sources().first().and_then(|s| s.from.array());
                let neighbours = array.is_some_and(|a| nest.step(a.form) == 1);
                let slots = if neighbours { UNALIGNED_BITS } else { GATHERED_BITS };
                facts.slots = facts.slots.saturating_add(slots);
            }
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
                if let Some(GridSource { array, guards, .. }) = GridSource::of(sources) {
                    facts.slots = facts.slots.saturating_add(extra(&nest.grid_steps(array.form)));
                    // Reads under the same guards share their masks.
                    if !guards.is_empty() && !asked.contains(&guards) {
                        asked.push(guards);
                        guard(nest, guards, &mut facts);
                    }
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
    let widest = inst.args.iter().map(|&a| wide(nest.body.insts[a].dtype));
    let widest = widest.fold(wide(inst.dtype), u32::max);
    match inst.op {
        SOp::Param(_) | SOp::Const(_) => 0,
        SOp::Prim(prim) => widest * prim.def().weight.max(1),
        SOp::Func(_) => widest,
    }
}

/// The loads of a group of elements. What is read one element at a time has a price of its own.
fn read(nest: &LoopNest) -> u32 {
    let of = |(k, read): (usize, &ParamRead)| match nest.loads[k] {
        VectorAccess::Single => 0,
        _ if !nest.varies[k] => 0,
        _ => {
            let arrays = read.sources().iter().filter_map(|s| s.from.array());
            arrays.map(moved).fold(0, u32::saturating_add)
        }
    };
    nest.reads.iter().enumerate().map(of).fold(0, u32::saturating_add)
}

/// The stores of a group of elements, each with what makes a NaN the canonical one. What is written one element at a time has
/// a price of its own.
fn written(nest: &LoopNest) -> u32 {
    let of = |((access, how), fold): ((&Access, &VectorAccess), &Option<WalkedFold>)| match how {
        VectorAccess::Single => 0,
        // Folds keep their parts in registers.
        _ if fold.is_some() => 0,
        _ if access.is_canonical() => wide(access.dtype) * (1 + CANONICAL),
        _ => moved(access),
    };
    nest.writes.iter().zip(&nest.stores).zip(&nest.folds).map(of).fold(0, u32::saturating_add)
}

/// The instructions of a load or a store. Truth values are tested for, or made, by one more; the places of those in bits are
/// computed beside vectors.
fn moved(access: &Access) -> u32 {
    match access.dtype {
        DType::Bool => 2,
        d => wide(d),
    }
}

/// Vectors that elements of a type take where those of 32 bits take one.
fn wide(dtype: DType) -> u32 {
    if dtype.bytes() > 4 { 2 } else { 1 }
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
    let steps = GridSteps::even(step);
    (near && access.dtype.bytes() == 4).then(|| extra(&steps))
}

fn extra(steps: &GridSteps) -> u32 {
    let offsets = std::array::from_fn(|l| steps.offset(l as i64));
    Shuffle::of(&offsets, u16::MAX, RuntimeLanes::Full).extra()
}

/// Counts the masks of guards. Those that are the same all along a line are asked once for it; if no other is, their answer is
/// a mask.
fn guard(nest: &LoopNest, guards: &FormRanges, facts: &mut SweepFacts) {
    let steps = || guards.iter().map(|(form, _)| nest.grid_steps(*form));
    let still = steps().filter(GridSteps::is_still).count() as u32;
    let moving = steps().filter(|steps| steps.outer != 0).count() as u32;
    let masks = moving.max(still.min(1));
    facts.slots = facts.slots.saturating_add(masks.saturating_mul(GUARD_MASK));
    facts.line_slots = facts.line_slots.saturating_add(still.saturating_mul(STILL_GUARD));
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
