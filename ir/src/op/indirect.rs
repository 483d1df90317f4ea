//! Indirect access: gather, scatter_add and the dynamic slices; inference and transposition.
//!
//! `gather` and `scatter_add` follow XLA's dimension numbers, with the index vector in the last axis
//! of the indices. Start indices are clamped (`clip`, and `promise`, where the caller vouches for
//! them) or select what lies outside: `fill` reads NaN (the least signed, the greatest unsigned
//! integer, true), `zero` reads 0, `drop` leaves an update out.

use super::Op;
use super::def::{RuleCx, Tangents};
use crate::attrs::{Attr, AttrKind, AttrSpec, Attrs, need};
use crate::builder::Builder;
use crate::dtype::{DType, DTypeSet};
use crate::entity::Value;
use crate::infer::{InferCx, InferError, Types, known_dim};
use crate::literal::Literal;
use crate::types::{Dim, Shape, TensorType};
use smallvec::{SmallVec, smallvec};

type Inferred = Result<Types, InferError>;

/// Schema of `gather`.
pub(super) const GATHER_ATTRS: &[AttrSpec] = &[
    need("offset_dims", AttrKind::Ints),
    need("collapsed", AttrKind::Ints),
    need("start_map", AttrKind::Ints),
    need("sizes", AttrKind::Ints),
    need("mode", AttrKind::Word(&["clip", "fill", "zero", "promise"])),
];

/// Schema of `scatter_add`.
pub(super) const SCATTER_ATTRS: &[AttrSpec] = &[
    need("window_dims", AttrKind::Ints),
    need("inserted", AttrKind::Ints),
    need("start_map", AttrKind::Ints),
    need("mode", AttrKind::Word(&["clip", "drop", "promise"])),
];

fn ascending(name: &str, axes: &[usize]) -> Result<(), InferError> {
    if axes.windows(2).any(|w| w[0] >= w[1]) {
        return Err(InferError::attr(format!("`{name}` must be ascending")));
    }
    Ok(())
}

/// The indices' batch extents, after checking that their last axis matches `start_map`.
fn index_batch(cx: &InferCx<'_>, rank: usize) -> Result<Shape, InferError> {
    let indices = cx.require(1, DTypeSet::Int)?;
    let map = cx.axes("start_map", rank)?;
    match indices.shape.split_last() {
        Some((&Dim::Const(n), batch)) if n == map.len() as u64 => Ok(batch.into()),
        _ => {
            let m = format!("the last axis of {indices} must have extent {}", map.len());
            Err(InferError::shape(m))
        }
    }
}

/// Result extents with `window` at the axes `offset_dims` and `batch` at the others, in order.
fn interleave(offset_dims: &[usize], window: &[Dim], batch: &[Dim]) -> Shape {
    let (mut window, mut batch) = (window.iter(), batch.iter());
    let total = window.len() + batch.len();
    (0..total)
        .filter_map(|d| if offset_dims.contains(&d) { window.next() } else { batch.next() })
        .copied()
        .collect()
}

pub(super) fn infer_gather(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?.clone();
    let batch = index_batch(cx, x.rank())?;
    let collapsed = cx.axes("collapsed", x.rank())?;
    ascending("collapsed", &collapsed)?;
    let sizes = cx.attrs.ints("sizes");
    if sizes.len() != x.rank() {
        return Err(InferError::attr(format!("`sizes` must have {} entries", x.rank())));
    }
    let map = cx.axes("start_map", x.rank())?;
    for (d, &s) in sizes.iter().enumerate() {
        let whole = x.shape[d] == Dim::Const(s.max(0) as u64);
        if s < 0 || (!whole && known_dim("`gather`", x.shape[d])? < s) {
            return Err(InferError::attr(format!("`sizes`: {s} of axis {d} of {x}")));
        }
        if collapsed.contains(&d) && s != 1 {
            return Err(InferError::attr(format!("collapsed axis {d} must have size 1, not {s}")));
        }
        if map.contains(&d) {
            known_dim("`gather`", x.shape[d])?;
        }
    }
    let window: Shape = (0..x.rank())
        .filter(|d| !collapsed.contains(d))
        .map(|d| Dim::Const(sizes[d] as u64))
        .collect();
    let offset = cx.axes("offset_dims", window.len() + batch.len())?;
    ascending("offset_dims", &offset)?;
    if offset.len() != window.len() {
        let m = format!("`offset_dims` must name {} axes, found {}", window.len(), offset.len());
        return Err(InferError::attr(m));
    }
    Ok(smallvec![TensorType { dtype: x.dtype, shape: interleave(&offset, &window, &batch) }])
}

