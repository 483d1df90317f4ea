//! Attention of 16-bit floats on matrix units. Scores and weights are in registers alone: a block of threads owns some lines, and
//! goes over the others a tile at a time, of which the next is copied while one is multiplied.
//!
//! The order of sums is fixed: each has one thread, tiles ascend, and nothing is added by several blocks.

mod backward_keys;
mod backward_queries;
mod forward;
mod scores;
mod tile;

use super::asm::{Asm, Class, Reg};
use super::emit::Emit;
use super::entry::{Out, begun};
use crate::gpu::schedule::attention::{
    AttentionForm, AttentionPass, AttentionTile, ScheduledAttention,
};
use crate::gpu::schedule::program::GpuSchedule;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::Buffer;
use tile::{Accumulators, made, packed};

/// A pass of an attention.
struct AttendPass<'a> {
    form: &'a AttentionForm,
    tile: &'a AttentionTile,
}

/// Launches the passes of an attention.
pub(crate) fn attention(
    s: &GpuSchedule,
    out: &mut Out,
    attention: &ScheduledAttention,
) -> Result<(), Diagnostic> {
    let form = &attention.form;
    for tile in &attention.decision.tiles {
        let pass = AttendPass { form, tile };
        let (owners, lines) = match tile.pass {
            AttentionPass::Values | AttentionPass::Queries => (form.heads, form.rows),
            AttentionPass::Keys => (form.heads / form.shared, form.stream),
        };
        let each = (lines + tile.own - 1) / tile.own;
        let blocks = owners.saturating_mul(each);
        if blocks == 0 {
            continue;
        }
        let mut emit = begun(s);
        match tile.pass {
            AttentionPass::Values => pass.values(&mut emit, each),
            AttentionPass::Keys => pass.keys(&mut emit, each),
            AttentionPass::Queries => pass.queries(&mut emit, each),
        }
        let shared = u32::try_from(form.shared_bytes(tile)).unwrap_or(u32::MAX);
        out.launch(&s.homes, emit, blocks, tile.grid(), shared)?;
    }
    Ok(())
}

/// The tiles that a block goes over: those between the first two, and between the last two, are seen in part.
struct TileRanges {
    ends: [Reg; 4],
}

impl AttendPass<'_> {
    /// The head, or the group of heads, of the block, and its first line: the last lines come first where `last_first`.
    fn block(&self, asm: &mut Asm, each: i64, last_first: bool) -> (Reg, Reg) {
        let block = asm.special("ctaid.x");
        let (own, head) = scores::divided(asm, block, each);
        let own = match last_first {
            true => made(asm, Class::Word, "sub.s32", format_args!("{}, {own}", each - 1)),
            false => own,
        };
        (head, made(asm, Class::Word, "mul.lo.s32", format_args!("{own}, {}", self.tile.own)))
    }

    /// Where the lines of a head begin in an operand: `lines` of this many bytes each.
    fn head_at(&self, emit: &mut Emit<'_>, b: Buffer, head: Reg, lines: i64, bytes: i64) -> Reg {
        let base = emit.pointer(b);
        let head = made(&mut emit.asm, Class::Long, "cvt.u64.u32", head);
        made(
            &mut emit.asm,
            Class::Long,
            "mad.lo.s64",
            format_args!("{head}, {}, {base}", lines * bytes),
        )
    }

    /// Rows of a head that the block owns and the tiles of keys that they see: those that all rows see whole, and others.
    fn key_steps(&self, asm: &mut Asm, first: Reg, whole: bool) -> TileRanges {
        let (stream, step) = (self.form.stream, self.tile.step);
        let (full, all) = (stream / step, (stream + step - 1) / step);
        let zero = asm.word(0);
        let (mut full, mut all) = (asm.word(full), asm.word(all));
        if self.form.step.causal && !whole {
            let seen = |asm: &mut Asm, rows: i64, round: i64| {
                let ahead = self.form.ahead() + rows;
                let n = made(asm, Class::Word, "add.s32", format_args!("{first}, {ahead}"));
                let n = made(asm, Class::Word, "max.s32", format_args!("{n}, 0"));
                let n = made(asm, Class::Word, "min.s32", format_args!("{n}, {stream}"));
                let n = made(asm, Class::Word, "add.s32", format_args!("{n}, {round}"));
                made(asm, Class::Word, "div.s32", format_args!("{n}, {step}"))
            };
            full = seen(asm, 1, 0);
            all = seen(asm, self.tile.own, step - 1);
        } else if self.form.step.causal {
            full = zero;
        }
        TileRanges { ends: [zero, zero, full, all] }
    }

    /// Stores the lines that a block owns, rounded, from a line on of `lines`.
    fn store(
        &self,
        emit: &mut Emit<'_>,
        sums: &Accumulators,
        (base, elements, lines): (Reg, i64, i64),
        place: &scores::ScorePlace<'_>,
    ) {
        let asm = &mut emit.asm;
        let bytes = elements * 2;
        for i in 0..sums.tall {
            for half in 0..2 {
                let down = i as i64 * 16 + half as i64 * 8;
                let line =
                    made(asm, Class::Word, "add.s32", format_args!("{}, {down}", place.line));
                let live = made(asm, Class::Pred, "setp.lt.s32", format_args!("{line}, {lines}"));
                let at =
                    made(asm, Class::Long, "mad.wide.s32", format_args!("{line}, {bytes}, {base}"));
                let at = made(
                    asm,
                    Class::Long,
                    "mad.wide.s32",
                    format_args!("{}, 2, {at}", place.column),
                );
                for j in 0..sums.wide {
                    // Depths are multiples of 8: a tile is inside or not.
                    if (j as i64) * 8 >= elements {
                        continue;
                    }
                    let word = packed(asm, self.form.dtype, sums.pair(i, j, half));
                    asm.emit(format_args!("@{live} st.global.b32 [{at}+{}], {word}", j * 16));
                }
            }
        }
    }
}

