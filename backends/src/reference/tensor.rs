//! A tensor of the reference engine: elements as words of 64 bits.

use crate::runtime::array::{Array, out_of_memory};
use adfuse_ir::{DType, Diagnostic, Literal, TensorType};
use smallvec::SmallVec;

/// A tensor in evaluation: each element's bits in a `u64`.
#[derive(Clone)]
pub(crate) struct EvalTensor {
    pub(crate) dtype: DType,
    pub(crate) dims: SmallVec<[i64; 4]>,
    pub(crate) bits: Vec<u64>,
}

impl EvalTensor {
    pub(super) fn token() -> EvalTensor {
        EvalTensor { dtype: DType::Token, dims: SmallVec::new(), bits: Vec::new() }
    }

    pub(super) fn from_array(a: &Array) -> Result<EvalTensor, Diagnostic> {
        let mut bits = reserve(a.len() as u64)?;
        bits.extend(a.iter().map(Literal::bits));
        Ok(EvalTensor {
            dtype: a.dtype(),
            dims: a.dims().iter().map(|&n| n as i64).collect(),
            bits,
        })
    }

    pub(super) fn to_array(&self) -> Result<Array, Diagnostic> {
        let dims: Vec<u64> = self.dims.iter().map(|&n| n as u64).collect();
        Array::from_bits(self.dtype, &dims, &self.bits)
    }

    /// A tensor of this type, whose elements `fill` appends; NaNs are made canonical.
    pub(crate) fn build(
        ty: &TensorType,
        fill: impl FnOnce(&mut Vec<u64>) -> Result<(), Diagnostic>,
    ) -> Result<EvalTensor, Diagnostic> {
        let n = ty.elements().ok_or_else(|| out_of_memory(u64::MAX))?;
        let mut bits = reserve(n)?;
        fill(&mut bits)?;
        debug_assert_eq!(bits.len() as u64, n, "elements of {ty}");
        if ty.dtype.is_float() {
            for b in &mut bits {
                *b = Literal::from_bits(ty.dtype, *b).bits();
            }
        }
        let dims = ty.dims().unwrap_or_default().iter().map(|&n| n as i64).collect();
        Ok(EvalTensor { dtype: ty.dtype, dims, bits })
    }
}

/// An empty vector with room for `n` elements, or an error instead of an abort.
pub(crate) fn reserve(n: u64) -> Result<Vec<u64>, Diagnostic> {
    let mut bits = Vec::new();
    let room = usize::try_from(n).ok().filter(|&n| bits.try_reserve_exact(n).is_ok());
    room.map(|_| bits).ok_or_else(|| out_of_memory(n.saturating_mul(8)))
}
