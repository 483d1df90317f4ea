//! Views: inference, index map and transposition of the ops that only change indices.

use super::Op;
use super::def::{RuleCx, Tangents, ViewCx};
use crate::attrs::{Attr, Attrs, Ints};
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::index::{Guard, IndexExpr, Piece, ViewMap};
use crate::infer::{InferCx, InferError, Types, known_dim};
use crate::literal::Literal;
use crate::types::{Dim, Shape, TensorType};
use smallvec::{SmallVec, smallvec};

pub(super) type Inferred = Result<Types, InferError>;

pub(super) fn one(v: Value) -> Tangents {
    smallvec![Some(v)]
}

/// The only cotangent; rules are not called when it is zero.
pub(super) fn ct(cts: &[Option<Value>]) -> Value {
    cts.iter().flatten().copied().next().expect("a transposition has a cotangent")
}

fn axes_of(ints: &[i64]) -> impl Iterator<Item = usize> {
    ints.iter().map(|&a| a as usize)
}

pub(super) fn infer_broadcast(cx: &mut InferCx<'_>) -> Inferred {
    let out = cx.declared()?.clone();
    let dims = cx.axes("dims", out.rank())?;
    if dims.is_empty() && cx.known(0).is_none() {
        cx.demand(0, &TensorType::scalar(out.dtype))?;
    }
    let x = cx.require(0, DTypeSet::Any)?;
    if dims.len() != x.rank() {
        let m = format!("`dims` names {} axes, the operand {x} has {}", dims.len(), x.rank());
        return Err(InferError::attr(m));
    }
    if dims.windows(2).any(|w| w[0] >= w[1]) {
        return Err(InferError::attr("`dims` must be ascending"));
    }
    if x.dtype != out.dtype {
        return Err(InferError::dtype(format!("the result has the operand's type {}", x.dtype)));
    }
    for (&d, &n) in dims.iter().zip(&x.shape) {
        if n != out.shape[d] && n != Dim::Const(1) {
            let m = format!("extent {n} of {x} cannot become extent {} of {out}", out.shape[d]);
            return Err(InferError::shape(m));
        }
    }
    Ok(smallvec![out])
}

pub(super) fn index_broadcast(cx: &ViewCx<'_>) -> ViewMap {
    ViewMap::of(
        axes_of(cx.attrs.ints("dims"))
            .zip(&cx.args[0])
            .map(|(d, &n)| if n == 1 { IndexExpr::Const(0) } else { IndexExpr::axis(d) }),
    )
}

pub(super) fn transpose_broadcast(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    one(unbroadcast(b, ct(cts), cx.attrs.ints("dims"), &cx.types[0]))
}

/// The cotangent of an operand of type `x` from that of its broadcast to the axes `dims`: repeated elements are summed.
pub(super) fn unbroadcast(b: &mut Builder, ct: Value, dims: &[i64], x: &TensorType) -> Value {
    let out = b.ty(ct).clone();
    // Axes that were added or stretched from 1 are summed; the latter come back as extents of 1.
    let stretched = |d: i64| {
        let k = dims.iter().position(|&e| e == d);
        k.is_none_or(|k| x.shape[k] == Dim::Const(1) && out.shape[d as usize] != Dim::Const(1))
    };
    let axes: Ints = (0..out.rank() as i64).filter(|&d| stretched(d)).collect();
    let mut v = ct;
    if !axes.is_empty() {
        v = b.op_with(Op::ReduceSum, &[v], Attrs::none().with("axes", Attr::Ints(axes)));
    }
    b.reshaped(v, x)
}

pub(super) fn transpose_convert(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    one(b.op_as(Op::ConvertElementType, &[ct(cts)], Attrs::none(), &cx.types[0]))
}

pub(super) fn infer_transpose(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?;
    let perm = cx.axes("perm", x.rank())?;
    if perm.len() != x.rank() {
        return Err(InferError::attr(format!("`perm` must name all {} axes", x.rank())));
    }
    Ok(smallvec![TensorType::new(x.dtype, perm.iter().map(|&p| x.shape[p]))])
}