/// Does something for each tile from one number to another, which are the same where there is none. The number of the tile
/// is a register that moves on.
fn each_tile(emit: &mut Emit<'_>, at: Reg, end: Reg, mut body: impl FnMut(&mut Emit<'_>)) {
    let (begin, done) = (emit.asm.label(), emit.asm.label());
    let none = made(&mut emit.asm, Class::Pred, "setp.ge.s32", format_args!("{at}, {end}"));
    emit.asm.emit(format_args!("@{none} bra {done}"));
    emit.asm.turn(&begin);
    emit.asm.open();
    body(emit);
    emit.asm.close();
    emit.asm.emit(format_args!("add.s32 {at}, {at}, 1"));
    let more = made(&mut emit.asm, Class::Pred, "setp.lt.s32", format_args!("{at}, {end}"));
    emit.asm.emit(format_args!("@{more} bra {begin}"));
    emit.asm.place(&done);
}

impl AttendPass<'_> {
    /// Begins to copy the tile after one into the other stage, where there is one: `copy` is given the first line of the
    /// tile and the bytes before the stage.
    fn next_stage(
        &self,
        emit: &mut Emit<'_>,
        (at, end): (Reg, Reg),
        (stage, bytes): (Reg, i64),
        copy: &mut dyn FnMut(&mut Asm, Reg, Reg),
    ) {
        let step = self.tile.step;
        let asm = &mut emit.asm;
        let next = made(asm, Class::Word, "add.s32", format_args!("{at}, 1"));
        let more = made(asm, Class::Pred, "setp.lt.s32", format_args!("{next}, {end}"));
        emit.when(Some(more), |emit| {
            let asm = &mut emit.asm;
            let first = made(asm, Class::Word, "mul.lo.s32", format_args!("{next}, {step}"));
            let other = made(asm, Class::Word, "sub.s32", format_args!("{bytes}, {stage}"));
            copy(asm, first, other);
        });
        emit.asm.emit("cp.async.commit_group");
    }
}

/// The cotangent of a score, from its weight and the cotangent of the weight, in the register of the latter. Where `gated`,
/// scores may be hidden: theirs are 0, whatever moves the row.
fn score_cotangent(asm: &mut Asm, (p, dp): (Reg, Reg), delta: Reg, gated: bool) {
    let less = made(asm, Class::Single, "sub.rn.f32", format_args!("{dp}, {delta}"));
    asm.emit(format_args!("mul.rn.f32 {dp}, {p}, {less}"));
    if gated {
        let none = made(asm, Class::Pred, "setp.eq.f32", format_args!("{p}, 0f00000000"));
        asm.emit(format_args!("selp.f32 {dp}, 0f00000000, {dp}, {none}"));
    }
}
