//! The way back to queries in the defined order: a block owns some rows, and goes over the keys that they see.

use super::scores::ScoreLines;
use super::thread_copies::{begin_step, number_of_row, wait_step};
use super::thread_scores::{ThreadGrid, ThreadTile, each};
use super::thread_tile::{LINES, ThreadScores, ThreadSums, line_of_thread};
use super::tile::{LineBounds, made};
use super::{AttendPass, each_tile, score_cotangent};
use crate::gpu::ptx::asm::{Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::AttentionForm;
use adfuse_ir::kernel::Buffer;

impl AttendPass<'_> {
    /// Cotangents of queries, and of scores where they are wanted.
    pub(super) fn queries_by_threads(&self, emit: &mut Emit<'_>) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { rows, stream, depth, .. } = *form;
        let tiles = form.float_tiles(tile);
        let [q, k, v, lse, dy, delta, ..] = form.step.inputs[..] else { return };
        let (head, first) = self.longest_first(&mut emit.asm);
        let group = self.group_of(&mut emit.asm, head);
        for (b, to) in [(q, &tiles.own[0]), (dy, &tiles.own[1])] {
            self.copy_of(emit, (b, head, rows), to).copy(&mut emit.asm, first, None);
        }
        let copies = [(k, &tiles.step[0]), (v, &tiles.step[1])];
        let copies = copies.map(|(b, to)| self.copy_of(emit, (b, group, stream), to));
        let range = self.tiles(&mut emit.asm, first, form.has_bias_grad());
        let grid = ThreadGrid::new(&mut emit.asm, (form, ScoreLines::Rows), first);
        let grid = grid.at_head(emit, head);
        let [logs, deltas] = [lse, delta].map(|b| self.numbers_of_rows(emit, &grid, (b, head)));
        let shifts = logs.map(|log| self.functions.shift(&mut emit.asm, log));
        let dq = ThreadSums::zeros(&mut emit.asm, depth);
        let at = emit.asm.copied(range.begin);
        each_tile(emit, at, range.end, |emit| {
            let asm = &mut emit.asm;
            let key = made(asm, Class::Word, "mul.lo.s32", format_args!("{at}, {}", tile.step));
            begin_step(asm, &copies, (key, LineBounds::default()));
            wait_step(asm, 1);
            let scores = grid.place.scores(emit, &tiles.own[0], &tiles.step[0]);
            let here = grid.tile(&mut emit.asm, key);
            let asm = &mut emit.asm;
            here.add_bias(asm, &scores);
            each(|i, j| {
                let p = self.functions.exponential(asm, scores[i][j], shifts[i]);
                asm.set(scores[i][j], p);
            });
            wait_step(asm, 0);
            let moved = grid.place.scores(emit, &tiles.own[1], &tiles.step[1]);
            let asm = &mut emit.asm;
            each(|i, j| score_cotangent(asm, (scores[i][j], moved[i][j]), deltas[i]));
            here.gate(asm, &moved);
            if form.has_bias_grad() {
                self.store_by_threads(emit, (&grid, &here), &moved, head);
            }
            let asm = &mut emit.asm;
            here.leave_out(asm, &moved);
            let takes = here.reaches(asm);
            // All have read the values, in whose place the cotangents of scores are.
            asm.emit("bar.sync 0");
            grid.place.put(asm, &tiles.weights, &moved);
            asm.emit("bar.sync 0");
            let part = grid.place.weighed(emit, &tiles.weights, &tiles.step[0]);
            dq.add(&mut emit.asm, &part, &takes);
        });
        emit.asm.emit("cp.async.wait_group 0");
        let to = self.head_at(emit, form.step.outputs[0], head, rows, depth * 4);
        dq.store(&mut emit.asm, grid.place, (to, depth), (grid.line, rows));
    }

    /// The numbers of a thread's rows; of the last row for those that do not exist.
    fn numbers_of_rows(
        &self,
        emit: &mut Emit<'_>,
        grid: &ThreadGrid<'_>,
        (b, head): (Buffer, Reg),
    ) -> [Reg; LINES] {
        let rows = self.form.rows;
        let base = self.head_at(emit, b, head, rows, 4);
        let asm = &mut emit.asm;
        std::array::from_fn(|i| {
            let row = made(asm, Class::Word, "add.s32", format_args!("{}, {i}", grid.line));
            number_of_row(asm, base, row, rows)
        })
    }

    /// Stores the cotangents of the scores of a tile.
    fn store_by_threads(
        &self,
        emit: &mut Emit<'_>,
        (grid, tile): (&ThreadGrid<'_>, &ThreadTile<'_>),
        moved: &ThreadScores,
        head: Reg,
    ) {
        let AttentionForm { rows, stream, .. } = *self.form;
        let base = self.head_at(emit, self.form.step.outputs[3], head, rows, stream * 4);
        let asm = &mut emit.asm;
        for (i, line) in moved.iter().enumerate() {
            let (row, live) = line_of_thread(asm, (grid.line, i), rows);
            let at = format!("{row}, {}, {base}", stream * 4);
            let at = made(asm, Class::Long, "mad.wide.s32", at);
            for (j, x) in line.iter().enumerate() {
                let key = tile.column_of(asm, j);
                let inside = format!("{key}, {stream}, {live}");
                let inside = made(asm, Class::Pred, "setp.lt.and.s32", inside);
                let at = made(asm, Class::Long, "mad.wide.s32", format_args!("{key}, 4, {at}"));
                asm.emit(format_args!("@{inside} st.global.f32 [{at}], {x}"));
            }
        }
    }
}
