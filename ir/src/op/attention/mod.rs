//! `attention` and `attention_grad`: inference, compositions and derivatives.
//!
//! Both are a step of their own where an engine has it. What they mean is a composition of other ops ([`blocks`]).

mod blocks;
mod reach;
mod shape;
mod whole;
mod writer;

pub use reach::AttentionReach;
pub use shape::{ATTENTION_BLOCK, ATTENTION_JOINT, AttentionShape};
pub(super) use whole::jvp;

use super::Op;
use super::def::{RuleCx, StepBody, Tangents};
use super::view::unbroadcast;
use crate::attrs::{Attr0, AttrKind, AttrSpec, Attrs, maybe};
use crate::builder::Builder;
use crate::dtype::{DType, DTypeSet};
use crate::entity::Value;
use crate::infer::{InferCx, InferError, Types};
use crate::literal::Literal;
use crate::types::{Dim, Shape, TensorType};
use reach::{CAUSAL, WINDOW};
use smallvec::{SmallVec, smallvec};

/// Attributes of `attention`.
pub(super) const ATTENTION: &[AttrSpec] = &[CAUSAL, WINDOW];
/// Attributes of `attention_grad`.
pub(super) const ATTENTION_GRAD: &[AttrSpec] =
    &[CAUSAL, WINDOW, maybe("bias_grad", AttrKind::Bool, Attr0::False)];

/// Complete instructions of `attention`.
pub(super) const EXAMPLES: &[&str] = &[
    "%q: f32[2,3,2], %k: f32[2,4,2], %v: f32[2,4,3] | attention %q, %k, %v : f32[2,3,3], f32[2,3]",
    "%q: f32[4,3,2], %k: f32[2,3,2], %v: f32[2,3,2] | attention %q, %k, %v {causal = true} : f32[4,3,2], f32[4,3]",
    "%q: f32[2,5,2], %k: f32[2,5,2], %v: f32[2,5,3] | attention %q, %k, %v {window = [2, 1]} : f32[2,5,3], f32[2,5]",
    "%q: f32[1,2,3,2], %k: f32[1,2,3,2], %v: f32[1,2,3,1], %b: f32[1,1,3,3] | attention %q, %k, %v, %b : f32[1,2,3,1], f32[1,2,3]",
];
/// Complete instructions of `attention_grad`.
pub(super) const GRAD_EXAMPLES: &[&str] = &[
    "%q: f32[2,3,2], %k: f32[1,4,2], %v: f32[1,4,3], %l: f32[2,3], %g: f32[2,3,3], %d: f32[2,3] | attention_grad %q, %k, %v, %l, %g, %d : f32[2,3,2], f32[1,4,2], f32[1,4,3]",
    "%q: f32[2,3,2], %k: f32[2,3,2], %v: f32[2,3,3], %l: f32[2,3], %g: f32[2,3,3], %d: f32[2,3], %b: f32[2,3,3] | attention_grad %q, %k, %v, %l, %g, %d, %b {causal = true, bias_grad = true} : f32[2,3,2], f32[2,3,2], f32[2,3,3], f32[2,3,3]",
];

/// The compositions of `attention`.
pub(super) const FORWARD: StepBody = StepBody { defined: blocks::forward, other: whole::forward };
/// The compositions of `attention_grad`.
pub(super) const BACKWARD: StepBody =
    StepBody { defined: blocks::backward, other: whole::backward };

/// The operands of both ops that come first, checked.
struct OperandTypes {
    q: TensorType,
    k: TensorType,
    v: TensorType,
    /// The axes of queries without the last.
    rows: Shape,
}

fn shapes(cx: &mut InferCx<'_>) -> Result<OperandTypes, InferError> {
    reach::check(cx.attrs)?;
    let q = cx.require(0, DTypeSet::Float)?.clone();
    let [k, v] = [cx.require(1, DTypeSet::Float)?.clone(), cx.require(2, DTypeSet::Float)?.clone()];
    if k.dtype != q.dtype || v.dtype != q.dtype {
        return Err(InferError::dtype(format!("operands differ in type: {q}, {k} and {v}")));
    }
    let rank = q.rank();
    if rank < 3 || k.rank() != rank || v.rank() != rank {
        let m = format!(
            "expected queries [.., heads, rows, depth], keys [.., groups, stream, depth] and values [.., groups, \
             stream, width] of one rank, found {q}, {k} and {v}"
        );
        return Err(InferError::shape(m));
    }
    let differ = |what: &str, x: &TensorType, y: &TensorType| {
        Err(InferError::shape(format!("{what}: found {x} and {y}")))
    };
    if q.shape[..rank - 3] != k.shape[..rank - 3] {
        return differ("queries and keys have one batch", &q, &k);
    }
    if k.shape[..rank - 1] != v.shape[..rank - 1] {
        return differ("there is a value for each key", &k, &v);
    }
    if q.shape[rank - 1] != k.shape[rank - 1] {
        return differ("queries and keys are equally deep", &q, &k);
    }
    let fits = match (q.shape[rank - 3], k.shape[rank - 3]) {
        (Dim::Const(heads), Dim::Const(0)) => heads == 0,
        (Dim::Const(heads), Dim::Const(groups)) => heads % groups == 0,
        (heads, groups) => heads == groups,
    };
    if !fits {
        return differ("groups divide heads", &q, &k);
    }
    let rows = q.shape[..rank - 1].iter().copied().collect();
    Ok(OperandTypes { q, k, v, rows })
}

