//! The mask or the bias of an attention, as it lies in memory.

use adfuse_ir::DType;
use adfuse_ir::kernel::{Buffer, Program};
use smallvec::SmallVec;

/// A mask or a bias: elements from one head, row and key to the next; none where its extent is 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScoreOperand {
    pub(crate) buffer: Buffer,
    pub(crate) mask: bool,
    /// Bytes of an element.
    pub(crate) size: i64,
    /// Heads along the axes before rows, outermost first, with the elements from one to the next.
    pub(crate) heads: SmallVec<[(i64, i64); 4]>,
    pub(crate) row: i64,
    pub(crate) key: i64,
}

impl ScoreOperand {
    /// Of the attention with queries of these extents.
    pub(super) fn of(program: &Program, buffer: Buffer, of_q: &[i64]) -> ScoreOperand {
        let data = &program.buffers[buffer];
        let mut strides: SmallVec<[i64; 4]> = SmallVec::new();
        let mut dense = 1i64;
        for &n in data.dims.iter().rev() {
            strides.push(if n == 1 { 0 } else { dense });
            dense = dense.saturating_mul(n.max(1));
        }
        strides.reverse();
        let rank = strides.len();
        let at = |k: usize| strides.get(rank.wrapping_sub(k)).copied().unwrap_or(0);
        // Where the mask has extent 1 there are heads all the same.
        let heads = of_q.iter().copied().zip(strides.iter().copied()).take(rank.saturating_sub(2));
        ScoreOperand {
            buffer,
            mask: data.dtype == DType::Bool,
            size: data.dtype.bytes() as i64,
            heads: heads.collect(),
            row: at(2),
            key: at(1),
        }
    }
}
