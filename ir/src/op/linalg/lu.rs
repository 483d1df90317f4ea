//! `lu`: elimination with partial pivoting, a column a step.

use super::writer::{MatrixWriter, TriangularForm};
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::op::Op;
use crate::op::composed::in_order;
use crate::op::def::{RuleCx, Tangents};
use crate::op::tensor_writer::{ComposedResults, TensorWriter};
use crate::types::TensorType;
use smallvec::smallvec;

/// The lower triangle with ones on its diagonal.
const UNIT: TriangularForm = TriangularForm { unit: true, ..TriangularForm::LOWER };

pub(in crate::op) fn lu(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    let a = cx.args[0];
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![a, a, a] };
    let a = w.load(a);
    let ([n, _], count) = (w.shape(a), w.count());
    let ty = TensorType::of(DType::I32, &[count, n]);
    let order = w.b_mut().op_as(Op::Iota, &[], Attrs::none().with_int("axis", 1), &ty);
    if count * n == 0 {
        return smallvec![w.store(a), w.store_places(order), w.store_places(order)];
    }
    let at = w.places(None, 0, &[n]);
    let (last, pivots) = w.steps(vec![a, order], &[at], &mut |w, carry, own| {
        let [a, order, pivot] = w.eliminated(carry[0], carry[1], own[0]);
        (vec![a, order], vec![pivot])
    });
    let pivots = w.transpose(pivots[0], &[1, 0]);
    smallvec![w.store(last[0]), w.store_places(pivots), w.store_places(last[1])]
}

impl MatrixWriter<'_> {
    /// A result of places: with the batch axes of the operands.
    fn store_places(&mut self, x: Value) -> Value {
        let dims = self.batched(x);
        self.reshape(x, &dims)
    }

    /// One step: the row with the largest element of a column below the diagonal exchanged with the diagonal's, and
    /// the rest of the column eliminated. The pivot's row comes last.
    fn eliminated(&mut self, a: Value, order: Value, on: Value) -> [Value; 3] {
        let ([n, _], count) = (self.shape(a), self.count());
        let dims = [count, n];
        let column = self.column_at(a, on);
        let own = self.spread(on, &[], &dims);
        let place = self.places(None, 1, &dims);
        let above = self.test(Op::Lt, place, own);
        let size = self.map(Op::Abs, &[column]);
        let least = self.splat(-1.0, &dims);
        let size = self.select(above, least, size);
        let pivot = self.b_mut().op_with(Op::Argmax, &[size], Attrs::none().with_int("axis", 1));
        let wide = self.convert(pivot, DType::I64);
        let wide = self.spread(wide, &[0], &dims);
        let (first, second) = (self.test(Op::Eq, place, own), self.test(Op::Eq, place, wide));
        let from = self.select(second, own, place);
        let from = self.select(first, wide, from);
        let order = in_order(self.b_mut(), order, from, 1);
        let rows = self.spread(from, &[0, 1], &[count, n, n]);
        let a = in_order(self.b_mut(), a, rows, 1);
        let column = in_order(self.b_mut(), column, from, 1);
        let pivots = self.slice_at(a, 1, on, &[count, 1, n]);
        let pivots = self.reshape(pivots, &dims);
        let head = self.kept(first, column);
        let head = self.reduce(Op::ReduceSum, head, 1);
        // Where the pivot is 0, all below it is.
        let (zero, one) = (self.splat(0.0, &[count]), self.splat(1.0, &[count]));
        let nothing = self.test(Op::Eq, head, zero);
        let head = self.select(nothing, one, head);
        let head = self.spread(head, &[0], &dims);
        let scaled = self.map(Op::Div, &[column, head]);
        let below = self.test(Op::Gt, place, own);
        let kept = self.select(below, scaled, column);
        let scaled = self.kept(below, scaled);
        let known = self.outer(scaled, pivots);
        let rest = self.sub(a, known);
        let whole = [count, n, n];
        let (across, own) = (self.places(None, 2, &whole), self.spread(on, &[], &whole));
        let (later, same) = (self.test(Op::Gt, across, own), self.test(Op::Eq, across, own));
        let kept = self.spread(kept, &[0, 1], &whole);
        let other = self.select(same, kept, a);
        [self.select(later, rest, other), order, pivot]
    }

    /// Rows in this order.
    fn rows_in(&mut self, x: Value, order: Value) -> Value {
        let dims = self.dims(x);
        let order = self.reshape(order, dims.get(..2).unwrap_or_default());
        let order = self.spread(order, &[0, 1], &dims);
        in_order(self.b_mut(), x, order, 1)
    }
}

/// With `Y = L^-1 P dA U^-1`: `dL = L lower(Y)`, `dU = upper(Y) U`.
pub(in crate::op) fn jvp(b: &mut Builder, cx: &RuleCx<'_>, tangents: &[Option<Value>]) -> Tangents {
    let (Some(mut w), Some(t)) = (MatrixWriter::new(b, cx), tangents[0]) else {
        return smallvec![None, None, None];
    };
    let (packed, t) = (w.load(cx.results[0]), w.load(t));
    let t = w.rows_in(t, cx.results[2]);
    let y = w.solved(packed, t, UNIT);
    let y = w.solved(packed, y, TriangularForm::UPPER.on_right());
    let (below, above) = (w.part(y, Op::Gt), w.part(y, Op::Le));
    let (lower, upper) = (w.unit_lower(packed), w.part(packed, Op::Le));
    let (of_lower, of_upper) = (w.product(lower, below), w.product(above, upper));
    let sum = w.add(of_lower, of_upper);
    smallvec![Some(w.store(sum)), None, None]
}

/// The cotangent of Y is `lower(L^T dL) + upper(dU U^T)`, and that of `P A` `L^-T dY U^-T`.
pub(in crate::op) fn vjp(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    _: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let (Some(mut w), Some(ct)) = (MatrixWriter::new(b, cx), cts[0]) else {
        return smallvec![None];
    };
    let (packed, ct) = (w.load(cx.results[0]), w.load(ct));
    let (lower, upper) = (w.unit_lower(packed), w.part(packed, Op::Le));
    let (of_lower, of_upper) = (w.part(ct, Op::Gt), w.part(ct, Op::Le));
    let (below, above) =
        (w.transposed_product(lower, of_lower), w.product_transposed(of_upper, upper));
    let (below, above) = (w.part(below, Op::Gt), w.part(above, Op::Le));
    let y = w.add(below, above);
    let y = w.solved(packed, y, TriangularForm::UPPER.transposed().on_right());
    let y = w.solved(packed, y, UNIT.transposed());
    let last = w.b().ty(cx.results[2]).rank() as i64 - 1;
    let back = Attrs::none().with_int("axis", last);
    let back = w.b_mut().op_with(Op::Argsort, &[cx.results[2]], back);
    let ct = w.rows_in(y, back);
    smallvec![Some(w.store(ct))]
}

impl MatrixWriter<'_> {
    fn unit_lower(&mut self, packed: Value) -> Value {
        let below = self.part(packed, Op::Gt);
        let identity = self.identity(self.count(), self.shape(packed));
        self.add(below, identity)
    }
}
