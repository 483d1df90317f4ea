//! Operands of products by dot-product instructions: packed into tiles once, which all threads then read.
#![allow(unsafe_code)]

use super::gemm::MatrixView;
use super::gemm::dots::{DotKernel, LINES, OperandSide, STRIPE, candidate, packed_bytes};
use super::machine_code::SweepId;
use super::operand::View;
use super::point_tasks::TaskCount;
use super::workers::{Worker, WorkerSet};
use adfuse_ir::DType;
use adfuse_ir::kernel::{Feed, Member};

/// An operand that a sweep computes into an array: batch, free axis, depth.
pub(super) struct ComputedOperand {
    pub(super) sweep: SweepId,
    pub(super) at: u64,
    pub(super) count: i64,
}

/// Elements of an array that one task computes, at least a few microseconds of work.
const ELEMENTS: i64 = 1 << 14;

impl ComputedOperand {
    /// Computes the array, whose elements have this many bytes.
    pub(super) fn compute(&self, worker_set: &mut WorkerSet<'_>, bytes: u64) {
        let tasks = TaskCount::of((self.count + ELEMENTS - 1) / ELEMENTS, ELEMENTS);
        worker_set.each(tasks, |code, worker, k| {
            let at = worker.all(self.at);
            worker.set(0, at, 0, bytes);
            let end = ((k + 1) * ELEMENTS).min(self.count);
            worker.sweep(code, self.sweep, k * ELEMENTS, end);
        });
    }
}

/// Where elements are before they are packed.
pub(super) enum TileSource {
    View(View),
    Array(ComputedOperand),
}

/// A packed operand.
pub(super) struct TiledOperand {
    pub(super) kernel: &'static DotKernel,
    pub(super) side: OperandSide,
    pub(super) source: TileSource,
    /// Batch, lines, depth.
    pub(super) size: [i64; 3],
    /// Where the tiles are in the memory of all workers.
    pub(super) at: u64,
}

/// The type of the elements of both operands, where products of them are candidates for dot-product instructions.
pub(super) fn dot_element(m: &Member, [_, rows, cols, depth]: [i64; 4]) -> Option<DType> {
    let element = |feed: &Feed| feed.program.outputs.first().map(|&v| feed.program.insts[v].dtype);
    let of = element(&m.lhs).filter(|&d| element(&m.rhs) == Some(d))?;
    candidate(of, m.sum, [rows, cols, depth]).then_some(of)
}

/// Bytes for both operands of a candidate: as arrays of the type of the sums, or packed beside arrays of their own type,
/// whichever is more. So plans of memory are the same whatever extensions the host has, and in every mode.
pub(super) fn reserved(
    element: DType,
    sum: DType,
    [batch, rows, cols, depth]: [i64; 4],
) -> Option<i64> {
    let lines = |n: i64| Some(n.checked_add(63)? / 64 * 64);
    let mut all = [0i64; 2];
    for free in [rows, cols] {
        let count = batch.checked_mul(free)?.checked_mul(depth)?;
        let array = |d: DType| lines(count.checked_mul(d.bytes() as i64)?);
        let tiled = lines(packed_bytes(element, [batch, free, depth])?)?;
        all[0] = all[0].checked_add(array(sum)?)?;
        all[1] = all[1].checked_add(tiled)?.checked_add(array(element)?)?;
    }
    all.into_iter().max()
}

impl TiledOperand {
    /// Panels of a matrix.
    fn panels(&self) -> i64 {
        (self.size[1] + LINES as i64 - 1) / LINES as i64
    }

    fn panel_bytes(&self) -> usize {
        self.kernel.panel(self.size[2] as usize)
    }

    /// Where the tiles of a matrix of the batch begin.
    pub(super) fn start(&self, worker: &Worker, batch: i64) -> *mut u8 {
        worker.all(self.at).wrapping_add((batch * self.panels()) as usize * self.panel_bytes())
    }

    /// Computes the operand, where it is no buffer, and packs it.
    pub(super) fn pack(&self, worker_set: &mut WorkerSet<'_>) {
        let bytes = self.kernel.element().bytes();
        if let TileSource::Array(array) = &self.source {
            array.compute(worker_set, bytes);
        }
        let [batch, lines, depth] = self.size;
        let tasks = (lines + STRIPE as i64 - 1) / STRIPE as i64;
        let stripes = TaskCount::of(batch * tasks, (STRIPE as i64).saturating_mul(depth));
        worker_set.each(stripes, |_, worker, task| {
            let (matrix, first) = (task / tasks, task % tasks * STRIPE as i64);
            let from = self.lines(worker, matrix, first);
            let count = (lines - first).min(STRIPE as i64) as usize;
            let skipped = first as usize / LINES * self.panel_bytes();
            let to = self.start(worker, matrix).wrapping_add(skipped);
            // SAFETY: the verifier has proven that the buffer has these elements, or the array has just been
            // computed; each panel is packed by one task, and there is room for all.
            unsafe { self.kernel.pack(self.side, from, [count, depth as usize], to) };
        });
    }

    /// The lines of a matrix from this one on, as rows.
    fn lines(&self, worker: &Worker, matrix: i64, first: i64) -> MatrixView {
        let bytes = self.kernel.element().bytes();
        let [_, lines, depth] = self.size;
        let (at, [row, column], skipped) = match &self.source {
            TileSource::View(v) => {
                (v.start(worker, matrix, bytes), v.steps, first.wrapping_mul(v.steps[0]))
            }
            TileSource::Array(array) => {
                (worker.all(array.at), [depth, 1], (matrix * lines + first) * depth)
            }
        };
        let at = at.wrapping_offset(skipped.wrapping_mul(bytes as i64) as isize);
        MatrixView { at, row: row as isize, column: column as isize }
    }
}
