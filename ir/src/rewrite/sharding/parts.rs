//! A rank's part of a tensor, and the whole of the parts.

use super::decision::part;
use crate::attrs::{Attr, Attrs};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::literal::Literal;
use crate::op::Op;
use crate::types::{Dim, TensorType};

/// The ranks of an axis, as instructions name them.
pub(super) struct Ranks<'s> {
    pub(super) over: &'s str,
    pub(super) ranks: u32,
}

impl Ranks<'_> {
    pub(super) fn attrs(&self) -> Attrs {
        let name = Attr::Str(self.over.into());
        Attrs::none().with("over", name).with_int("ranks", self.ranks.into())
    }

    pub(super) fn index(&self, b: &mut Builder) -> Value {
        b.op_with(Op::AxisIndex, &[], self.attrs())
    }

    /// The parts of all ranks, one after the other.
    pub(super) fn gathered(&self, b: &mut Builder, own: Value) -> Value {
        b.op_with(Op::AllGather, &[own], self.attrs().with_int("axis", 0))
    }

    /// The elements of a tensor, padded with zeros so that each rank has as many.
    fn padded(&self, b: &mut Builder, x: Value) -> Value {
        let ty = b.ty(x).clone();
        let n = b.extents(&ty).iter().product::<u64>();
        let flat = b.reshaped(x, &TensorType::of(ty.dtype, &[n]));
        let zero = Literal::zero(ty.dtype);
        padded_to(b, flat, part(n, self.ranks) * u64::from(self.ranks), zero)
    }

    /// This rank's part of a tensor that it has whole.
    pub(super) fn own_part(&self, b: &mut Builder, x: Value) -> Value {
        let all = self.padded(b, x);
        let dtype = b.ty(all).dtype;
        let n = b.ty(all).elements().unwrap_or(0) / u64::from(self.ranks);
        let rows = b.reshaped(all, &TensorType::of(dtype, &[self.ranks.into(), n]));
        let (row, zero) = (self.index(b), Literal::zero(DType::I32));
        let zero = b.literal(&TensorType::scalar(DType::I32), zero);
        let sizes = Attrs::none().with_ints("sizes", [1, n as i64]);
        let own = b.op_with(Op::DynamicSlice, &[rows, row, zero], sizes);
        b.reshaped(own, &TensorType::of(dtype, &[n]))
    }

    /// The tensor of a type of which each rank has a part. Where a part is rows of the tensor, it is gathered as it is read.
    pub(super) fn whole(&self, b: &mut Builder, own: Value, ty: &TensorType) -> Value {
        let ty = ty.with_dtype(b.ty(own).dtype);
        let ranks = u64::from(self.ranks);
        let mut rows = ty.clone();
        if let Some(Dim::Const(first)) = rows.shape.first_mut()
            && first.is_multiple_of(ranks)
        {
            *first /= ranks;
            if rows.elements() == b.ty(own).elements() {
                let own = b.reshaped(own, &rows);
                return self.gathered(b, own);
            }
        }
        let all = self.gathered(b, own);
        let first = first_of(b, all, ty.elements().unwrap_or(0));
        b.reshaped(first, &ty)
    }

    /// This rank's part of the sum of what the ranks have. What was widened to be summed is sent as it was before.
    pub(super) fn summed_part(&self, b: &mut Builder, (own, dtype): (Value, DType)) -> Value {
        let all = self.padded(b, own);
        let all = b.converted(all, dtype);
        b.op_with(Op::ReduceScatter, &[all], self.attrs().with_int("axis", 0))
    }
}

/// The first elements of a tensor with one axis.
pub(super) fn first_of(b: &mut Builder, x: Value, n: u64) -> Value {
    if b.ty(x).elements() == Some(n) {
        return x;
    }
    let attrs = Attrs::none().with_ints("start", [0]).with_ints("limit", [n as i64]);
    b.op_with(Op::Slice, &[x], attrs.with_ints("stride", [1]))
}

/// A tensor with one axis and this many elements, of which the last are a number.
pub(super) fn padded_to(b: &mut Builder, x: Value, n: u64, by: Literal) -> Value {
    let (dtype, own) = (b.ty(x).dtype, b.ty(x).elements().unwrap_or(n));
    if own >= n {
        return x;
    }
    let by = b.literal(&TensorType::scalar(dtype), by);
    let ends = Attrs::none().with_ints("low", [0]).with_ints("high", [(n - own) as i64]);
    b.op_with(Op::Pad, &[x, by], ends.with_ints("interior", [0]))
}
