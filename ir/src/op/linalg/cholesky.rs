//! `cholesky`: left-looking by panels of columns, and right-looking within a panel.
//!
//! The rules are those of Murray, *Differentiation of the Cholesky decomposition*, 2016: two triangular systems each, and nothing
//! of the loops is kept.

use super::writer::{MatrixWriter, Results, TriangularForm};
use crate::builder::Builder;
use crate::entity::Value;
use crate::op::Op;
use crate::op::def::{RuleCx, Tangents};
use crate::op::tensor_writer::TensorWriter;
use crate::types::TensorType;
use smallvec::smallvec;

/// Columns of a panel.
const PANEL: u64 = 32;

pub(in crate::op) fn cholesky(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![cx.args[0]] };
    let upper = cx.attrs.flag("upper");
    let a = w.load(cx.args[0]);
    let a = if upper { w.flip(a) } else { a };
    let l = w.factor(a);
    let l = if upper { w.flip(l) } else { l };
    smallvec![w.store(l)]
}

impl MatrixWriter<'_> {
    /// The lower factor, from the lower triangle.
    fn factor(&mut self, a: Value) -> Value {
        let ([n, _], count) = (self.shape(a), self.count());
        if count * n == 0 {
            return a;
        }
        if n <= PANEL {
            let first = self.place(0);
            return self.panel(a, first);
        }
        let panels = n.div_ceil(PANEL);
        let whole = panels * PANEL;
        let a = self.with_ones(a, whole);
        let columns = self.reshape(a, &[count, whole, panels, PANEL]);
        let columns = self.transpose(columns, &[2, 0, 1, 3]);
        let from = self.block_places(panels, PANEL);
        let begin = self.splat(0.0, &[count, whole, whole]);
        let (found, _) = self.steps(vec![begin], &[from, columns], &mut |w, carry, own| {
            let rows = w.slice_at(carry[0], 1, own[0], &[count, PANEL, whole]);
            let known = w.product_transposed(carry[0], rows);
            let rest = w.sub(own[1], known);
            let panel = w.panel(rest, own[0]);
            (vec![w.update_at(carry[0], panel, 2, own[0])], Vec::new())
        });
        let found = self.slice(found[0], 1, 0, n);
        self.slice(found, 2, 0, n)
    }

    /// Larger square matrices, with ones on the rest of the diagonal.
    fn with_ones(&mut self, a: Value, whole: u64) -> Value {
        let ([n, _], count) = (self.shape(a), self.count());
        let a = self.padded(a, 1, whole);
        let a = self.padded(a, 2, whole);
        let dims = [count, whole, whole];
        let (rows, columns) = (self.places(None, 1, &dims), self.places(None, 2, &dims));
        let first = self.place(n);
        let first = self.spread(first, &[], &dims);
        let (own, added) = (self.test(Op::Eq, rows, columns), self.test(Op::Ge, rows, first));
        let diagonal = self.map(Op::And, &[own, added]);
        let ones = self.splat(1.0, &dims);
        self.select(diagonal, ones, a)
    }

    /// Columns of the factor: of matrices whose first `from` rows are above the diagonal, less what columns before them account
    /// for.
    fn panel(&mut self, a: Value, from: Value) -> Value {
        let ([rows, columns], count) = (self.shape(a), self.count());
        let at = self.places(None, 0, &[columns]);
        let (_, found) = self.steps(vec![a], &[at], &mut |w, carry, own| {
            let scalar = TensorType::scalar(w.b().ty(from).dtype);
            let on = w.b_mut().op_as(Op::Add, &[from, own[0]], Default::default(), &scalar);
            let column = w.slice_at(carry[0], 2, own[0], &[count, rows, 1]);
            let pivot = w.slice_at(column, 1, on, &[count, 1, 1]);
            let pivot = w.map(Op::Sqrt, &[pivot]);
            let dims = [count, rows];
            let (column, pivot) = (w.reshape(column, &dims), w.reshape(pivot, &[count]));
            let pivot = w.spread(pivot, &[0], &dims);
            let (place, on) = (w.places(None, 1, &dims), w.spread(on, &[], &dims));
            let (below, same) = (w.test(Op::Gt, place, on), w.test(Op::Eq, place, on));
            let scaled = w.map(Op::Div, &[column, pivot]);
            let (scaled, pivot) = (w.kept(below, scaled), w.kept(same, pivot));
            let column = w.select(same, pivot, scaled);
            let own_rows = w.slice_at(column, 1, from, &[count, columns]);
            let known = w.outer(column, own_rows);
            (vec![w.sub(carry[0], known)], vec![column])
        });
        self.transpose(found[0], &[1, 2, 0])
    }

    /// The lower triangle with half of the diagonal.
    fn half(&mut self, x: Value) -> Value {
        let (below, own) = (self.part(x, Op::Gt), self.part(x, Op::Eq));
        let own = self.scaled(own, 0.5);
        self.add(below, own)
    }
}

/// `dL = L half(L^-1 dA L^-T)`.
pub(in crate::op) fn jvp(b: &mut Builder, cx: &RuleCx<'_>, tangents: &[Option<Value>]) -> Tangents {
    let (Some(mut w), Some(t)) = (MatrixWriter::new(b, cx), tangents[0]) else {
        return smallvec![None];
    };
    let upper = cx.attrs.flag("upper");
    let (l, t) = (w.load(cx.results[0]), w.load(t));
    let l = if upper { w.flip(l) } else { l };
    let t = w.symmetric(t, upper);
    let t = w.solved(l, t, TriangularForm::LOWER);
    let t = w.solved(l, t, TriangularForm::LOWER.transposed().on_right());
    let t = w.half(t);
    let t = w.product(l, t);
    let t = if upper { w.flip(t) } else { t };
    smallvec![Some(w.store(t))]
}

/// The symmetric part of `L^-T half(L^T dL) L^-1`.
pub(in crate::op) fn vjp(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let (Some(mut w), Some(ct)) = (MatrixWriter::new(b, cx), cts[0]) else {
        return smallvec![None];
    };
    let upper = cx.attrs.flag("upper");
    let (l, ct) = (w.load(cx.results[0]), w.load(ct));
    let (l, ct) = if upper { (w.flip(l), w.flip(ct)) } else { (l, ct) };
    let ct = w.part(ct, Op::Ge);
    let p = w.transposed_product(l, ct);
    let p = w.half(p);
    let p = w.solved(l, p, TriangularForm::LOWER.transposed());
    let p = w.solved(l, p, TriangularForm::LOWER.on_right());
    let ct = w.cotangent_of_triangle(p, upper);
    smallvec![Some(w.store(ct))]
}
