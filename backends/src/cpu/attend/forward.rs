//! Attention forward: a block of rows goes over all blocks of keys.
#![allow(unsafe_code)]

use super::rows::ScoreElement;
use super::{CompiledAttention, TaskMemory, matrix};
use crate::cpu::workers::WorkerSet;

impl CompiledAttention {
    pub(super) fn forward<T: ScoreElement>(&self, worker_set: &mut WorkerSet<'_>) {
        let s = self.shape;
        let blocks = s.row_blocks();
        let each = self.tile_work().saturating_mul(self.reach.blocks(s.key_blocks()).max(1) as u64);
        let count = s.groups * s.shared * blocks;
        self.pieces::<T>(worker_set, (count, each), |memory, k| {
            // Under causality the last blocks are the longest: they come first.
            memory.forward(k / blocks, blocks - 1 - k % blocks);
        });
    }
}

impl<T: ScoreElement> TaskMemory<'_, T> {
    /// The results of a block of rows of a head.
    fn forward(&mut self, head: usize, block: usize) {
        let step = self.step;
        let s = step.shape;
        let all = s.rows(block);
        let (n, group) = (all.len(), head / s.shared.max(1));
        let q = self.buffer(step.inputs[0], head * s.rows * s.depth);
        let k = self.buffer(step.inputs[1], group * s.stream * s.depth);
        let v = self.buffer(step.inputs[2], group * s.stream * s.width);
        // SAFETY: each piece of the worker's memory has room for a block of rows, and these are different pieces.
        let [most, scale, total] =
            unsafe { [step.own.most, step.own.scale, step.own.total].map(|at| self.own(at, n)) };
        // SAFETY: as above.
        let sums = unsafe { self.own(step.own.sums, n * s.width) };
        most.fill(T::LEAST);
        total.fill(T::default());
        sums.fill(T::default());
        for c in 0..s.key_blocks() {
            let keys = s.keys(c);
            let rows = self.reaching(all.clone(), keys.start);
            if rows.is_empty() {
                continue;
            }
            let (m, here) = (rows.len(), rows.start - all.start..rows.end - all.start);
            // SAFETY: there is room for a tile and its products.
            let scores = unsafe { self.own(step.own.scores, m * keys.len()) };
            let out = matrix(scores.as_mut_ptr(), keys.len());
            let rhs = matrix(k.wrapping_add(keys.start * s.depth), s.depth).transposed();
            let lhs = matrix(q.wrapping_add(rows.start * s.depth), s.depth);
            // SAFETY: the verifier has seen that buffers have the extents of the op.
            unsafe { self.product([m, keys.len(), s.depth], lhs, rhs, out) };
            let tile = self.tile(head, rows, keys.clone());
            let (most, scale) = (&mut most[here.clone()], &mut scale[here.clone()]);
            // SAFETY: the host has the instructions, and the mask or the bias has the extents of scores.
            unsafe { (self.kernels.shifted)(tile.scored(scores), most, scale) };
            self.each(step.exp, scores.as_mut_ptr(), scores.len());
            self.each(step.exp, scale.as_mut_ptr(), m);
            // SAFETY: the host has the instructions.
            unsafe { (self.kernels.summed)(scores, keys.len(), scale, &mut total[here.clone()]) };
            // SAFETY: there is room for a tile's products.
            let part = unsafe { self.own(step.own.part, m * s.width) };
            let lhs = matrix(scores.as_mut_ptr(), keys.len());
            let rhs = matrix(v.wrapping_add(keys.start * s.width), s.width);
            let out = matrix(part.as_mut_ptr(), s.width);
            // SAFETY: as above; the worker's memory is its own.
            unsafe { self.product([m, s.width, keys.len()], lhs, rhs, out) };
            if s.width > 0 {
                let sums = &mut sums[here.start * s.width..here.end * s.width];
                // SAFETY: the host has the instructions.
                unsafe { (self.kernels.weighed)(sums, s.width, scale, part) };
            }
        }
        let first = head * s.rows + all.start;
        let y = self.buffer(step.outputs[0], first * s.width);
        let log_sum = self.buffer(step.outputs[1], first);
        // SAFETY: the rows are this task's alone, and the host has the instructions.
        unsafe {
            let y = std::slice::from_raw_parts_mut(y, n * s.width);
            if s.width > 0 {
                (self.kernels.finished)(sums, s.width, total, y);
            }
            self.each(step.log, total.as_mut_ptr(), n);
            let log_sum = std::slice::from_raw_parts_mut(log_sum, n);
            (self.kernels.log_sums)(most, total, log_sum);
        }
    }
}
