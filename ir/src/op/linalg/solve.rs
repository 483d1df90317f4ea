//! `triangular_solve`: substitution, by blocks where there are many rows.
//!
//! The triangles on the diagonal are inverted, all in one loop, and a second loop goes over the blocks: what is left of the right
//! sides after the unknowns that are known is a product, and so is the solution for a block. So there are few steps, and
//! nearly all operations are in products. The rule in reverse solves the transposed systems: nothing of the loops is kept.

use super::writer::{MatrixWriter, Results, TriangularForm};
use crate::builder::Builder;
use crate::entity::Value;
use crate::op::Op;
use crate::op::def::{RuleCx, Tangents};
use crate::op::tensor_writer::TensorWriter;
use smallvec::{SmallVec, smallvec};

/// Rows of a block.
const BLOCK: u64 = 32;

pub(in crate::op) fn triangular_solve(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![cx.args[1]] };
    let form = TriangularForm::of(cx.attrs);
    let (mut a, mut x) = (w.load(cx.args[0]), w.load(cx.args[1]));
    // Systems with the matrices on the right are those of the transposed, with transposed right sides.
    if form.right {
        x = w.flip(x);
    }
    if form.transpose != form.right {
        a = w.flip(a);
    }
    // Upper triangles become lower ones where the order of unknowns is reversed.
    let upper = form.upper != (form.transpose != form.right);
    if upper {
        a = w.reversed(a, &[1, 2]);
        x = w.reversed(x, &[1]);
    }
    let mut y = w.lower_solve(a, x, form.unit);
    if upper {
        y = w.reversed(y, &[1]);
    }
    if form.right {
        y = w.flip(y);
    }
    smallvec![w.store(y)]
}

impl MatrixWriter<'_> {
    /// Solutions of systems of lower triangles.
    fn lower_solve(&mut self, a: Value, x: Value, unit: bool) -> Value {
        let [n, columns] = self.shape(x);
        if self.count() * n * columns == 0 {
            return x;
        }
        let below = self.part(a, Op::Gt);
        let diagonal = if unit { None } else { Some(self.diagonal(a)) };
        match n {
            0..=BLOCK => self.substitute(below, diagonal, x),
            _ => self.by_blocks(below, diagonal, x),
        }
    }

    /// Substitution row by row, from what is below the diagonals and what is on them, if that is not 1.
    fn substitute(&mut self, below: Value, diagonal: Option<Value>, x: Value) -> Value {
        let [rows, columns] = self.shape(x);
        let count = self.extent(x, 0);
        let mut xs = vec![self.places(None, 0, &[rows]), self.transpose(below, &[2, 0, 1])];
        if let Some(diagonal) = diagonal {
            xs.push(self.transpose(diagonal, &[1, 0]));
        }
        let (_, solved) = self.steps(vec![x], &xs, &mut |w, carry, own| {
            let row = w.slice_at(carry[0], 1, own[0], &[count, 1, columns]);
            let mut row = w.reshape(row, &[count, columns]);
            if let Some(&d) = own.get(2) {
                let d = w.spread(d, &[0], &[count, columns]);
                row = w.map(Op::Div, &[row, d]);
            }
            let known = w.outer(own[1], row);
            (vec![w.sub(carry[0], known)], vec![row])
        });
        self.transpose(solved[0], &[1, 0, 2])
    }

    fn by_blocks(&mut self, below: Value, diagonal: Option<Value>, x: Value) -> Value {
        let ([n, columns], count) = (self.shape(x), self.count());
        let blocks = n.div_ceil(BLOCK);
        let whole = blocks * BLOCK;
        let (below, x) = (self.padded(below, 1, whole), self.padded(x, 1, whole));
        let below = self.padded(below, 2, whole);
        // Rows that were added have ones on the diagonal.
        let diagonal = diagonal.map(|d| {
            let ones = self.splat(1.0, &[count, whole - n]);
            let d = if whole > n { self.join(&[d, ones], 1) } else { d };
            self.reshape(d, &[count * blocks, BLOCK])
        });
        let dims = [count, blocks, BLOCK, blocks, BLOCK];
        let tiles = self.reshape(below, &dims);
        let (row, column) = (self.places(None, 1, &dims), self.places(None, 3, &dims));
        let own = self.test(Op::Eq, row, column);
        let own = self.kept(own, tiles);
        let own = self.reduce(Op::ReduceSum, own, 3);
        let own = self.reshape(own, &[count * blocks, BLOCK, BLOCK]);
        let identity = self.identity(count * blocks, [BLOCK, BLOCK]);
        let inverse = self.substitute(own, diagonal, identity);
        let inverse = self.reshape(inverse, &[count, blocks, BLOCK, BLOCK]);
        let before = self.test(Op::Gt, row, column);
        let before = self.kept(before, tiles);
        let before = self.reshape(before, &[count, blocks, BLOCK, whole]);
        let right = self.reshape(x, &[count, blocks, BLOCK, columns]);
        let from = self.block_places(blocks, BLOCK);
        let mut xs = vec![from];
        for each in [before, inverse, right] {
            xs.push(self.transpose(each, &[1, 0, 2, 3]));
        }
        let begin = self.splat(0.0, &[count, whole, columns]);
        let (solved, _) = self.steps(vec![begin], &xs, &mut |w, carry, own| {
            let known = w.product(own[1], carry[0]);
            let rest = w.sub(own[3], known);
            let found = w.product(own[2], rest);
            (vec![w.update_at(carry[0], found, 1, own[0])], Vec::new())
        });
        self.slice(solved[0], 1, 0, n)
    }

    /// The first place of each block.
    pub(super) fn block_places(&mut self, blocks: u64, block: u64) -> Value {
        let places = self.places(None, 0, &[blocks]);
        let ty = self.b().ty(places).clone();
        let size = crate::literal::Literal::from_i64(ty.dtype, block as i64);
        let size = self.b_mut().literal(&ty, size);
        self.mul(places, size)
    }
}

