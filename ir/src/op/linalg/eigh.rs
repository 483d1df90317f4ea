//! `eigh`: eigenvalues and eigenvectors of symmetric matrices, by Jacobi rotations of rows and columns.

use super::writer::MatrixWriter;
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::op::Op;
use crate::op::composed::in_order;
use crate::op::def::{RuleCx, Tangents};
use crate::op::tensor_writer::{ComposedResults, TensorWriter};
use smallvec::smallvec;

pub(in crate::op) fn eigh(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    let a = cx.args[0];
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![a, a] };
    let a = w.load(a);
    let a = w.symmetric(a, cx.attrs.flag("upper"));
    let ([n, _], count) = (w.shape(a), w.count());
    let even = n.next_multiple_of(2);
    let (mut values, mut rows) = (w.diagonal(a), w.identity(count, [n, n]));
    if count > 0 && n > 1 {
        // A row that is added never rotates: its pairs are 0.
        let (a, v) = (w.padded(a, 1, even), w.padded(rows, 1, even));
        let a = w.padded(a, 2, even);
        let [a, v] =
            w.sweeps([a, v], &mut MatrixWriter::rough, &mut |w, pair| w.rotated(pair, count));
        let all = w.diagonal(a);
        (values, rows) = (w.slice(all, 1, 0, n), w.slice(v, 1, 0, n));
    }
    let order = w.b_mut().op_with(Op::Argsort, &[values], Attrs::none().with_int("axis", 1));
    let values = in_order(w.b_mut(), values, order, 1);
    let of_rows = w.spread(order, &[0, 1], &[count, n, n]);
    let rows = in_order(w.b_mut(), rows, of_rows, 1);
    let vectors = w.flip(rows);
    smallvec![w.store(values), w.store(vectors)]
}

impl MatrixWriter<'_> {
    /// Which matrices have more off their diagonals than rounding leaves there.
    fn rough(&mut self, a: Value) -> Value {
        let squares = self.map(Op::Square, &[a]);
        let off = self.part(squares, Op::Ne);
        let fold = |w: &mut Self, x: Value| {
            w.b_mut().op_with(Op::ReduceSum, &[x], Attrs::none().with_ints("axes", [1, 2]))
        };
        let (off, all) = (fold(self, off), fold(self, squares));
        let unit = if self.wide() == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
        let allowed = self.scaled(all, unit * unit);
        self.test(Op::Gt, off, allowed)
    }

    /// One step of a sweep.
    fn rotated(&mut self, [a, v]: [Value; 2], count: u64) -> [Value; 2] {
        let half = self.shape(a)[0] / 2;
        let tile = |w: &mut Self, row: u64, column: u64| {
            let rows = w.slice(a, 1, row * half, (row + 1) * half);
            let tile = w.slice(rows, 2, column * half, (column + 1) * half);
            w.diagonal(tile)
        };
        let [p, q, r] = [tile(self, 0, 0), tile(self, 1, 1), tile(self, 0, 1)];
        let rotation = self.rotation([p, q, r], &[count, half]);
        let [a, v] = [a, v].map(|x| self.turned(x, 1, rotation));
        let a = self.turned(a, 2, rotation);
        [a, v]
    }

    /// `1 / (w_j - w_i)`, and 0 where they are equal.
    pub(super) fn gaps(&mut self, values: Value) -> Value {
        let [count, n] = [self.extent(values, 0), self.extent(values, 1)];
        let dims = [count, n, n];
        let (row, column) =
            (self.spread(values, &[0, 1], &dims), self.spread(values, &[0, 2], &dims));
        let apart = self.sub(column, row);
        let (zero, one) = (self.splat(0.0, &dims), self.splat(1.0, &dims));
        let same = self.test(Op::Eq, apart, zero);
        let apart = self.select(same, one, apart);
        let inverse = self.map(Op::Div, &[one, apart]);
        self.select(same, zero, inverse)
    }
}

/// `dw = diagonal(V^T dA V)`, and `dV = V (gaps * V^T dA V)`.
pub(in crate::op) fn jvp(b: &mut Builder, cx: &RuleCx<'_>, tangents: &[Option<Value>]) -> Tangents {
    let (Some(mut w), Some(t)) = (MatrixWriter::new(b, cx), tangents[0]) else {
        return smallvec![None, None];
    };
    let (values, v) = (w.load_rows(cx.results[0]), w.load(cx.results[1]));
    let t = w.load(t);
    let t = w.symmetric(t, cx.attrs.flag("upper"));
    let t = w.product(t, v);
    let t = w.transposed_product(v, t);
    let of_values = w.diagonal(t);
    let gaps = w.gaps(values);
    let t = w.mul(gaps, t);
    let of_vectors = w.product(v, t);
    smallvec![Some(w.store(of_values)), Some(w.store(of_vectors))]
}

/// The symmetric part of `V (diagonal(dw) + gaps * V^T dV) V^T`.
pub(in crate::op) fn vjp(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![None] };
    let (values, v) = (w.load_rows(cx.results[0]), w.load(cx.results[1]));
    let dims = w.dims(v);
    let of_values = cts[0].map(|ct| {
        let ct = w.load_rows(ct);
        let ct = w.spread(ct, &[0, 1], &dims);
        w.part(ct, Op::Eq)
    });
    let of_vectors = cts[1].map(|ct| {
        let ct = w.load(ct);
        let ct = w.transposed_product(v, ct);
        let gaps = w.gaps(values);
        w.mul(gaps, ct)
    });
    let inner = match (of_values, of_vectors) {
        (Some(x), Some(y)) => w.add(x, y),
        (Some(x), None) | (None, Some(x)) => x,
        (None, None) => return smallvec![None],
    };
    let t = w.product(v, inner);
    let t = w.product_transposed(t, v);
    let ct = w.cotangent_of_triangle(t, cx.attrs.flag("upper"));
    smallvec![Some(w.store(ct))]
}
