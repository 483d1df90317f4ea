//! Sorting: `sort`, `sort_key_val` and `top_k` are an `argsort` and gathers of what it found, so that derivatives go
//! where the elements came from.

use crate::attrs::{Attr, Attr0, AttrKind, AttrSpec, Attrs, Ints, maybe, need};
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::infer::{InferCx, InferError, known_dim};
use crate::op::Op;
use crate::op::def::RuleCx;
use crate::op::order::{counted, ordered};
use crate::types::{Dim, TensorType};
use smallvec::{SmallVec, smallvec};

type Results = SmallVec<[Value; 1]>;

/// Schema of `sort` and `sort_key_val`.
pub(in crate::op) const SORT: &[AttrSpec] =
    &[need("axis", AttrKind::Int), maybe("descending", AttrKind::Bool, Attr0::False)];

/// Schema of `top_k`.
pub(in crate::op) const TOP_K: &[AttrSpec] = &[need("k", AttrKind::Int)];

/// The extent of the axis, where elements can be read at places along it: places on the other axes are
/// counted.
fn check_along(cx: &InferCx<'_>, op: &str, axis: usize) -> Result<Dim, InferError> {
    let (x, extent) = ordered(cx, axis)?;
    for &d in &x.shape {
        if known_dim(op, d)? > i64::from(i32::MAX) {
            return Err(InferError::shape(format!("an axis of {x} is too long for an i32 index")));
        }
    }
    Ok(extent)
}

pub(in crate::op) fn check_sort(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let rank = cx.require(0, DTypeSet::Any)?.rank();
    check_along(cx, "a sort", cx.axis("axis", rank)?).map(|_| ())
}

pub(in crate::op) fn check_sort_key_val(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    check_sort(cx)?;
    let (keys, values) = (cx.arg(0)?, cx.require(1, DTypeSet::Any)?);
    match keys.shape == values.shape {
        true => Ok(()),
        false => {
            let m = format!("operand 1: expected the shape of {keys}, found {values}");
            Err(InferError::shape(m))
        }
    }
}

pub(in crate::op) fn check_top_k(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let x = cx.require(0, DTypeSet::Any)?;
    let Some(last) = x.rank().checked_sub(1) else {
        return Err(InferError::shape(format!("{x} has no axis")));
    };
    let extent = check_along(cx, "`top_k`", last)?;
    counted("k", cx.attrs.int("k"), extent).map(|_| ())
}

pub(in crate::op) fn sort(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let (axis, at) = order(b, cx);
    smallvec![in_order(b, cx.args[0], at, axis)]
}

pub(in crate::op) fn sort_key_val(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let (axis, at) = order(b, cx);
    let keys = in_order(b, cx.args[0], at, axis);
    smallvec![keys, in_order(b, cx.args[1], at, axis)]
}

pub(in crate::op) fn top_k(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let axis = cx.types[0].rank().saturating_sub(1);
    let attrs = Attrs::none()
        .with_int("axis", axis as i64)
        .with("descending", Attr::Bool(true))
        .with_ints("count", [cx.attrs.int("k")]);
    let at = b.op_with(Op::Argsort, &[cx.args[0]], attrs);
    smallvec![in_order(b, cx.args[0], at, axis), at]
}

/// The axis, and the places of the keys in order along it.
fn order(b: &mut Builder, cx: &RuleCx<'_>) -> (usize, Value) {
    let attrs = cx.attrs.clone().with_ints("count", []);
    (cx.attrs.int("axis") as usize, b.op_with(Op::Argsort, &[cx.args[0]], attrs))
}

/// The elements at places along an axis, each where its place is.
pub(in crate::op) fn in_order(b: &mut Builder, x: Value, at: Value, axis: usize) -> Value {
    let ty = b.ty(x).clone();
    let rank = ty.rank();
    let mut places = b.ty(at).clone();
    if ty.shape.contains(&Dim::Const(0)) {
        // There is nothing to read, and no place to read it from.
        let limit: Ints = places.shape.iter().map(|d| d.known().unwrap_or(0) as i64).collect();
        let attrs = Attrs::none()
            .with_ints("start", (0..rank).map(|_| 0))
            .with("limit", Attr::Ints(limit))
            .with_ints("stride", (0..rank).map(|_| 1));
        return b.op_with(Op::Slice, &[x], attrs);
    }
    places.shape.push(Dim::Const(1));
    let column = |b: &mut Builder, d: usize, places: &TensorType| match d == axis {
        true => b.op_as(Op::Reshape, &[at], Attrs::none(), places),
        false => b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", d as i64), places),
    };
    let columns: SmallVec<[Value; 4]> = (0..rank).map(|d| column(b, d, &places)).collect();
    let last = Attrs::none().with_int("axis", rank as i64);
    let indices = match columns[..] {
        [column] => column,
        _ => b.op_with(Op::Concatenate, &columns, last),
    };
    let every = || (0..rank as i64).collect::<Ints>();
    let attrs = Attrs::none()
        .with("offset_dims", Attr::Ints(Ints::new()))
        .with("collapsed", Attr::Ints(every()))
        .with("start_map", Attr::Ints(every()))
        .with_ints("sizes", (0..rank).map(|_| 1))
        .with("mode", Attr::Word("promise"));
    b.op_with(Op::Gather, &[x, indices], attrs)
}
