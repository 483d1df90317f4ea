//! Jacobi rotations of many pairs of rows at once.
//!
//! A step rotates half as many pairs as there are rows, which share no row: row `i` of the first half with row `i` of the second. Then
//! rows move one seat on, as in a tournament of Brent and Luk, *The solution of singular-value and symmetric eigenvalue problems on
//! multiprocessor arrays*, 1985: after as many steps as there are other rows each pair met once, and all have the seats that they
//! began with. Such sweeps follow until all pairs are within rounding of what they should be.

use super::writer::MatrixWriter;
use crate::attrs::Attrs;
use crate::dtype::DType;
use crate::entity::Value;
use crate::op::Op;
use crate::op::tensor_writer::TensorWriter;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// The most sweeps. Convergence is quadratic: matrices of thousands of rows need about ten.
const SWEEPS: u64 = 20;

/// Cosines and sines of rotations, a pair for each row of the first half.
#[derive(Clone, Copy)]
pub(super) struct Rotation {
    cos: Value,
    sin: Value,
}

impl MatrixWriter<'_> {
    /// Two values rotated step by step, until no matrix of the first is rough. Both have as many rows, an even number.
    pub(super) fn sweeps(
        &mut self,
        [a, v]: [Value; 2],
        rough: &mut dyn FnMut(&mut Self, Value) -> Value,
        step: &mut dyn FnMut(&mut Self, [Value; 2]) -> [Value; 2],
    ) -> [Value; 2] {
        let n = self.extent(a, 1);
        let first = self.place(0);
        let begin = [first, a, v];
        let types: Vec<TensorType> = begin.iter().map(|&x| self.b().ty(x).clone()).collect();
        let enter = |w: &mut Self| {
            let region = w.b_mut().open_region();
            let held: Vec<Value> = types.iter().map(|t| w.b_mut().param(t.clone(), None)).collect();
            (region, held)
        };
        let (test, held) = enter(self);
        let goes_on = rough(self, held[1]);
        let any = Attrs::none().with_ints("axes", [0]);
        let any = self.b_mut().op_with(Op::ReduceOr, &[goes_on], any);
        let most = self.place(SWEEPS);
        let left = self.test(Op::Lt, held[0], most);
        let goes_on = self.map(Op::And, &[any, left]);
        self.b_mut().close_region(&[goes_on]);
        let (body, held) = enter(self);
        let moves = rough(self, held[1]);
        let seats = self.places(None, 0, &[n - 1]);
        let (turned, _) = self.steps(vec![held[1], held[2]], &[seats], &mut |w, carry, _| {
            let [a, v] = step(w, [carry[0], carry[1]]);
            (vec![a, v], Vec::new())
        });
        let scalar = TensorType::scalar(DType::I64);
        let one = self.place(1);
        let next = self.b_mut().op_as(Op::Add, &[held[0], one], Attrs::none(), &scalar);
        // A matrix that is done stays: what it becomes does not depend on the others.
        let kept = |w: &mut Self, k: usize| {
            let holds = w.spread(moves, &[0], &w.dims(held[k]));
            w.select(holds, turned[k - 1], held[k])
        };
        let (a, v) = (kept(self, 1), kept(self, 2));
        self.b_mut().close_region(&[next, a, v]);
        let attrs = Attrs::none().conform(Op::While.def().attrs).unwrap_or_default();
        let inst = self.b_mut().place(Op::While, &begin, attrs, &types, &[test, body]);
        let found = self.b().func().inst_results(inst);
        [found[1], found[2]]
    }

    /// The rotations that make `r` 0 between `p` and `q`; none where it is 0.
    pub(super) fn rotation(&mut self, [p, q, r]: [Value; 3], dims: &[u64]) -> Rotation {
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
    pub(super) fn turned(&mut self, x: Value, axis: usize, by: Rotation) -> Value {
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
}
