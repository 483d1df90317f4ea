//! The way back of attention: weights are computed again from scores and the logarithms of their sums, tile by tile.
//!
//! Cotangents of queries are sums over blocks of keys, those of keys and values over blocks of rows, head by head; both
//! ascend. Where there are enough groups of heads, a task is a group, which goes through its tiles once. Otherwise tasks are
//! blocks of rows and then blocks of keys, and each tile is computed twice. The bits are the same.
#![allow(unsafe_code)]

use super::rows::ScoreElement;
use super::{CompiledAttention, HeadTile, TaskMemory, matrix};
use crate::cpu::workers::WorkerSet;
use smallvec::SmallVec;

/// Which sums a tile is added to.
#[derive(Clone, Copy)]
struct WantedSums {
    queries: bool,
    keys: bool,
}

impl CompiledAttention {
    pub(super) fn backward<T: ScoreElement>(&self, worker_set: &mut WorkerSet<'_>) {
        let s = self.shape;
        let (of_rows, of_keys) = (s.row_blocks(), s.key_blocks());
        let heads = s.groups * s.shared;
        let threads = worker_set.threads();
        let seen = self.reach.blocks(of_keys).max(1) as u64;
        let row = self.tile_work().saturating_mul(2 * seen);
        let whole = row.saturating_mul((s.shared * of_rows.max(1)) as u64);
        self.begin::<T>(worker_set);
        if threads == 1 || s.groups >= 4 * threads {
            let wanted = WantedSums { queries: true, keys: true };
            self.pieces::<T>(worker_set, (s.groups, whole), |memory, group| {
                for (head, a) in heads_of(group, s.shared, of_rows) {
                    (0..of_keys).for_each(|c| memory.backward((head, a, c), wanted));
                }
            });
        } else {
            let wanted = WantedSums { queries: true, keys: false };
            self.pieces::<T>(worker_set, (heads * of_rows, row), |memory, k| {
                let (head, a) = (k / of_rows, of_rows - 1 - k % of_rows);
                (0..of_keys).for_each(|c| memory.backward((head, a, c), wanted));
            });
            let wanted = WantedSums { queries: false, keys: true };
            let column = whole / of_keys.max(1) as u64;
            self.pieces::<T>(worker_set, (s.groups * of_keys, column), |memory, k| {
                for (head, a) in heads_of(k / of_keys, s.shared, of_rows) {
                    memory.backward((head, a, k % of_keys), wanted);
                }
            });
        }
        self.end::<T>(worker_set);
    }

    /// Elements of each result.
    fn elements(&self) -> SmallVec<[usize; 4]> {
        let s = &self.shape;
        let rows = s.groups * s.shared * s.rows;
        let all = [rows * s.depth, s.groups * s.stream * s.depth, s.groups * s.stream * s.width];
        let of_scores = self.outputs.get(3).map(|_| rows * s.stream);
        all.into_iter().chain(of_scores).collect()
    }

    /// Zeros in all results.
    fn begin<T: ScoreElement>(&self, worker_set: &mut WorkerSet<'_>) {
        self.all::<T>(worker_set, |_, elements| elements.fill(T::default()));
    }

    /// Canonical NaNs in all results.
    fn end<T: ScoreElement>(&self, worker_set: &mut WorkerSet<'_>) {
        self.all::<T>(worker_set, |memory, elements| {
            // SAFETY: the host has the instructions.
            unsafe { (memory.kernels.canonical)(elements) }
        });
    }

