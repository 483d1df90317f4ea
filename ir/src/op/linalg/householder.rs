//! `householder`, `householder_product` and `qr`.
//!
//! A step of `householder` reflects columns so that one of them is 0 below the diagonal; vectors of reflections are kept where the
//! zeros are, as LAPACK keeps them. What is composed of it has the derivatives of its steps; `qr` has rules in closed form, by
//! Walter and Lehmann, *Algorithmic differentiation of linear algebra functions*, 2010.

use super::writer::{MatrixWriter, TriangularForm};
use crate::builder::Builder;
use crate::entity::Value;
use crate::op::Op;
use crate::op::def::{RuleCx, Tangents};
use crate::op::tensor_writer::{ComposedResults, TensorWriter};
use smallvec::{SmallVec, smallvec};

pub(in crate::op) fn householder(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    let a = cx.args[0];
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![a, a] };
    let a = w.load(a);
    let [packed, scales] = w.reflect(a);
    smallvec![w.store(packed), w.store(scales)]
}

pub(in crate::op) fn householder_product(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![cx.args[0]] };
    let (packed, scales) = (w.load(cx.args[0]), w.load_rows(cx.args[1]));
    let columns = w.shape(packed)[1];
    let q = w.reflections(packed, scales, columns);
    smallvec![w.store(q)]
}

pub(in crate::op) fn qr(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    let a = cx.args[0];
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![a, a] };
    let a = w.load(a);
    let [rows, columns] = w.shape(a);
    let least = rows.min(columns);
    let [packed, scales] = w.reflect(a);
    let r = w.slice(packed, 1, 0, least);
    let r = w.part(r, Op::Le);
    let vectors = w.slice(packed, 2, 0, least);
    let q = w.reflections(vectors, scales, least);
    smallvec![w.store(q), w.store(r)]
}

impl MatrixWriter<'_> {
    /// The upper triangle with vectors of reflections below it, and the scales of these.
    pub(super) fn reflect(&mut self, a: Value) -> [Value; 2] {
        let ([rows, columns], count) = (self.shape(a), self.count());
        let least = rows.min(columns);
        if count * least == 0 {
            return [a, self.splat(0.0, &[count, least])];
        }
        let at = self.places(None, 0, &[least]);
        let (last, scales) = self.steps(vec![a], &[at], &mut |w, carry, own| {
            let [a, scale] = w.reflected(carry[0], own[0]);
            (vec![a], vec![scale])
        });
        [last[0], self.transpose(scales[0], &[1, 0])]
    }

    /// One step: the column at a place reflected onto the diagonal, and the columns after it with it.
    fn reflected(&mut self, a: Value, on: Value) -> [Value; 2] {
        let ([rows, columns], count) = (self.shape(a), self.count());
        let dims = [count, rows];
        let column = self.column_at(a, on);
        let (place, own) = (self.places(None, 1, &dims), self.spread(on, &[], &dims));
        let (below, same) = (self.test(Op::Gt, place, own), self.test(Op::Eq, place, own));
        let head = self.kept(same, column);
        let head = self.reduce(Op::ReduceSum, head, 1);
        let tail = self.kept(below, column);
        let squares = self.mul(tail, tail);
        let rest = self.reduce(Op::ReduceSum, squares, 1);
        // A column that is 0 below stays: 1 stands for its norm, so that nothing divides by 0.
        let each = [count];
        let (zero, one) = (self.splat(0.0, &each), self.splat(1.0, &each));
        let done = self.test(Op::Eq, rest, zero);
        let square = self.mul(head, head);
        let total = self.add(square, rest);
        let total = self.select(done, one, total);
        let norm = self.map(Op::Sqrt, &[total]);
        let negative = self.test(Op::Lt, head, zero);
        let other = self.neg(norm);
        let end = self.select(negative, norm, other);
        let apart = self.sub(head, end);
        let scale = self.map(Op::Div, &[apart, end]);
        let scale = self.neg(scale);
        let (scale, end) = (self.select(done, zero, scale), self.select(done, head, end));
        let (wide, end) = (self.spread(apart, &[0], &dims), self.spread(end, &[0], &dims));
        let vector = self.map(Op::Div, &[tail, wide]);
        let kept = self.select(below, vector, column);
        let kept = self.select(same, end, kept);
        let ones = self.splat(1.0, &dims);
        let vector = self.select(same, ones, vector);
        let dims = [count, rows, columns];
        let (place, own) = (self.places(None, 2, &dims), self.spread(on, &[], &dims));
        let (later, same) = (self.test(Op::Gt, place, own), self.test(Op::Eq, place, own));
        let moved = self.reflection(a, vector, scale);
        let kept = self.spread(kept, &[0, 1], &dims);
        let other = self.select(same, kept, a);
        [self.select(later, moved, other), scale]
    }

    /// Matrices reflected at vectors with these scales.
    fn reflection(&mut self, a: Value, vector: Value, scale: Value) -> Value {
        let share = self.dot([vector, a], (&[0], &[0]), (1, 1));
        let scale = self.spread(scale, &[0], &self.dims(share));
        let share = self.mul(share, scale);
        let moved = self.outer(vector, share);
        self.sub(a, moved)
    }

    /// The first columns of the product of reflections.
    pub(super) fn reflections(&mut self, packed: Value, scales: Value, columns: u64) -> Value {
        let begin = self.identity(self.count(), [self.shape(packed)[0], columns]);
        self.reflected_back(packed, scales, begin)
    }

    /// The product of reflections with matrices of as many rows.
    pub(super) fn reflected_back(&mut self, packed: Value, scales: Value, begin: Value) -> Value {
        let ([rows, columns], count) = (self.shape(begin), self.count());
        let n = self.extent(scales, 1);
        if count * n * columns == 0 {
            return begin;
        }
        let at = self.places(None, 0, &[n]);
        let scales = self.transpose(scales, &[1, 0]);
        let xs = [at, scales].map(|x| self.reversed(x, &[0]));
        let (last, _) = self.steps(vec![begin], &xs, &mut |w, carry, own| {
            let dims = [count, rows];
            let column = w.column_at(packed, own[0]);
            let (place, on) = (w.places(None, 1, &dims), w.spread(own[0], &[], &dims));
            let (below, same) = (w.test(Op::Gt, place, on), w.test(Op::Eq, place, on));
            let ones = w.splat(1.0, &dims);
            let vector = w.kept(below, column);
            let vector = w.select(same, ones, vector);
            (vec![w.reflection(carry[0], vector, own[1])], Vec::new())
        });
        last[0]
    }

    /// The skew matrices with this lower triangle.
    fn skew(&mut self, x: Value) -> Value {
        let below = self.part(x, Op::Gt);
        let above = self.flip(below);
        self.sub(below, above)
    }

    /// Q, and R as far as it is square.
    fn factors(&mut self, cx: &RuleCx<'_>) -> [Value; 3] {
        let (q, r) = (self.load(cx.results[0]), self.load(cx.results[1]));
        let least = self.shape(r)[0];
        [q, r, self.slice(r, 2, 0, least)]
    }
}

