//! `svd`: singular values and vectors, by Jacobi rotations of one side.
//!
//! Of matrices with no more columns than rows, those of `qr` come first, `A = Q R`: what is rotated is as small as it can be, and
//! its columns, those of `R^T`, are nearer to orthogonal than those of R (Drmac and Veselic, *New fast and accurate Jacobi SVD
//! algorithm*, 2008). Rotations make the columns orthogonal, `R^T V = W` (Hestenes, *Inversion of matrices by
//! biorthogonalization*, 1958): their norms are the singular values. The `qr` of W in descending order divides by no norm, so
//! that vectors are orthonormal where singular values are 0, too.

use super::writer::MatrixWriter;
use crate::attrs::{Attr, Attrs};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::op::Op;
use crate::op::composed::in_order;
use crate::op::def::{RuleCx, Tangents};
use crate::op::tensor_writer::{ComposedResults, TensorWriter};
use smallvec::smallvec;

/// Columns of U, singular values, and rows of V^T.
#[derive(Clone, Copy)]
struct SingularParts {
    u: Value,
    values: Value,
    vt: Value,
}

pub(in crate::op) fn svd(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    let a = cx.args[0];
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![a, a, a] };
    let a = w.load(a);
    let [rows, columns] = w.shape(a);
    let full = cx.attrs.flag("full");
    let parts = match rows < columns {
        false => w.singular(a, full),
        true => {
            let a = w.flip(a);
            let SingularParts { u, values, vt } = w.singular(a, full);
            SingularParts { u: w.flip(vt), values, vt: w.flip(u) }
        }
    };
    smallvec![w.store(parts.u), w.store(parts.values), w.store(parts.vt)]
}