    /// Goes over the elements of all results.
    fn all<T: ScoreElement>(
        &self,
        worker_set: &mut WorkerSet<'_>,
        each: impl Fn(&TaskMemory<'_, T>, &mut [T]) + Sync,
    ) {
        const PIECE: usize = 1 << 16;
        for (&output, n) in self.outputs.iter().zip(self.elements()) {
            let count = n.div_ceil(PIECE);
            self.pieces::<T>(worker_set, (count, super::WORK / 4), |memory, k| {
                let first = k * PIECE;
                let at = memory.buffer(output, first);
                // SAFETY: the buffer has as many elements, and these are this task's alone.
                let elements = unsafe { std::slice::from_raw_parts_mut(at, PIECE.min(n - first)) };
                each(memory, elements);
            });
        }
    }
}

/// The heads of a group and their blocks of rows, in the order of sums.
fn heads_of(group: usize, shared: usize, blocks: usize) -> impl Iterator<Item = (usize, usize)> {
    (group * shared..(group + 1) * shared).flat_map(move |head| (0..blocks).map(move |a| (head, a)))
}

impl<T: ScoreElement> TaskMemory<'_, T> {
    /// Adds what a tile gives: rows `a` and keys `c` of a head.
    fn backward(&mut self, (head, a, c): (usize, usize, usize), wanted: WantedSums) {
        let step = self.step;
        let s = step.shape;
        let keys = s.keys(c);
        let rows = self.reaching(s.rows(a), keys.start);
        if rows.is_empty() || keys.is_empty() {
            return;
        }
        let (m, n, group) = (rows.len(), keys.len(), head / s.shared.max(1));
        let (first_row, first_key) = (head * s.rows + rows.start, group * s.stream + keys.start);
        let of_rows = |last: usize| first_row * last;
        let of_keys = |last: usize| first_key * last;
        let q = self.buffer(step.inputs[0], of_rows(s.depth));
        let k = self.buffer(step.inputs[1], of_keys(s.depth));
        let v = self.buffer(step.inputs[2], of_keys(s.width));
        let dy = self.buffer(step.inputs[4], of_rows(s.width));
        let tile = self.tile(head, rows, keys);
        let weights = self.weights(&tile, [q, k]);
        // SAFETY: there is room for a second tile.
        let moved = unsafe { self.own(step.own.moved, m * n) };
        let (lhs, rhs) = (matrix(dy, s.width), matrix(v, s.width).transposed());
        // SAFETY: the verifier has seen that buffers have the extents of the op.
        unsafe { self.product([m, n, s.width], lhs, rhs, matrix(moved.as_mut_ptr(), n)) };
        self.cotangents(&tile, weights, moved);
        if wanted.queries {
            self.stored(&tile, moved);
            let to = self.buffer(step.outputs[0], of_rows(s.depth));
            let lhs = matrix(moved.as_mut_ptr(), n);
            // SAFETY: these rows of the result are this task's alone, and have as many elements.
            unsafe { self.sum([m, s.depth, n], lhs, matrix(k, s.depth), to) };
        }
        if wanted.keys {
            for (x, weights, last, output) in
                [(q, &mut *moved, s.depth, 1), (dy, weights, s.width, 2)]
            {
                let to = self.buffer(step.outputs[output], of_keys(last));
                let lhs = matrix(weights.as_mut_ptr(), n).transposed();
                // SAFETY: these keys of the result are this task's alone, and have as many elements.
                unsafe { self.sum([n, last, m], lhs, matrix(x, last), to) };
            }
        }
    }

    /// The weights of a tile.
    fn weights<'s>(&mut self, tile: &HeadTile<T>, [q, k]: [*mut T; 2]) -> &'s mut [T] {
        let step = self.step;
        let s = step.shape;
        let [m, n] = tile.size();
        // SAFETY: there is room for a tile, which the task uses until the next one.
        let scores = unsafe { self.own(step.own.scores, m * n) };
        let (lhs, rhs) = (matrix(q, s.depth), matrix(k, s.depth).transposed());
        // SAFETY: the verifier has seen that buffers have the extents of the op.
        unsafe { self.product([m, n, s.depth], lhs, rhs, matrix(scores.as_mut_ptr(), n)) };
        let log_sum = self.buffer(step.inputs[3], tile.head * s.rows + tile.rows.start);
        let scored = tile.scored(scores);
        // SAFETY: there is a logarithm for each row, the host has the instructions, and the mask or the bias has the extents
        // of scores.
        unsafe { (self.kernels.less_log_sum)(scored, std::slice::from_raw_parts(log_sum, m)) };
        self.each(step.exp, scores.as_mut_ptr(), m * n);
        scores
    }

    /// The cotangents of the scores of a tile, in place of those of its weights.
    fn cotangents(&self, tile: &HeadTile<T>, weights: &mut [T], moved: &mut [T]) {
        let (m, s) = (tile.rows.len(), self.step.shape);
        let delta = self.buffer(self.step.inputs[5], tile.head * s.rows + tile.rows.start);
        let scored = tile.scored(weights);
        // SAFETY: as for weights.
        unsafe {
            (self.kernels.cotangents)(scored, moved, std::slice::from_raw_parts(delta, m));
        }
    }

    /// Stores the cotangents of scores, where they are wanted.
    fn stored(&self, tile: &HeadTile<T>, moved: &[T]) {
        let Some(&output) = self.step.outputs.get(3) else { return };
        let s = self.step.shape;
        for (i, row) in tile.rows.clone().zip(moved.chunks_exact(tile.keys.len())) {
            let to = self.buffer(output, (tile.head * s.rows + i) * s.stream + tile.keys.start);
            // SAFETY: the row is this task's alone.
            let to = unsafe { std::slice::from_raw_parts_mut(to, row.len()) };
            to.copy_from_slice(row);
        }
    }

    /// Adds a product `[rows, cols, depth]` to dense rows.
    ///
    /// # Safety
    /// The operands have these extents, and `to` as many elements as the product, which nobody else uses.
    unsafe fn sum(
        &self,
        size: [usize; 3],
        lhs: crate::cpu::gemm::MatrixView,
        rhs: crate::cpu::gemm::MatrixView,
        to: *mut T,
    ) {
        let n = size[0] * size[1];
        // SAFETY: there is room for a product of a tile; the rest as the caller promises.
        unsafe {
            let part = self.own(self.step.own.part, n);
            self.product(size, lhs, rhs, matrix(part.as_mut_ptr(), size[1]));
            (self.kernels.added)(std::slice::from_raw_parts_mut(to, n), part);
        }
    }
}