pub(super) fn infer_scatter(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Number)?.clone();
    let batch = index_batch(cx, x.rank())?;
    let updates = cx.arg(2)?.clone();
    let inserted = cx.axes("inserted", x.rank())?;
    ascending("inserted", &inserted)?;
    let window_dims = cx.axes("window_dims", updates.rank())?;
    ascending("window_dims", &window_dims)?;
    let kept: SmallVec<[usize; 4]> = (0..x.rank()).filter(|d| !inserted.contains(d)).collect();
    if kept.len() != window_dims.len() {
        let m = format!("`window_dims` must name {} axes", kept.len());
        return Err(InferError::attr(m));
    }
    for &d in &inserted {
        if known_dim("`scatter_add`", x.shape[d])? < 1 {
            return Err(InferError::shape(format!("inserted axis {d} of {x} is empty")));
        }
    }
    let mut window = Shape::new();
    for (&d, &w) in kept.iter().zip(&window_dims) {
        let size = updates.shape[w];
        let whole = size == x.shape[d];
        if !whole && known_dim("`scatter_add`", size)? > known_dim("`scatter_add`", x.shape[d])? {
            return Err(InferError::shape(format!("window axis {w} of {updates} exceeds {x}")));
        }
        window.push(size);
    }
    let expected = TensorType { dtype: x.dtype, shape: interleave(&window_dims, &window, &batch) };
    cx.demand(2, &expected)?;
    Ok(smallvec![x])
}

fn starts(cx: &mut InferCx<'_>, from: usize, rank: usize) -> Result<(), InferError> {
    if cx.arity() != from + rank {
        let m = format!("expected {rank} start indices, found {}", cx.arity() - from);
        return Err(InferError::new(crate::Kind::Arity, m));
    }
    for k in from..from + rank {
        let dtype = cx.known(k).map_or(DType::I32, |t| t.dtype);
        if !dtype.is_int() {
            return Err(InferError::dtype(format!("operand {k}: a start index is an integer")));
        }
        cx.demand(k, &TensorType::scalar(dtype))?;
    }
    Ok(())
}

pub(super) fn infer_dynamic_slice(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?.clone();
    starts(cx, 1, x.rank())?;
    let sizes = cx.attrs.ints("sizes");
    if sizes.len() != x.rank() {
        return Err(InferError::attr(format!("`sizes` must have {} entries", x.rank())));
    }
    for (d, &s) in sizes.iter().enumerate() {
        if s < 0 || known_dim("`dynamic_slice`", x.shape[d])? < s {
            return Err(InferError::attr(format!("`sizes`: {s} of axis {d} of {x}")));
        }
    }
    let shape = sizes.iter().map(|&s| Dim::Const(s as u64));
    Ok(smallvec![TensorType::new(x.dtype, shape)])
}

pub(super) fn infer_dynamic_update_slice(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?.clone();
    let u = cx.arg(1)?.clone();
    starts(cx, 2, x.rank())?;
    if u.dtype != x.dtype {
        return Err(InferError::dtype(format!("operand 1 is {u}, operand 0 is {x}")));
    }
    let fits = |(&a, &b): (&Dim, &Dim)| match (a.known(), b.known()) {
        (Some(a), Some(b)) => a <= b,
        _ => a == b,
    };
    if u.rank() != x.rank() || !u.shape.iter().zip(&x.shape).all(fits) {
        return Err(InferError::shape(format!("a slice {u} does not fit into {x}")));
    }
    Ok(smallvec![x])
}

