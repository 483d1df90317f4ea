//! Attention. A block of threads owns some lines of one kind and goes over the lines of the other kind, a tile at a time. No score
//! is stored.
//!
//! 16-bit floats are multiplied by matrix units: by warps (`mma.sync`), or by warpgroups (`wgmma`), for which one thread asks the
//! copy engine for tiles. Scores and weights are in registers alone, and while one tile is multiplied, the next is copied.
//! `f32` is multiplied by each thread for itself, in the order that defines attention; weights go through shared memory.
//!
//! The order of sums is fixed: each has one thread, tiles come in turn, and nothing is added by several blocks.

mod backward_keys;
mod backward_queries;
mod forward;
mod forward_groups;
mod functions;
mod group_products;
mod keys_apart_groups;
mod keys_groups;
mod panels;
mod queries_groups;
mod row_pairs;
mod scores;
mod thread_copies;
mod thread_keys;
mod thread_queries;
mod thread_scores;
mod thread_tile;
mod thread_values;
mod tile;
mod tile_range;

use super::asm::{Asm, Class, Reg};
use super::emit::Emit;
use super::entry::{Out, begun};
use super::mbarrier;
use crate::gpu::schedule::attention::{
    AttentionForm, AttentionPass, AttentionTile, AttentionUnit, ScheduledAttention, UNIT,
};
use crate::gpu::schedule::mma_unit::Unit;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::warpgroup_tile::GROUP;
use crate::gpu::target::GpuTarget;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::Buffer;
use functions::ScoreFunctions;
use tile::{Accumulators, RightOperand, SharedTile, TileTurn, made, multiply, packed};
use tile_range::{TilePart, TileRange};

/// A pass of an attention.
struct AttendPass<'a> {
    form: &'a AttentionForm,
    tile: &'a AttentionTile,
    target: GpuTarget,
    functions: &'a ScoreFunctions,
}

/// Launches the passes of an attention.
pub(crate) fn attention(
    s: &GpuSchedule,
    out: &mut Out,
    attention: &ScheduledAttention,
) -> Result<(), Diagnostic> {
    let form = &attention.form;
    let functions = &ScoreFunctions::new(s.fp);
    for tile in &attention.decision.tiles {
        let pass = AttendPass { form, tile, target: s.target, functions };
        let (owners, lines) = form.owners(tile.pass);
        let each = (lines + tile.own - 1) / tile.own;
        let blocks = owners.saturating_mul(each);
        if blocks == 0 {
            continue;
        }
        let mut emit = begun(s, out);
        match (tile.unit, tile.pass) {
            (AttentionUnit::Thread, AttentionPass::Values) => pass.values_by_threads(&mut emit),
            (AttentionUnit::Thread, AttentionPass::Queries) => pass.queries_by_threads(&mut emit),
            (AttentionUnit::Thread, _) => pass.keys_by_threads(&mut emit),
            (AttentionUnit::Warp, AttentionPass::Values) => pass.values(&mut emit, each),
            (AttentionUnit::Warp, AttentionPass::Queries) => pass.queries(&mut emit, each),
            (AttentionUnit::Warp, _) => pass.keys(&mut emit, each),
            (AttentionUnit::Warpgroup, AttentionPass::Values) => {
                pass.values_by_groups(&mut emit, each);
            }
            (AttentionUnit::Warpgroup, AttentionPass::Queries) => {
                pass.queries_by_groups(&mut emit, each);
            }
            (AttentionUnit::Warpgroup, _) => pass.keys_by_groups(&mut emit, each),
        }
        let shared = u32::try_from(form.shared_bytes(tile)).unwrap_or(u32::MAX);
        out.launch(&s.homes, emit, blocks, tile.grid(), shared)?;
    }
    Ok(())
}

