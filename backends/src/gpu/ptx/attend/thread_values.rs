//! The way there in the defined order: weighed values of some rows, and the logarithms of their sums.

use super::functions::ScoreFunctions;
use super::scores::{LEAST, ScoreLines};
use super::thread_copies::{begin_step, wait_step};
use super::thread_scores::{ThreadGrid, ThreadTile};
use super::thread_tile::{COLUMNS, LINES, ThreadScores, ThreadSums, line_of_thread};
use super::tile::{LineBounds, made};
use super::{AttendPass, each_tile};
use crate::gpu::ptx::asm::{Asm, Class, Reg, guard_prefix};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::AttentionForm;
use crate::gpu::schedule::attention_tiles::THREADS_ACROSS;

/// What a thread knows of its rows: the maximum so far, the sum of weights, and the weighed values.
struct RowSums {
    most: [Reg; LINES],
    total: [Reg; LINES],
    values: ThreadSums,
}

/// By how much each row's sums shrink, and whether the row takes part in a tile.
struct Shrinking {
    scale: [Reg; LINES],
    takes: [Option<Reg>; LINES],
}

impl RowSums {
    fn new(asm: &mut Asm, width: i64) -> RowSums {
        let mut all =
            |number: &str| std::array::from_fn(|_| made(asm, Class::Single, "mov.b32", number));
        let (most, total) = (all(LEAST), all("0f00000000"));
        RowSums { most, total, values: ThreadSums::zeros(asm, width) }
    }

    /// Scores become weights, and their sums are added.
    fn weigh(
        &self,
        emit: &mut Emit<'_>,
        functions: &ScoreFunctions,
        tile: &ThreadTile<'_>,
        scores: &ThreadScores,
    ) -> Shrinking {
        let takes = tile.reaches(&mut emit.asm);
        let scale = std::array::from_fn(|i| {
            let (line, most) = (&scores[i], self.most[i]);
            let mut now = line[0];
            for s in &line[1..] {
                now = made(&mut emit.asm, Class::Single, "max.NaN.f32", format_args!("{now}, {s}"));
            }
            let now = across(emit, "max.NaN.f32", now, THREADS_ACROSS / 2);
            let asm = &mut emit.asm;
            let now = made(asm, Class::Single, "max.NaN.f32", format_args!("{most}, {now}"));
            let by = functions.shift(asm, now);
            let scale = functions.exponential(asm, most, by);
            for &s in line {
                let p = functions.exponential(asm, s, by);
                asm.set(s, p);
            }
            let when = guard_prefix(takes[i]);
            asm.emit(format_args!("{when}mov.b32 {most}, {now}"));
            scale
        });
        tile.leave_out(&mut emit.asm, scores);
        for i in 0..LINES {
            let sum = lane_order(emit, &scores[i]);
            let asm = &mut emit.asm;
            let (total, scale) = (self.total[i], scale[i]);
            let shrunk = made(asm, Class::Single, "mul.rn.f32", format_args!("{total}, {scale}"));
            let when = guard_prefix(takes[i]);
            asm.emit(format_args!("{when}add.rn.f32 {total}, {shrunk}, {sum}"));
        }
        Shrinking { scale, takes }
    }

    /// Adds the weighed values of a tile.
    fn add(&self, asm: &mut Asm, part: &ThreadSums, shrinking: &Shrinking) {
        for i in 0..LINES {
            let (scale, takes) = (shrinking.scale[i], shrinking.takes[i]);
            let when = guard_prefix(takes);
            for sum in self.values.line(i) {
                asm.emit(format_args!("{when}mul.rn.f32 {sum}, {sum}, {scale}"));
            }
        }
        self.values.add(asm, part, &shrinking.takes);
    }
}

/// A number of the threads along a line, joined: with those `from` away first, then with those half as far.
fn across(emit: &mut Emit<'_>, op: &str, mut x: Reg, from: i64) -> Reg {
    let mut bits = from;
    while bits > 0 {
        let other = emit.exchanged(x, bits as u32);
        x = made(&mut emit.asm, Class::Single, op, format_args!("{x}, {other}"));
        bits /= 2;
    }
    x
}

