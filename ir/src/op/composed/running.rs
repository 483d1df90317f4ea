//! Running folds other than sums: `cumprod`, `cummax`, `cummin`, `cumlogsumexp`.
//!
//! Each step joins every partial result with the one a power of two before it (Hillis and Steele, *Data parallel
//! algorithms*, 1986). Derivatives are those of the steps, so zeros in a product need no division, and a running
//! maximum gives its cotangent to what reached it, ties in halves at every step.

use crate::attrs::{Attr0, AttrKind, AttrSpec, Attrs, maybe, need};
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::infer::{InferCx, InferError, known_dim};
use crate::literal::Literal;
use crate::op::Op;
use crate::op::def::{Monoid, RuleCx};
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

type Results = SmallVec<[Value; 1]>;

/// Schema of running folds.
pub(in crate::op) const RUNNING: &[AttrSpec] =
    &[need("axis", AttrKind::Int), maybe("reverse", AttrKind::Bool, Attr0::False)];

pub(in crate::op) fn check_running(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let x = cx.require(0, DTypeSet::Number)?;
    let axis = cx.axis("axis", x.rank())?;
    known_dim("a running fold", x.shape[axis]).map(|_| ())
}

pub(in crate::op) fn check_float_running(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    cx.require(0, DTypeSet::Float)?;
    check_running(cx)
}

pub(in crate::op) fn cumprod(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let one = Monoid::Prod.empty(cx.types[0].dtype);
    smallvec![running(b, cx, one, Op::Mul)]
}

pub(in crate::op) fn cummax(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let least = Monoid::Max.empty(cx.types[0].dtype);
    smallvec![running(b, cx, least, Op::Max)]
}

pub(in crate::op) fn cummin(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let most = Monoid::Min.empty(cx.types[0].dtype);
    smallvec![running(b, cx, most, Op::Min)]
}

pub(in crate::op) fn cumlogsumexp(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let nothing = Monoid::Max.empty(cx.types[0].dtype);
    smallvec![running(b, cx, nothing, Op::Logaddexp)]
}

fn running(b: &mut Builder, cx: &RuleCx<'_>, neutral: Literal, join: Op) -> Value {
    let axis = cx.attrs.int("axis") as usize;
    let n = cx.types[0].shape[axis].known().unwrap_or(0);
    doubled(b, cx.args[0], (axis, n, cx.attrs.flag("reverse")), neutral, join)
}

/// The running fold along an axis of `n` elements, from the end where it is reversed.
pub(in crate::op) fn doubled(
    b: &mut Builder,
    x: Value,
    (axis, n, reverse): (usize, u64, bool),
    neutral: Literal,
    join: Op,
) -> Value {
    let ty = b.ty(x).clone();
    let mut folded = x;
    let mut span = 1;
    while span < n {
        let before = shifted(b, folded, (axis, span, reverse), neutral);
        folded = b.op_as(join, &[folded, before], Attrs::none(), &ty);
        span *= 2;
    }
    folded
}

/// Every element that many places further along an axis, backward where it is reversed, and `fill` where none was.
pub(in crate::op) fn shifted(
    b: &mut Builder,
    x: Value,
    (axis, by, reverse): (usize, u64, bool),
    fill: Literal,
) -> Value {
    let (rank, by) = (b.ty(x).rank(), by as i64);
    let fill = b.literal(&TensorType::scalar(fill.dtype()), fill);
    let (low, high) = if reverse { (-by, by) } else { (by, -by) };
    let along = |k: i64| (0..rank).map(move |d| if d == axis { k } else { 0 });
    let attrs = Attrs::none()
        .with_ints("low", along(low))
        .with_ints("high", along(high))
        .with_ints("interior", along(0));
    b.op_with(Op::Pad, &[x, fill], attrs)
}
