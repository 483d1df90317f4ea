//! The way back to queries: a block owns some rows, and goes over the keys that they see.

use super::scores::{ScoreLines, ScorePlace, exponential, shift};
use super::tile::{Accumulators, RightOperand, SharedTile, TileCopy, loaded, made, multiply, warp};
use super::{AttendPass, each_tile, score_cotangent};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::{AttentionForm, UNIT};
use adfuse_ir::DType;
use adfuse_ir::kernel::Buffer;

/// Operands in shared memory: queries and cotangents of results of the rows that the block owns, and a stage of keys and values.
struct QueryTiles {
    q: SharedTile,
    dy: SharedTile,
    k: SharedTile,
    v: SharedTile,
    stage_bytes: i64,
}

/// What a thread knows of its rows, two for each tile of 16.
struct RowNumbers {
    shifts: Vec<[Reg; 2]>,
    deltas: Vec<[Reg; 2]>,
}

impl AttendPass<'_> {
    /// Cotangents of queries, and of scores where they are wanted; `each` blocks have the rows of a head.
    pub(super) fn queries(&self, emit: &mut Emit<'_>, each: i64) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { rows, stream, depth, width, shared, .. } = *form;
        let [q, k, v, lse, dy, delta, ..] = form.step.inputs[..] else { return };
        let (head, first) = self.block(&mut emit.asm, each, form.step.causal);
        let group = made(&mut emit.asm, Class::Word, "div.u32", format_args!("{head}, {shared}"));
        let of_q = SharedTile::new(0, tile.own, depth);
        let of_dy = SharedTile::new(of_q.end(), tile.own, width);
        let of_k = SharedTile::new(of_dy.end(), tile.step, depth);
        let of_v = SharedTile::new(of_k.end(), tile.step, width);
        let stage_bytes = of_v.end() - of_k.at;
        let tiles = QueryTiles { q: of_q, dy: of_dy, k: of_k, v: of_v, stage_bytes };
        let threads = tile.grid().threads;
        for (b, t) in [(q, tiles.q), (dy, tiles.dy)] {
            let at = self.head_at(emit, b, head, rows, t.elements * 2);
            TileCopy::new(&mut emit.asm, t, (at, rows), threads).copy(&mut emit.asm, first, None);
        }
        let copies = [(k, tiles.k), (v, tiles.v)].map(|(b, t)| {
            let at = self.head_at(emit, b, group, stream, t.elements * 2);
            TileCopy::new(&mut emit.asm, t, (at, stream), threads)
        });
        let steps = self.key_steps(&mut emit.asm, first, form.has_bias_grad());
        let mut place = ScorePlace::new(&mut emit.asm, form, (ScoreLines::Rows, tile), first);
        place.at_head(emit, head);
        let numbers = self.row_numbers(emit, &place, head, [lse, delta]);
        let asm = &mut emit.asm;
        let (at, stage) = (asm.fresh(Class::Word), asm.fresh(Class::Word));
        asm.emit(format_args!("mov.b32 {at}, 0"));
        asm.emit(format_args!("mov.b32 {stage}, 0"));
        copies.iter().for_each(|c| c.copy(asm, at, None));
        asm.emit("cp.async.commit_group");
        let dq = Accumulators::zeros(asm, tile.tall(), AttentionForm::padded(depth));
        let [_, _, full, all] = steps.ends;
        for (end, partly) in [(full, false), (all, true)] {
            each_tile(emit, at, end, |emit| {
                emit.asm.emit("cp.async.wait_group 0");
                emit.asm.emit("bar.sync 0");
                let bytes = tiles.stage_bytes;
                self.next_stage(emit, (at, all), (stage, bytes), &mut |asm, first, stage| {
                    copies.iter().for_each(|c| c.copy(asm, first, Some(stage)));
                });
                self.keys_of_tile(emit, (at, stage, partly), &tiles, (&place, &numbers), &dq);
                emit.asm.emit(format_args!("sub.s32 {stage}, {bytes}, {stage}"));
            });
        }
        emit.asm.emit("cp.async.wait_group 0");
        let at = self.head_at(emit, form.step.outputs[0], head, rows, depth * 2);
        self.store(emit, &dq, (at, depth, rows), &place);
    }

    /// The numbers of a thread's rows; of the last row for those that do not exist.
    fn row_numbers(
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
            (0..self.tile.tall())
                .map(|i| {
                    [0, 8].map(|down| {
                        let down = i * UNIT + down;
                        let row = made(
                            asm,
                            Class::Word,
                            "add.s32",
                            format_args!("{}, {down}", place.line),
                        );
                        let row =
                            made(asm, Class::Word, "min.s32", format_args!("{row}, {}", rows - 1));
                        let at = made(
                            asm,
                            Class::Long,
                            "mad.wide.s32",
                            format_args!("{row}, 4, {base}"),
                        );
                        made(asm, Class::Single, "ld.global.nc.f32", format_args!("[{at}]"))
                    })
                })
                .collect()
        };
        let (logs, deltas) = (read(lse), read(delta));
        let shifts = logs.into_iter().map(|pair| pair.map(|log| shift(&mut emit.asm, log)));
        RowNumbers { shifts: shifts.collect(), deltas }
    }

    /// Adds what one tile of keys gives.
    fn keys_of_tile(
        &self,
        emit: &mut Emit<'_>,
        (at, stage, partly): (Reg, Reg, bool),
        tiles: &QueryTiles,
        (place, numbers): (&ScorePlace<'_>, &RowNumbers),
        dq: &Accumulators,
    ) {
        let (dtype, tile) = (self.form.dtype, self.tile);
        let asm = &mut emit.asm;
        let now = |asm: &mut Asm, at: Reg| {
            made(asm, Class::Word, "add.s32", format_args!("{at}, {stage}"))
        };
        let scored = |asm: &mut Asm, own: SharedTile, other: &SharedTile| {
            let warp = warp(asm);
            let left = own.left(asm, Some((warp, tile.tall() * UNIT)));
            let right = other.right(asm);
            let right = RightOperand { at: now(asm, right), pitch: other.pitch, columns: true };
            let sums = Accumulators::zeros(asm, tile.tall(), tile.step);
            let mut lines = |asm: &mut Asm, i: usize, k: usize| {
                loaded(asm, left, i as i64 * UNIT * own.pitch + k as i64 * UNIT * 2, false)
            };
            multiply(asm, dtype, &sums, &mut lines, (right, own.padded / UNIT));
            sums
        };
        let scores = scored(asm, tiles.q, &tiles.k);
        let moved = scored(asm, tiles.dy, &tiles.v);
        let key = made(asm, Class::Word, "mul.lo.s32", format_args!("{at}, {}", tile.step));
        place.add_extra(asm, &scores, key);
        if partly {
            place.hide(asm, &scores, key);
        }
        let gated = partly || place.has_extra();
        for i in 0..scores.tall {
            for half in 0..2 {
                let (shift, delta) = (numbers.shifts[i][half], numbers.deltas[i][half]);
                for j in 0..scores.wide {
                    let all = scores.pair(i, j, half).into_iter().zip(moved.pair(i, j, half));
                    for (s, ds) in all {
                        let p = exponential(asm, s, shift);
                        score_cotangent(asm, (p, ds), delta, gated);
                    }
                }
            }
        }
        if self.form.has_bias_grad() {
            self.store_scores(emit, &moved, place, key);
        }
        let asm = &mut emit.asm;
        let k_lines = tiles.k.left(asm, None);
        let right = RightOperand { at: now(asm, k_lines), pitch: tiles.k.pitch, columns: false };
        let mut cotangents = |asm: &mut Asm, i: usize, k: usize| moved.rounded(asm, dtype, i, k);
        multiply(asm, dtype, dq, &mut cotangents, (right, tile.step / UNIT));
    }

    /// Stores the cotangents of a tile of scores, whose first key is given.
    fn store_scores(
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
                let down = i as i64 * UNIT + half as i64 * 8;
                let row = made(asm, Class::Word, "add.s32", format_args!("{}, {down}", place.line));
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
