//! Sorts: what is sorted, and by which keys.

use crate::gpu::ptx::radix_sort::DIGIT;
use crate::gpu::ptx::sort_keys;
use crate::gpu::schedule::partition::Lowering;
use adfuse_ir::kernel::{Argsort, Buffer, Extents};

/// Entries of a line that one block sorts in shared memory at most.
pub(crate) const MOST: i64 = 8192;

/// Threads of a block.
pub(crate) const FEW_THREADS: i64 = 256;

/// Entries of a thread at most.
pub(crate) const EACH: i64 = 16;

/// Lines to put in order.
pub(crate) struct Sort {
    pub(crate) from: Source,
    pub(crate) lines: i64,
    /// Entries of a line.
    pub(crate) long: i64,
    /// Bits of the keys.
    pub(crate) bits: u32,
    /// Entries that are wanted of each line: the first.
    pub(crate) count: i64,
    pub(crate) to: Target,
}

/// What is sorted.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// Elements along an axis; other axes number the lines.
    Elements { buffer: Buffer, axis: usize, descending: bool },
    /// Keys, a row for each line, and what goes with them: their places, where it is nothing else.
    Keys { keys: Buffer, with: Option<Buffer> },
}

/// What becomes of it.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// What goes with the keys is stored along an axis.
    Places { buffer: Buffer, axis: usize },
    /// Keys and what goes with them, a row for each line.
    Entries { keys: Buffer, with: Buffer },
}

impl Sort {
    pub(crate) fn of(low: &Lowering, step: &Argsort) -> Sort {
        let [from, out] = [step.from, step.out].map(|b| &low.program.buffers[b]);
        let axis = usize::from(step.axis);
        let lines = without(&from.dims, axis).iter().product();
        let (long, count) = (from.dims[axis], out.dims[axis]);
        let (buffer, descending) = (step.from, step.descending);
        let bits = sort_keys::bits(from.dtype);
        let to = Target::Places { buffer: step.out, axis };
        let from = Source::Elements { buffer, axis, descending };
        Sort { from, lines, long, bits, count, to }
    }

    pub(crate) fn wide(&self) -> bool {
        self.bits > 32
    }

    /// The passes, and bits of the digit of each.
    pub(crate) fn passes(&self) -> (i64, u32) {
        let passes = self.bits.div_ceil(DIGIT).max(1);
        (passes.into(), self.bits.div_ceil(passes).max(1))
    }
}

/// Extents without those of an axis.
pub(crate) fn without(dims: &[i64], axis: usize) -> Extents {
    dims.iter().enumerate().filter(|(d, _)| *d != axis).map(|(_, &n)| n).collect()
}
