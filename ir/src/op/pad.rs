//! `pad`, and what views have in common that place elements among others: inference, index maps and transposition.

use super::Op;
use super::def::{RuleCx, Tangents, ViewCx};
use super::view::{Inferred, ct, per_axis, scalar_zero};
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::index::{Guard, IndexExpr, Piece, ViewMap};
use crate::infer::{InferCx, InferError, known_dim};
use crate::literal::Literal;
use crate::types::{Dim, Shape, TensorType};
use smallvec::{SmallVec, smallvec};
use std::ops::RangeInclusive;

/// Extent of a padded axis, before cutting.
fn spread(n: i64, interior: i64) -> i64 {
    if n == 0 { 0 } else { n + (n - 1) * interior }
}

pub(super) fn infer_pad(cx: &mut InferCx<'_>) -> Inferred {
    let x = cx.require(0, DTypeSet::Any)?.clone();
    let rank = x.rank();
    let low = per_axis(cx, "low", rank)?;
    let high = per_axis(cx, "high", rank)?;
    let interior = per_axis(cx, "interior", rank)?;
    cx.demand(1, &TensorType::scalar(x.dtype))?;
    let mut shape = Shape::new();
    for d in 0..rank {
        // Nothing to do on an axis leaves even a symbolic extent alone.
        if (low[d], high[d], interior[d]) == (0, 0, 0) {
            shape.push(x.shape[d]);
            continue;
        }
        let n = known_dim("`pad`", x.shape[d])?;
        const BOUND: i64 = 1 << 40;
        let small = |v: i64| v.abs() <= BOUND;
        if interior[d] < 0 || ![n, low[d], high[d], interior[d]].into_iter().all(small) {
            return Err(InferError::attr(format!("axis {d}: padding is out of range")));
        }
        let wide = i128::from(n) + i128::from((n - 1).max(0)) * i128::from(interior[d]);
        let total = wide + i128::from(low[d]) + i128::from(high[d]);
        if !(0..=i128::from(BOUND)).contains(&total) || wide > i128::from(BOUND) {
            let m = format!("axis {d}: extent {n} padded by {}, {} is {total}", low[d], high[d]);
            return Err(InferError::shape(m));
        }
        shape.push(Dim::Const(total as u64));
    }
    Ok(smallvec![TensorType { dtype: x.dtype, shape }])
}

pub(super) fn index_pad(cx: &ViewCx<'_>) -> ViewMap {
    let (low, interior) = (cx.attrs.ints("low"), cx.attrs.ints("interior"));
    let mut inside = Piece { operand: 0, index: SmallVec::new(), guards: SmallVec::new() };
    for (d, &n) in cx.args[0].iter().enumerate() {
        let place = IndexExpr::axis(d).plus(-low[d]);
        let reached = -low[d]..=cx.out[d] - 1 - low[d];
        let at = spaced(&mut inside, (place, reached), n, interior[d] + 1);
        inside.index.push(at);
    }
    beside_a_scalar(inside)
}

/// Where `n` elements lie that are `step` apart: the index of the one at `place`, guarded to be one. `reached` is
/// what `place` comes to; there is no guard on its range where all of that is inside.
pub(super) fn spaced(
    inside: &mut Piece,
    (place, reached): (IndexExpr, RangeInclusive<i64>),
    n: i64,
    step: i64,
) -> IndexExpr {
    let range = 0..spread(n, step - 1);
    if *reached.start() < range.start || *reached.end() >= range.end {
        inside.guards.push(Guard { expr: place.clone(), range });
    }
    if step > 1 {
        inside.guards.push(Guard { expr: place.clone().modulo(step), range: 0..1 });
    }
    place.floor_div(step)
}

/// A guarded piece, and the second operand, a scalar, where its guards do not hold.
pub(super) fn beside_a_scalar(inside: Piece) -> ViewMap {
    if inside.guards.is_empty() {
        return ViewMap { pieces: SmallVec::from_iter([inside]) };
    }
    let outside = Piece { operand: 1, index: SmallVec::new(), guards: SmallVec::new() };
    ViewMap { pieces: SmallVec::from_iter([inside, outside]) }
}

pub(super) fn transpose_pad(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    linear: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let ct = ct(cts);
    let (low, high) = (cx.attrs.ints("low"), cx.attrs.ints("high"));
    let interior = cx.attrs.ints("interior");
    let x = cx.types[0].clone();
    // Undo the cutting and widening first, then take every (interior + 1)-th element.
    let untouched = |d: usize| (low[d], high[d], interior[d]) == (0, 0, 0);
    let mut inside = ct;
    if !(0..x.rank()).all(untouched) {
        let zero = scalar_zero(b, &x);
        let attrs = Attrs::none()
            .with_ints("low", low.iter().map(|l| -l))
            .with_ints("high", high.iter().map(|h| -h))
            .with_ints("interior", low.iter().map(|_| 0));
        inside = b.op_with(Op::Pad, &[ct, zero], attrs);
        if interior.iter().any(|&i| i > 0) {
            let wide = b.ty(inside).clone();
            let wide = b.extents(&wide);
            let attrs = Attrs::none()
                .with_ints("start", low.iter().map(|_| 0))
                .with_ints("limit", wide.iter().map(|&n| n as i64))
                .with_ints("stride", interior.iter().map(|i| i + 1));
            inside = b.op_with(Op::Slice, &[inside], attrs);
        }
    }
    let mut out: Tangents = smallvec![None, None];
    if linear[1] {
        out[1] = Some(outside(b, Op::Pad, cx, ct));
    }
    if linear[0] {
        out[0] = Some(inside);
    }
    out
}

/// The cotangent of the value around what a view places: what is not inside went to it, so it is the sum of the
/// cotangent with the inside cleared.
pub(super) fn outside(b: &mut Builder, op: Op, cx: &RuleCx<'_>, ct: Value) -> Value {
    let x = &cx.types[0];
    let flag = |b: &mut Builder, truth: i64, ty: &TensorType| {
        let dtype = crate::dtype::DType::Bool;
        b.literal(&ty.with_dtype(dtype), Literal::from_i64(dtype, truth))
    };
    let no = flag(b, 0, x);
    let yes = flag(b, 1, &TensorType::scalar(x.dtype));
    let mask = b.op_with(op, &[no, yes], cx.attrs.clone());
    let ty = b.ty(ct).clone();
    let zeros = b.literal(&ty, Literal::zero(ty.dtype));
    let kept = b.op(Op::SelectN, &[mask, zeros, ct]);
    let axes = Attrs::none().with_ints("axes", 0..ty.rank() as i64);
    b.op_with(Op::ReduceSum, &[kept], axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_that_always_hold_are_left_out() {
        let pad = |n: i64, low: i64, high: i64| {
            let args = [[3, n].into_iter().collect(), [].into_iter().collect()];
            let attrs = Attrs::none()
                .with_ints("low", [0, low])
                .with_ints("high", [0, high])
                .with_ints("interior", [0, 0]);
            let out = [3, n + low + high];
            index_pad(&ViewCx { args: &args, out: &out, result: 0, attrs: &attrs })
        };
        // Cut on both sides: a slice.
        let cut = pad(9, -1, -2);
        assert_eq!((cut.pieces.len(), cut.pieces[0].guards.len()), (1, 0));
        // The first axis is as it was.
        for (low, high) in [(1, 0), (0, 1), (-1, 1), (2, 3)] {
            let map = pad(9, low, high);
            assert_eq!((map.pieces.len(), map.pieces[0].guards.len()), (2, 1), "{low} {high}");
        }
    }
}