/// `op(A) dX = dB - op(dA) X`.
pub(in crate::op) fn jvp(b: &mut Builder, cx: &RuleCx<'_>, tangents: &[Option<Value>]) -> Tangents {
    let Some(mut w) = MatrixWriter::new(b, cx) else { return smallvec![None] };
    let form = TriangularForm::of(cx.attrs);
    let (a, x) = (w.load(cx.args[0]), w.load(cx.results[0]));
    let right = tangents[1].map(|t| w.load(t));
    let moved = tangents[0].map(|t| {
        let t = w.load(t);
        let t = w.part(t, form.triangle());
        match (form.right, form.transpose) {
            (false, false) => w.product(t, x),
            (false, true) => w.transposed_product(t, x),
            (true, false) => w.product(x, t),
            (true, true) => w.product_transposed(x, t),
        }
    });
    let right = match (right, moved) {
        (Some(right), Some(moved)) => w.sub(right, moved),
        (None, Some(moved)) => w.neg(moved),
        (Some(right), None) => right,
        (None, None) => return smallvec![None],
    };
    let out = w.solved(a, right, form);
    smallvec![Some(w.store(out))]
}

/// The cotangent of the right sides solves the transposed systems; that of the matrices is its product with the solution.
pub(in crate::op) fn vjp(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    wanted: &[bool],
    cts: &[Option<Value>],
) -> Tangents {
    let (Some(mut w), Some(ct)) = (MatrixWriter::new(b, cx), cts[0]) else {
        return smallvec![None, None];
    };
    let form = TriangularForm::of(cx.attrs);
    let (a, x, ct) = (w.load(cx.args[0]), w.load(cx.results[0]), w.load(ct));
    let right = w.solved(a, ct, form.transposed());
    let of_a = wanted[0].then(|| {
        let product = match (form.right, form.transpose) {
            (false, false) => w.product_transposed(right, x),
            (false, true) => w.product_transposed(x, right),
            (true, false) => w.transposed_product(x, right),
            (true, true) => w.transposed_product(right, x),
        };
        let part = w.part(product, form.triangle());
        let part = w.neg(part);
        w.store(part)
    });
    let of_b = wanted[1].then(|| w.store(right));
    SmallVec::from_iter([of_a, of_b])
}