/// Of the columns that Q spans: with `X = dA R^-1`, `C = Q^T X` and the skew `S` of C's lower triangle, `dQ = X - Q (C - S)`
/// and `dR = (C - S) R`. Of the others, `dR = dQ^T A + Q^T dA`.
pub(in crate::op) fn jvp(b: &mut Builder, cx: &RuleCx<'_>, tangents: &[Option<Value>]) -> Tangents {
    let (Some(mut w), Some(t)) = (MatrixWriter::new(b, cx), tangents[0]) else {
        return smallvec![None, None];
    };
    let [q, _, square] = w.factors(cx);
    let (a, t) = (w.load(cx.args[0]), w.load(t));
    let ([_, columns], least) = (w.shape(a), w.shape(square)[0]);
    let first = w.slice(t, 2, 0, least);
    let x = w.solved(square, first, TriangularForm::UPPER.on_right());
    let c = w.transposed_product(q, x);
    let skew = w.skew(c);
    let upper = w.sub(c, skew);
    let moved = w.product(q, upper);
    let of_q = w.sub(x, moved);
    let mut of_r = w.product(upper, square);
    if columns > least {
        let (a, t) = (w.slice(a, 2, least, columns), w.slice(t, 2, least, columns));
        let (x, y) = (w.transposed_product(of_q, a), w.transposed_product(q, t));
        let rest = w.add(x, y);
        of_r = w.join(&[of_r, rest], 2);
    }
    smallvec![Some(w.store(of_q)), Some(w.store(of_r))]
}

/// Of the columns that Q spans: with `M = R dR^T - dQ^T Q` and the symmetric `S` of M's lower triangle,
/// `dA = (dQ + Q S) R^-T`. What the others move is Q's, before that.
pub(in crate::op) fn vjp(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![None] };
    let [q, r, square] = w.factors(cx);
    let a = w.load(cx.args[0]);
    let ([_, columns], least) = (w.shape(a), w.shape(square)[0]);
    let or_zero = |w: &mut MatrixWriter<'_>, ct: Option<Value>, like: Value| match ct {
        Some(ct) => w.load(ct),
        None => w.splat(0.0, &w.dims(like)),
    };
    let mut of_q = or_zero(&mut w, cts[0], q);
    let of_r = or_zero(&mut w, cts[1], r);
    let of_square = w.slice(of_r, 2, 0, least);
    let of_square = w.part(of_square, Op::Le);
    let mut rest = None;
    if columns > least {
        let (a, ct) = (w.slice(a, 2, least, columns), w.slice(of_r, 2, least, columns));
        let moved = w.product_transposed(a, ct);
        of_q = w.add(of_q, moved);
        rest = Some(w.product(q, ct));
    }
    let (x, y) = (w.product_transposed(square, of_square), w.transposed_product(of_q, q));
    let m = w.sub(x, y);
    let s = w.symmetric(m, false);
    let moved = w.product(q, s);
    let sum = w.add(of_q, moved);
    let ct = w.solved(square, sum, TriangularForm::UPPER.transposed().on_right());
    let parts: SmallVec<[Value; 2]> = std::iter::once(ct).chain(rest).collect();
    let ct = if parts.len() > 1 { w.join(&parts, 2) } else { ct };
    smallvec![Some(w.store(ct))]
}
