//! Products of matrices and their batches.

use super::math::example;
use super::record::apply;
use super::{Tensor, own_all};
use crate::ir::attrs::{Attr, Attrs};
use crate::ir::{Dim, Kind, Op, Shape};
use std::panic::Location;

impl Tensor {
    example! {
        { pub fn dot(&self, other: &Tensor) -> Tensor {
            let last = self.ty.rank() as i64 - 1;
            self.dot_general(other, ([].as_slice(), &[]), (&[last], &[0]))
        } }
        "Product of the last axis with the first of `other`: of matrices, or of vectors. [`Tensor::matmul`] knows \
         batches.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).dot(&t.constant([1.0, 10.0]))", "[21.0, 43.0]";

        { pub fn matmul(&self, other: &Tensor) -> Tensor {
            let (a, b) = (self, other);
            let own = own_all(&self.state, &[other], Location::caller(), "`matmul`");
            if !own || !self.one_dtype("matmul", &[self, other]) {
                return self.clone();
            }
            match (a.ty.rank(), b.ty.rank()) {
                (0, _) | (_, 0) => {
                    let m = format!("`matmul` takes one axis at least, found {} and {}", a.ty, b.ty);
                    self.refused(Kind::Shape, m)
                }
                (_, 1 | 2) => a.dot(b),
                (1, n) => a.dot_general(b, ([].as_slice(), &[]), (&[0], &[n as i64 - 2])),
                (n, m) => self.batched(other, n - 2, m - 2),
            }
        } }
        "Matrix product under NumPy's rules: the last two axes are matrices, those before are a batch, which \
         broadcasts; a vector is a row on the left and a column on the right.",
        "t.constant([[[1.0, 2.0]], [[3.0, 4.0]]]).matmul(&t.constant([[1.0], [10.0]]))", "[21.0, 43.0]";

        { pub fn outer(&self, other: &Tensor) -> Tensor {
            self.dot_general(other, ([].as_slice(), &[]), (&[], &[]))
        } }
        "Products of each element with each of `other`.",
        "t.constant([1.0, 2.0]).outer(&t.constant([1.0, 10.0]))", "[1.0, 10.0, 2.0, 20.0]";

        { pub fn dot_general(
            &self,
            other: &Tensor,
            batch: (&[i64], &[i64]),
            contract: (&[i64], &[i64]),
        ) -> Tensor {
            let own = own_all(&self.state, &[other], Location::caller(), "`dot_general`");
            if !own || !self.one_dtype("dot_general", &[self, other]) {
                return self.clone();
            }
            let (Some(batch), Some(contract)) =
                (self.axis_pairs(other, batch), self.axis_pairs(other, contract))
            else {
                return self.clone();
            };
            let attrs = Attrs::none().with("batch", batch).with("contract", contract);
            apply(&self.state, Op::DotGeneral, &[self, other], attrs, None)
        } }
        "Sums of products over pairs of `contract` axes, for each index of the pairs of `batch` axes. The result has \
         the batch axes, then the others of this tensor, then those of `other`.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).dot_general(&t.constant([1.0, 10.0]), (&[0], &[0]), (&[], &[]))",
        "[1.0, 2.0, 30.0, 40.0]";
    }

    /// Axes of this tensor and of the other, as an attribute.
    #[track_caller]
    fn axis_pairs(&self, other: &Tensor, (mine, theirs): (&[i64], &[i64])) -> Option<Attr> {
        let list = |at: Vec<usize>| at.iter().map(|&a| a as i64).collect();
        let mine = self.axes_of(&mine, "dot_general")?;
        let theirs = other.axes_of(&theirs, "dot_general")?;
        Some(Attr::Pair(list(mine), list(theirs)))
    }

    /// The product of batches of matrices, with this many leading axes each.
    #[track_caller]
    fn batched(&self, other: &Tensor, mine: usize, theirs: usize) -> Tensor {
        let (left, right) = (&self.ty.shape[..mine], &other.ty.shape[..theirs]);
        if mine == 0 {
            // [m, b.., n]: the rows go behind the batch.
            let product = self.dot_general(other, ([].as_slice(), &[]), (&[1], &[theirs as i64]));
            let mut perm: Vec<usize> = (1..=theirs).collect();
            perm.extend([0, theirs + 1]);
            return product.transpose(&perm);
        }
        let Some(batch) = numpy_batch(left, right) else {
            let m = format!("`matmul`: the batches of {} and {} do not combine", self.ty, other.ty);
            return self.refused(Kind::Shape, m);
        };
        let with = |x: &Tensor, rank: usize| -> Shape {
            batch.iter().chain(&x.ty.shape[rank..]).copied().collect()
        };
        let (left, right) = (with(self, mine), with(other, theirs));
        let (a, b) = (self.stretched(&left), other.stretched(&right));
        let n = batch.len() as i64;
        let axes: Vec<i64> = (0..n).collect();
        a.dot_general(&b, (&axes, &axes), (&[n + 1], &[n]))
    }
}

/// The batch that two broadcast to under NumPy's rule.
fn numpy_batch(a: &[Dim], b: &[Dim]) -> Option<Shape> {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let ahead = long.len() - short.len();
    let mut out: Shape = long.into();
    for (d, &n) in short.iter().enumerate() {
        let m = &mut out[ahead + d];
        match () {
            () if *m == n || n == Dim::Const(1) => {}
            () if *m == Dim::Const(1) => *m = n,
            () => return None,
        }
    }
    Some(out)
}
