//! Rows that are copied into shared memory ahead of their turn: while a team computes one row the next is on its
//! way, without registers that wait for it.
//!
//! A warp copies what its own lanes read, in pieces of 16 bytes, so that no other warp waits for it.

use super::asm::{Class, Reg};
use super::emit::{At, Emit};
use super::lower::volume;
use super::place::{Vars, coordinates, divisible, resolved, value};
use super::team::{Has, Team};
use adfuse_ir::affine::simplified;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Kernel, Operand, Param, Program, Storage};
use smallvec::SmallVec;

/// Bytes of one copy.
const UNIT: i64 = 16;

/// Rows of a buffer, of which elements are next to each other in the order of the stage's places.
pub(super) struct Array {
    pub(super) buffer: Buffer,
    pub(super) index: SmallVec<[IndexExpr; 4]>,
    pub(super) axes: Extents,
    /// Bytes of an element.
    pub(super) size: i64,
    /// Bytes from the first of a row of all arrays.
    pub(super) offset: i64,
    /// The last stage that reads it.
    pub(super) last: usize,
}

impl Array {
    /// Pieces of 16 bytes of so many elements.
    pub(super) fn units(&self, elements: i64) -> i64 {
        (elements * self.size + UNIT - 1) / UNIT
    }

    pub(super) fn bytes(&self) -> i64 {
        volume(&self.axes).saturating_mul(self.size)
    }
}

/// The arrays that a kernel's stages read whole, others for each step along the walked axes of the domain, and
/// which parameter of which stage reads which.
pub(super) fn arrays(
    program: &Program,
    kernel: &Kernel,
    team: Team,
    walked: &[usize],
) -> (Vec<Array>, Vec<Vec<Option<usize>>>) {
    let mut found: Vec<Array> = Vec::new();
    let mut reads = Vec::new();
    for (s, stage) in kernel.stages.iter().enumerate() {
        let mut own = vec![None; stage.params.len()];
        for (k, param) in stage.params.iter().enumerate() {
            let line = in_line(program, &kernel.domain, &stage.axes, param);
            let Some((buffer, index)) = line else { continue };
            let changes = walked.iter().any(|&a| {
                index.iter().any(|e| kernel.domain[a] > 1 && e.shares(&IndexExpr::axis(a)))
            });
            if !changes || team.threads < 32 || !stage.program.reads_param(k) {
                continue;
            }
            let same = |a: &Array| a.buffer == buffer && a.index == *index && a.axes == stage.axes;
            let number = found.iter().position(same).unwrap_or_else(|| {
                let size = program.buffers[buffer].dtype.bytes() as i64;
                let (index, axes) = (index.clone(), stage.axes.clone());
                found.push(Array { buffer, index, axes, size, offset: 0, last: s });
                found.len() - 1
            });
            found[number].last = s;
            own[k] = Some(number);
        }
        reads.push(own);
    }
    (found, reads)
}

/// The buffer that a parameter reads, where a row of it is one piece of memory that begins at a multiple of
/// 16 bytes.
fn in_line<'p>(
    program: &Program,
    domain: &Extents,
    axes: &Extents,
    param: &'p Param,
) -> Option<(Buffer, &'p SmallVec<[IndexExpr; 4]>)> {
    let Param::Load(pieces) = param else { return None };
    let [piece] = pieces.as_slice() else { return None };
    let Operand::Buffer(b) = piece.from else { return None };
    let data = &program.buffers[b];
    let mut computed = false;
    piece.index.iter().for_each(|e| super::emit::data_of(e, &mut |_| computed = true));
    if computed || !piece.guards.is_empty() || data.storage != Storage::Plain || axes.is_empty() {
        return None;
    }
    let (rank, n) = (domain.len(), volume(axes));
    let mut dense = 1i64;
    let mut place = IndexExpr::Const(0);
    for (k, e) in piece.index.iter().enumerate().rev() {
        let stride = data.strides.as_ref().and_then(|s| s.get(k).copied()).unwrap_or(dense);
        place = e.clone().times(stride).sum(place);
        dense = dense.saturating_mul(data.dims.get(k).copied().unwrap_or(1).max(1));
    }
    let mut at: Vec<IndexExpr> = (0..rank).map(IndexExpr::axis).collect();
    at.extend(coordinates(&IndexExpr::axis(rank), axes));
    let mut extents = domain.clone();
    extents.push(n);
    let e = simplified(&place.compose(&at), &extents);
    let mut terms = Vec::new();
    flat(&e, &mut terms);
    let own = terms.iter().filter(|t| t.shares(&IndexExpr::axis(rank))).count();
    let size = data.dtype.bytes() as i64;
    let unit = UNIT / size;
    let whole = terms.iter().filter(|t| !t.shares(&IndexExpr::axis(rank)));
    let aligned = whole.clone().all(|t| divisible(t, unit)) && (n * size) % UNIT == 0;
    let straight = own == 1 && terms.contains(&IndexExpr::axis(rank));
    (straight && aligned).then_some((b, &piece.index))
}

