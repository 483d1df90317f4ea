//! Exponentials: e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2 (Cody and Waite: ln 2 is
//! split so that n times its head is exact), and e^r from a polynomial.
//!
//! n is rounded by adding the format's magic number, which leaves n in the low bits of the sum; the
//! exponent bias is part of that number, so that a shift makes the power of two.

use super::float::{float, is_f32, poly, poly_then};
use crate::scalar::record::S;
use std::f64::consts::{LN_2, LOG2_E};

/// e^x.
pub(super) fn exp<'r>(x: S<'r>) -> S<'r> {
    // Beyond these the result is infinite or zero.
    let high = if is_f32(x) { 89.0 } else { 710.0 };
    exp_in_range(x.max(least_exponent(x)).min(high))
}

/// An exponent at which e^x is zero without rounding: n is so small that both factors of the power of two are zero.
///
/// From -104 on (-746 in `f64`) the result rounds to zero as well, but the product that rounds takes
/// many processors over twenty times as long. Masked scores of attention are -inf, and bounds bring them here.
pub(super) fn least_exponent(x: S<'_>) -> f64 {
    if is_f32(x) { -176.0 } else { -1418.0 }
}

/// e^x for x between [`least_exponent`] and 710, in `f32` 89, or NaN.
pub(super) fn exp_in_range<'r>(x: S<'r>) -> S<'r> {
    let split = ExpSplit::of(x, None, 2 * float(x).bias);
    let y = poly_then(split.r, &[1.0, 1.0], exp_coefficients(x));
    scale(y, split.k)
}

/// 2^x.
pub(super) fn exp2<'r>(x: S<'r>) -> S<'r> {
    let f = float(x);
    // At the lower bound both factors of the power of two are zero, as in [`least_exponent`].
    let (low, high) = if is_f32(x) { (-254.0, 129.0) } else { (-2046.0, 1025.0) };
    let x = x.max(low).min(high);
    let magic = f.magic + (2 * f.bias) as f64;
    let t = x + magic;
    let r = x - (t - magic);
    let high: &[f64] = if is_f32(x) { &EXP2_32 } else { &EXP2_64 };
    scale(poly_then(r, &[1.0], high), t.bitcast(f.int))
}

/// e^x - 1, as 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)): halves, so that n may be the exponent of
/// infinity while the result is finite.
pub(super) fn expm1<'r>(x: S<'r>) -> S<'r> {
    let f = float(x);
    let (low, high, tiny) = if is_f32(x) { (-30.0, 89.0, 1e-30) } else { (-60.0, 710.0, 1e-290) };
    let split = ExpSplit::of(x.max(low).min(high), None, f.bias - 1);
    let half_power = f.power(split.k);
    // r before r^2 Q(r): where n = 1 that sum is exact, and it is there that the halves cancel.
    let r = split.r;
    let q = poly(r, if is_f32(x) { &EXPM1_32 as &[f64] } else { &EXPM1_64 });
    let y = half_power.fma(r * r * q, half_power.fma(r, half_power - 0.5));
    // Halving a subnormal would round, and a sum loses the sign of zero.
    x.abs().lt(tiny).select(x, y + y)
}

/// The coefficients of (e^r - 1 - r) / r^2 that are enough for e^r.
pub(super) fn exp_coefficients(r: S<'_>) -> &'static [f64] {
    if is_f32(r) { &EXPM1_32 } else { &EXP_64 }
}

/// x + low = n ln 2 + r.
pub(super) struct ExpSplit<'r> {
    /// An integer whose low bits are n + offset.
    pub(super) k: S<'r>,
    /// The reduced argument.
    pub(super) r: S<'r>,
}

impl<'r> ExpSplit<'r> {
    /// Splits `x`, or `x + low` with `low` so small that it does not move the rounding.
    pub(super) fn of(x: S<'r>, low: Option<S<'r>>, offset: i64) -> ExpSplit<'r> {
        let magic = float(x).magic + offset as f64;
        ExpSplit::at(x.fma(LOG2_E, magic), magic, x, low)
    }

    /// Splits with n = `t - magic`.
    pub(super) fn at(t: S<'r>, magic: f64, x: S<'r>, low: Option<S<'r>>) -> ExpSplit<'r> {
        let (ln2_hi, ln2_lo) = ln2(x);
        let n = t - magic;
        // The head is exact, so that one rounding remains.
        let head = n.fma(-ln2_hi, x);
        let r = match low {
            None => n.fma(-ln2_lo, head),
            Some(low) => head + n.fma(-ln2_lo, low),
        };
        ExpSplit { k: t.bitcast(float(x).int), r }
    }
}

/// ln 2 as a head of so few bits that its products with exponents are exact, and the rest.
pub(super) fn ln2(x: S<'_>) -> (f64, f64) {
    let head: f64 =
        if is_f32(x) { 22_713.0 / 32_768.0 } else { f64::from_bits(0x3fe6_2e42_fefa_3000) };
    // The difference from the f64 nearest to ln 2 is exact; that number's own error comes after.
    (head, (LN_2 - head) + LN2_TAIL)
}

/// `y * 2^n`, rounded once, where the low bits of `k` are `n + 2 * bias`: in two factors, since 2^n
/// itself may lie outside the format.
pub(super) fn scale<'r>(y: S<'r>, k: S<'r>) -> S<'r> {
    let f = float(y);
    let half = k.shr_l(1).shl(f.fraction);
    let rest = k.shl(f.fraction) - half;
    y * half.bitcast(f.dtype) * rest.bitcast(f.dtype)
}

/// ln 2 minus the f64 nearest to it.
const LN2_TAIL: f64 = 2.3190468138462996e-17;

/// (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, as f32, relative to e^r - 1. Error 2^-26.1.
pub(super) const EXPM1_32: [f64; 5] =
    [0.49999997, 0.16666538, 0.04166774, 0.008367317, 0.0013837925];

/// (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, relative to e^r. Error 2^-57.9.
pub(super) const EXP_64: [f64; 10] = [
    0.5000000000000011,
    0.16666666666666421,
    0.04166666666652555,
    0.008333333333485625,
    0.0013888888944973863,
    0.0001984126953235972,
    2.480149158888143e-05,
    2.7557557468623703e-06,
    2.76308241646652e-07,
    2.5011051715431315e-08,
];

/// (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, relative to e^r - 1. Error 2^-61.6.
pub(super) const EXPM1_64: [f64; 11] = [
    0.5,
    0.16666666666666677,
    0.04166666666666667,
    0.008333333333321721,
    0.0013888888888900477,
    0.0001984126988564512,
    2.480158726713278e-05,
    2.7557244765797187e-06,
    2.7557338330937504e-07,
    2.5108844090939618e-08,
    2.0891558075594305e-09,
];

/// (2^r - 1) / r on |r| <= 1/2, as f32, relative to 2^r. Error 2^-26.3.
const EXP2_32: [f64; 6] = [LN_2, 0.24022594, 0.055503663, 0.009625446, 0.001338793, 1.333211e-4];

/// (2^r - 1) / r on |r| <= 1/2, relative to 2^r. Error 2^-56.6.
const EXP2_64: [f64; 11] = [
    LN_2,
    0.24022650695910172,
    0.055504108664824574,
    0.009618129107577063,
    0.0013333558145567348,
    0.00015403530478875322,
    1.5252734738239502e-05,
    1.3215424314432556e-06,
    1.017765492706721e-07,
    7.075686291467292e-09,
    4.5197329596826013e-10,
];
