//! How many groups of a body are interleaved: a loop has independent instructions then, while each group waits for its
//! own.

use super::loop_ir::{LoopNest, VectorAccess};
use super::loop_program::GroupShape;
use super::sink_folds::BLOCK_LANES;
use adfuse_ir::scalar::{SInst, SOp};
use adfuse_ir::{DType, Literal};
use smallvec::SmallVec;

/// Bodies of fewer values than this interleave four groups of wide vectors, others two.
pub(crate) const LIGHT: usize = 16;

/// Bodies of more values are not copied: the code would outgrow its cache.
const MOST_COPIED: usize = 1000;

/// The same of 128-bit vectors.
const MOST_COPIED_NARROW: usize = 300;

/// How many groups of 128 bits are interleaved. Two are slower for every body that was measured, six and
/// eight for most; a body that is done lane by lane in part gains nothing.
pub(crate) const MOST_NARROW: u32 = 4;

/// How many groups of 128 bits are interleaved: first this many at a time, then the least number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interleaving {
    pub(crate) most: u32,
    pub(crate) least: u32,
    /// Whether lanes of folds are in registers first.
    pub(crate) held: bool,
}

/// Whether vectors of 128 bits have an instruction, of operands of a type, some of them known.
pub(crate) type HasVectors<'a> = &'a dyn Fn(&SInst, DType, &[Option<Literal>]) -> bool;

/// How a sweep has vectors of 128 bits, of which the target has this many registers; `None` where it has none.
pub(crate) fn narrow(
    p: &LoopNest,
    has_vectors: HasVectors<'_>,
    registers: usize,
) -> Option<Interleaving> {
    if p.target.is_some() || p.stores.contains(&VectorAccess::Single) {
        return None;
    }
    // What is done lane by lane must be the lesser part.
    let (mut whole, mut single) = (p.writes.len(), 0);
    for &v in &p.order {
        let inst = &p.body.insts[v];
        let from = p.body.source(inst);
        let known: SmallVec<[Option<Literal>; 3]> =
            inst.args.iter().map(|&a| p.body.constant(a)).collect();
        let vectors = match inst.op {
            SOp::Param(k) => p.loads.get(k as usize).is_some_and(|r| *r != VectorAccess::Single),
            _ => has_vectors(inst, from, &known),
        };
        *if vectors { &mut whole } else { &mut single } += 1;
    }
    // Bits are written by whole bytes.
    let least = if p.packed() { 2 } else { 1 };
    let most = match single {
        0 => MOST_NARROW,
        n if n < whole => 1,
        _ => return None,
    };
    let most = most.max(least);
    let most = if p.order.len() > MOST_COPIED_NARROW { least } else { most };
    Some(Interleaving { most, least, held: most == MOST_NARROW && holds_lanes(p, registers) })
}

/// Whether lanes are in registers of 128 bits along a line: where they fit beside a light body.
fn holds_lanes(p: &LoopNest, registers: usize) -> bool {
    let lanes = p.folds.iter().flatten().filter(|f| f.lanes.is_some());
    let taken: i64 = lanes.map(|f| BLOCK_LANES * f.dtype.bytes() as i64 / 16).sum();
    let mut still: Vec<bool> = vec![false; p.body.insts.len()];
    let moving = p.order.iter().flat_map(|&v| &p.body.insts[v].args);
    for &v in moving.chain(&p.body.outputs) {
        still[v.as_u32() as usize] = !p.moves[v.as_u32() as usize] && p.body.constant(v).is_none();
    }
    let still = still.iter().filter(|s| **s).count();
    let body = p.alive * MOST_NARROW as usize;
    taken > 0
        && usize::try_from(taken).unwrap_or(usize::MAX).saturating_add(body + still) <= registers
}

/// The shapes that come into question along a line, the best first.
pub(crate) fn shapes(p: &LoopNest, lanes: u32) -> Vec<GroupShape> {
    let wanted: &[u32] = match p.order.len() {
        0..LIGHT => &[4, 2, 1],
        LIGHT..MOST_COPIED => &[2, 1],
        _ => &[1],
    };
    let n = p.line_length();
    let mut found = Vec::new();
    for held in [true, false] {
        if held && !lanes_fit(p, lanes) {
            continue;
        }
        for &copies in wanted {
            // Lanes in registers are gone through whole.
            let least = if held { BLOCK_LANES as u32 / lanes } else { 1 };
            let rounds = least.div_ceil(copies);
            if i64::from(copies * rounds * lanes) <= n {
                found.push(GroupShape { copies, rounds, held, strip: 0 });
            }
        }
    }
    found
}

/// Groups of a whole line that is emitted without loops, at most, and values of all of them together.
const LINE_GROUPS: i64 = 8;
const LINE_VALUES: i64 = 256;

/// How many groups are interleaved, the best first, where whole lines are emitted without loops; `None` where they are
/// not. Lines are short, begin with a group, and are all that folds into a part.
pub(crate) fn whole_line(p: &LoopNest, lanes: u32) -> Option<SmallVec<[u32; 3]>> {
    let n = p.line_length();
    let groups = (n.max(1) - 1) / i64::from(lanes) + 1;
    let values = groups.saturating_mul(p.order.len() as i64);
    let short = n > 0 && groups <= LINE_GROUPS && (groups == 1 || values <= LINE_VALUES);
    let in_segments = p.packed() || p.loads.contains(&VectorAccess::Guarded);
    let folds = p.folds.iter().flatten().filter(|f| f.lanes.is_some());
    let uneven = p.grid().is_some_and(|within| i64::from(lanes) % within != 0);
    if p.inner() == 0 || !short || in_segments || uneven || folds.into_iter().any(|f| f.size != n) {
        return None;
    }
    let wanted: &[u32] = if p.order.len() < LIGHT { &[4, 2, 1] } else { &[2, 1] };
    let fits = |copies: &u32| *copies == 1 || i64::from(*copies) <= n / i64::from(lanes);
    Some(wanted.iter().copied().filter(fits).collect())
}

/// Whether there are registers for the lanes of all folds beside some for a body: half of all.
fn lanes_fit(p: &LoopNest, lanes: u32) -> bool {
    let lane_folds = p.folds.iter().flatten().filter(|f| f.lanes.is_some());
    let count: i64 =
        lane_folds.map(|f| BLOCK_LANES * f.dtype.bytes() as i64 / i64::from(lanes * 4)).sum();
    (1..=i64::from(lanes)).contains(&count)
}
