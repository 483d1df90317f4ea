//! Sine, cosine and tangent: polynomials on |r| <= pi/4, chosen and signed by the quadrant.

use super::double::{Double, fast_two_sum};
use super::float::{is_f32, poly, poly_then};
use super::reduce::{reduce_f32, reduce_f64};
use crate::dtype::DType;
use crate::scalar::record::S;

/// Sine.
pub(super) fn sin<'r>(x: S<'r>) -> S<'r> {
    let (quadrant, s, c) = both(x);
    let y = by_quadrant(quadrant, s, c);
    // A sine so near to its operand is the operand, and -0 stays.
    x.abs().lt(SMALL).select(x, y)
}

/// Cosine: the sine a quadrant on.
pub(super) fn cos<'r>(x: S<'r>) -> S<'r> {
    let (quadrant, s, c) = both(x);
    by_quadrant(quadrant + quadrant.int(1), s, c)
}

/// Tangent.
pub(super) fn tan<'r>(x: S<'r>) -> S<'r> {
    let y = if is_f32(x) {
        // In f64 throughout: the errors of two rounded functions and of their quotient would add.
        let (quadrant, r) = reduce_f32(x);
        let z = r * r;
        let s = (r * z).fma(poly(z, &SIN_SHORT), r);
        let c = poly_then(z, &[1.0, -0.5], &COS_SHORT);
        let odd = (quadrant & 1).eq(1);
        (odd.select(-c, s) / odd.select(s, c)).convert(DType::F32)
    } else {
        let (quadrant, r) = reduce_f64(x);
        let (s, c) = (sin_f64(r), cos_f64(r));
        let (s, c) = (fast_two_sum(s.hi, s.lo), fast_two_sum(c.hi, c.lo));
        let odd = (quadrant & 1).eq(1);
        let (a, a_lo) = (odd.select(-c.hi, s.hi), odd.select(-c.lo, s.lo));
        let (b, b_lo) = (odd.select(s.hi, c.hi), odd.select(s.lo, c.lo));
        // One step of division beyond the first quotient.
        let q = a / b;
        let residual = q.fma(-b, a) + q.fma(-b_lo, a_lo);
        q + residual / b
    };
    x.abs().lt(SMALL).select(x, y)
}

/// Below this, sine and tangent are their operand in either format.
const SMALL: f64 = 1e-9;

/// Quadrant, and sine and cosine of the remainder.
fn both<'r>(x: S<'r>) -> (S<'r>, S<'r>, S<'r>) {
    if is_f32(x) {
        let (quadrant, r) = reduce_f32(x);
        // What rounding the remainder drops goes in with the small terms.
        let whole = r;
        let r = whole.convert(DType::F32);
        let low = (whole - r.convert(DType::F64)).convert(DType::F32);
        let z = (whole * whole).convert(DType::F32);
        let s = r + (r * z).fma(poly(z, &SIN_32), low);
        (quadrant, s, poly_then(z, &[1.0, -0.5], &COS_32))
    } else {
        let (quadrant, r) = reduce_f64(x);
        let (s, c) = (sin_f64(r), cos_f64(r));
        (quadrant, s.hi + s.lo, c.hi + c.lo)
    }
}

/// sin(r + low) = r + (r^3 S(r^2) + low (1 - r^2 / 2)).
fn sin_f64<'r>(r: Double<'r>) -> Double<'r> {
    let z = r.hi * r.hi;
    let low = (z * r.lo).fma(-0.5, r.lo);
    Double { hi: r.hi, lo: (r.hi * z).fma(poly(z, &SIN_64), low) }
}

/// cos(r + low) = w + ((1 - w) - r^2 / 2 + r^4 C(r^2) - r low) with w = 1 - r^2 / 2 rounded.
fn cos_f64<'r>(r: Double<'r>) -> Double<'r> {
    let z = r.hi * r.hi;
    let half = z * 0.5;
    let w = 1.0 - half;
    let lost = (1.0 - w) - half;
    Double { hi: w, lo: (z * z).fma(poly(z, &COS_64), r.hi.fma(-r.lo, lost)) }
}

/// The sine in quadrants 0 and 2, the cosine in 1 and 3, negated in 2 and 3.
fn by_quadrant<'r>(quadrant: S<'r>, s: S<'r>, c: S<'r>) -> S<'r> {
    let y = (quadrant & 1).eq(1).select(c, s);
    let top = i64::from(quadrant.dtype().bits()) - 1;
    let sign = quadrant.shr_l(1).shl(top);
    (y.bitcast(quadrant.dtype()) ^ sign).bitcast(y.dtype())
}

/// (sin r - r) / r^3 in z = r^2 for |r| <= pi/4, as f32, relative to the sine. Error 2^-27.9.
const SIN_32: [f64; 3] = [-0.16666655, 0.008332187, -1.9517897e-4];

/// (cos r - 1 + z / 2) / z^2 in z = r^2 for |r| <= pi/4, as f32, relative to the cosine. Error
/// 2^-33.0.
const COS_32: [f64; 3] = [0.041666646, -0.001388731, 2.4432327e-5];

/// As [`SIN_32`], in f64, for the f32 tangent. Error 2^-37.5.
const SIN_SHORT: [f64; 4] =
    [-0.16666666640588224, 0.00833332928052958, -0.0001983930441794753, 2.718046499480059e-06];

/// As [`COS_32`], in f64, for the f32 tangent. Error 2^-42.9.
const COS_SHORT: [f64; 4] =
    [0.04166666661910776, -0.001388888346736599, 2.4799451576927206e-05, -2.7205048150619467e-07];

/// As [`SIN_32`], for f64. Error 2^-57.9.
const SIN_64: [f64; 6] = [
    -0.1666666666666663,
    0.00833333333332184,
    -0.00019841269829358487,
    2.755731353848528e-06,
    -2.5050734382587602e-08,
    1.589543279100431e-10,
];

/// As [`COS_32`], for f64. Error 2^-63.9.
const COS_64: [f64; 6] = [
    0.041666666666666595,
    -0.0013888888888873307,
    2.4801587288965237e-05,
    -2.7557314203083283e-07,
    2.087570314029981e-09,
    -1.1358617053367732e-11,
];
