//! The way there: weighed values of some rows, and the logarithms of their sums.

use super::AttendPass;
use super::functions::ScoreFunctions;
use super::scores::{LEAST, ScoreLines, ScorePlace, across};
use super::tile::{Accumulators, SharedTile, TileCopy, made};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::AttentionForm;

/// What a thread knows of its lines, two for each tile of 16: the maximum so far and its part of the sum.
pub(super) struct RunningSums {
    most: Vec<[Reg; 2]>,
    total: Vec<[Reg; 2]>,
}

impl RunningSums {
    pub(super) fn new(asm: &mut Asm, tall: usize) -> RunningSums {
        let mut all = |number: &str| {
            (0..tall).map(|_| [0; 2].map(|_| made(asm, Class::Single, "mov.b32", number))).collect()
        };
        RunningSums { most: all(LEAST), total: all("0f00000000") }
    }

    /// Scores become weights; what was summed is to be scaled by these numbers to the new maxima.
    pub(super) fn weigh(
        &self,
        emit: &mut Emit<'_>,
        functions: &ScoreFunctions,
        scores: &Accumulators,
    ) -> Vec<[Reg; 2]> {
        (0..scores.tall)
            .map(|i| [0, 1].map(|half| self.weigh_line(emit, functions, scores, (i, half))))
            .collect()
    }

    fn weigh_line(
        &self,
        emit: &mut Emit<'_>,
        functions: &ScoreFunctions,
        scores: &Accumulators,
        (i, half): (usize, usize),
    ) -> Reg {
        let (most, total) = (self.most[i][half], self.total[i][half]);
        let line = |j: usize| scores.pair(i, j, half);
        let asm = &mut emit.asm;
        // Two chains, since each comparison waits for the one before.
        let mut now = line(0);
        for pair in (1..scores.wide).map(line) {
            for (now, s) in now.iter_mut().zip(pair) {
                *now = made(asm, Class::Single, "max.NaN.f32", format_args!("{now}, {s}"));
            }
        }
        let now = format!("{}, {}", now[0], now[1]);
        let now = made(asm, Class::Single, "max.NaN.f32", now);
        let now = across(emit, "max.NaN.f32", now);
        let asm = &mut emit.asm;
        let now = made(asm, Class::Single, "max.NaN.f32", format_args!("{most}, {now}"));
        let shift = functions.shift(asm, now);
        let scale = functions.exponential(asm, most, shift);
        asm.set(most, now);
        asm.emit(format_args!("mul.rn.f32 {total}, {total}, {scale}"));
        for s in (0..scores.wide).flat_map(line) {
            let p = functions.exponential(asm, s, shift);
            asm.set(s, p);
            asm.emit(format_args!("add.rn.f32 {total}, {total}, {p}"));
        }
        scale
    }
}

impl AttendPass<'_> {
    /// Weighed values; `each` blocks have the rows of a head.
    pub(super) fn values(&self, emit: &mut Emit<'_>, each: i64) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { rows, stream, depth, width, .. } = *form;
        let (head, first) = self.block(&mut emit.asm, each, form.is_limited());
        let group = self.group_of(&mut emit.asm, head);
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
        let range = self.tiles(asm, first, false);
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
            place.hide(asm, &scores, (turn.first, turn.hidden));
            let scales = sums.weigh(emit, self.functions, &scores);
            values.scale(&mut emit.asm, &scales);
            self.add_weighed(&mut emit.asm, &values, &scores, (&v, turn));
        });
        self.finish(emit, (&sums, &values), &place, head);
    }

    /// Divides what was weighed by the sums of weights, and stores it with their logarithms.
    pub(super) fn finish(
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
                let line = (0..values.wide).flat_map(|j| values.pair(i, j, half));
                self.functions.divide(asm, line, total);
                let shift = self.functions.shift(asm, sums.most[i][half]);
                let log = self.functions.log_sum(asm, total, shift);
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