/// The attributes of a gather's tangent: where the primal reads NaN, which depends on no operand, the
/// tangent reads 0.
pub(super) fn tangent_of_gather(attrs: &Attrs) -> Attrs {
    let ints = |out: Attrs, name| out.with_ints(name, attrs.ints(name).iter().copied());
    let lists = ["offset_dims", "collapsed", "start_map", "sizes"];
    let mode = if attrs.word("mode") == "fill" { "zero" } else { attrs.word("mode") };
    lists.into_iter().fold(Attrs::none(), ints).with("mode", Attr::Word(mode))
}

fn zeros(b: &mut Builder, ty: &TensorType) -> Value {
    b.literal(ty, Literal::zero(ty.dtype))
}

pub(super) fn transpose_gather(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let Some(ct) = cts[0] else { return smallvec![None, None] };
    let mode = match cx.attrs.word("mode") {
        "fill" | "zero" => "drop",
        other => other,
    };
    let attrs = Attrs::none()
        .with_ints("window_dims", cx.attrs.ints("offset_dims").iter().copied())
        .with_ints("inserted", cx.attrs.ints("collapsed").iter().copied())
        .with_ints("start_map", cx.attrs.ints("start_map").iter().copied())
        .with("mode", Attr::Word(mode));
    let zero = zeros(b, &cx.types[0]);
    smallvec![Some(b.op_with(Op::ScatterAdd, &[zero, cx.args[1], ct], attrs)), None]
}

pub(super) fn transpose_scatter_add(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    linear: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let Some(ct) = cts[0] else { return smallvec![None, None, None] };
    if !linear[2] {
        return smallvec![linear[0].then_some(ct), None, None];
    }
    let inserted = cx.attrs.ints("inserted");
    let mut window = cx.attrs.ints("window_dims").iter();
    let updates = b.extents(&cx.types[2]);
    let sizes = (0..cx.types[0].rank()).map(|d| {
        let extent = |w: &i64| updates[*w as usize] as i64;
        if inserted.contains(&(d as i64)) { 1 } else { window.next().map_or(0, extent) }
    });
    let mode = if cx.attrs.word("mode") == "drop" { "zero" } else { cx.attrs.word("mode") };
    let attrs = Attrs::none()
        .with_ints("offset_dims", cx.attrs.ints("window_dims").iter().copied())
        .with_ints("collapsed", inserted.iter().copied())
        .with_ints("start_map", cx.attrs.ints("start_map").iter().copied())
        .with_ints("sizes", sizes)
        .with("mode", Attr::Word(mode));
    let updates = b.op_with(Op::Gather, &[ct, cx.args[1]], attrs);
    smallvec![linear[0].then_some(ct), None, Some(updates)]
}

pub(super) fn transpose_dynamic_slice(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    linear: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let Some(ct) = cts[0] else { return smallvec![None; linear.len()] };
    let zero = zeros(b, &cx.types[0]);
    let args: Vec<Value> = [zero, ct].into_iter().chain(cx.args[1..].iter().copied()).collect();
    let mut out: Tangents = smallvec![None; linear.len()];
    out[0] = Some(b.op(Op::DynamicUpdateSlice, &args));
    out
}

pub(super) fn transpose_dynamic_update_slice(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    linear: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let mut out: Tangents = smallvec![None; linear.len()];
    let Some(ct) = cts[0] else { return out };
    let starts = &cx.args[2..];
    if linear[0] {
        let zero = zeros(b, &cx.types[1]);
        let args: Vec<Value> = [ct, zero].into_iter().chain(starts.iter().copied()).collect();
        out[0] = Some(b.op(Op::DynamicUpdateSlice, &args));
    }
    if linear[1] {
        let sizes = b.extents(&cx.types[1]);
        let sizes = sizes.iter().map(|&n| n as i64);
        let attrs = Attrs::none().with_ints("sizes", sizes);
        let args: Vec<Value> = std::iter::once(ct).chain(starts.iter().copied()).collect();
        out[1] = Some(b.op_with(Op::DynamicSlice, &args, attrs));
    }
    out
}
