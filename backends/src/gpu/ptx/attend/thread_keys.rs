//! The way back to keys and values in the defined order: a block owns some keys, and goes over the rows of the heads that share
//! them.

use super::scores::ScoreLines;
use super::thread_copies::{begin_step, number_of_row, wait_step};
use super::thread_scores::{ThreadGrid, ThreadTile, each};
use super::thread_tile::{COLUMNS, LINES, ThreadSums};
use super::tile::{LineBounds, TileCopy, made};
use super::{AttendPass, each_tile, score_cotangent};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention::AttentionForm;
use crate::gpu::schedule::attention_tiles::{BLOCK, FloatTiles};

/// What the way back reads of the rows of a head: copies of queries and cotangents of results, and where the logarithms of sums
/// and the mean cotangents begin.
struct HeadRows {
    tiles: [TileCopy; 2],
    numbers: [Reg; 2],
}

impl HeadRows {
    /// The logarithms of sums of a thread's columns and their mean cotangents; of the last row for those that do not exist.
    fn numbers(&self, asm: &mut Asm, tile: &ThreadTile<'_>, rows: i64) -> [[Reg; COLUMNS]; 2] {
        self.numbers.map(|base| {
            std::array::from_fn(|j| {
                let row = tile.column_of(asm, j);
                number_of_row(asm, base, row, rows)
            })
        })
    }
}

impl AttendPass<'_> {
    /// Cotangents of keys and values.
    pub(super) fn keys_by_threads(&self, emit: &mut Emit<'_>) {
        let (form, tile) = (self.form, self.tile);
        let AttentionForm { stream, depth, width, shared, .. } = *form;
        let tiles = form.float_tiles(tile);
        let [_, k, v, ..] = form.step.inputs[..] else { return };
        let (group, first) = self.longest_first(&mut emit.asm);
        for (b, to) in [(k, &tiles.own[0]), (v, &tiles.own[1])] {
            self.copy_of(emit, (b, group, stream), to).copy(&mut emit.asm, first, None);
        }
        let asm = &mut emit.asm;
        let grid = ThreadGrid::new(asm, (form, ScoreLines::Keys), first);
        let [dk, dv] = [depth, width].map(|n| ThreadSums::zeros(asm, n));
        let head = made(asm, Class::Word, "mul.lo.s32", format_args!("{group}, {shared}"));
        let end = made(asm, Class::Word, "add.s32", format_args!("{head}, {shared}"));
        each_tile(emit, head, end, |emit| {
            self.rows_by_threads(emit, head, (&grid, &tiles), [&dk, &dv]);
        });
        emit.asm.emit("cp.async.wait_group 0");
        let [_, of_k, of_v, ..] = form.step.outputs[..] else { return };
        for (b, sums, n) in [(of_k, &dk, depth), (of_v, &dv, width)] {
            let at = self.head_at(emit, b, group, stream, n * 4);
            sums.store(&mut emit.asm, grid.place, (at, n), (grid.line, stream));
        }
    }

    /// What is read of the rows of a head.
    fn rows_read(&self, emit: &mut Emit<'_>, head: Reg, tiles: &FloatTiles) -> Option<HeadRows> {
        let rows = self.form.rows;
        let [q, _, _, lse, dy, delta, ..] = self.form.step.inputs[..] else { return None };
        let copies = [(q, &tiles.step[0]), (dy, &tiles.step[1])];
        let copies = copies.map(|(b, to)| self.copy_of(emit, (b, head, rows), to));
        let numbers = [lse, delta].map(|b| self.head_at(emit, b, head, rows, 4));
        Some(HeadRows { tiles: copies, numbers })
    }

    /// Adds what the rows of one head give.
    fn rows_by_threads(
        &self,
        emit: &mut Emit<'_>,
        head: Reg,
        (grid, tiles): (&ThreadGrid<'_>, &FloatTiles),
        [dk, dv]: [&ThreadSums; 2],
    ) {
        let form = self.form;
        let Some(read) = self.rows_read(emit, head, tiles) else { return };
        let grid = &grid.at_head(emit, head);
        let asm = &mut emit.asm;
        let zero = asm.word(0);
        let LineBounds { from, to } = grid.reaching();
        let block = |asm: &mut Asm, row: Reg| {
            made(asm, Class::Word, "div.s32", format_args!("{row}, {BLOCK}"))
        };
        let begin = from.map_or(zero, |row| block(asm, row));
        let end = match to {
            None => asm.word((form.rows + BLOCK - 1) / BLOCK),
            Some(to) => {
                let last = made(asm, Class::Word, "add.s32", format_args!("{to}, {}", BLOCK - 1));
                block(asm, last)
            }
        };
        let at = asm.copied(begin);
        each_tile(emit, at, end, |emit| {
            let asm = &mut emit.asm;
            let row = made(asm, Class::Word, "mul.lo.s32", format_args!("{at}, {BLOCK}"));
            begin_step(asm, &read.tiles, (row, grid.reaching()));
            let here = grid.tile(asm, row);
            let [logs, deltas] = read.numbers(asm, &here, form.rows);
            wait_step(asm, 1);
            let weights = grid.place.scores(emit, &tiles.own[0], &tiles.step[0]);
            let asm = &mut emit.asm;
            here.add_bias(asm, &weights);
            let shifts = logs.map(|log| self.functions.shift(asm, log));
            each(|i, j| {
                let p = self.functions.exponential(asm, weights[i][j], shifts[j]);
                asm.set(weights[i][j], p);
            });
            here.gate(asm, &weights);
            here.leave_out(asm, &weights);
            grid.place.put(asm, &tiles.weights, &weights);
            wait_step(asm, 0);
            let all = [None; LINES];
            let part = grid.place.weighed(emit, &tiles.weights, &tiles.step[1]);
            dv.add(&mut emit.asm, &part, &all);
            let moved = grid.place.scores(emit, &tiles.own[1], &tiles.step[1]);
            let asm = &mut emit.asm;
            each(|i, j| score_cotangent(asm, (weights[i][j], moved[i][j]), deltas[j]));
            here.gate(asm, &moved);
            here.leave_out(asm, &moved);
            // All have read the weights, in whose place the cotangents of scores are.
            asm.emit("bar.sync 0");
            grid.place.put(asm, &tiles.weights, &moved);
            asm.emit("bar.sync 0");
            let part = grid.place.weighed(emit, &tiles.weights, &tiles.step[0]);
            dk.add(&mut emit.asm, &part, &all);
        });
    }
}
