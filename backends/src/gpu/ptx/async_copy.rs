//! Rows that are copied into shared memory ahead of their turn: while a team computes one row the next is on its
//! way, without registers that wait for it.
//!
//! A warp copies what its own lanes read, in pieces of 16 bytes, so that no other warp waits for it.

use super::address::{Vars, resolved, value};
use super::asm::{Class, Reg, guard_prefix};
use super::emit::{At, Emit};
use crate::gpu::schedule::async_copy::{RowArray, UNIT};
use crate::gpu::schedule::cooperative_row::{Has, Team};
use crate::gpu::schedule::index::coordinates;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::volume;

/// Where a warp is among those of its team, as numbers of a launch.
pub(crate) struct Own<'a> {
    pub(crate) team: Team,
    pub(crate) lane: &'a IndexExpr,
    pub(crate) warp: &'a IndexExpr,
}

impl Emit<'_> {
    /// Begins to copy a row of an array to `to`, an address in shared memory.
    pub(crate) fn copy_ahead(
        &mut self,
        a: &RowArray,
        own: &Own<'_>,
        vars: &Vars,
        point: &[IndexExpr],
        to: Reg,
    ) {
        let n = volume(&a.axes);
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
                    emit.copy_units(a, own, &vars, point, &block, own.team.piece, to);
                });
            }
            if rest > 0 {
                let here = (own.team.warps() > 1).then(|| {
                    self.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{number}, {full}"))
                });
                self.when(here, |emit| {
                    let block = IndexExpr::Const(full);
                    emit.copy_units(a, own, vars, point, &block, rest, to);
                });
            }
        }
    }

    /// Begins to copy a block of an array's row, of this many elements, in pieces of 16 bytes. Zeros fill the last one
    /// where the row ends within it.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn copy_units(
        &mut self,
        a: &RowArray,
        own: &Own<'_>,
        vars: &Vars,
        point: &[IndexExpr],
        block: &IndexExpr,
        elements: i64,
        to: Reg,
    ) {
        let each = UNIT / a.size;
        let (units, end) = ((elements + each - 1) / each, elements % each * a.size);
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
            let prefix = guard_prefix(valid);
            let bytes = (end > 0 && left <= 32).then(|| {
                let lane = resolved(own.lane, &self.same(vars), vars);
                let lane = value(&mut self.asm, &lane, vars, &[]);
                let test = format_args!("{lane}, {}", left - 1);
                let last = self.asm.pure(Class::Pred, "setp.eq.s32", test);
                self.asm.pure(Class::Word, "selp.b32", format_args!("{end}, {UNIT}, {last}"))
            });
            let read = bytes.map_or(String::new(), |bytes| format!(", {bytes}"));
            let copy = format_args!("{prefix}cp.async.cg.shared.global {at}, {from}, {UNIT}{read}");
            self.asm.emit(copy);
        }
    }

    /// The address in shared memory of an element: this many elements and bytes after `base`.
    pub(crate) fn shared_address(
        &mut self,
        place: &IndexExpr,
        size: i64,
        base: Reg,
        offset: i64,
        vars: &Vars,
    ) -> String {
        let e = resolved(place, &self.same(vars), vars);
        let (rest, constant) = crate::gpu::schedule::index::split(&e);
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
    pub(crate) fn copied(&mut self) {
        self.asm.emit("cp.async.wait_all");
        self.asm.emit("bar.warp.sync 0xffffffff");
    }
}
