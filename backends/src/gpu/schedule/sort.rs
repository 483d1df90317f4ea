//! Sorts: what is sorted, and by which keys.

use super::work::{Sort, Source, Target};
use adfuse_ir::DType;

use super::work::Lowering;
use adfuse_ir::kernel::{Argsort, Extents};

/// Entries of a line that one block sorts in shared memory at most.
pub(crate) const MOST: i64 = 8192;

/// Threads of a block.
pub(crate) const FEW_THREADS: i64 = 256;

/// Entries of a thread at most.
pub(crate) const EACH: i64 = 16;

impl Sort {
    pub(crate) fn of(low: &Lowering, step: &Argsort) -> Sort {
        let [from, out] = [step.from, step.out].map(|b| &low.program.buffers[b]);
        let axis = usize::from(step.axis);
        let lines = without(&from.dims, axis).iter().product();
        let (long, count) = (from.dims[axis], out.dims[axis]);
        let (buffer, descending) = (step.from, step.descending);
        let bits = bits(from.dtype);
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

/// Bits of a digit at most.
pub(crate) const DIGIT: u32 = 8;

/// Bits of the numbers of a type.
pub(crate) fn bits(dtype: DType) -> u32 {
    if dtype == DType::Bool { 1 } else { dtype.bits() }
}
