//! `eigh`: eigenvalues and eigenvectors of symmetric matrices, by Jacobi rotations of many pairs at once.
//!
//! A step rotates half as many pairs as there are rows, which share no row: row `i` of the first half with row `i` of the second. Then
//! rows and columns move one seat on, as in a tournament of Brent and Luk, *The solution of singular-value and symmetric
//! eigenvalue problems on multiprocessor arrays*, 1985: after as many steps as there are other rows each pair met once, and all
//! have the seats that they began with. Such sweeps follow until what is off the diagonal is within rounding.

use super::writer::{MatrixWriter, Results};
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::op::Op;
use crate::op::composed::in_order;
use crate::op::def::{RuleCx, Tangents};
use crate::op::tensor_writer::TensorWriter;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// The most sweeps. Convergence is quadratic: matrices of thousands of rows need about ten.
const SWEEPS: u64 = 20;

/// Cosines and sines of rotations, a pair for each row of the first half.
#[derive(Clone, Copy)]
struct Rotation {
    cos: Value,
    sin: Value,
}

pub(in crate::op) fn eigh(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
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
        let [a, v] = w.sweeps(a, v);
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
    /// Rotated until they are diagonal: symmetric matrices, and the rows of others with them.
    fn sweeps(&mut self, a: Value, v: Value) -> [Value; 2] {
        let ([n, _], count) = (self.shape(a), self.count());
        let first = self.place(0);
        let begin = [first, a, v];
        let types: Vec<TensorType> = begin.iter().map(|&x| self.b().ty(x).clone()).collect();
        let enter = |w: &mut Self| {
            let region = w.b_mut().open_region();
            let held: Vec<Value> = types.iter().map(|t| w.b_mut().param(t.clone(), None)).collect();
            (region, held)
        };
        let (test, held) = enter(self);
        let rough = self.rough(held[1]);
        let any = Attrs::none().with_ints("axes", [0]);
        let any = self.b_mut().op_with(Op::ReduceOr, &[rough], any);
        let most = self.place(SWEEPS);
        let left = self.test(Op::Lt, held[0], most);
        let goes_on = self.map(Op::And, &[any, left]);
        self.b_mut().close_region(&[goes_on]);
        let (body, held) = enter(self);
        let rough = self.rough(held[1]);
        let seats = self.places(None, 0, &[n - 1]);
        let (turned, _) = self.steps(vec![held[1], held[2]], &[seats], &mut |w, carry, _| {
            let [a, v] = w.rotated([carry[0], carry[1]], count);
            (vec![a, v], Vec::new())
        });
        let scalar = TensorType::scalar(DType::I64);
        let one = self.place(1);
        let next = self.b_mut().op_as(Op::Add, &[held[0], one], Attrs::none(), &scalar);
        // A matrix that is done stays: what it becomes does not depend on the others.
        let kept = |w: &mut Self, k: usize| {
            let holds = w.spread(rough, &[0], &w.dims(held[k]));
            w.select(holds, turned[k - 1], held[k])
        };
        let (a, v) = (kept(self, 1), kept(self, 2));
        self.b_mut().close_region(&[next, a, v]);
        let attrs = Attrs::none().conform(Op::While.def().attrs).unwrap_or_default();
        let inst = self.b_mut().place(Op::While, &begin, attrs, &types, &[test, body]);
        let found = self.b().func().inst_results(inst);
        [found[1], found[2]]
    }

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

    /// The rotations that make `r` 0 between `p` and `q`; none where it is 0.
    fn rotation(&mut self, [p, q, r]: [Value; 3], dims: &[u64]) -> Rotation {
        let (zero, one, two) =
            (self.splat(0.0, dims), self.splat(1.0, dims), self.splat(2.0, dims));
        let none = self.test(Op::Eq, r, zero);
        let below = self.mul(two, r);
        let below = self.select(none, one, below);
        let apart = self.sub(q, p);
        let slope = self.map(Op::Div, &[apart, below]);
        let size = self.map(Op::Abs, &[slope]);
        let square = self.mul(slope, slope);
        let square = self.add(square, one);
        let root = self.map(Op::Sqrt, &[square]);
        let sum = self.add(size, root);
        let tan = self.map(Op::Div, &[one, sum]);
        let negative = self.test(Op::Lt, slope, zero);
        let other = self.neg(tan);
        let tan = self.select(negative, other, tan);
        let square = self.mul(tan, tan);
        let square = self.add(square, one);
        let cos = self.map(Op::Rsqrt, &[square]);
        let sin = self.mul(tan, cos);
        Rotation { cos: self.select(none, one, cos), sin: self.select(none, zero, sin) }
    }

    /// The halves along an axis rotated against each other, and moved one seat on.
    fn turned(&mut self, x: Value, axis: usize, by: Rotation) -> Value {
        let half = self.extent(x, axis) / 2;
        let (first, second) = (self.slice(x, axis, 0, half), self.slice(x, axis, half, 2 * half));
        let dims = self.dims(first);
        let at = [0, axis as i64];
        let (cos, sin) = (self.spread(by.cos, &at, &dims), self.spread(by.sin, &at, &dims));
        let (fc, ss) = (self.mul(first, cos), self.mul(second, sin));
        let (fs, sc) = (self.mul(first, sin), self.mul(second, cos));
        let (first, second) = (self.sub(fc, ss), self.add(fs, sc));
        if half == 1 {
            return self.join(&[first, second], axis);
        }
        // The first stays; the others go round.
        let stays = self.slice(first, axis, 0, 1);
        let up = self.slice(second, axis, 0, 1);
        let on = self.slice(first, axis, 1, half - 1);
        let back = self.slice(second, axis, 1, half);
        let down = self.slice(first, axis, half - 1, half);
        let parts: SmallVec<[Value; 5]> = match half {
            2 => smallvec![stays, up, back, down],
            _ => smallvec![stays, up, on, back, down],
        };
        self.join(&parts, axis)
    }

    /// `1 / (w_j - w_i)`, and 0 where they are equal.
    fn gaps(&mut self, values: Value) -> Value {
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