/// Checks a mask or a bias, of extents as scores have them, or 1.
fn extra(cx: &InferCx<'_>, at: usize, c: &OperandTypes) -> Result<(), InferError> {
    if cx.arity() <= at {
        return Ok(());
    }
    let x = cx.arg(at)?;
    let rank = c.q.rank();
    let scores: Shape = c.rows.iter().copied().chain([c.k.shape[rank - 2]]).collect();
    let fits = |(n, m): (&Dim, &Dim)| n == m || *n == Dim::Const(1);
    if x.rank() != rank || !x.shape.iter().zip(&scores).all(fits) {
        let scores = TensorType { dtype: c.q.dtype, shape: scores };
        let m = format!("a mask or a bias has the extents of scores, {scores}, or 1; found {x}");
        return Err(InferError::shape(m));
    }
    match x.dtype == DType::Bool || x.dtype == c.q.dtype {
        true => Ok(()),
        false => {
            let m =
                format!("expected a mask of truth values or a bias of {}, found {x}", c.q.dtype);
            Err(InferError::dtype(m))
        }
    }
}

pub(super) fn infer_attention(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    arity(cx, 3)?;
    let c = shapes(cx)?;
    extra(cx, 3, &c)?;
    let width = c.v.shape[c.v.rank() - 1];
    let y = TensorType::new(c.q.dtype, c.rows.iter().copied().chain([width]));
    Ok(smallvec![y, TensorType::new(c.q.dtype.compute(), c.rows)])
}

pub(super) fn infer_attention_grad(cx: &mut InferCx<'_>) -> Result<Types, InferError> {
    arity(cx, 6)?;
    let c = shapes(cx)?;
    let width = c.v.shape[c.v.rank() - 1];
    let y = TensorType::new(c.q.dtype, c.rows.iter().copied().chain([width]));
    let each = TensorType::new(c.q.dtype.compute(), c.rows.clone());
    cx.demand(3, &each)?;
    cx.demand(4, &y)?;
    cx.demand(5, &each)?;
    extra(cx, 6, &c)?;
    let mut types: Types = smallvec![c.q.clone(), c.k.clone(), c.v.clone()];
    if cx.attrs.flag("bias_grad") {
        if cx.known(6).is_none_or(|x| x.dtype == DType::Bool) {
            return Err(InferError::attr("`bias_grad`: there is no bias"));
        }
        let stream = c.k.shape[c.k.rank() - 2];
        types.push(TensorType::new(c.q.dtype, c.rows.iter().copied().chain([stream])));
    }
    Ok(types)
}

fn arity(cx: &InferCx<'_>, least: usize) -> Result<(), InferError> {
    match (least..=least + 1).contains(&cx.arity()) {
        true => Ok(()),
        false => {
            let m = format!("expected {least} operands or {}, found {}", least + 1, cx.arity());
            Err(InferError::new(crate::diag::Kind::Arity, m))
        }
    }
}

/// The cotangents of the operands of `attention`: by `attention_grad`, which computes weights again block by block.
pub(super) fn vjp(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    wanted: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let wide = cx.types[0].dtype.compute();
    let (y, lse) = (cx.results[0], cx.results[1]);
    let rank = cx.types[0].rank() as i64;
    let (of_y, of_rows) = (b.ty(y).clone(), b.ty(lse).clone());
    let zeros = |b: &mut Builder, ty: &TensorType| b.literal(ty, Literal::zero(ty.dtype));
    // The cotangent of each score is its weight times what it moves, less the mean of that over the row.
    let (dy, mut delta) = match cts[0] {
        None => (zeros(b, &of_y), None),
        Some(dy) => {
            let (dy_wide, y) = (b.converted(dy, wide), b.converted(y, wide));
            let products = b.op(Op::Mul, &[dy_wide, y]);
            let attrs = Attrs::none().with_ints("axes", [rank - 1]);
            (dy, Some(b.op_with(Op::ReduceSum, &[products], attrs)))
        }
    };
    if let Some(ct) = cts.get(1).copied().flatten() {
        delta = Some(match delta {
            None => b.op(Op::Neg, &[ct]),
            Some(delta) => b.op(Op::Sub, &[delta, ct]),
        });
    }
    let delta = match delta {
        None => zeros(b, &of_rows),
        Some(delta) => delta,
    };
    let of_bias = wanted.get(3).copied().unwrap_or(false);
    let attrs = AttentionReach::of(cx.attrs)
        .with(Attrs::none())
        .with("bias_grad", crate::attrs::Attr::Bool(of_bias));
    let mut args: SmallVec<[Value; 8]> = cx.args[..3].iter().copied().collect();
    args.extend([lse, dy, delta]);
    args.extend(cx.args.get(3).copied());
    let found = b.inst(Op::AttentionGrad, &args, attrs, None);
    let mut out: Tangents = (0..3).map(|k| found.get(k).copied().filter(|_| wanted[k])).collect();
    if of_bias && let Some(&ds) = found.get(3) {
        let axes: Vec<i64> = (0..rank).collect();
        out.push(Some(unbroadcast(b, ds, &axes, &cx.types[3])));
    }
    out
}
