//! Decompositions of matrices: composed of loops and products, over any batch axes before those of rows and columns.
//!
//! Those with rules of their own have derivatives in closed form, which keep operands and results alone.

mod cholesky;
mod eigh;
mod householder;
mod jacobi;
mod lu;
mod solve;
mod svd;
mod writer;

pub(super) use cholesky::{cholesky, jvp as jvp_cholesky, vjp as vjp_cholesky};
pub(super) use eigh::{eigh, jvp as jvp_eigh, vjp as vjp_eigh};
pub(super) use householder::{householder, householder_product, jvp as jvp_qr, qr, vjp as vjp_qr};
pub(super) use lu::{jvp as jvp_lu, lu, vjp as vjp_lu};
pub(super) use solve::{jvp as jvp_solve, triangular_solve, vjp as vjp_solve};
pub(super) use svd::{jvp as jvp_svd, svd, vjp as vjp_svd};

use crate::attrs::{Attr0, AttrKind, AttrSpec, maybe};
use crate::dtype::DTypeSet;
use crate::infer::{InferCx, InferError, known_dim};
use crate::types::TensorType;

const UPPER: AttrSpec = maybe("upper", AttrKind::Bool, Attr0::False);

/// Schema of `cholesky` and `eigh`.
pub(super) const TRIANGLE: &[AttrSpec] = &[UPPER];

/// Schema of `svd`.
pub(super) const SVD: &[AttrSpec] = &[maybe("full", AttrKind::Bool, Attr0::False)];

/// Schema of `triangular_solve`.
pub(super) const SOLVE: &[AttrSpec] = &[
    UPPER,
    maybe("right", AttrKind::Bool, Attr0::False),
    maybe("transpose", AttrKind::Bool, Attr0::False),
    maybe("unit_diagonal", AttrKind::Bool, Attr0::False),
];

/// An operand that is a batch of matrices: rows and columns.
fn matrices(cx: &InferCx<'_>, k: usize) -> Result<[i64; 2], InferError> {
    let x = cx.require(k, DTypeSet::Float)?;
    let [batch @ .., rows, columns] = &x.shape[..] else {
        return Err(InferError::shape(format!("operand {k}: expected matrices, found {x}")));
    };
    for &d in batch {
        known_dim("a decomposition", d)?;
    }
    Ok([known_dim("a decomposition", *rows)?, known_dim("a decomposition", *columns)?])
}

pub(super) fn check_matrices(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    matrices(cx, 0).map(|_| ())
}

pub(super) fn check_square(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let [rows, columns] = matrices(cx, 0)?;
    match rows == columns {
        true => Ok(()),
        false => Err(InferError::shape(format!("expected square matrices, found {}", cx.arg(0)?))),
    }
}

pub(super) fn check_solve(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    check_square(cx)?;
    let [n, _] = matrices(cx, 0)?;
    let [rows, columns] = matrices(cx, 1)?;
    let (a, x) = (cx.arg(0)?, cx.arg(1)?);
    let batch = |t: &TensorType| t.shape[..t.rank() - 2].to_vec();
    let side = if cx.attrs.flag("right") { columns } else { rows };
    match a.dtype == x.dtype && batch(a) == batch(x) && side == n {
        true => Ok(()),
        false => Err(InferError::shape(format!("systems of {a} and right sides {x}"))),
    }
}

pub(super) fn check_householder_product(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let [rows, columns] = matrices(cx, 0)?;
    let (packed, scales) = (cx.arg(0)?, cx.require(1, DTypeSet::Float)?);
    let batch = &packed.shape[..packed.rank() - 2];
    let fits = match &scales.shape[..] {
        [own @ .., n] => own == batch && n.known().is_some_and(|n| n as i64 <= columns),
        [] => false,
    };
    match fits && scales.dtype == packed.dtype && columns <= rows {
        true => Ok(()),
        false => Err(InferError::shape(format!("reflections {packed} with scales {scales}"))),
    }
}