pub(super) fn index_transpose(cx: &ViewCx<'_>) -> ViewMap {
    let inverse = inverse(cx.attrs.ints("perm"));
    ViewMap::of(inverse.iter().map(|&p| IndexExpr::axis(p as usize)))
}

fn inverse(perm: &[i64]) -> Ints {
    let mut out: Ints = smallvec![0; perm.len()];
    for (k, &p) in perm.iter().enumerate() {
        out[p as usize] = k as i64;
    }
    out
}

pub(super) fn transpose_transpose(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let perm = inverse(cx.attrs.ints("perm"));
    one(b.op_with(Op::Transpose, &[ct(cts)], Attrs::none().with("perm", Attr::Ints(perm))))
}

/// One entry of a list attribute for every axis.
pub(super) fn per_axis<'c>(
    cx: &InferCx<'c>,
    name: &str,
    rank: usize,
) -> Result<&'c [i64], InferError> {
    let list = cx.attrs.ints(name);
    if list.len() == rank {
        return Ok(list);
    }
    Err(InferError::attr(format!("`{name}` must have {rank} entries, found {}", list.len())))
}

pub(super) fn infer_slice(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?;
    let rank = x.rank();
    let start = per_axis(cx, "start", rank)?;
    let limit = per_axis(cx, "limit", rank)?;
    let stride = per_axis(cx, "stride", rank)?;
    let mut shape = Shape::new();
    for d in 0..rank {
        let n = known_dim("`slice`", x.shape[d])?;
        if !(0 <= start[d] && start[d] <= limit[d] && limit[d] <= n && stride[d] >= 1) {
            let m = format!(
                "axis {d}: 0 <= {} <= {} <= {n} with stride {} >= 1 does not hold",
                start[d], limit[d], stride[d]
            );
            return Err(InferError::attr(m));
        }
        let span = limit[d] - start[d];
        shape.push(Dim::Const((span / stride[d] + i64::from(span % stride[d] != 0)) as u64));
    }
    Ok(smallvec![TensorType { dtype: x.dtype, shape }])
}

pub(super) fn index_slice(cx: &ViewCx<'_>) -> ViewMap {
    let (start, stride) = (cx.attrs.ints("start"), cx.attrs.ints("stride"));
    let axis = |d: usize| IndexExpr::axis(d).times(stride[d]).plus(start[d]);
    ViewMap::of((0..start.len()).map(axis))
}

pub(super) fn transpose_slice(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let ct = ct(cts);
    let (start, stride) = (cx.attrs.ints("start"), cx.attrs.ints("stride"));
    let out = b.ty(ct).clone();
    let out = b.extents(&out);
    let full = b.extents(&cx.types[0]);
    let end = |d: usize| match out[d] as i64 {
        0 => start[d],
        n => start[d] + (n - 1) * stride[d] + 1,
    };
    let zero = scalar_zero(b, &cx.types[0]);
    let attrs = Attrs::none()
        .with_ints("low", start.iter().copied())
        .with_ints("high", (0..full.len()).map(|d| full[d] as i64 - end(d)))
        .with_ints("interior", stride.iter().map(|s| s - 1));
    one(b.op_with(Op::Pad, &[ct, zero], attrs))
}

pub(super) fn scalar_zero(b: &mut Builder, like: &TensorType) -> Value {
    b.literal(&TensorType::scalar(like.dtype), Literal::zero(like.dtype))
}

pub(super) fn infer_concatenate(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?.clone();
    let axis = cx.axis("axis", x.rank())?;
    if cx.arity() == 1 {
        return Ok(smallvec![x]);
    }
    let mut total = 0u64;
    for k in 0..cx.arity() {
        let y = cx.arg(k)?;
        let same =
            y.rank() == x.rank() && (0..x.rank()).all(|d| d == axis || y.shape[d] == x.shape[d]);
        if y.dtype != x.dtype {
            return Err(InferError::dtype(format!("operand {k} is {y}, the first is {x}")));
        }
        if !same {
            let m = format!("operand {k} is {y}, the first is {x}: only axis {axis} may differ");
            return Err(InferError::shape(m));
        }
        let n = known_dim("`concatenate`", y.shape[axis])? as u64;
        total = total.saturating_add(n);
    }
    let mut out = x;
    out.shape[axis] = Dim::Const(total);
    Ok(smallvec![out])
}

