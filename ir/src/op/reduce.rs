//! Reductions and scans: inference, and the derivative rules.

use super::Op;
use super::composed::{doubled, shifted};
use super::def::{RuleCx, Tangents};
use crate::attrs::{Attr, AttrKind, AttrSpec, Attrs, Ints, need};
use crate::builder::Builder;
use crate::dtype::{DType, DTypeSet};
use crate::entity::Value;
use crate::infer::{InferCx, InferError, Types};
use crate::literal::Literal;
use crate::types::{Dim, TensorType};
use smallvec::smallvec;

type Inferred = Result<Types, InferError>;

/// The schema of reductions over several axes.
pub(super) const AXES: &[AttrSpec] = &[need("axes", AttrKind::Ints)];
/// The schema of reductions over one axis.
pub(super) const AXIS: &[AttrSpec] = &[need("axis", AttrKind::Int)];

fn infer_over(cx: &InferCx<'_>, set: DTypeSet) -> Inferred {
    let x = cx.require(0, set)?;
    let axes = cx.axes("axes", x.rank())?;
    let kept = (0..x.rank()).filter(|d| !axes.contains(d)).map(|d| x.shape[d]);
    Ok(smallvec![TensorType::new(x.dtype, kept)])
}

pub(super) fn infer_number(cx: &mut InferCx<'_>) -> Inferred {
    infer_over(cx, DTypeSet::Number)
}

pub(super) fn infer_ordered(cx: &mut InferCx<'_>) -> Inferred {
    infer_over(cx, DTypeSet::Any)
}

pub(super) fn infer_bits(cx: &mut InferCx<'_>) -> Inferred {
    infer_over(cx, DTypeSet::IntBool)
}

pub(super) fn infer_arg(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Number)?;
    let axis = cx.axis("axis", x.rank())?;
    if x.shape[axis] == Dim::Const(0) {
        return Err(InferError::shape(format!("axis {axis} of {x} is empty: it has no extremum")));
    }
    if x.shape[axis].known().is_some_and(|n| n > i32::MAX as u64) {
        return Err(InferError::shape(format!("axis {axis} of {x} is too long for an i32 index")));
    }
    let kept = (0..x.rank()).filter(|&d| d != axis).map(|d| x.shape[d]);
    Ok(smallvec![TensorType::new(DType::I32, kept)])
}

pub(super) fn infer_scan(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Number)?;
    cx.axis("axis", x.rank())?;
    Ok(smallvec![x.clone()])
}

/// A value over the kept axes, repeated along the reduced ones.
fn spread(b: &mut Builder, v: Value, axes: &[i64], to: &TensorType) -> Value {
    let dims = (0..to.rank() as i64).filter(|d| !axes.contains(d));
    let ty = to.with_dtype(b.ty(v).dtype);
    if let Some(l) = b.func().literal(v) {
        return b.literal(&ty, l);
    }
    let attrs = Attrs::none().with_ints("dims", dims);
    b.op_as(Op::BroadcastInDim, &[v], attrs, &ty)
}

pub(super) fn transpose_sum(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    cts.iter().map(|ct| ct.map(|ct| spread(b, ct, cx.attrs.ints("axes"), &cx.types[0]))).collect()
}

/// The tangents of all extrema, summed and divided by their number, so that ties share equally.
pub(super) fn jvp_extremum(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    tangents: &[Option<Value>],
) -> Tangents {
    let Some(t) = tangents[0] else { return smallvec![None] };
    let x = &cx.types[0];
    let axes = cx.attrs.ints("axes");
    if axes.iter().any(|&a| x.shape[a as usize] == Dim::Const(0)) {
        // The extremum of nothing is a constant.
        return smallvec![None];
    }
    let best = spread(b, cx.results[0], axes, x);
    let hit = b.op(Op::Eq, &[cx.args[0], best]);
    let zero = b.literal(x, Literal::zero(x.dtype));
    let chosen = b.op(Op::SelectN, &[hit, zero, t]);
    let sum = b.op_with(Op::ReduceSum, &[chosen], cx.attrs.clone());
    let ones = b.op_as(Op::ConvertElementType, &[hit], Attrs::none(), x);
    let count = b.op_with(Op::ReduceSum, &[ones], cx.attrs.clone());
    // Of NaNs alone there is no hit: 0/0 passes the NaN on.
    smallvec![Some(b.op(Op::Div, &[sum, count]))]
}

/// Each element's factor is the product of all others, made of exclusive products from both sides,
/// so that zeros need no division. `axes` are flattened into one axis first.
pub(super) fn jvp_prod(b: &mut Builder, cx: &RuleCx<'_>, tangents: &[Option<Value>]) -> Tangents {
    let Some(t) = tangents[0] else { return smallvec![None] };
    let x = cx.types[0].clone();
    let axes: Ints = cx.attrs.ints("axes").iter().copied().collect();
    let Some(n) = axes
        .iter()
        .try_fold(1u64, |n, &a| x.shape[a as usize].known().and_then(|d| n.checked_mul(d)))
    else {
        // How often to double is not known: this refuses.
        b.extents(&x);
        return smallvec![None];
    };
    let kept: Ints = (0..x.rank() as i64).filter(|d| !axes.contains(d)).collect();
    let order: Ints = axes.iter().chain(&kept).copied().collect();
    let mut flat = TensorType::new(x.dtype, [Dim::Const(n)]);
    flat.shape.extend(kept.iter().map(|&d| x.shape[d as usize]));
    let flatten = |b: &mut Builder, v: Value| {
        let perm = Attrs::none().with("perm", Attr::Ints(order.clone()));
        let v = b.op_with(Op::Transpose, &[v], perm);
        b.op_as(Op::Reshape, &[v], Attrs::none(), &flat)
    };
    let (v, t) = (flatten(b, cx.args[0]), flatten(b, t));
    let before = exclusive_product(b, v, n, true);
    let after = exclusive_product(b, v, n, false);
    let others = b.op(Op::Mul, &[before, after]);
    let scaled = b.op(Op::Mul, &[others, t]);
    smallvec![Some(b.op_with(Op::ReduceSum, &[scaled], Attrs::none().with_ints("axes", [0])))]
}

/// Product of the elements before (or after) each one along axis 0, by doubling shifts.
fn exclusive_product(b: &mut Builder, x: Value, n: u64, before: bool) -> Value {
    let one = Literal::one(b.ty(x).dtype);
    let next = shifted(b, x, (0, 1.min(n), !before), one);
    doubled(b, next, (0, n, !before), one, Op::Mul)
}

pub(super) fn transpose_cumsum(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let attrs = Attrs::none()
        .with_int("axis", cx.attrs.int("axis"))
        .with("reverse", Attr::Bool(!cx.attrs.flag("reverse")));
    cts.iter().map(|ct| ct.map(|ct| b.op_with(Op::Cumsum, &[ct], attrs.clone()))).collect()
}
