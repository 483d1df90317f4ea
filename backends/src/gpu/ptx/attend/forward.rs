//! The way there: weighed values of some rows, and the logarithms of their sums.

use super::AttendPass;
use super::scores::{LEAST, LN_2, ScoreLines, ScorePlace, across, exponential, shift};
use super::tile::{Accumulators, SharedTile, TileCopy, made};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::AttentionForm;

/// What a thread knows of its lines, two for each tile of 16: the maximum so far and its part of the sum.
struct RunningSums {
    most: Vec<[Reg; 2]>,
    total: Vec<[Reg; 2]>,
}

impl RunningSums {
    fn new(asm: &mut Asm, tall: usize) -> RunningSums {
        let mut all = |number: &str| {
            (0..tall).map(|_| [0; 2].map(|_| made(asm, Class::Single, "mov.b32", number))).collect()
        };
        RunningSums { most: all(LEAST), total: all("0f00000000") }
    }

    /// Scores become weights, and what was summed is scaled to the new maxima.
    fn weigh(&self, emit: &mut Emit<'_>, scores: &Accumulators, values: &Accumulators) {
        for i in 0..scores.tall {
            for half in 0..2 {
                let (most, total) = (self.most[i][half], self.total[i][half]);
                let mut now = made(&mut emit.asm, Class::Single, "mov.b32", LEAST);
                for j in 0..scores.wide {
                    for s in scores.pair(i, j, half) {
                        now = made(
                            &mut emit.asm,
                            Class::Single,
                            "max.NaN.f32",
                            format_args!("{now}, {s}"),
                        );
                    }
                }
                let now = across(emit, "max.NaN.f32", now);
                let asm = &mut emit.asm;
                let now = made(asm, Class::Single, "max.NaN.f32", format_args!("{most}, {now}"));
                let shift = shift(asm, now);
                let scale = exponential(asm, most, shift);
                asm.set(most, now);
                asm.emit(format_args!("mul.rn.f32 {total}, {total}, {scale}"));
                for j in 0..scores.wide {
                    for s in scores.pair(i, j, half) {
                        let p = exponential(asm, s, shift);
                        asm.set(s, p);
                        asm.emit(format_args!("add.rn.f32 {total}, {total}, {p}"));
                    }
                }
                for j in 0..values.wide {
                    for x in values.pair(i, j, half) {
                        asm.emit(format_args!("mul.rn.f32 {x}, {x}, {scale}"));
                    }
                }
            }
        }
    }
}

impl AttendPass<'_> {
    /// Weighed values; `each` blocks have the rows of a head.
    pub(super) fn values(&self, emit: &mut Emit<'_>, each: i64) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { rows, stream, depth, width, .. } = *form;
        let (head, first) = self.block(&mut emit.asm, each, form.step.causal);
        let group =
            made(&mut emit.asm, Class::Word, "div.u32", format_args!("{head}, {}", form.shared));
        let q_at = self.head_at(emit, form.step.inputs[0], head, rows, depth * 2);
        let k_at = self.head_at(emit, form.step.inputs[1], group, stream, depth * 2);
        let v_at = self.head_at(emit, form.step.inputs[2], group, stream, width * 2);
        let q = SharedTile::new(0, tile.own, depth);
        let k = SharedTile::new(q.end(), tile.step, depth);
        let v = SharedTile::new(k.end(), tile.step, width);
        let threads = tile.grid().threads;
        let asm = &mut emit.asm;
        let copies = [(k, k_at), (v, v_at)]
            .map(|(tile, at)| TileCopy::new(asm, tile, (at, stream), threads));
        TileCopy::new(asm, q, (q_at, rows), threads).copy(asm, first, None);
        let range = self.key_tiles(asm, first, false);
        let place = ScorePlace::new(asm, form, (ScoreLines::Rows, tile), first).at_head(emit, head);
        let asm = &mut emit.asm;
        let values = Accumulators::zeros(asm, tile.tall(), AttentionForm::padded(width));
        let sums = RunningSums::new(asm, values.tall);
        let copy = |asm: &mut Asm, first: Reg, stage: Reg| {
            copies.iter().for_each(|c| c.copy(asm, first, Some(stage)));
        };
        self.go_over(emit, &range, v.end() - k.at, &copy, &mut |emit, turn| {
            let asm = &mut emit.asm;
            let scores = self.products(asm, &q, &k, turn);
            place.hide(asm, &scores, turn);
            sums.weigh(emit, &scores, &values);
            self.add_weighed(&mut emit.asm, &values, &scores, (&v, turn));
        });
        self.finish(emit, (&sums, &values), &place, head);
    }

    /// Divides what was weighed by the sums of weights, and stores it with their logarithms.
    fn finish(
        &self,
        emit: &mut Emit<'_>,
        (sums, values): (&RunningSums, &Accumulators),
        place: &ScorePlace<'_>,
        head: Reg,
    ) {
        let AttentionForm { rows, width, .. } = *self.form;
        let [y, lse] = [0, 1].map(|k| self.form.step.outputs[k]);
        let y_at = self.head_at(emit, y, head, rows, width * 2);
        let lse_at = self.head_at(emit, lse, head, rows, 4);
        for i in 0..values.tall {
            for half in 0..2 {
                let total = across(emit, "add.rn.f32", sums.total[i][half]);
                let asm = &mut emit.asm;
                let below = made(asm, Class::Single, "rcp.approx.ftz.f32", total);
                for j in 0..values.wide {
                    for x in values.pair(i, j, half) {
                        asm.emit(format_args!("mul.rn.f32 {x}, {x}, {below}"));
                    }
                }
                let shift = shift(asm, sums.most[i][half]);
                let log = made(asm, Class::Single, "lg2.approx.f32", total);
                let log = made(asm, Class::Single, "add.rn.f32", format_args!("{log}, {shift}"));
                let log = made(asm, Class::Single, "mul.rn.f32", format_args!("{log}, {LN_2}"));
                let row = place.line_of(asm, i, half);
                let live = made(asm, Class::Pred, "setp.lt.s32", format_args!("{row}, {rows}"));
                // One of the four threads that share a row stores its number.
                let one = made(
                    asm,
                    Class::Pred,
                    "setp.eq.and.s32",
                    format_args!("{}, 0, {live}", place.column),
                );
                let at = made(asm, Class::Long, "mad.wide.s32", format_args!("{row}, 4, {lse_at}"));
                asm.emit(format_args!("@{one} st.global.f32 [{at}], {log}"));
            }
        }
        self.store(emit, values, (y_at, width, rows), place);
    }
}
