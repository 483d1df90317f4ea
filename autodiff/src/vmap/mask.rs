//! Masks of a batch: which of its elements take a region, and what that lets through.

use adfuse_ir::{Attrs, Builder, DType, Op, TensorType, Value};

/// Which elements of the batch take a region: those where a truth value is this one.
#[derive(Clone, Copy)]
pub(super) struct LaneMask {
    pub(super) own: Value,
    pub(super) taken: bool,
}

impl LaneMask {
    /// True for the elements that take the region.
    pub(super) fn positive(self, b: &mut Builder) -> Value {
        if self.taken { self.own } else { b.op(Op::Not, &[self.own]) }
    }

    /// Whether any element takes the region.
    pub(super) fn any(self, b: &mut Builder) -> Value {
        let own = self.positive(b);
        b.op_with(Op::ReduceOr, &[own], Attrs::none().with_ints("axes", [0]))
    }
}

/// One of two batched values by a mask: `no` for the elements that do not take the region.
pub(super) fn select(
    b: &mut Builder,
    mask: LaneMask,
    no: Value,
    yes: Value,
    ty: &TensorType,
) -> Value {
    let own = spread(b, mask.own, ty);
    let (no, yes) = if mask.taken { (no, yes) } else { (yes, no) };
    b.op_as(Op::SelectN, &[own, no, yes], Attrs::none(), ty)
}

/// A value of a float type through which derivatives pass for the elements that take the region alone.
pub(super) fn gated(b: &mut Builder, new: Value, mapped: bool, mask: LaneMask) -> Value {
    let LaneMask { own, taken } = mask;
    let ty = b.ty(new).clone();
    let of_all = if mapped {
        spread(b, own, &ty)
    } else {
        // What all share is used if any element takes the region.
        let any = mask.any(b);
        let any = if taken { any } else { b.op(Op::Not, &[any]) };
        let dims = Attrs::none().with_ints("dims", []);
        match ty.rank() {
            0 => any,
            _ => b.op_as(Op::BroadcastInDim, &[any], dims, &ty.with_dtype(DType::Bool)),
        }
    };
    let fixed = b.op(Op::StopGradient, &[new]);
    let (no, yes) = if taken { (fixed, new) } else { (new, fixed) };
    b.op_as(Op::SelectN, &[of_all, no, yes], Attrs::none(), &ty)
}

/// One truth value an element of the batch, over a whole batched type.
pub(super) fn spread(b: &mut Builder, predicate: Value, ty: &TensorType) -> Value {
    if ty.rank() == 1 {
        return predicate;
    }
    let attrs = Attrs::none().with_ints("dims", [0]);
    b.op_as(Op::BroadcastInDim, &[predicate], attrs, &ty.with_dtype(DType::Bool))
}
