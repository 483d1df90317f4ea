//! Collectives: what a program of one rank exchanges with the same program on the other ranks of a named axis.
//!
//! Over a batch that is mapped with that name they are ordinary ops, which is their meaning
//! ([`collectives`](crate::rewrite)).

use super::Op;
use super::def::{Collective, RuleCx, Tangents};
use super::view::{ct, one};
use crate::attrs::{Attr, AttrKind, AttrSpec, Attrs, need};
use crate::builder::Builder;
use crate::dtype::{DType, DTypeSet};
use crate::entity::Value;
use crate::infer::{InferCx, InferError, Types, known_dim};
use crate::literal::Literal;
use crate::types::{Dim, TensorType};
use crate::words::is_word;
use smallvec::smallvec;

/// The most ranks of an axis.
const MAX_RANKS: i64 = 1 << 16;

const OVER: AttrSpec = need("over", AttrKind::Str);
const RANKS: AttrSpec = need("ranks", AttrKind::Within(1, MAX_RANKS));

/// Schema of collectives that say nothing of axes of the tensor.
pub(super) const WHOLE: &[AttrSpec] = &[OVER, RANKS];
/// Schema of collectives along an axis of the tensor.
pub(super) const ALONG: &[AttrSpec] = &[OVER, RANKS, need("axis", AttrKind::Int)];
/// Schema of `all_to_all`.
pub(super) const TO_ALL: &[AttrSpec] =
    &[OVER, RANKS, need("split", AttrKind::Int), need("concat", AttrKind::Int)];
/// Schema of `broadcast`.
pub(super) const FROM_ROOT: &[AttrSpec] =
    &[OVER, RANKS, need("root", AttrKind::Within(0, MAX_RANKS - 1))];

fn named(cx: &InferCx<'_>) -> Result<i64, InferError> {
    let name = cx.attrs.text("over");
    match is_word(name) {
        true => Ok(cx.attrs.int("ranks")),
        false => Err(InferError::attr(format!("`over`: `{name}` is no name"))),
    }
}

/// The extent of an axis that is divided among the ranks.
fn divided(
    cx: &InferCx<'_>,
    x: &TensorType,
    name: &str,
    ranks: i64,
) -> Result<(usize, u64), InferError> {
    let axis = cx.axis(name, x.rank())?;
    let n = known_dim(&format!("`{name}`"), x.shape[axis])?;
    if n % ranks != 0 {
        let m = format!("`{name}`: extent {n} of {x} is not divided by {ranks} ranks");
        return Err(InferError::shape(m));
    }
    Ok((axis, (n / ranks) as u64))
}

/// The extent of an axis along which as many parts as there are ranks are joined.
fn joined(
    cx: &InferCx<'_>,
    x: &TensorType,
    name: &str,
    ranks: i64,
) -> Result<(usize, u64), InferError> {
    let axis = cx.axis(name, x.rank())?;
    let n = known_dim(&format!("`{name}`"), x.shape[axis])? as u64;
    Ok((axis, n.saturating_mul(ranks as u64)))
}

pub(super) fn infer_reduce(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    named(cx)?;
    Ok(smallvec![cx.require(0, DTypeSet::Number)?.clone()])
}

pub(super) fn infer_gather(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    let ranks = named(cx)?;
    let mut x = cx.require(0, DTypeSet::Any)?.clone();
    let (axis, extent) = joined(cx, &x, "axis", ranks)?;
    x.shape[axis] = Dim::Const(extent);
    Ok(smallvec![x])
}

pub(super) fn infer_scatter(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    let ranks = named(cx)?;
    let mut x = cx.require(0, DTypeSet::Number)?.clone();
    let (axis, extent) = divided(cx, &x, "axis", ranks)?;
    x.shape[axis] = Dim::Const(extent);
    Ok(smallvec![x])
}

pub(super) fn infer_to_all(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    let ranks = named(cx)?;
    let mut x = cx.require(0, DTypeSet::Any)?.clone();
    let (axis, extent) = divided(cx, &x, "split", ranks)?;
    x.shape[axis] = Dim::Const(extent);
    let (axis, extent) = joined(cx, &x, "concat", ranks)?;
    x.shape[axis] = Dim::Const(extent);
    Ok(smallvec![x])
}