impl MatrixWriter<'_> {
    /// The parts of matrices with no more columns than rows.
    fn singular(&mut self, a: Value, full: bool) -> SingularParts {
        let ([m, n], count) = (self.shape(a), self.count());
        if count * n == 0 {
            let (u, vt) = (self.identity(count, [m, if full { m } else { n }]), [n, n]);
            return SingularParts {
                u,
                values: self.splat(0.0, &[count, n]),
                vt: self.identity(count, vt),
            };
        }
        // Of elements at most 1, squares neither overflow nor vanish where they matter.
        let size = self.size(a);
        let wide = self.spread(size, &[0], &[count, m, n]);
        let a = self.map(Op::Div, &[a, wide]);
        let [packed, scales] = self.reflect(a);
        let r = self.slice(packed, 1, 0, n);
        let r = self.part(r, Op::Le);
        let v = self.identity(count, [n, n]);
        let [turned, v] = self.made_orthogonal([r, v]);
        let values = self.norms(turned);
        let falling = Attrs::none()
            .with_int("axis", 1)
            .with("descending", Attr::Bool(true))
            .conform(Op::Argsort.def().attrs)
            .unwrap_or_default();
        let order = self.b_mut().op_with(Op::Argsort, &[values], falling);
        let values = in_order(self.b_mut(), values, order, 1);
        let of_rows = self.spread(order, &[0, 1], &[count, n, n]);
        let [turned, v] = [turned, v].map(|x| in_order(self.b_mut(), x, of_rows, 1));
        let vt = self.directions(turned);
        let begin = self.flip(v);
        let mut begin = self.padded(begin, 1, m);
        if full && m > n {
            let others = self.identity(count, [m, m]);
            let others = self.slice(others, 2, n, m);
            begin = self.join(&[begin, others], 2);
        }
        let u = self.reflected_back(packed, scales, begin);
        let size = self.spread(size, &[0], &[count, n]);
        SingularParts { u, values: self.mul(values, size), vt }
    }

    /// The largest magnitude in each matrix, and 1 where all are 0.
    fn size(&mut self, a: Value) -> Value {
        let sizes = self.map(Op::Abs, &[a]);
        let axes = Attrs::none().with_ints("axes", [1, 2]);
        let size = self.b_mut().op_with(Op::ReduceMax, &[sizes], axes);
        let dims = self.dims(size);
        let (zero, one) = (self.splat(0.0, &dims), self.splat(1.0, &dims));
        let none = self.test(Op::Eq, size, zero);
        self.select(none, one, size)
    }

    /// The norms of rows.
    fn norms(&mut self, x: Value) -> Value {
        let squares = self.mul(x, x);
        let sums = self.reduce(Op::ReduceSum, squares, 2);
        self.map(Op::Sqrt, &[sums])
    }

    /// Rows rotated until they are orthogonal, and the rows of other matrices with them.
    fn made_orthogonal(&mut self, pair: [Value; 2]) -> [Value; 2] {
        let n = self.extent(pair[0], 1);
        if n < 2 {
            return pair;
        }
        // A row that is added never rotates: its products are 0.
        let pair = pair.map(|x| self.padded(x, 1, n.next_multiple_of(2)));
        let pair = self.sweeps(pair, &mut MatrixWriter::oblique, &mut MatrixWriter::paired);
        pair.map(|x| self.slice(x, 1, 0, n))
    }

    /// Which matrices have two rows whose product is not within rounding of 0.
    fn oblique(&mut self, x: Value) -> Value {
        let products = self.product_transposed(x, x);
        let dims = self.dims(products);
        let above = self.part(products, Op::Lt);
        let above = self.map(Op::Abs, &[above]);
        let norms = self.norms(x);
        let (row, column) =
            (self.spread(norms, &[0, 1], &dims), self.spread(norms, &[0, 2], &dims));
        let allowed = self.mul(row, column);
        let unit = if self.wide() == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
        let allowed = self.scaled(allowed, unit * (dims[1] as f64).sqrt());
        // Elements are at most 1: what is below this is noise of rows that are 0 but for rounding.
        let least = self.splat(unit.powi(4), &dims);
        let allowed = self.add(allowed, least);
        let beyond = self.test(Op::Gt, above, allowed);
        let axes = Attrs::none().with_ints("axes", [1, 2]);
        self.b_mut().op_with(Op::ReduceOr, &[beyond], axes)
    }

    /// One step of a sweep.
    fn paired(&mut self, [x, v]: [Value; 2]) -> [Value; 2] {
        let half = self.extent(x, 1) / 2;
        let (first, second) = (self.slice(x, 1, 0, half), self.slice(x, 1, half, 2 * half));
        let [p, q, r] = [[first, first], [second, second], [first, second]].map(|[x, y]| {
            let products = self.mul(x, y);
            self.reduce(Op::ReduceSum, products, 2)
        });
        let dims = self.dims(p);
        let rotation = self.rotation([p, q, r], &dims);
        [x, v].map(|x| self.turned(x, 1, rotation))
    }

    /// Orthonormal rows in the directions of orthogonal rows, which are in descending order of their norms.
    fn directions(&mut self, x: Value) -> Value {
        let n = self.extent(x, 1);
        let columns = self.flip(x);
        let [packed, scales] = self.reflect(columns);
        let q = self.reflections(packed, scales, n);
        let ends = self.diagonal(packed);
        let dims = self.dims(ends);
        let (zero, one, other) =
            (self.splat(0.0, &dims), self.splat(1.0, &dims), self.splat(-1.0, &dims));
        let negative = self.test(Op::Lt, ends, zero);
        let signs = self.select(negative, other, one);
        let rows = self.flip(q);
        let signs = self.spread(signs, &[0, 1], &self.dims(rows));
        self.mul(rows, signs)
    }

    /// `1 / (s_i + s_j)`, and 0 where both are 0.
    fn sums_inverted(&mut self, values: Value) -> Value {
        let [count, n] = [self.extent(values, 0), self.extent(values, 1)];
        let dims = [count, n, n];
        let (row, column) =
            (self.spread(values, &[0, 1], &dims), self.spread(values, &[0, 2], &dims));
        let sum = self.add(row, column);
        self.inverted(sum)
    }

    /// `1 / x`, and 0 where x is 0.
    fn inverted(&mut self, x: Value) -> Value {
        let dims = self.dims(x);
        let (zero, one) = (self.splat(0.0, &dims), self.splat(1.0, &dims));
        let none = self.test(Op::Eq, x, zero);
        let x = self.select(none, one, x);
        let inverse = self.map(Op::Div, &[one, x]);
        self.select(none, zero, inverse)
    }

    /// The symmetric part, and what is left.
    fn halves(&mut self, x: Value) -> [Value; 2] {
        let other = self.flip(x);
        let (sum, difference) = (self.add(x, other), self.sub(x, other));
        [self.scaled(sum, 0.5), self.scaled(difference, 0.5)]
    }

    /// Columns divided by singular values; 0 where these are 0.
    fn columns_divided(&mut self, x: Value, values: Value) -> Value {
        let inverse = self.inverted(values);
        let inverse = self.spread(inverse, &[0, 2], &self.dims(x));
        self.mul(x, inverse)
    }

    /// The results of the op as columns: U, singular values, and V. Of U and V, those of singular values alone come after them.
    fn columns(&mut self, cx: &RuleCx<'_>) -> (SingularColumns, SingularColumns, Value) {
        let (u, values, vt) =
            (self.load(cx.results[0]), self.load_rows(cx.results[1]), self.load(cx.results[2]));
        let (v, k) = (self.flip(vt), self.extent(values, 1));
        let [u, v] = [u, v].map(|all| SingularColumns { all, own: self.slice(all, 2, 0, k) });
        (u, v, values)
    }

    /// Columns that only `full` has, where there are any.
    fn others(&mut self, x: SingularColumns) -> Option<Value> {
        let (own, all) = (self.extent(x.own, 2), self.extent(x.all, 2));
        (all > own).then(|| self.slice(x.all, 2, own, all))
    }

    /// What is added to one side's columns: `X mix + (moved - X (X^T moved)) / s`, and to the others what keeps them orthogonal.
    fn moved(
        &mut self,
        x: SingularColumns,
        mix: Value,
        (moved, within): (Value, Value),
        values: Value,
    ) -> Value {
        let mut change = self.product(x.own, mix);
        let [rows, own] = self.shape(x.own);
        if rows > own {
            let within = self.product(x.own, within);
            let beyond = self.sub(moved, within);
            let beyond = self.columns_divided(beyond, values);
            change = self.add(change, beyond);
        }
        let Some(others) = self.others(x) else { return change };
        let met = self.transposed_product(change, others);
        let back = self.product(x.own, met);
        let back = self.neg(back);
        self.join(&[change, back], 2)
    }

    /// The cotangent of one side's own columns: that of the others reaches them through what keeps these orthogonal.
    fn cotangent_of_own(&mut self, x: SingularColumns, ct: Option<Value>) -> Option<Value> {
        let ct = ct?;
        let (own, all) = (self.extent(x.own, 2), self.extent(x.all, 2));
        let first = self.slice(ct, 2, 0, own);
        let Some(others) = self.others(x) else { return Some(first) };
        let rest = self.slice(ct, 2, own, all);
        let met = self.transposed_product(rest, x.own);
        let back = self.product(others, met);
        Some(self.sub(first, back))
    }
}

