//! Cube root and reciprocal square root.

use super::float::{float, is_f32};
use crate::dtype::DType;
use crate::scalar::record::S;

/// 1 / sqrt(x); the signed zeros give the signed infinities.
pub(super) fn rsqrt<'r>(x: S<'r>) -> S<'r> {
    1.0 / x.sqrt()
}

/// Cube root: a guess of 1 / cbrt(x) from the bits (the exponent divided by -3), two steps of
/// Householder's iteration without a division, and one correction of the result by its residual.
pub(super) fn cbrt<'r>(x: S<'r>) -> S<'r> {
    let f = float(x);
    let a = x.abs();
    // Subnormals are lifted by a power of eight.
    let lift: f64 = if is_f32(x) { 24.0 } else { 54.0 };
    let small = a.lt(f.tiny);
    let a = small.select(a * lift.exp2(), a);
    let mut r = guess(a);
    for _ in 0..2 {
        // With h = 1 - a r^3: (1 - h)^(-1/3) = 1 + h/3 + 2h^2/9 + O(h^3).
        let h = (a * r * r).fma(-r, 1.0);
        r = (r * h).fma(h.fma(2.0 / 9.0, 1.0 / 3.0), r);
    }
    let r2 = r * r;
    let y = a * r2;
    // y -= (y^3 - a) / (3 y^2), where 1 / y^2 = r^2; the residual counts the error of y^2.
    let y2 = y * y;
    let residual = y.fma(y, -y2).fma(-y, y2.fma(-y, a));
    let y = (r2 * (1.0 / 3.0)).fma(residual, y);
    let y = small.select(y * (-lift / 3.0).exp2(), y);
    // Zero, infinity and NaN are their own cube roots.
    let general = a.gt(0.0) & a.lt(f64::INFINITY);
    general.select(y.copysign(x), x)
}

/// 1 / cbrt(a) within 4 %: bits of a float are nearly its logarithm.
fn guess<'r>(a: S<'r>) -> S<'r> {
    // The constant centres the error over one period of three exponents.
    if is_f32(a) {
        let t = a.bitcast(DType::I32).convert(DType::F32);
        t.fma(-1.0 / 3.0, GUESS_32).convert(DType::I32).bitcast(DType::F32)
    } else {
        // The upper halves of the bits, carried through the significand of 2^52.
        let power = 52f64.exp2();
        let upper = a.bitcast(DType::I64).shr_l(32) | a.lit(power).bitcast(DType::I64);
        let t = upper.bitcast(DType::F64) - power;
        let guess = t.fma(-1.0 / 3.0, power + GUESS_64);
        guess.bitcast(DType::I64).shl(32).bitcast(DType::F64)
    }
}

const GUESS_32: f64 = 1_419_900_000.0;
const GUESS_64: f64 = 1_430_186_295.0;
