//! Powers: x^y = e^(y log |x|), signed and with C's exceptional results.
//!
//! The logarithm is multiplied by up to 745 (`f64`), so it needs ten bits more than the result:
//! `f32` computes in `f64`, `f64` in unevaluated sums of two.

use super::double::{Double, fast_two_sum, two_product};
use super::exp::{ExpSplit, exp_coefficients, ln2, scale};
use super::float::{FloatFormat, float, is_f32, poly, poly_then};
use super::log::LogParts;
use crate::dtype::DType;
use crate::scalar::record::S;
use std::f64::consts::LOG2_E;

/// x^y.
pub(super) fn pow<'r>(x: S<'r>, y: S<'r>) -> S<'r> {
    let a = x.abs();
    let magnitude = if is_f32(x) { pow_f32(a, y) } else { pow_f64(a, y) };
    // |x| = 0 or inf: 0 or inf, the other one for negative y.
    let zero = a.eq(0.0);
    let vanishes = zero ^ y.lt(0.0);
    let extreme = vanishes.select(x.lit(0.0), f64::INFINITY);
    let magnitude = (zero | a.eq(f64::INFINITY)).select(extreme, magnitude);
    // Every float from 2^fraction on is an integer, and from twice that on an even one.
    let half = y * 0.5;
    let whole = y.trunc().eq(y);
    let odd = whole & half.trunc().ne(half);
    let negative = x.bitcast(float(x).int).lt(0);
    let signed = (negative & odd).select(-magnitude, magnitude);
    let undefined = x.lt(0.0) & !whole & a.lt(f64::INFINITY);
    let undefined = undefined | x.ne(x) | y.ne(y);
    let general = undefined.select(x.lit(f64::NAN), signed);
    // These two hold for NaN operands as well.
    let one = y.eq(0.0) | x.eq(1.0);
    one.select(x.lit(1.0), general)
}

/// a^y for positive finite `f32` a.
fn pow_f32<'r>(a: S<'r>, y: S<'r>) -> S<'r> {
    let (a, y) = (a.convert(DType::F64), y.convert(DType::F64));
    let LogParts { k, f, .. } = LogParts::of_normal(a, None);
    let s = f / (f + 2.0);
    let z = s * s;
    let log2 = (s * poly_then(z, &[2.0], &LOG_SHORT)).fma(LOG2_E, k);
    // A finite bound on y keeps 0 * inf out: 1^inf is 1.
    let p = (y.max(-1e30).min(1e30) * log2).max(-300.0).min(300.0);
    let f64_format: &FloatFormat = float(p);
    let magic = f64_format.magic + f64_format.bias as f64;
    let t = p + magic;
    let e = poly_then(p - (t - magic), &[1.0], &EXP2_SHORT);
    (e * f64_format.power(t.bitcast(DType::I64))).convert(DType::F32)
}

/// a^y for positive finite `f64` a.
fn pow_f64<'r>(a: S<'r>, y: S<'r>) -> S<'r> {
    let log = log_double(LogParts::of_any(a));
    // Far beyond what matters for any a but 1, and no 0 * inf there.
    let bound = 65f64.exp2();
    let y = y.max(-bound).min(bound);
    let p = two_product(y, log.hi);
    let low = y.fma(log.lo, p.lo);
    // Beyond these bounds the result is infinite or zero whatever the low part.
    let (hi, low) = (p.hi.max(-800.0).min(800.0), low.max(-1e-12).min(1e-12));
    let split = ExpSplit::of(hi, Some(low), 2 * float(a).bias);
    scale(poly_then(split.r, &[1.0, 1.0], exp_coefficients(a)), split.k)
}

/// k ln 2 + log(1 + f) with a relative error below 2^-63.
///
/// log(1 + f) = 2 atanh(s), s = f / (2 + f), and atanh(s) = s (1 + z/3 + z^2 P(z)) with z = s^2,
/// where only the last term is small enough for a single `f64`.
pub(super) fn log_double<'r>(LogParts { k, f, .. }: LogParts<'r>) -> Double<'r> {
    let sum = f + 2.0;
    let sum_error = f - (sum - 2.0);
    let inverse = 1.0 / sum;
    let s = f * inverse;
    let s_lo = s.fma(-sum_error, s.fma(-sum, f)) * inverse;
    let twice = s + s;
    let z = two_product(s, s);
    let z_lo = twice.fma(s_lo, z.lo);
    let third = two_product(z.hi, f.lit(1.0 / 3.0));
    let third_lo = z.hi.fma(THIRD_TAIL, z_lo.fma(1.0 / 3.0, third.lo));
    let u = fast_two_sum(third.hi, z.hi * z.hi * poly(z.hi, &ATANH_TAIL));
    let u_lo = u.lo + third_lo;
    // 2 (s + s_lo) (1 + u + u_lo)
    let product = two_product(twice, u.hi);
    let product_lo = twice.fma(u_lo, (s_lo + s_lo).fma(u.hi, product.lo));
    let body = fast_two_sum(twice, product.hi);
    let body_lo = body.lo + (product_lo + (s_lo + s_lo));
    let (ln2_hi, ln2_lo) = ln2(f);
    let total = fast_two_sum(k * ln2_hi, body.hi);
    fast_two_sum(total.hi, total.lo + k.fma(ln2_lo, body_lo))
}

/// 1/3 minus the f64 nearest to it.
const THIRD_TAIL: f64 = 1.850371707708594e-17;

/// (2 atanh(s) - 2 s) / s^3 in z = s^2 <= 0.0295, relative to 2 atanh(s). Error 2^-37.6.
const LOG_SHORT: [f64; 4] =
    [0.666666656403167, 0.4000033659252117, 0.2853720643852226, 0.23584309016005883];

/// (2^r - 1) / r on |r| <= 1/2, relative to 2^r. Error 2^-34.3.
const EXP2_SHORT: [f64; 7] = [
    0.6931471807044894,
    0.24022651066581804,
    0.055504103660792725,
    0.009618038129780395,
    0.0013333934997581357,
    0.00015466756914346032,
    1.5196168528814656e-05,
];

/// (atanh(s) / s - 1 - z / 3) / z^2 in z = s^2 <= 0.0295, relative to atanh(s). Error 2^-73.3.
const ATANH_TAIL: [f64; 8] = [
    0.19999999999999987,
    0.14285714285723522,
    0.11111111108535073,
    0.09090909463552165,
    0.0769227651282593,
    0.06668232124300973,
    0.05835930243068086,
    0.06006730373076545,
];