/// Singular vectors as columns: all, and one for each singular value.
#[derive(Clone, Copy)]
struct SingularColumns {
    all: Value,
    own: Value,
}

/// Of Townsend, *Differentiating the singular value decomposition*, 2016, with the quotients `1 / (s_j^2 - s_i^2)` in two parts: for
/// `P = U^T dA V` with the symmetric part H and the skew part K, and `D_ij = 1 / (s_j - s_i)`, `C_ij = 1 / (s_i + s_j)`,
/// `ds = diagonal(P)`, `dU = U (H D + K C) + (I - U U^T) dA V / s` and `dV = V (H D - K C) + (I - V V^T) dA^T U / s`.
pub(in crate::op) fn jvp(b: &mut Builder, cx: &RuleCx<'_>, tangents: &[Option<Value>]) -> Tangents {
    let (Some(mut w), Some(t)) = (MatrixWriter::new(b, cx), tangents[0]) else {
        return smallvec![None, None, None];
    };
    let (u, v, values) = w.columns(cx);
    let t = w.load(t);
    let tv = w.product(t, v.own);
    let ut = w.transposed_product(t, u.own);
    let p = w.transposed_product(u.own, tv);
    let of_values = w.diagonal(p);
    let [even, odd] = w.halves(p);
    let (gaps, sums) = (w.gaps(values), w.sums_inverted(values));
    let (even, odd) = (w.mul(even, gaps), w.mul(odd, sums));
    let (plus, minus) = (w.add(even, odd), w.sub(even, odd));
    let flipped = w.flip(p);
    let of_u = w.moved(u, plus, (tv, p), values);
    let of_v = w.moved(v, minus, (ut, flipped), values);
    let of_vt = w.flip(of_v);
    smallvec![Some(w.store(of_u)), Some(w.store(of_values)), Some(w.store(of_vt))]
}

