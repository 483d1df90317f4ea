//! The op table's rows of linear algebra.

/// Hands the rows of `table.rs` and those of linear algebra after them to the macro of this name.
macro_rules! for_each_op_and_decomposition {
    ($use_rows:ident $($rows:tt)*) => { $crate::op::table_collectives::for_each_op_and_collective! { $use_rows
    $($rows)*

    /// The solution `X` of `A X = B`, for batches of triangular matrices A and right sides B. Of A the lower triangle is
    /// read, with `upper` the upper one, with `unit_diagonal` as if its diagonal were 1. With `transpose`, A is transposed; with
    /// `right`, it is `X A = B` that is solved.
    TriangularSolve = ruled("triangular_solve", Arity::Exactly(2), linalg::SOLVE, linalg::check_solve,
        linalg::triangular_solve, P, Deriv::Rules(linalg::jvp_solve, linalg::vjp_solve),
        &["%a: f32[3,3], %b: f32[3,2] | triangular_solve %a, %b : f32[3,2]",
          "%a: f32[2,3,3], %b: f32[2,3,1] | triangular_solve %a, %b {upper = true, transpose = true} : f32[2,3,1]",
          "%a: f32[3,3], %b: f32[2,3] | triangular_solve %a, %b {right = true, unit_diagonal = true} : f32[2,3]",
          "%a: f32[3,3], %b: f32[2,3] | triangular_solve %a, %b {upper = true, right = true, transpose = true} : f32[2,3]",
          "%a: f32[0,0], %b: f32[0,2] | triangular_solve %a, %b : f32[0,2]"]);
    /// The lower triangle L with `A = L L^T`, for batches of symmetric positive definite matrices A, of which the lower
    /// triangle is read; with `upper`, the upper triangle U with `A = U^T U`, from the upper one. Where A is not positive definite,
    /// NaN from the first column on that shows it.
    Cholesky = ruled("cholesky", Arity::Exactly(1), linalg::TRIANGLE, linalg::check_square, linalg::cholesky,
        &[Domain::Definite], Deriv::Rules(linalg::jvp_cholesky, linalg::vjp_cholesky),
        &["%a: f32[3,3] | cholesky %a : f32[3,3]", "%a: f32[2,4,4] | cholesky %a {upper = true} : f32[2,4,4]",
          "%a: f32[2,0,0] | cholesky %a : f32[2,0,0]"]);
    /// `P A = L U` for batches of square matrices: the lower triangle L, whose diagonal is 1, and the upper triangle U in one
    /// matrix; for each column the row that was exchanged with its own; and the rows of A in the order of P. Rows are
    /// exchanged for the largest element of a column, the first of equal ones.
    Lu = ruled("lu", Arity::Exactly(1), &[], linalg::check_square, linalg::lu, D,
        Deriv::Rules(linalg::jvp_lu, linalg::vjp_lu),
        &["%a: f32[3,3] | lu %a : f32[3,3], i32[3], i32[3]", "%a: f32[2,4,4] | lu %a : f32[2,4,4], i32[2,4], i32[2,4]"]);
    /// Q with orthogonal columns and the upper triangle R with `A = Q R`, for batches of matrices. Q has as many columns as A,
    /// or as many as A has rows, where those are fewer.
    Qr = ruled("qr", Arity::Exactly(1), &[], linalg::check_matrices, linalg::qr, D,
        Deriv::Rules(linalg::jvp_qr, linalg::vjp_qr),
        &["%a: f32[4,3] | qr %a : f32[4,3], f32[3,3]", "%a: f32[2,2,3] | qr %a : f32[2,2,2], f32[2,2,3]"]);
    /// R of `qr` with the vectors of reflections below its diagonal, whose first elements are 1, and the scales of the
    /// reflections: what LAPACK's `geqrf` gives.
    Householder = composed("householder", Arity::Exactly(1), &[], linalg::check_matrices, linalg::householder, D,
        &["%a: f32[4,3] | householder %a : f32[4,3], f32[3]", "%a: f32[2,2,3] | householder %a : f32[2,2,3], f32[2,2]"]);
    /// The first columns of the product of reflections that `householder` gives, as many as the first operand has: what
    /// LAPACK's `orgqr` gives.
    HouseholderProduct = composed("householder_product", Arity::Exactly(2), &[], linalg::check_householder_product,
        linalg::householder_product, P,
        &["%a: f32[4,3], %t: f32[3] | householder_product %a, %t : f32[4,3]",
          "%a: f32[2,4,3], %t: f32[2,2] | householder_product %a, %t : f32[2,4,3]"]);
    /// Eigenvalues in ascending order and eigenvectors, as columns, of batches of symmetric matrices, of which the lower
    /// triangle is read, with `upper` the upper one. The derivative of eigenvectors is 0 between equal eigenvalues.
    Eigh = ruled("eigh", Arity::Exactly(1), linalg::TRIANGLE, linalg::check_square, linalg::eigh, D,
        Deriv::Rules(linalg::jvp_eigh, linalg::vjp_eigh),
        &["%a: f32[3,3] | eigh %a : f32[3], f32[3,3]", "%a: f32[2,4,4] | eigh %a {upper = true} : f32[2,4], f32[2,4,4]"]);
    /// U, s and V^T with `A = U diag(s) V^T`, for batches of matrices: singular values in descending order, and orthonormal
    /// columns of U and rows of V^T, one for each singular value; with `full`, as many as A has rows and columns. The derivative
    /// of singular vectors is 0 between equal singular values, and towards what A does not reach where the singular value is 0;
    /// vectors that only `full` has turn no more than they must to stay orthogonal.
    Svd = ruled("svd", Arity::Exactly(1), linalg::SVD, linalg::check_matrices, linalg::svd, D,
        Deriv::Rules(linalg::jvp_svd, linalg::vjp_svd),
        &["%a: f32[4,3] | svd %a : f32[4,3], f32[3], f32[3,3]",
          "%a: f32[2,2,3] | svd %a : f32[2,2,2], f32[2,2], f32[2,2,3]",
          "%a: f32[3,3] | svd %a {full = true} : f32[3,3], f32[3], f32[3,3]"]);

    // Fourier transforms.
    /// The discrete Fourier transform along an axis of complex numbers, whose real and imaginary parts are the operands,
    /// and those of its results; with `inverse`, the inverse one, which divides by the length. Prime factors of the length
    /// are at most 4096.
    Fft = composed("fft", Arity::Exactly(2), fourier::FFT, fourier::check_fft, fourier::fft, D,
        &["%r: f32[2,6], %i: f32[2,6] | fft %r, %i {axis = 1} : f32[2,6], f32[2,6]",
          "%r: f32[40,2], %i: f32[40,2] | fft %r, %i {axis = 0, inverse = true} : f32[40,2], f32[40,2]"]);
    /// The first half of the discrete Fourier transform of real numbers along an axis, with the middle: real and imaginary
    /// parts. The others are their conjugates.
    Rfft = composed("rfft", Arity::Exactly(1), fourier::RFFT, fourier::check_fft, fourier::rfft, D,
        &["%x: f32[2,7] | rfft %x {axis = 1} : f32[2,4], f32[2,4]", "%x: f32[36] | rfft %x {axis = 0} : f32[19], f32[19]"]);
    /// The real numbers whose `rfft` has these real and imaginary parts; imaginary parts that real numbers do not have
    /// are not read.
    Irfft = composed("irfft", Arity::Exactly(2), fourier::IRFFT, fourier::check_irfft, fourier::irfft, D,
        &["%r: f32[2,4], %i: f32[2,4] | irfft %r, %i {axis = 1, length = 7} : f32[2,7]",
          "%r: f32[4], %i: f32[4] | irfft %r, %i {axis = 0, length = 6} : f32[6]"]);
    } };
}
pub(super) use for_each_op_and_decomposition;