impl AttendPass<'_> {
    /// Makes the barriers of a block: those of rings, and one for what it owns, `own` bytes in.
    fn init(&self, emit: &mut Emit<'_>, own: i64, rings: impl FnOnce(&mut Asm)) {
        let thread = emit.asm.special("tid.x");
        let first = emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{thread}, 0"));
        emit.when(Some(first), |emit| {
            rings(&mut emit.asm);
            let own = panels::shared(&mut emit.asm, own);
            mbarrier::init(&mut emit.asm, own, 1);
            emit.asm.emit("fence.mbarrier_init.release.cluster");
        });
        emit.asm.emit("bar.sync 0");
    }

    /// Divides the threads of a block: the last warpgroup asks for copies, the others multiply and have most registers.
    fn by_roles(
        &self,
        emit: &mut Emit<'_>,
        copies: impl FnOnce(&mut Emit<'_>),
        multiplies: impl FnOnce(&mut Emit<'_>),
    ) {
        let thread = emit.asm.special("tid.x");
        let first = self.tile.groups() * GROUP;
        let [few, many] = self.tile.group_registers(&self.target);
        let asm = &mut emit.asm;
        let multiply = asm.pure(Class::Pred, "setp.lt.u32", format_args!("{thread}, {first}"));
        let (label, end) = (asm.label(), asm.label());
        asm.emit(format_args!("@{multiply} bra {label}"));
        asm.open();
        asm.emit(format_args!("setmaxnreg.dec.sync.aligned.u32 {few}"));
        copies(emit);
        emit.asm.close();
        emit.asm.emit(format_args!("bra {end}"));
        emit.asm.place(&label);
        emit.asm.open();
        emit.asm.emit(format_args!("setmaxnreg.inc.sync.aligned.u32 {many}"));
        multiplies(emit);
        emit.asm.close();
        emit.asm.place(&end);
    }

    /// Whether the calling thread is the one that asks for copies.
    fn is_copier(&self, asm: &mut Asm) -> Reg {
        let thread = asm.special("tid.x");
        let first = self.tile.groups() * GROUP;
        asm.pure(Class::Pred, "setp.eq.s32", format_args!("{thread}, {first}"))
    }

    /// The group of heads that a head is of.
    fn group_of(&self, asm: &mut Asm, head: Reg) -> Reg {
        made(asm, Class::Word, "div.u32", format_args!("{head}, {}", self.form.shared))
    }

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

    /// The head, or the group of heads, of the block, and its first line, where blocks that go over most tiles come first: those of
    /// the first keys, or of the last rows.
    fn longest_first(&self, asm: &mut Asm) -> (Reg, Reg) {
        let (owners, lines) = self.form.owners(self.tile.pass);
        let block = asm.special("ctaid.x");
        let (owner, own) = scores::divided(asm, block, owners);
        let own = match self.tile.pass.owns_keys() {
            true => own,
            false => {
                let last = (lines + self.tile.own - 1) / self.tile.own - 1;
                made(asm, Class::Word, "sub.s32", format_args!("{last}, {own}"))
            }
        };
        (owner, made(asm, Class::Word, "mul.lo.s32", format_args!("{own}, {}", self.tile.own)))
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

    /// The tiles that the lines of a block see.
    fn tiles(&self, asm: &mut Asm, first: Reg, whole: bool) -> TileRange {
        tile_range::tiles(asm, (self.form, self.tile), first, whole)
    }

    /// Goes over tiles, which two stages of shared memory have in turn: `copy` begins to copy the tile of a first line into the
    /// stage this many bytes in, and `body` is for a tile that is there.
    fn go_over(
        &self,
        emit: &mut Emit<'_>,
        range: &TileRange,
        stage_bytes: i64,
        copy: &dyn Fn(&mut Asm, Reg, Reg),
        body: &mut dyn FnMut(&mut Emit<'_>, TileTurn),
    ) {
        let asm = &mut emit.asm;
        let step = self.tile.step;
        let first_of = |asm: &mut Asm, tile: Reg| {
            made(asm, Class::Word, "mul.lo.s32", format_args!("{tile}, {step}"))
        };
        let at = asm.copied(range.begin);
        let zero = asm.word(0);
        let stage = asm.copied(zero);
        let first = first_of(asm, at);
        // Of no tiles nothing may be under way when the next head begins.
        let any = format!("{at}, {}", range.end);
        let any = made(asm, Class::Pred, "setp.lt.s32", any);
        emit.when(Some(any), |emit| {
            copy(&mut emit.asm, first, stage);
            emit.asm.emit("cp.async.commit_group");
        });
        for TilePart { to, hidden, .. } in range.parts() {
            each_tile(emit, at, to, |emit| {
                emit.asm.emit("cp.async.wait_group 0");
                emit.asm.emit("bar.sync 0");
                let asm = &mut emit.asm;
                let next = made(asm, Class::Word, "add.s32", format_args!("{at}, 1"));
                let more = format!("{next}, {}", range.end);
                let more = made(asm, Class::Pred, "setp.lt.s32", more);
                emit.when(Some(more), |emit| {
                    let asm = &mut emit.asm;
                    let first = first_of(asm, next);
                    let other = format!("{stage_bytes}, {stage}");
                    let other = made(asm, Class::Word, "sub.s32", other);
                    copy(asm, first, other);
                });
                emit.asm.emit("cp.async.commit_group");
                let first = first_of(&mut emit.asm, at);
                body(emit, TileTurn { first, stage, hidden });
                emit.asm.emit(format_args!("sub.s32 {stage}, {stage_bytes}, {stage}"));
            });
        }
    }

    /// The products of a warp's own lines and the lines of a stage.
    fn products(
        &self,
        asm: &mut Asm,
        own: &SharedTile,
        other: &SharedTile,
        turn: TileTurn,
    ) -> Accumulators {
        let warp = tile::warp(asm);
        let left = own.left(asm, Some((warp, self.tile.tall() * UNIT)));
        let at = other.right(asm);
        let right = RightOperand { at: turn.at(asm, at), pitch: other.pitch, columns: true };
        let sums = Accumulators::zeros(asm, self.tile.tall(), self.tile.step);
        let mut lines = |asm: &mut Asm, i: usize, k: usize| own.fragment(asm, left, (i, k));
        multiply(asm, self.unit(), &sums, &mut lines, (right, own.padded / UNIT));
        sums
    }

    /// Adds the lines of a stage, weighed by rounded numbers, to sums.
    fn add_weighed(
        &self,
        asm: &mut Asm,
        sums: &Accumulators,
        weights: &Accumulators,
        (other, turn): (&SharedTile, TileTurn),
    ) {
        let at = other.left(asm, None);
        let right = RightOperand { at: turn.at(asm, at), pitch: other.pitch, columns: false };
        let dtype = self.form.dtype;
        let mut rounded = |asm: &mut Asm, i: usize, k: usize| weights.rounded(asm, dtype, i, k);
        multiply(asm, self.unit(), sums, &mut rounded, (right, self.tile.step / UNIT));
    }

    fn unit(&self) -> Unit {
        Unit::Half(self.form.dtype)
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
                let line = place.line_of(asm, i, half);
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

/// The cotangent of a score, from its weight and the cotangent of the weight, in the register of the latter.
fn score_cotangent(asm: &mut Asm, (p, dp): (Reg, Reg), delta: Reg) {
    let less = made(asm, Class::Single, "sub.rn.f32", format_args!("{dp}, {delta}"));
    asm.emit(format_args!("mul.rn.f32 {dp}, {p}, {less}"));
}

/// The cotangent of a score that may be hidden: 0 then, whatever moves the row.
fn gate(asm: &mut Asm, (p, ds): (Reg, Reg)) {
    let none = made(asm, Class::Pred, "setp.eq.f32", format_args!("{p}, 0f00000000"));
    asm.emit(format_args!("selp.f32 {ds}, 0f00000000, {ds}, {none}"));
}
