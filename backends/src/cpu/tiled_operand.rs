//! Operands of products by dot-product instructions: packed into tiles once, which all threads then read, or rows where they are.
#![allow(unsafe_code)]

use super::computed_operand::ComputedOperand;
use super::gemm::MatrixView;
use super::gemm::dots::{
    DotKernel, LINES, OperandSide, OperandTiles, STRIPE, candidate, packed_bytes,
};
use super::operand::View;
use super::point_tasks::TaskCount;
use super::workers::{Worker, WorkerSet};
use adfuse_ir::DType;
use adfuse_ir::kernel::{Feed, Member};

/// Where elements are before they are packed.
pub(super) enum TileSource {
    View(View),
    Array(ComputedOperand),
}

impl TileSource {
    /// Whether a kernel reads rows of this many elements where they are.
    pub(super) fn in_place(&self, kernel: &DotKernel, [rows, depth]: [i64; 2]) -> bool {
        let steps = match self {
            TileSource::View(v) => v.steps,
            TileSource::Array(array) => array.steps,
        };
        let (Ok(apart), 1) = (usize::try_from(steps[0]), steps[1]) else { return false };
        let bytes = kernel.element().bytes() as usize;
        kernel.reads_in_place([rows, depth].map(|n| n as usize), apart.saturating_mul(bytes))
    }
}

/// An operand in tiles.
pub(super) struct TiledOperand {
    pub(super) kernel: &'static DotKernel,
    pub(super) side: OperandSide,
    pub(super) source: TileSource,
    /// Batch, lines, depth.
    pub(super) size: [i64; 3],
    /// Where the tiles are in the memory of all workers; `None` where lines are read where they are.
    pub(super) at: Option<u64>,
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

    /// The tiles of a matrix of the batch.
    pub(super) fn tiles(&self, worker: &Worker, batch: i64) -> OperandTiles {
        let Some(at) = self.at else {
            let lines = self.lines(worker, batch, 0);
            let apart = lines.row.unsigned_abs() * self.kernel.element().bytes() as usize;
            return OperandTiles::in_place(lines.at, apart);
        };
        let depth = self.size[2] as usize;
        let skipped = (batch * self.panels()) as usize * self.kernel.panel(depth);
        self.kernel.packed(worker.all(at).wrapping_add(skipped), depth)
    }

    /// The tasks of packing it, each a stripe of a matrix.
    fn stripes(&self) -> i64 {
        let [batch, lines, _] = self.size;
        if self.at.is_some() { batch * Self::stripes_of(lines) } else { 0 }
    }

    fn stripes_of(lines: i64) -> i64 {
        (lines + STRIPE as i64 - 1) / STRIPE as i64
    }

    /// Packs a stripe.
    fn pack(&self, worker: &Worker, task: i64) {
        let Some(at) = self.at else { return };
        let [_, lines, depth] = self.size.map(|n| n as usize);
        let tasks = Self::stripes_of(self.size[1]);
        let (matrix, first) = (task / tasks, task % tasks * STRIPE as i64);
        let count = (lines - first as usize).min(STRIPE);
        let panel = (matrix * self.panels()) as usize + first as usize / LINES;
        let to = worker.all(at).wrapping_add(panel * self.kernel.panel(depth));
        let from = self.lines(worker, matrix, first);
        // SAFETY: the verifier has proven that the buffer has these elements, or the array has just been
        // computed; each panel is packed by one task, and there is room for all.
        unsafe { self.kernel.pack(self.side, from, [count, depth], to) };
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
                let skipped = matrix * lines * depth + first * array.steps[0];
                (worker.all(array.at), array.steps, skipped)
            }
        };
        let at = at.wrapping_offset(skipped.wrapping_mul(bytes as i64) as isize);
        MatrixView { at, row: row as isize, column: column as isize }
    }
}

/// Computes operands that are no buffers, and packs those that are not read where they are, in tasks of both.
pub(super) fn pack_both(both: &[TiledOperand; 2], worker_set: &mut WorkerSet<'_>) {
    for operand in both {
        if let TileSource::Array(array) = &operand.source {
            array.compute(worker_set, operand.kernel.element().bytes());
        }
    }
    let [left, right] = both;
    let [first, second] = both.each_ref().map(TiledOperand::stripes);
    if first + second == 0 {
        return;
    }
    let elements = (STRIPE as i64).saturating_mul(left.size[2]);
    worker_set.each(TaskCount::of_packing(first + second, elements), |_, worker, task| {
        match task < first {
            true => left.pack(worker, task),
            false => right.pack(worker, task - first),
        }
    });
}