pub(super) fn index_concatenate(cx: &ViewCx<'_>) -> ViewMap {
    let axis = cx.attrs.int("axis") as usize;
    let mut start = 0;
    let mut pieces = SmallVec::new();
    for (k, dims) in cx.args.iter().enumerate() {
        let end = start + dims[axis];
        let index = (0..dims.len())
            .map(|d| IndexExpr::axis(d).plus(if d == axis { -start } else { 0 }))
            .collect();
        let guard = Guard { expr: IndexExpr::axis(axis), range: start..end };
        pieces.push(Piece { operand: k as u32, index, guards: smallvec![guard] });
        start = end;
    }
    ViewMap { pieces }
}

pub(super) fn transpose_concatenate(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    linear: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let ct = ct(cts);
    let axis = cx.attrs.int("axis") as usize;
    if cx.types.len() == 1 {
        return one(ct);
    }
    let extent = |t: &TensorType| t.shape[axis].known().unwrap_or(0) as i64;
    let attrs =
        Attrs::none().with_ints("sizes", cx.types.iter().map(extent)).with_int("axis", axis as i64);
    let pieces = b.inst(Op::Split, &[ct], attrs, None);
    (0..cx.types.len()).map(|k| pieces.get(k).copied().filter(|_| linear[k])).collect()
}

pub(super) fn infer_split(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?;
    let axis = cx.axis("axis", x.rank())?;
    let sizes = cx.attrs.ints("sizes");
    let n = known_dim("`split`", x.shape[axis])?;
    let total = sizes.iter().try_fold(0i64, |a, &s| a.checked_add(s).filter(|_| s >= 0));
    if total != Some(n) || sizes.is_empty() {
        return Err(InferError::attr(format!("`sizes` must be one or more that add up to {n}")));
    }
    let piece = |&s: &i64| {
        let mut t = x.clone();
        t.shape[axis] = Dim::Const(s as u64);
        t
    };
    Ok(sizes.iter().map(piece).collect())
}

pub(super) fn index_split(cx: &ViewCx<'_>) -> ViewMap {
    let axis = cx.attrs.int("axis") as usize;
    let start: i64 = cx.attrs.ints("sizes")[..cx.result].iter().sum();
    ViewMap::of(
        (0..cx.out.len()).map(|d| IndexExpr::axis(d).plus(if d == axis { start } else { 0 })),
    )
}

pub(super) fn transpose_split(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let axis = cx.attrs.int("axis") as usize;
    let x = cx.types[0].clone();
    let mut pieces = Vec::new();
    for (k, &s) in cx.attrs.ints("sizes").iter().enumerate() {
        let mut ty = x.clone();
        ty.shape[axis] = Dim::Const(s as u64);
        pieces.push(cts[k].unwrap_or_else(|| b.literal(&ty, Literal::zero(ty.dtype))));
    }
    one(b.op_with(Op::Concatenate, &pieces, Attrs::none().with_int("axis", axis as i64)))
}

pub(super) fn infer_rev(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?.clone();
    cx.axes("axes", x.rank())?;
    Ok(smallvec![x])
}

pub(super) fn index_rev(cx: &ViewCx<'_>) -> ViewMap {
    let axes = cx.attrs.ints("axes");
    ViewMap::of(cx.args[0].iter().enumerate().map(|(d, &n)| {
        let at = IndexExpr::axis(d);
        if axes.contains(&(d as i64)) { at.times(-1).plus(n - 1) } else { at }
    }))
}

pub(super) fn transpose_rev(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    one(b.op_with(Op::Rev, &[ct(cts)], cx.attrs.clone()))
}
