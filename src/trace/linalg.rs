//! Decompositions of matrices, systems of equations, and Fourier transforms.
//!
//! Matrices are the last two axes; the others are a batch. Complex numbers are two tensors, real and imaginary parts.

use super::record::{apply, apply_all};
use super::reduce::along;
use super::{AxisIndex, Tensor};
use crate::ir::attrs::{Attr, Attrs};
use crate::ir::op::Op;

fn flags(all: &[(&'static str, bool)]) -> Attrs {
    all.iter().fold(Attrs::none(), |attrs, &(name, on)| attrs.with(name, Attr::Bool(on)))
}

impl Tensor {
    /// The lower triangle L with `self = L L^T`, of symmetric positive definite matrices, of which the lower triangle is read.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([[4.0, 2.0], [2.0, 5.0]]).cholesky())?;
    /// assert_eq!(y.to_f64s(), [2.0, 0.0, 1.0, 2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cholesky(&self) -> Tensor {
        apply(&self.state, Op::Cholesky, &[self], flags(&[("upper", false)]), None)
    }

    /// X with `self X = b`, of lower triangles; what is above the diagonal is not read.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     t.constant([[2.0, 0.0], [1.0, 4.0]]).solve_lower(&t.constant([[2.0], [9.0]]))
    /// })?;
    /// assert_eq!(y.to_f64s(), [1.0, 2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn solve_lower(&self, b: &Tensor) -> Tensor {
        self.solve_triangle(b, false)
    }

    /// X with `self X = b`, of upper triangles; what is below the diagonal is not read.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     t.constant([[2.0, 1.0], [0.0, 4.0]]).solve_upper(&t.constant([[4.0], [8.0]]))
    /// })?;
    /// assert_eq!(y.to_f64s(), [1.0, 2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn solve_upper(&self, b: &Tensor) -> Tensor {
        self.solve_triangle(b, true)
    }

    #[track_caller]
    fn solve_triangle(&self, b: &Tensor, upper: bool) -> Tensor {
        let attrs = flags(&[
            ("upper", upper),
            ("right", false),
            ("transpose", false),
            ("unit_diagonal", false),
        ]);
        apply(&self.state, Op::TriangularSolve, &[self, b], attrs, None)
    }

    /// The triangles of `P self = L U` in one matrix, the row that each was exchanged with, and the rows in the order of P.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([[1.0, 3.0], [2.0, 4.0]]).lu().0)?;
    /// assert_eq!(y.to_f64s(), [2.0, 4.0, 0.5, 1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn lu(&self) -> (Tensor, Tensor, Tensor) {
        self.triple(apply_all(&self.state, Op::Lu, &[self], Attrs::none(), None))
    }

    /// Q with orthogonal columns and the upper triangle R with `self = Q R`.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let (q, r) = t.constant([[3.0, 5.0], [4.0, 0.0]]).qr();
    ///     q.dot(&r)
    /// })?;
    /// assert!((y.to_f64s()[1] - 5.0).abs() < 1e-5);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn qr(&self) -> (Tensor, Tensor) {
        self.pair(apply_all(&self.state, Op::Qr, &[self], Attrs::none(), None))
    }

    /// R of [`Tensor::qr`] with the vectors of reflections below its diagonal, and the scales of the reflections.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([[3.0], [4.0]]).householder().1)?;
    /// assert!((y.to_f64s()[0] - 1.6).abs() < 1e-6);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn householder(&self) -> (Tensor, Tensor) {
        self.pair(apply_all(&self.state, Op::Householder, &[self], Attrs::none(), None))
    }

    /// The first columns of the product of the reflections that [`Tensor::householder`] gives.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let (packed, scales) = t.constant([[3.0], [4.0]]).householder();
    ///     packed.householder_product(&scales)
    /// })?;
    /// assert!((y.to_f64s()[1] + 0.8).abs() < 1e-6);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn householder_product(&self, scales: &Tensor) -> Tensor {
        apply(&self.state, Op::HouseholderProduct, &[self, scales], Attrs::none(), None)
    }

    /// Eigenvalues in ascending order and eigenvectors, as columns, of symmetric matrices, of which the lower triangle is read.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([[2.0, 1.0], [1.0, 2.0]]).eigh().0)?;
    /// assert!((y.to_f64s()[1] - 3.0).abs() < 1e-5);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn eigh(&self) -> (Tensor, Tensor) {
        let attrs = flags(&[("upper", false)]);
        self.pair(apply_all(&self.state, Op::Eigh, &[self], attrs, None))
    }

    /// U, s and V^T with `self = U diag(s) V^T`: singular values in descending order, and a column of U and a row of V^T for
    /// each.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([[0.0, 2.0], [3.0, 0.0]]).svd().1)?;
    /// assert!((y.to_f64s()[0] - 3.0).abs() < 1e-5);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn svd(&self) -> (Tensor, Tensor, Tensor) {
        self.singular(false)
    }

    /// As [`Tensor::svd`], with as many columns of U and rows of V^T as `self` has rows and columns.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([[2.0], [0.0]]).full_svd().0)?;
    /// assert_eq!(y.dims(), [2, 2]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn full_svd(&self) -> (Tensor, Tensor, Tensor) {
        self.singular(true)
    }

    #[track_caller]
    fn singular(&self, full: bool) -> (Tensor, Tensor, Tensor) {
        let attrs = flags(&[("full", full)]);
        self.triple(apply_all(&self.state, Op::Svd, &[self], attrs, None))
    }

    /// The discrete Fourier transform along an axis of complex numbers with these imaginary parts: both parts.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let re = t.constant([1.0, 2.0]);
    ///     re.fft(&t.constant([0.0, 0.0]), 0).0
    /// })?;
    /// assert_eq!(y.to_f64s(), [3.0, -1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn fft(&self, im: &Tensor, axis: impl AxisIndex) -> (Tensor, Tensor) {
        self.transform(im, axis, false)
    }

    /// The inverse of [`Tensor::fft`].
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let re = t.constant([3.0, -1.0]);
    ///     re.ifft(&t.constant([0.0, 0.0]), 0).0
    /// })?;
    /// assert_eq!(y.to_f64s(), [1.0, 2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn ifft(&self, im: &Tensor, axis: impl AxisIndex) -> (Tensor, Tensor) {
        self.transform(im, axis, true)
    }

    #[track_caller]
    fn transform(&self, im: &Tensor, axis: impl AxisIndex, inverse: bool) -> (Tensor, Tensor) {
        let Some(at) = self.axis_of(axis, "fft") else { return self.pair(Vec::new()) };
        let attrs = along(at).with("inverse", Attr::Bool(inverse));
        self.pair(apply_all(&self.state, Op::Fft, &[self, im], attrs, None))
    }

    /// The first half of the discrete Fourier transform of real numbers along an axis, with the middle: both parts.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([1.0, 2.0, 3.0, 2.0]).rfft(0).0)?;
    /// assert_eq!(y.dims(), [3]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn rfft(&self, axis: impl AxisIndex) -> (Tensor, Tensor) {
        let Some(at) = self.axis_of(axis, "rfft") else { return self.pair(Vec::new()) };
        self.pair(apply_all(&self.state, Op::Rfft, &[self], along(at), None))
    }

    /// The real numbers, this many along the axis, whose [`Tensor::rfft`] has these parts.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([3.0, -1.0]).irfft(&t.constant([0.0, 0.0]), 2, 0))?;
    /// assert_eq!(y.to_f64s(), [1.0, 2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn irfft(&self, im: &Tensor, length: u64, axis: impl AxisIndex) -> Tensor {
        let Some(at) = self.axis_of(axis, "irfft") else { return self.clone() };
        // What is too large for the attribute is too large for any axis.
        let attrs = along(at).with_int("length", i64::try_from(length).unwrap_or(i64::MAX));
        apply(&self.state, Op::Irfft, &[self, im], attrs, None)
    }
}
