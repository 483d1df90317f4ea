//! The order of elements along an axis: `argsort`, which everything that sorts is made of.

use crate::attrs::{Attr0, AttrKind, AttrSpec, maybe, need};
use crate::dtype::{DType, DTypeSet};
use crate::infer::{InferCx, InferError, Types, known_dim};
use crate::types::{Dim, TensorType};
use smallvec::smallvec;

/// Schema of `argsort`.
pub(super) const ARGSORT: &[AttrSpec] = &[
    need("axis", AttrKind::Int),
    maybe("descending", AttrKind::Bool, Attr0::False),
    maybe("count", AttrKind::Ints, Attr0::NoInts),
];

/// The operand and the axis that its elements are put in order along: an `i32` counts its places.
pub(in crate::op) fn ordered(
    cx: &InferCx<'_>,
    axis: usize,
) -> Result<(TensorType, Dim), InferError> {
    let x = cx.require(0, DTypeSet::Any)?;
    let extent = x.shape[axis];
    if extent.known().is_some_and(|n| n > i32::MAX as u64) {
        return Err(InferError::shape(format!("axis {axis} of {x} is too long for an i32 index")));
    }
    Ok((x.clone(), extent))
}

/// The first this many places of an axis, if there are as many.
pub(in crate::op) fn counted(name: &str, count: i64, extent: Dim) -> Result<Dim, InferError> {
    let there = known_dim(&format!("`{name}`"), extent)?;
    match u64::try_from(count) {
        Ok(n) if count <= there => Ok(Dim::Const(n)),
        _ => Err(InferError::attr(format!("`{name}`: {count} of an axis of {there}"))),
    }
}

pub(super) fn infer_argsort(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    let rank = cx.require(0, DTypeSet::Any)?.rank();
    let axis = cx.axis("axis", rank)?;
    let (x, extent) = ordered(cx, axis)?;
    let mut ty = x.with_dtype(DType::I32);
    match *cx.attrs.ints("count") {
        [] => {}
        [count] => ty.shape[axis] = counted("count", count, extent)?,
        _ => return Err(InferError::attr("`count` is one number or none")),
    }
    Ok(smallvec![ty])
}
