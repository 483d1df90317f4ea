//! Indirect access: gather, scatters and the dynamic slices; inference and derivatives.
//!
//! `gather` and scatters follow XLA's dimension numbers, with the index vector in the last axis
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

/// Schema of scatters.
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
        if known_dim("a scatter", x.shape[d])? < 1 {
            return Err(InferError::shape(format!("inserted axis {d} of {x} is empty")));
        }
    }
    let mut window = Shape::new();
    for (&d, &w) in kept.iter().zip(&window_dims) {
        let size = updates.shape[w];
        let whole = size == x.shape[d];
        if !whole && known_dim("a scatter", size)? > known_dim("a scatter", x.shape[d])? {
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

/// The attributes of the gather that reads what a scatter of such updates writes; 0 for what it leaves out.
fn gather_of(b: &mut Builder, cx: &RuleCx<'_>) -> Attrs {
    let inserted = cx.attrs.ints("inserted");
    let mut window = cx.attrs.ints("window_dims").iter();
    let updates = b.extents(&cx.types[2]);
    let sizes = (0..cx.types[0].rank()).map(|d| {
        let extent = |w: &i64| updates[*w as usize] as i64;
        if inserted.contains(&(d as i64)) { 1 } else { window.next().map_or(0, extent) }
    });
    let mode = if cx.attrs.word("mode") == "drop" { "zero" } else { cx.attrs.word("mode") };
    Attrs::none()
        .with_ints("offset_dims", cx.attrs.ints("window_dims").iter().copied())
        .with_ints("collapsed", inserted.iter().copied())
        .with_ints("start_map", cx.attrs.ints("start_map").iter().copied())
        .with_ints("sizes", sizes)
        .with("mode", Attr::Word(mode))
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
    let attrs = gather_of(b, cx);
    let updates = b.op_with(Op::Gather, &[ct, cx.args[1]], attrs);
    smallvec![linear[0].then_some(ct), None, Some(updates)]
}

/// What was written over gets nothing. Of several updates at one place the last has it, which is found by scattering
/// the updates' numbers and reading them back.
pub(super) fn transpose_scatter(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    linear: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let Some(ct) = cts[0] else { return smallvec![None, None, None] };
    let mut out: Tangents = smallvec![None, None, None];
    if linear[0] {
        let nothing = zeros(b, &cx.types[2]);
        out[0] = Some(b.op_with(Op::Scatter, &[ct, cx.args[1], nothing], cx.attrs.clone()));
    }
    if linear[2] {
        let gather = gather_of(b, cx);
        let read = b.op_with(Op::Gather, &[ct, cx.args[1]], gather.clone());
        // Numbers begin with 1: what is left out reads 0.
        let count = cx.types[2].elements().unwrap_or(0);
        let flat = TensorType::of(DType::I64, &[count]);
        let number = b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", 0), &flat);
        let one = b.literal(&flat, Literal::one(DType::I64));
        let number = b.op(Op::Add, &[number, one]);
        let whole = cx.types[2].with_dtype(DType::I64);
        let number = b.op_as(Op::Reshape, &[number], Attrs::none(), &whole);
        let nobody = zeros(b, &cx.types[0].with_dtype(DType::I64));
        let last = b.op_with(Op::Scatter, &[nobody, cx.args[1], number], cx.attrs.clone());
        let last = b.op_with(Op::Gather, &[last, cx.args[1]], gather);
        let has = b.op(Op::Eq, &[last, number]);
        let nothing = zeros(b, &cx.types[2]);
        out[2] = Some(b.op(Op::SelectN, &[has, nothing, read]));
    }
    out
}

/// The tangents of all that reached the extremum of a place, summed and divided by their number.
pub(super) fn jvp_scatter_extremum(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    tangents: &[Option<Value>],
) -> Tangents {
    let (x, u) = (&cx.types[0], &cx.types[2]);
    if tangents[0].is_none() && tangents[2].is_none() {
        return smallvec![None];
    }
    let gather = gather_of(b, cx);
    let best = b.op_with(Op::Gather, &[cx.results[0], cx.args[1]], gather);
    let kept = b.op(Op::Eq, &[cx.args[0], cx.results[0]]);
    let hit = b.op(Op::Eq, &[cx.args[2], best]);
    let add = |b: &mut Builder, kept: Value, hit: Value| {
        b.op_with(Op::ScatterAdd, &[kept, cx.args[1], hit], cx.attrs.clone())
    };
    let number = |b: &mut Builder, flag: Value, ty: &TensorType| {
        b.op_as(Op::ConvertElementType, &[flag], Attrs::none(), ty)
    };
    let (kept_count, hit_count) = (number(b, kept, x), number(b, hit, u));
    let count = add(b, kept_count, hit_count);
    let moved = |b: &mut Builder, flag: Value, t: Option<Value>, ty: &TensorType| {
        let zero = zeros(b, ty);
        t.map_or(zero, |t| b.op(Op::SelectN, &[flag, zero, t]))
    };
    let from_x = moved(b, kept, tangents[0], x);
    let from_u = moved(b, hit, tangents[2], u);
    let sum = add(b, from_x, from_u);
    // Of NaNs alone there is no hit: 0/0 passes the NaN on.
    smallvec![Some(b.op(Op::Div, &[sum, count]))]
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
