//! The way back to queries: a block owns some rows, and goes over the keys that they see.

use super::scores::{ScoreLines, ScorePlace};
use super::tile::{Accumulators, SharedTile, TileCopy, TileTurn, made};
use super::{AttendPass, gate, score_cotangent};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::AttentionForm;
use adfuse_ir::DType;
use adfuse_ir::kernel::Buffer;

/// Operands in shared memory: queries and cotangents of results of the rows that the block owns, and a stage of keys and values.
struct QueryTiles {
    q: SharedTile,
    dy: SharedTile,
    k: SharedTile,
    v: SharedTile,
}

/// What a thread knows of its rows, two for each tile of 16.
pub(super) struct RowNumbers {
    pub(super) shifts: Vec<[Reg; 2]>,
    pub(super) deltas: Vec<[Reg; 2]>,
}

impl AttendPass<'_> {
    /// Cotangents of queries, and of scores where they are wanted; `each` blocks have the rows of a head.
    pub(super) fn queries(&self, emit: &mut Emit<'_>, each: i64) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { rows, stream, depth, width, shared, .. } = *form;
        let [q, k, v, lse, dy, delta, ..] = form.step.inputs[..] else { return };
        let (head, first) = self.block(&mut emit.asm, each, form.is_limited());
        let group = made(&mut emit.asm, Class::Word, "div.u32", format_args!("{head}, {shared}"));
        let of_q = SharedTile::new(0, tile.own, depth);
        let of_dy = SharedTile::new(of_q.end(), tile.own, width);
        let of_k = SharedTile::new(of_dy.end(), tile.step, depth);
        let of_v = SharedTile::new(of_k.end(), tile.step, width);
        let tiles = QueryTiles { q: of_q, dy: of_dy, k: of_k, v: of_v };
        let threads = tile.grid().threads;
        for (b, t) in [(q, tiles.q), (dy, tiles.dy)] {
            let at = self.head_at(emit, b, head, rows, t.elements * 2);
            TileCopy::new(&mut emit.asm, t, (at, rows), threads).copy(&mut emit.asm, first, None);
        }
        let copies = [(k, tiles.k), (v, tiles.v)].map(|(b, t)| {
            let at = self.head_at(emit, b, group, stream, t.elements * 2);
            TileCopy::new(&mut emit.asm, t, (at, stream), threads)
        });
        let asm = &mut emit.asm;
        let range = self.tiles(asm, first, form.has_bias_grad());
        let place = ScorePlace::new(asm, form, (ScoreLines::Rows, tile), first).at_head(emit, head);
        let numbers = self.row_numbers(emit, &place, head, [lse, delta]);
        let padded = AttentionForm::padded(depth);
        let dq = Accumulators::zeros(&mut emit.asm, tile.tall(), padded);
        let copy = |asm: &mut Asm, first: Reg, stage: Reg| {
            copies.iter().for_each(|c| c.copy(asm, first, Some(stage)));
        };
        let bytes = tiles.v.end() - tiles.k.at;
        self.go_over(emit, &range, bytes, &copy, &mut |emit, turn| {
            self.keys_of_tile(emit, turn, &tiles, (&place, &numbers), &dq);
        });
        emit.asm.emit("cp.async.wait_group 0");
        let at = self.head_at(emit, form.step.outputs[0], head, rows, depth * 2);
        self.store(emit, &dq, (at, depth, rows), &place);
    }

    /// The numbers of a thread's rows; of the last row for those that do not exist.
    pub(super) fn row_numbers(
        &self,
        emit: &mut Emit<'_>,
        place: &ScorePlace<'_>,
        head: Reg,
        [lse, delta]: [Buffer; 2],
    ) -> RowNumbers {
        let rows = self.form.rows;
        let mut read = |b: Buffer| -> Vec<[Reg; 2]> {
            let base = self.head_at(emit, b, head, rows, 4);
            let asm = &mut emit.asm;
            let number = |asm: &mut Asm, i: usize, half: usize| {
                let row = place.line_of(asm, i, half);
                let row = made(asm, Class::Word, "min.s32", format_args!("{row}, {}", rows - 1));
                let at = made(asm, Class::Long, "mad.wide.s32", format_args!("{row}, 4, {base}"));
                made(asm, Class::Single, "ld.global.nc.f32", format_args!("[{at}]"))
            };
            (0..self.tile.tall() as usize).map(|i| [0, 1].map(|h| number(asm, i, h))).collect()
        };
        let (logs, deltas) = (read(lse), read(delta));
        let shifts =
            logs.into_iter().map(|pair| pair.map(|log| self.functions.shift(&mut emit.asm, log)));
        RowNumbers { shifts: shifts.collect(), deltas }
    }

    /// Adds what one tile of keys gives.
    fn keys_of_tile(
        &self,
        emit: &mut Emit<'_>,
        turn: TileTurn,
        tiles: &QueryTiles,
        (place, numbers): (&ScorePlace<'_>, &RowNumbers),
        dq: &Accumulators,
    ) {
        let asm = &mut emit.asm;
        let scores = self.products(asm, &tiles.q, &tiles.k, turn);
        let moved = self.products(asm, &tiles.dy, &tiles.v, turn);
        let gated = place.hide(asm, &scores, (turn.first, turn.hidden));
        for i in 0..scores.tall {
            for half in 0..2 {
                let (shift, delta) = (numbers.shifts[i][half], numbers.deltas[i][half]);
                for j in 0..scores.wide {
                    let all = scores.pair(i, j, half).into_iter().zip(moved.pair(i, j, half));
                    for (s, ds) in all {
                        let p = self.functions.exponential(asm, s, shift);
                        score_cotangent(asm, (p, ds), delta);
                        if gated {
                            gate(asm, (p, ds));
                        }
                    }
                }
            }
        }
        if self.form.has_bias_grad() {
            self.store_scores(emit, &moved, place, turn.first);
        }
        self.add_weighed(&mut emit.asm, dq, &moved, (&tiles.k, turn));
    }

    /// Stores the cotangents of a tile of scores, whose first key is given.
    pub(super) fn store_scores(
        &self,
        emit: &mut Emit<'_>,
        ds: &Accumulators,
        place: &ScorePlace<'_>,
        key: Reg,
    ) {
        let AttentionForm { rows, stream, dtype, .. } = *self.form;
        let Some(base) = place.score_cotangents else { return };
        let asm = &mut emit.asm;
        let column = made(asm, Class::Word, "add.s32", format_args!("{}, {key}", place.column));
        let rounding = match dtype {
            DType::BF16 => "cvt.rn.bf16.f32",
            _ => "cvt.rn.f16.f32",
        };
        for i in 0..ds.tall {
            for half in 0..2 {
                let row = place.line_of(asm, i, half);
                let live = made(asm, Class::Pred, "setp.lt.s32", format_args!("{row}, {rows}"));
                let at = made(
                    asm,
                    Class::Long,
                    "mad.wide.s32",
                    format_args!("{row}, {}, {base}", stream * 2),
                );
                let at = made(asm, Class::Long, "mad.wide.s32", format_args!("{column}, 2, {at}"));
                let left = made(asm, Class::Word, "sub.s32", format_args!("{stream}, {column}"));
                for j in 0..ds.wide {
                    for (e, x) in ds.pair(i, j, half).into_iter().enumerate() {
                        let offset = j * 8 + e;
                        let inside = format!("{left}, {offset}, {live}");
                        let inside = made(asm, Class::Pred, "setp.gt.and.s32", inside);
                        let x = made(asm, Class::Half, rounding, x);
                        asm.emit(format_args!(
                            "@{inside} st.global.b16 [{at}+{}], {x}",
                            offset * 2
                        ));
                    }
                }
            }
        }
    }
}