/// The transposed of the rule above: with `M = U^T dU` and `N = V^T dV`, `dA = U (sym((M + N) D) + skew((M - N) C) + ds) V^T`
/// and what lies beyond U and V, `(dU - U M) / s V^T + U ((dV - V N) / s)^T`.
pub(in crate::op) fn vjp(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![None] };
    let (u, v, values) = w.columns(cx);
    let of_u = cts[0].map(|ct| w.load(ct));
    let of_v = cts[2].map(|ct| {
        let ct = w.load(ct);
        w.flip(ct)
    });
    let (of_u, of_v) = (w.cotangent_of_own(u, of_u), w.cotangent_of_own(v, of_v));
    let dims = {
        let k = w.extent(values, 1);
        [w.count(), k, k]
    };
    let mut inner = match cts[1] {
        None => w.splat(0.0, &dims),
        Some(ct) => {
            let ct = w.load_rows(ct);
            let ct = w.spread(ct, &[0, 1], &dims);
            w.part(ct, Op::Eq)
        }
    };
    let within = |w: &mut MatrixWriter<'_>, x: SingularColumns, ct: Option<Value>| match ct {
        None => w.splat(0.0, &dims),
        Some(ct) => w.transposed_product(x.own, ct),
    };
    if of_u.is_some() || of_v.is_some() {
        let (m, n) = (within(&mut w, u, of_u), within(&mut w, v, of_v));
        let (sum, difference) = (w.add(m, n), w.sub(m, n));
        let (gaps, sums) = (w.gaps(values), w.sums_inverted(values));
        let (sum, difference) = (w.mul(sum, gaps), w.mul(difference, sums));
        let ([even, _], [_, odd]) = (w.halves(sum), w.halves(difference));
        let mixed = w.add(even, odd);
        inner = w.add(inner, mixed);
    }
    let mut left = w.product(u.own, inner);
    if let Some(beyond) = of_u.and_then(|ct| w.beyond(u, ct, values)) {
        left = w.add(left, beyond);
    }
    let mut ct = w.product_transposed(left, v.own);
    if let Some(beyond) = of_v.and_then(|ct| w.beyond(v, ct, values)) {
        let beyond = w.product_transposed(u.own, beyond);
        ct = w.add(ct, beyond);
    }
    smallvec![Some(w.store(ct))]
}

impl MatrixWriter<'_> {
    /// What of a cotangent lies beyond the columns, divided by singular values; `None` where they span all.
    fn beyond(&mut self, x: SingularColumns, ct: Value, values: Value) -> Option<Value> {
        let [rows, own] = self.shape(x.own);
        (rows > own).then(|| {
            let met = self.transposed_product(x.own, ct);
            let met = self.product(x.own, met);
            let beyond = self.sub(ct, met);
            self.columns_divided(beyond, values)
        })
    }
}
