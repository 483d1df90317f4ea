//! Folds of a sweep's values, as data: each block of a strict order is combined to one part.
//!
//! A sweep that folds stores no values: it combines them in memory and leaves a part for each block. The 32 lanes of a
//! block are in the worker's memory, and their halves are joined when the block ends. Columns are combined in the array
//! of parts. Both begin with the neutral element, which gives the same bits as beginning with the first element: `-0 +
//! x`, `1 * x` and `max(-inf, x)` are `x`.

use super::loop_ir::{FoldOutput, WalkedFold};
use adfuse_ir::DType;
use adfuse_ir::kernel::{Extents, volume};
use adfuse_ir::op::Monoid;

impl FoldOutput {
    /// The places that fold into one result, and the parts that lie between neighbouring blocks.
    pub(crate) fn extents(&self, extents: &Extents) -> (i64, i64) {
        let [first, end] = self.axes;
        (volume(&extents[first..end]), volume(&extents[end..]))
    }
}

impl WalkedFold {
    /// The places of a block, as a power of two.
    pub(crate) fn block_bits(&self) -> u32 {
        self.order.block().trailing_zeros()
    }
}

/// Whether values of a type fold in code.
pub(crate) fn folds(monoid: Monoid, dtype: DType) -> bool {
    let lanes = matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64);
    lanes && !monoid.is_arg()
}
