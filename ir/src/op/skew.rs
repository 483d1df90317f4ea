//! Skewed views, which windows are made of: inference, index map and transposition of `skew` and `unskew`.
//!
//! Both pair an axis that places lie along with one that walks inside a window. `skew` reads place
//! `o * stride + k * dilation` at place `o` and step `k`, so a value that is repeated along `k` becomes its windows;
//! `unskew` puts every element back where `skew` read it, each step apart, so that a sum over `k` is the transposed
//! of windows. The extents fit exactly where one is the other's inverse.

use super::Op;
use super::def::{RuleCx, Tangents, ViewCx};
use super::pad::{beside_a_scalar, outside, spaced};
use super::view::{ct, one, scalar_zero};
use crate::attrs::{AttrKind, AttrSpec, Attrs, Ints, need};
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::index::{IndexExpr, Piece, ViewMap};
use crate::infer::{InferCx, InferError, Types, known_dim};
use crate::types::{Dim, TensorType};
use smallvec::{SmallVec, smallvec};

type Inferred = Result<Types, InferError>;

/// Schema of `skew`.
pub(super) const SKEW: &[AttrSpec] = &[
    need("axes", AttrKind::Ints),
    need("along", AttrKind::Ints),
    need("strides", AttrKind::Ints),
    need("dilation", AttrKind::Ints),
];

/// Schema of `unskew`.
pub(super) const UNSKEW: &[AttrSpec] = &[
    need("axes", AttrKind::Ints),
    need("along", AttrKind::Ints),
    need("strides", AttrKind::Ints),
    need("dilation", AttrKind::Ints),
    need("extents", AttrKind::Ints),
];

/// An axis of places, the axis of steps that goes with it, and how far a place and a step reach.
struct Pair {
    axis: usize,
    along: usize,
    stride: i64,
    dilation: i64,
}

fn pairs(attrs: &Attrs) -> impl Iterator<Item = Pair> {
    let (along, strides) = (attrs.ints("along"), attrs.ints("strides"));
    let dilation = attrs.ints("dilation");
    attrs.ints("axes").iter().enumerate().map(move |(k, &axis)| Pair {
        axis: axis as usize,
        along: along[k] as usize,
        stride: strides[k],
        dilation: dilation[k],
    })
}

/// How many windows of `steps` steps start in `extent` places.
pub(super) fn windows_in(extent: i64, steps: i64, stride: i64, dilation: i64) -> Option<i64> {
    let span = steps.checked_sub(1)?.max(0).checked_mul(dilation)?.checked_add(1)?;
    Some(if extent < span { 0 } else { (extent - span) / stride + 1 })
}

/// The extents of the places, windows of which are in `x` along an axis when there are as many steps.
fn checked(cx: &InferCx<'_>, x: &TensorType) -> Result<(), InferError> {
    let axes = cx.axes("axes", x.rank())?;
    let along = cx.axes("along", x.rank())?;
    let (strides, dilation) = (cx.attrs.ints("strides"), cx.attrs.ints("dilation"));
    if along.len() != axes.len() || strides.len() != axes.len() || dilation.len() != axes.len() {
        let m = format!("`along`, `strides` and `dilation` must have {} entries", axes.len());
        return Err(InferError::attr(m));
    }
    if let Some(d) = axes.iter().find(|d| along.contains(d)) {
        return Err(InferError::attr(format!("axis {d} is in `axes` and in `along`")));
    }
    const MOST: i64 = 1 << 40;
    if let Some(v) = strides.iter().chain(dilation).find(|v| !(1..=MOST).contains(*v)) {
        return Err(InferError::attr(format!("{v} is no stride or dilation")));
    }
    Ok(())
}

fn too_far() -> InferError {
    InferError::attr("windows reach too far")
}

pub(super) fn infer_skew(cx: &mut InferCx<'_>) -> Inferred {
    let mut x = cx.require(0, DTypeSet::Any)?.clone();
    checked(cx, &x)?;
    for p in pairs(cx.attrs) {
        let n = known_dim("`skew`", x.shape[p.axis])?;
        let steps = known_dim("`skew`", x.shape[p.along])?;
        let windows = windows_in(n, steps, p.stride, p.dilation).ok_or_else(too_far)?;
        x.shape[p.axis] = Dim::Const(windows as u64);
    }
    Ok(smallvec![x])
}

pub(super) fn index_skew(cx: &ViewCx<'_>) -> ViewMap {
    let mut index: SmallVec<[IndexExpr; 4]> = (0..cx.out.len()).map(IndexExpr::axis).collect();
    for p in pairs(cx.attrs) {
        let step = IndexExpr::axis(p.along).times(p.dilation);
        index[p.axis] = IndexExpr::axis(p.axis).times(p.stride).sum(step);
    }
    ViewMap::of(index)
}

pub(super) fn transpose_skew(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let full = b.extents(&cx.types[0]);
    let extents: Ints = cx.attrs.ints("axes").iter().map(|&d| full[d as usize] as i64).collect();
    let attrs = cx.attrs.clone().with_ints("extents", extents);
    let zero = scalar_zero(b, &cx.types[0]);
    one(b.op_with(Op::Unskew, &[ct(cts), zero], attrs))
}

pub(super) fn infer_unskew(cx: &mut InferCx<'_>) -> Inferred {
    let mut x = cx.require(0, DTypeSet::Any)?.clone();
    checked(cx, &x)?;
    cx.demand(1, &TensorType::scalar(x.dtype))?;
    let extents = cx.attrs.ints("extents");
    if extents.len() != cx.attrs.ints("axes").len() {
        return Err(InferError::attr("`extents` must have an entry for each of `axes`"));
    }
    for (p, &extent) in pairs(cx.attrs).zip(extents) {
        let n = known_dim("`unskew`", x.shape[p.axis])?;
        let steps = known_dim("`unskew`", x.shape[p.along])?;
        if !(0..=1 << 40).contains(&extent) {
            return Err(InferError::attr(format!("`extents`: {extent} is no extent")));
        }
        let windows = windows_in(extent, steps, p.stride, p.dilation).ok_or_else(too_far)?;
        if windows != n {
            let m = format!("axis {}: {windows} windows are in {extent} places, not {n}", p.axis);
            return Err(InferError::shape(m));
        }
        x.shape[p.axis] = Dim::Const(extent as u64);
    }
    Ok(smallvec![x])
}

pub(super) fn index_unskew(cx: &ViewCx<'_>) -> ViewMap {
    let index = (0..cx.out.len()).map(IndexExpr::axis).collect();
    let mut inside = Piece { operand: 0, index, guards: SmallVec::new() };
    for p in pairs(cx.attrs) {
        let step = IndexExpr::axis(p.along).times(-p.dilation);
        let place = IndexExpr::axis(p.axis).sum(step);
        let back = cx.out[p.along].saturating_sub(1).saturating_mul(p.dilation);
        let reached = -back..=cx.out[p.axis] - 1;
        inside.index[p.axis] = spaced(&mut inside, (place, reached), cx.args[0][p.axis], p.stride);
    }
    beside_a_scalar(inside)
}

pub(super) fn transpose_unskew(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    linear: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let ct = ct(cts);
    let mut out: Tangents = smallvec![None, None];
    if linear[0] {
        let attrs = SKEW.iter().fold(Attrs::none(), |attrs, spec| {
            attrs.with_ints(spec.name, cx.attrs.ints(spec.name).iter().copied())
        });
        out[0] = Some(b.op_with(Op::Skew, &[ct], attrs));
    }
    if linear[1] {
        out[1] = Some(outside(b, Op::Unskew, cx, ct));
    }
    out
}