pub(super) fn infer_broadcast(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    let (ranks, root) = (named(cx)?, cx.attrs.int("root"));
    if root >= ranks {
        return Err(InferError::attr(format!("`root`: there is no rank {root} among {ranks}")));
    }
    Ok(smallvec![cx.require(0, DTypeSet::Any)?.clone()])
}

pub(super) fn infer_index(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    named(cx)?;
    Ok(smallvec![TensorType::scalar(DType::I32)])
}

/// The name of the axis and the number of its ranks, for a collective over the same ones.
fn over(attrs: &Attrs) -> Attrs {
    let name = Attr::Str(attrs.text("over").into());
    Attrs::none().with("over", name).with_int("ranks", attrs.int("ranks"))
}

fn along(attrs: &Attrs) -> Attrs {
    over(attrs).with_int("axis", attrs.int("axis"))
}

pub(super) fn transpose_reduce(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    one(b.op_with(Op::AllReduce, &[ct(cts)], over(cx.attrs)))
}

pub(super) fn transpose_gather(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    one(b.op_with(Op::ReduceScatter, &[ct(cts)], along(cx.attrs)))
}

pub(super) fn transpose_scatter(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    one(b.op_with(Op::AllGather, &[ct(cts)], along(cx.attrs)))
}

pub(super) fn transpose_to_all(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let (split, concat) = (cx.attrs.int("split"), cx.attrs.int("concat"));
    let back = over(cx.attrs).with_int("split", concat).with_int("concat", split);
    one(b.op_with(Op::AllToAll, &[ct(cts)], back))
}

/// What all ranks were given is summed for the root; the others gave nothing.
pub(super) fn transpose_broadcast(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let sum = b.op_with(Op::AllReduce, &[ct(cts)], over(cx.attrs));
    let ty = b.ty(sum).clone();
    let rank = b.op_with(Op::AxisIndex, &[], over(cx.attrs));
    let root = Literal::from_i64(DType::I32, cx.attrs.int("root"));
    let root = b.literal(&TensorType::scalar(DType::I32), root);
    let is_root = b.op(Op::Eq, &[rank, root]);
    let spread = Attrs::none().with_ints("dims", []);
    let is_root = b.op_as(Op::BroadcastInDim, &[is_root], spread, &ty.with_dtype(DType::Bool));
    let zero = b.literal(&ty, Literal::zero(ty.dtype));
    one(b.op(Op::SelectN, &[is_root, zero, sum]))
}

/// The tangents of the ranks that have the extremum, summed and divided by their number, so that ties share equally.
pub(super) fn jvp_extremum(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    tangents: &[Option<Value>],
) -> Tangents {
    let Some(t) = tangents[0] else { return smallvec![None] };
    let x = &cx.types[0];
    let hit = b.op(Op::Eq, &[cx.args[0], cx.results[0]]);
    let zero = b.literal(x, Literal::zero(x.dtype));
    let chosen = b.op(Op::SelectN, &[hit, zero, t]);
    let sum = b.op_with(Op::AllReduce, &[chosen], over(cx.attrs));
    let ones = b.op_as(Op::ConvertElementType, &[hit], Attrs::none(), x);
    let count = b.op_with(Op::AllReduce, &[ones], over(cx.attrs));
    // Of NaNs alone there is no hit: 0/0 passes the NaN on.
    smallvec![Some(b.op(Op::Div, &[sum, count]))]
}

impl Collective {
    /// Whether all ranks have the same result.
    pub fn is_same_everywhere(self) -> bool {
        match self {
            Collective::AllReduce(_) | Collective::AllGather | Collective::Broadcast => true,
            Collective::ReduceScatter | Collective::AllToAll | Collective::Index => false,
        }
    }
}

impl Op {
    /// What kind of collective it is, if it is one.
    pub fn collective(self) -> Option<Collective> {
        match self.def().body {
            super::Body::Collective(which) => Some(which),
            _ => None,
        }
    }
}