/// The sum of a line in the lane order. A thread has the elements of two lanes, which are the first to be joined.
fn lane_order(emit: &mut Emit<'_>, line: &[Reg; COLUMNS]) -> Reg {
    let mut lane = |first: usize| {
        let mut sum = line[first];
        for x in line[first..].iter().step_by(2).skip(1) {
            sum = made(&mut emit.asm, Class::Single, "add.rn.f32", format_args!("{sum}, {x}"));
        }
        sum
    };
    let (low, high) = (lane(0), lane(1));
    let sum = made(&mut emit.asm, Class::Single, "add.rn.f32", format_args!("{low}, {high}"));
    across(emit, "add.rn.f32", sum, THREADS_ACROSS / 2)
}

impl AttendPass<'_> {
    /// Weighed values.
    pub(super) fn values_by_threads(&self, emit: &mut Emit<'_>) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { rows, stream, width, .. } = *form;
        let tiles = form.float_tiles(tile);
        let [q, k, v, ..] = form.step.inputs[..] else { return };
        let (head, first) = self.longest_first(&mut emit.asm);
        let group = self.group_of(&mut emit.asm, head);
        let q = self.copy_of(emit, (q, head, rows), &tiles.own[0]);
        let copies = [(k, &tiles.step[0]), (v, &tiles.step[1])];
        let copies = copies.map(|(b, to)| self.copy_of(emit, (b, group, stream), to));
        q.copy(&mut emit.asm, first, None);
        let range = self.tiles(&mut emit.asm, first, false);
        let grid = ThreadGrid::new(&mut emit.asm, (form, ScoreLines::Rows), first);
        let grid = grid.at_head(emit, head);
        let sums = RowSums::new(&mut emit.asm, width);
        let at = emit.asm.copied(range.begin);
        each_tile(emit, at, range.end, |emit| {
            let asm = &mut emit.asm;
            let key = made(asm, Class::Word, "mul.lo.s32", format_args!("{at}, {}", tile.step));
            begin_step(asm, &copies, (key, LineBounds::default()));
            wait_step(asm, 1);
            let scores = grid.place.scores(emit, &tiles.own[0], &tiles.step[0]);
            let here = grid.tile(&mut emit.asm, key);
            here.hide(&mut emit.asm, &scores);
            let shrinking = sums.weigh(emit, self.functions, &here, &scores);
            let asm = &mut emit.asm;
            // All have read the keys, in whose place the weights are.
            asm.emit("bar.sync 0");
            grid.place.put(asm, &tiles.weights, &scores);
            wait_step(asm, 0);
            let part = grid.place.weighed(emit, &tiles.weights, &tiles.step[1]);
            sums.add(&mut emit.asm, &part, &shrinking);
        });
        emit.asm.emit("cp.async.wait_group 0");
        self.finish_by_threads(emit, &sums, &grid, head);
    }

    /// Divides what was weighed by the sums of weights, and stores it with their logarithms.
    fn finish_by_threads(
        &self,
        emit: &mut Emit<'_>,
        sums: &RowSums,
        grid: &ThreadGrid<'_>,
        head: Reg,
    ) {
        let AttentionForm { rows, width, .. } = *self.form;
        let [y, lse] = [0, 1].map(|k| self.form.step.outputs[k]);
        let y = self.head_at(emit, y, head, rows, width * 4);
        let lse = self.head_at(emit, lse, head, rows, 4);
        let asm = &mut emit.asm;
        for i in 0..LINES {
            let total = sums.total[i];
            self.functions.divide(asm, sums.values.line(i).iter().copied(), total);
            let shift = self.functions.shift(asm, sums.most[i]);
            let log = self.functions.log_sum(asm, total, shift);
            let (row, live) = line_of_thread(asm, (grid.line, i), rows);
            // One of the threads that share a row stores its number.
            let one = format!("{}, 0, {live}", grid.place.across);
            let one = made(asm, Class::Pred, "setp.eq.and.s32", one);
            let at = made(asm, Class::Long, "mad.wide.s32", format_args!("{row}, 4, {lse}"));
            asm.emit(format_args!("@{one} st.global.f32 [{at}], {log}"));
        }
        sums.values.store(asm, grid.place, (y, width), (grid.line, rows));
    }
}
