//! The way back to keys and values: a block owns some keys, and goes over the rows of the heads that share them.

use super::scores::{ScoreLines, ScorePlace};
use super::tile::{Accumulators, SharedTile, TileCopy, TileTurn, made};
use super::tile_range::TileRange;
use super::{AttendPass, each_tile, gate, score_cotangent};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::AttentionForm;
use adfuse_ir::kernel::Buffer;

/// Operands in shared memory: keys and values that the block owns, and a stage of queries, of the cotangents of results, and of
/// two numbers for each row.
struct KeyTiles {
    k: SharedTile,
    v: SharedTile,
    q: SharedTile,
    dy: SharedTile,
    /// Bytes before the logarithms of sums, and before the mean cotangents.
    lse: i64,
    delta: i64,
    stage_bytes: i64,
}

impl KeyTiles {
    fn new(pass: &AttendPass<'_>) -> KeyTiles {
        let AttentionForm { depth, width, .. } = *pass.form;
        let (own, step) = (pass.tile.own, pass.tile.step);
        let k = SharedTile::new(0, own, depth);
        let v = SharedTile::new(k.end(), own, width);
        let q = SharedTile::new(v.end(), step, depth);
        let dy = SharedTile::new(q.end(), step, width);
        let (lse, delta) = (dy.end(), dy.end() + step * 4);
        KeyTiles { k, v, q, dy, lse, delta, stage_bytes: delta + step * 4 - q.at }
    }
}

/// What rows are added to: cotangents of keys, and of values, where the pass has them.
#[derive(Clone, Copy)]
struct KeyOwnSums<'a> {
    dk: Option<&'a Accumulators>,
    dv: Option<&'a Accumulators>,
}

/// Numbers of rows that are copied beside them: a thread copies one.
struct NumberCopy {
    from: Reg,
    to: Reg,
    /// Whether the thread copies one.
    copies: Reg,
    thread: Reg,
    rows: i64,
}

impl NumberCopy {
    fn new(asm: &mut Asm, (from, rows): (Reg, i64), at: i64, step: i64) -> NumberCopy {
        let thread = asm.special("tid.x");
        let base = asm.pure(Class::Word, "mov.u32", "dynamic");
        let to = asm.pure(Class::Word, "mad.lo.s32", format_args!("{thread}, 4, {base}"));
        let to = asm.pure(Class::Word, "add.s32", format_args!("{to}, {at}"));
        let copies = asm.pure(Class::Pred, "setp.lt.s32", format_args!("{thread}, {step}"));
        NumberCopy { from, to, copies, thread, rows }
    }

    fn copy(&self, asm: &mut Asm, first: Reg, stage: Reg) {
        // Of no rows there may be no memory.
        if self.rows == 0 {
            return;
        }
        let row = made(asm, Class::Word, "add.s32", format_args!("{first}, {}", self.thread));
        let inside = made(asm, Class::Pred, "setp.lt.s32", format_args!("{row}, {}", self.rows));
        let size = made(asm, Class::Word, "selp.b32", format_args!("4, 0, {inside}"));
        let from = made(asm, Class::Long, "mad.wide.s32", format_args!("{row}, 4, {}", self.from));
        let to = made(asm, Class::Word, "add.s32", format_args!("{}, {stage}", self.to));
        let when = self.copies;
        asm.emit(format_args!("@{when} cp.async.ca.shared.global [{to}], [{from}], 4, {size}"));
    }
}

/// Copies of a stage.
struct StageCopies {
    tiles: [TileCopy; 2],
    numbers: [NumberCopy; 2],
}

impl StageCopies {
    fn copy(&self, asm: &mut Asm, first: Reg, stage: Reg) {
        self.tiles.iter().for_each(|c| c.copy(asm, first, Some(stage)));
        self.numbers.iter().for_each(|c| c.copy(asm, first, stage));
    }
}

