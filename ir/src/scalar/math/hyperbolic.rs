//! Hyperbolic functions, their inverses, and the logistic function, from the cores of `exp` and
//! `log1p`. Magnitudes are computed; odd functions take the sign from their operand.

use super::double::{Double, fast_two_sum};
use super::exp::{ExpSplit, exp_coefficients, exp_in_range, least_exponent, scale};
use super::float::{float, is_f32, poly, poly_then};
use super::log::log1p_positive;
use crate::scalar::record::S;
use std::f64::consts::LOG2_E;

/// Hyperbolic tangent: E / (E + 2) with E = e^2|x| - 1 = 2^n (e^r - 1) + (2^n - 1).
///
/// It is also b (1 - 2b / (E + 2)) for b = E / 2 and for b = 1; the first multiplies the error of
/// the quotient by b, which is small near 0, the second by a quotient that is small far from it.
pub(super) fn tanh<'r>(x: S<'r>) -> S<'r> {
    let f = float(x);
    // From here on the result rounds to 1.
    let a = x.abs().min(if is_f32(x) { 10.0 } else { 20.0 });
    // Rounded down a little more often than to nearest, so that n = 0 up to 2|x| = 1/2: where
    // n = 1, the sum in E then cancels less.
    let twice = a + a;
    let magic = f.magic + f.bias as f64;
    let t = twice.fma(LOG2_E, 0.5 - 0.5 * LOG2_E) + magic;
    let split = ExpSplit::at(t, magic, twice, None);
    let power = f.power(split.k);
    let q = poly(split.r, if is_f32(x) { &TANH_32 as &[f64] } else { &TANH_64 });
    let p = (split.r * split.r).fma(q, split.r);
    let e = power.fma(p, power - 1.0);
    let b = e.lt(2.0).select(e * 0.5, 1.0);
    (b * -2.0 / (e + 2.0)).fma(b, b).copysign(x)
}

/// 1 / (1 + e^-x), as e^x / (1 + e^x) on the left, which keeps its relative accuracy there.
///
/// With e = e^-|x|, either is y = n - e y with n = 1 or n = e: one turn of that multiplies the
/// error of the quotient by e.
pub(super) fn logistic<'r>(x: S<'r>) -> S<'r> {
    let e = exp_in_range((-x.abs()).max(least_exponent(x)));
    let n = x.lt(0.0).select(e, 1.0);
    (n / (e + 1.0)).fma(-e, n)
}

/// Hyperbolic cosine: h + 1 / 4h with h = e^|x| / 2.
pub(super) fn cosh<'r>(x: S<'r>) -> S<'r> {
    let h = half_exp(x);
    h + 0.25 / h
}

/// Hyperbolic sine: a polynomial up to 1, h - 1 / 4h from there.
pub(super) fn sinh<'r>(x: S<'r>) -> S<'r> {
    let h = half_exp(x);
    let large = (h - 0.25 / h).copysign(x);
    let z = x * x;
    let small = (x * z).fma(poly(z, if is_f32(x) { &SINH_32 as &[f64] } else { &SINH_64 }), x);
    x.abs().lt(1.0).select(small, large)
}

/// e^|x| / 2, infinite only where the hyperbolic functions are.
fn half_exp<'r>(x: S<'r>) -> S<'r> {
    let f = float(x);
    let a = x.abs().min(if is_f32(x) { 91.0 } else { 712.0 });
    let split = ExpSplit::of(a, None, 2 * f.bias - 1);
    let y = poly_then(split.r, &[1.0, 1.0], exp_coefficients(x));
    scale(y, split.k)
}

/// Inverse hyperbolic sine: log1p(a + a^2 / (1 + sqrt(1 + a^2))), and log(a) + ln 2 for large a.
pub(super) fn asinh<'r>(x: S<'r>) -> S<'r> {
    let a = x.abs();
    let z = a * a;
    let v = fast_two_sum(a, z / ((z + 1.0).sqrt() + 1.0));
    let y = log1p_or_log_of_twice(v, a);
    let y = a.lt(f64::INFINITY).select(y, a);
    let tiny = if is_f32(x) { 1e-30 } else { 1e-290 };
    a.lt(tiny).select(a, y).copysign(x)
}

/// Inverse hyperbolic cosine: log1p(t + sqrt(t (t + 2))) with t = x - 1, and log(x) + ln 2 for
/// large x.
pub(super) fn acosh<'r>(x: S<'r>) -> S<'r> {
    let t = x - 1.0;
    let v = fast_two_sum(t.fma(t, t + t).sqrt(), t);
    let y = log1p_or_log_of_twice(v, x);
    let y = x.lt(f64::INFINITY).select(y, x);
    x.ge(1.0).select(y, f64::NAN)
}

/// log1p(v), or log(a) + ln 2 where a is so large that log1p(a) is log(a).
fn log1p_or_log_of_twice<'r>(v: Double<'r>, a: S<'r>) -> S<'r> {
    let large = a.gt(if is_f32(a) { 1e9 } else { 1e18 });
    let bump = large.select(a.lit(1.0), 0.0);
    let low = large.select(a.lit(0.0), v.lo);
    log1p_positive(large.select(a, v.hi), Some(low), Some(bump))
}

/// Inverse hyperbolic tangent: log1p(2a + 2a^2 / (1 - a)) / 2.
pub(super) fn atanh<'r>(x: S<'r>) -> S<'r> {
    let a = x.abs();
    let twice = a + a;
    // Where the summands are in the other order, their sum's error is no worse for being guessed.
    let v = fast_two_sum(twice, twice * a / (1.0 - a));
    let y = log1p_positive(v.hi, Some(v.lo), None) * 0.5;
    let edge = a.eq(1.0).select(a.lit(f64::INFINITY), f64::NAN);
    let y = a.lt(1.0).select(y, edge);
    let tiny = if is_f32(x) { 1e-30 } else { 1e-290 };
    a.lt(tiny).select(a, y).copysign(x)
}

/// (e^r - 1 - r) / r^2 for 1/2 - ln 2 <= r <= 1/2, as f32, relative to e^r - 1. Error 2^-26.0.
const TANH_32: [f64; 5] = [0.5000001, 0.16666798, 0.04165736, 0.0083069485, 0.0015717167];

/// As [`TANH_32`], for f64. Error 2^-59.3.
const TANH_64: [f64; 11] = [
    0.5,
    0.16666666666666619,
    0.041666666666666914,
    0.00833333333338247,
    0.0013888888888153998,
    0.00019841269691530785,
    2.480159087474889e-05,
    2.7557471634527703e-06,
    2.755215543244232e-07,
    2.5031272870999346e-08,
    2.2865723050148563e-09,
];

/// (sinh x - x) / x^3 in z = x^2 <= 1, as f32, relative to sinh x. Error 2^-31.6.
const SINH_32: [f64; 4] = [0.16666667, 0.0083333105, 1.9842896e-4, 2.7822132e-6];

/// As [`SINH_32`], for f64. Error 2^-61.8.
const SINH_64: [f64; 7] = [
    0.16666666666666669,
    0.008333333333332912,
    0.00019841269841593408,
    2.7557319106758163e-06,
    2.5052130998414242e-08,
    1.6056659194242365e-10,
    7.776599357227097e-13,
];