fn flat(e: &IndexExpr, terms: &mut Vec<IndexExpr>) {
    match e {
        IndexExpr::Add(a, b) => {
            flat(a, terms);
            flat(b, terms);
        }
        e => terms.push(e.clone()),
    }
}

/// Where a warp is among those of its team, as numbers of a launch.
pub(super) struct Own<'a> {
    pub(super) team: Team,
    pub(super) lane: &'a IndexExpr,
    pub(super) warp: &'a IndexExpr,
}

impl Emit<'_> {
    /// Begins to copy a row of an array to `to`, an address in shared memory.
    pub(super) fn copy_ahead(
        &mut self,
        a: &Array,
        own: &Own<'_>,
        vars: &Vars,
        point: &[IndexExpr],
        to: Reg,
    ) {
        let n = volume(&a.axes);
        let each = UNIT / a.size;
        for piece in own.team.pieces(n) {
            let first = own.warp.clone().plus(piece.block);
            let block = resolved(&first, &self.same(vars), vars);
            let number = value(&mut self.asm, &block, vars, &[]);
            let (full, rest) = match piece.has {
                Has::All if own.team.warps() == 1 => (0, n),
                Has::All => (i64::MAX, 0),
                Has::Some { full, rest } => (full, rest),
            };
            let whole = (full > piece.block).then(|| match full {
                i64::MAX => None,
                full => Some(self.asm.pure(
                    Class::Pred,
                    "setp.lt.s32",
                    format_args!("{number}, {full}"),
                )),
            });
            if let Some(when) = whole {
                self.when(when, |emit| {
                    let mut vars = vars.clone();
                    let block = vars.push(number, n / own.team.piece);
                    emit.copy_units(a, own, &vars, point, &block, own.team.piece / each, to);
                });
            }
            if rest > 0 {
                let here = (own.team.warps() > 1).then(|| {
                    self.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{number}, {full}"))
                });
                self.when(here, |emit| {
                    let block = IndexExpr::Const(full);
                    emit.copy_units(a, own, vars, point, &block, rest / each, to);
                });
            }
        }
    }

    /// Begins to copy a block of an array's row: so many pieces of 16 bytes.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn copy_units(
        &mut self,
        a: &Array,
        own: &Own<'_>,
        vars: &Vars,
        point: &[IndexExpr],
        block: &IndexExpr,
        units: i64,
        to: Reg,
    ) {
        let each = UNIT / a.size;
        for turn in 0..(units + 31) / 32 {
            let left = units - turn * 32;
            let unit = own.lane.clone().plus(turn * 32);
            let valid = (left < 32).then(|| {
                let lane = resolved(own.lane, &self.same(vars), vars);
                let lane = value(&mut self.asm, &lane, vars, &[]);
                self.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{lane}, {left}"))
            });
            let place = block.clone().times(own.team.piece).sum(unit.times(each));
            let mut coords = point.to_vec();
            coords.extend(coordinates(&place, &a.axes));
            let element = self.element(a.buffer, &a.index, &At { vars, coords: &coords });
            let from = self.address(a.buffer, &element, a.size as u64, vars, &[]);
            let at = self.shared_address(&place, a.size, to, a.offset, vars);
            let prefix = valid.map_or(String::new(), |p| format!("@{p} "));
            self.asm.emit(format_args!("{prefix}cp.async.cg.shared.global {at}, {from}, {UNIT}"));
        }
    }

    /// The address in shared memory of an element: so many elements and bytes after `base`.
    pub(super) fn shared_address(
        &mut self,
        place: &IndexExpr,
        size: i64,
        base: Reg,
        offset: i64,
        vars: &Vars,
    ) -> String {
        let e = resolved(place, &self.same(vars), vars);
        let (rest, constant) = super::place::split(&e);
        let offset = offset + constant * size;
        if rest == IndexExpr::Const(0) {
            return format!("[{base}+{offset}]");
        }
        let x = value(&mut self.asm, &rest, vars, &[]);
        let x = match x.class {
            Class::Long => self.asm.pure(Class::Word, "cvt.u32.u64", x),
            _ => x,
        };
        let at = self.asm.pure(Class::Word, "mad.lo.s32", format_args!("{x}, {size}, {base}"));
        format!("[{at}+{offset}]")
    }

    /// Waits for what was copied ahead, in the warps that copied it.
    pub(super) fn copied(&mut self) {
        self.asm.emit("cp.async.wait_all");
        self.asm.emit("bar.warp.sync 0xffffffff");
    }
}