impl AttendPass<'_> {
    /// Cotangents of keys, of values or of both; `each` blocks have the keys of a group.
    pub(super) fn keys(&self, emit: &mut Emit<'_>, each: i64) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { stream, depth, width, shared, .. } = *form;
        let (group, first) = self.block(&mut emit.asm, each, false);
        let tiles = KeyTiles::new(self);
        let [_, k, v, ..] = form.step.inputs[..] else { return };
        let threads = tile.grid().threads;
        for (b, t) in [(k, tiles.k), (v, tiles.v)] {
            let at = self.head_at(emit, b, group, stream, t.elements * 2);
            let copy = TileCopy::new(&mut emit.asm, t, (at, stream), threads);
            copy.copy(&mut emit.asm, first, None);
        }
        let asm = &mut emit.asm;
        let range = self.tiles(asm, first, false);
        let place = ScorePlace::new(asm, form, (ScoreLines::Keys, tile), first);
        let [of_keys, of_values] = tile.pass.of_keys();
        let mut zeros = |wanted: bool, elements: i64| {
            let padded = AttentionForm::padded(elements);
            wanted.then(|| Accumulators::zeros(asm, tile.tall(), padded))
        };
        let (dk, dv) = (zeros(of_keys, depth), zeros(of_values, width));
        let sums = KeyOwnSums { dk: dk.as_ref(), dv: dv.as_ref() };
        let head = made(asm, Class::Word, "mul.lo.s32", format_args!("{group}, {shared}"));
        let end = made(asm, Class::Word, "add.s32", format_args!("{head}, {shared}"));
        each_tile(emit, head, end, |emit| {
            self.rows_of_head(emit, head, &tiles, (&range, &place), sums);
        });
        emit.asm.emit("cp.async.wait_group 0");
        let [_, of_k, of_v, ..] = form.step.outputs[..] else { return };
        for (b, sums, n) in [(of_k, dk, depth), (of_v, dv, width)] {
            let Some(sums) = sums else { continue };
            let at = self.head_at(emit, b, group, stream, n * 2);
            self.store(emit, &sums, (at, n, stream), &place);
        }
    }

    /// Adds what the rows of one head give.
    fn rows_of_head(
        &self,
        emit: &mut Emit<'_>,
        head: Reg,
        tiles: &KeyTiles,
        (range, place): (&TileRange, &ScorePlace<'_>),
        sums: KeyOwnSums<'_>,
    ) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { rows, depth, width, .. } = *form;
        let [q, _, _, lse, dy, delta, ..] = form.step.inputs[..] else { return };
        let threads = tile.grid().threads;
        let mut of = |b: Buffer, bytes: i64| self.head_at(emit, b, head, rows, bytes);
        let from = [of(q, depth * 2), of(dy, width * 2), of(lse, 4), of(delta, 4)];
        let asm = &mut emit.asm;
        let copies = StageCopies {
            tiles: [(tiles.q, from[0]), (tiles.dy, from[1])]
                .map(|(t, at)| TileCopy::new(asm, t, (at, rows), threads)),
            numbers: [(tiles.lse, from[2]), (tiles.delta, from[3])]
                .map(|(at, from)| NumberCopy::new(asm, (from, rows), at, tile.step)),
        };
        let place = place.at_head(emit, head);
        // All have read what the head before had in the first stage.
        emit.asm.emit("bar.sync 0");
        let copy = |asm: &mut Asm, first: Reg, stage: Reg| copies.copy(asm, first, stage);
        self.go_over(emit, range, tiles.stage_bytes, &copy, &mut |emit, turn| {
            self.rows_of_tile(&mut emit.asm, turn, tiles, &place, sums);
        });
    }

    /// Adds what one tile of rows gives.
    fn rows_of_tile(
        &self,
        asm: &mut Asm,
        turn: TileTurn,
        tiles: &KeyTiles,
        place: &ScorePlace<'_>,
        sums: KeyOwnSums<'_>,
    ) {
        let scores = self.products(asm, &tiles.k, &tiles.q, turn);
        let gated = place.hide(asm, &scores, (turn.first, turn.hidden));
        let base = asm.pure(Class::Word, "mov.u32", "dynamic");
        let numbers =
            asm.pure(Class::Word, "mad.lo.s32", format_args!("{}, 4, {base}", place.column));
        let numbers = turn.at(asm, numbers);
        let pair = |asm: &mut Asm, at: i64, j: usize| -> [Reg; 2] {
            let found = [0; 2].map(|_| asm.fresh(Class::Single));
            let at = at + j as i64 * 32;
            asm.emit(format_args!(
                "ld.shared.v2.f32 {{{}, {}}}, [{numbers}+{at}]",
                found[0], found[1]
            ));
            found
        };
        for j in 0..scores.wide {
            let shifts = pair(asm, tiles.lse, j).map(|log| self.functions.shift(asm, log));
            for i in 0..scores.tall {
                for (s, shift) in (0..2).flat_map(|h| scores.pair(i, j, h).into_iter().zip(shifts))
                {
                    let p = self.functions.exponential(asm, s, shift);
                    asm.set(s, p);
                }
            }
        }
        if let Some(dv) = sums.dv {
            self.add_weighed(asm, dv, &scores, (&tiles.dy, turn));
        }
        let Some(dk) = sums.dk else { return };
        let moved = self.products(asm, &tiles.v, &tiles.dy, turn);
        for j in 0..scores.wide {
            let deltas = pair(asm, tiles.delta, j);
            for i in 0..scores.tall {
                for half in 0..2 {
                    let all = scores.pair(i, j, half).into_iter().zip(moved.pair(i, j, half));
                    for ((p, ds), delta) in all.zip(deltas) {
                        score_cotangent(asm, (p, ds), delta);
                        if gated {
                            gate(asm, (p, ds));
                        }
                    }
                }
            }
        }
        self.add_weighed(asm, dk, &moved, (&tiles.q, turn));
    }
}
