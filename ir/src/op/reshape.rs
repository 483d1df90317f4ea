//! `reshape`: inference, index map and transposition.

use super::Op;
use super::def::{RuleCx, Tangents, ViewCx};
use super::view::{Inferred, ct, one};
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DTypeSet;
use crate::entity::Value;
use crate::index::{IndexExpr, Piece, ViewMap};
use crate::infer::{InferCx, InferError};
use crate::types::{Dim, TensorType};
use smallvec::{SmallVec, smallvec};

pub(super) fn infer_reshape(cx: &mut InferCx<'_>) -> Inferred {
    let out = cx.declared()?.clone();
    let x = cx.require(0, DTypeSet::Any)?;
    if x.dtype != out.dtype {
        return Err(InferError::dtype(format!("the result has the operand's type {}", x.dtype)));
    }
    // Symbols must cancel; the constant parts must agree.
    let split = |t: &TensorType| {
        let mut symbols: Vec<Dim> =
            t.shape.iter().copied().filter(|d| d.known().is_none()).collect();
        symbols.sort();
        let constants = t.shape.iter().copied().filter(|d| d.known().is_some());
        (symbols, TensorType::new(t.dtype, constants).elements())
    };
    if split(x) != split(&out) || split(x).1.is_none() {
        return Err(InferError::shape(format!("{x} and {out} differ in number of elements")));
    }
    Ok(smallvec![out])
}

/// Coordinates of the operand, group by group: axes of the operand and of the result that have the same product
/// side by side are a group of their own, so that an axis which stays as it is keeps its coordinate. Within a group
/// a coordinate is a quotient and a remainder of the row-major place.
pub(super) fn index_reshape(cx: &ViewCx<'_>) -> ViewMap {
    let dims = &cx.args[0];
    let mut index: SmallVec<[IndexExpr; 4]> = dims.iter().map(|_| IndexExpr::Const(0)).collect();
    // An empty tensor is never read.
    if dims.contains(&0) {
        return ViewMap { pieces: smallvec![Piece { operand: 0, index, guards: smallvec![] }] };
    }
    let long = |dims: &[i64]| -> SmallVec<[usize; 8]> {
        (0..dims.len()).filter(|&d| dims[d] != 1).collect()
    };
    let (from, to) = (long(dims), long(cx.out));
    let (mut k, mut j) = (0, 0);
    while k < from.len() && j < to.len() {
        let (first, begin) = (k, j);
        let (mut n, mut m) = (dims[from[k]], cx.out[to[j]]);
        (k, j) = (k + 1, j + 1);
        while n != m {
            // Extents that do not multiply to the same number are refused by inference; what a product of 64 bits
            // does not hold has no elements in memory.
            if n < m && k < from.len() {
                n = n.saturating_mul(dims[from[k]]);
                k += 1;
            } else if n > m && j < to.len() {
                m = m.saturating_mul(cx.out[to[j]]);
                j += 1;
            } else {
                break;
            }
        }
        let mut place = IndexExpr::Const(0);
        for &d in &to[begin..j] {
            place = place.times(cx.out[d]).sum(IndexExpr::axis(d));
        }
        let mut stride = 1i64;
        for (r, &d) in from[first..k].iter().enumerate().rev() {
            let quotient = place.clone().floor_div(stride);
            index[d] = if r == 0 { quotient } else { quotient.modulo(dims[d]) };
            stride = stride.saturating_mul(dims[d]);
        }
    }
    ViewMap { pieces: smallvec![Piece { operand: 0, index, guards: smallvec![] }] }
}

pub(super) fn transpose_reshape(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    one(b.op_as(Op::Reshape, &[ct(cts)], Attrs::none(), &cx.types[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the row-major element `k` of a shape is.
    fn coordinates(mut k: i64, dims: &[i64]) -> Vec<i64> {
        let mut at = vec![0; dims.len()];
        for (c, n) in at.iter_mut().zip(dims).rev() {
            (*c, k) = (k % n, k / n);
        }
        at
    }

    fn reshape(from: &[i64], to: &[i64]) -> ViewMap {
        let args = [from.iter().copied().collect()];
        index_reshape(&ViewCx { args: &args, out: to, result: 0, attrs: &Attrs::none() })
    }

    #[test]
    fn reshapes_keep_the_order_of_elements() {
        let shapes: [&[&[i64]]; 4] = [
            &[&[24], &[2, 12], &[1, 24, 1], &[4, 6], &[6, 4], &[2, 3, 4], &[4, 3, 2], &[3, 1, 8]],
            &[&[6, 10], &[2, 3, 2, 5], &[4, 15], &[60], &[2, 30], &[10, 6], &[6, 1, 10]],
            &[&[8, 8, 3], &[2, 4, 8, 3], &[8, 2, 4, 3], &[64, 3], &[8, 24], &[4, 16, 1, 3]],
            &[&[1], &[1, 1], &[]],
        ];
        for group in shapes {
            for (from, to) in group.iter().flat_map(|f| group.iter().map(move |t| (*f, *t))) {
                let map = reshape(from, to);
                let [piece] = map.pieces.as_slice() else { panic!("one piece") };
                for k in 0..from.iter().product() {
                    let at = coordinates(k, to);
                    let found: Vec<i64> = piece.index.iter().map(|e| e.eval(&at, &[])).collect();
                    assert_eq!(found, coordinates(k, from), "{from:?} as {to:?}");
                }
            }
        }
    }

    #[test]
    fn axes_that_stay_keep_their_coordinates() {
        let shown = |from: &[i64], to: &[i64]| -> Vec<String> {
            reshape(from, to).pieces[0].index.iter().map(|e| e.to_string()).collect()
        };
        assert_eq!(
            shown(&[64, 16, 4, 4, 1, 1], &[64, 16, 4, 4]),
            ["d0", "d1", "d2", "d3", "0", "0"]
        );
        assert_eq!(shown(&[5, 8, 7], &[5, 4, 2, 7]), ["d0", "d1 * 2 + d2", "d3"]);
        assert_eq!(shown(&[5, 4, 2, 7], &[5, 8, 7]), ["d0", "d1 / 2", "d1 % 2", "d2"]);
    }
}
