//! Runs products that were taken out of a loop: those of all steps are added to each part of the sums.

use super::accumulated::Accumulation;
use super::carry_start::{CarryStart, fill};
use super::contract::{CompiledMember, MemberOperands, SumTarget};
use super::multiply::{PieceTarget, TaskRange};
use super::operand::View;
use super::point_tasks::TaskCount;
use super::workers::{Worker, WorkerSet};

/// The most elements of the sums along each axis that stay in the first cache.
const PART: i64 = 64;

/// The same for more threads than two, whose speeds differ.
const SMALL_PART: i64 = 32;

impl CompiledMember {
    /// Adds the products of all positions, one after the other, to each part of the sums.
    pub(super) fn accumulate(&self, onto: &Accumulation, worker_set: &mut WorkerSet<'_>) {
        let [positions, rows, cols, depth] = self.size;
        let (Some(MemberOperands::Sources(sources)), SumTarget::View(to, _)) =
            (&self.operands, &self.to)
        else {
            return;
        };
        let most = if worker_set.threads() > 2 { SMALL_PART } else { PART };
        let cut = self.tasks.split(1);
        let [height, width] = [most.min(cut.rows), PART.min(cut.task[1])].map(|n| n.max(1));
        let across = (cols + width - 1) / width;
        let tasks = (rows + height - 1) / height * across;
        let products = (height * width).saturating_mul(depth.saturating_mul(positions));
        worker_set.each(TaskCount::of_products(tasks, products), |_, worker, k| {
            let (top, left) = (k / across * height, k % across * width);
            let ranges = [[top, (top + height).min(rows)], [left, (left + width).min(cols)]];
            let out = to.part(worker, self.sum.bytes(), (0, [top, left]));
            self.begin(onto, (worker, to), ranges);
            for t in 0..positions {
                let batch = if onto.reverse { positions - 1 - t } else { t };
                let [rows, cols] = ranges;
                let p = TaskRange { batch, rows, cols, depth: [0, depth] };
                let target = PieceTarget { added: Some(out), ..PieceTarget::of(out) };
                self.multiply(worker, sources, &p, target);
            }
        });
    }

    /// Writes what the products of a part are added to.
    fn begin(&self, onto: &Accumulation, (worker, to): (&Worker, &View), ranges: [[i64; 2]; 2]) {
        let bytes = self.sum.bytes() as usize;
        let first = (0, ranges.map(|[from, _]| from));
        let out = to.part(worker, bytes as u64, first);
        let from = match onto.start {
            CarryStart::Buffer(b) => Some(to.of(b).part(worker, bytes as u64, first)),
            CarryStart::Fill(..) => None,
        };
        let [rows, cols] = ranges.map(|[from, end]| (end - from) as usize);
        // Lines of neighbours are written at once.
        let (lines, each) = if out.column == 1 { (1, cols) } else { (cols, 1) };
        for i in 0..rows {
            for j in 0..lines {
                let offset = i as isize * out.row + j as isize * out.column;
                let offset = offset * bytes as isize;
                let at = out.at.wrapping_offset(offset);
                match (&onto.start, from) {
                    (&CarryStart::Fill(bits, width), _) => fill(at, each * bytes, bits, width),
                    (CarryStart::Buffer(_), None) => {}
                    // SAFETY: both buffers have elements of this type at the same places, and these are this task's alone.
                    #[allow(unsafe_code)]
                    (CarryStart::Buffer(_), Some(from)) => unsafe {
                        std::ptr::copy(from.at.wrapping_offset(offset), at, each * bytes);
                    },
                }
            }
        }
    }
}
