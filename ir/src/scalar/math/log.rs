//! Logarithms: x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and log(1 + f) from a polynomial
//! in f (`f32`) or in (f / (2 + f))^2 (`f64`, where the odd series needs half the terms).

use super::exp::ln2;
use super::float::{float, is_f32, poly, poly_then};
use crate::scalar::record::S;
use std::f64::consts::LN_2;

/// The natural logarithm.
pub(super) fn log<'r>(x: S<'r>) -> S<'r> {
    let y = LogParts::of_any(x).log();
    special(x, y)
}

/// log(1 + x), with the error of the sum 1 + x carried along.
pub(super) fn log1p<'r>(x: S<'r>) -> S<'r> {
    let y = special(x + 1.0, log1p_positive(x, None, None));
    // For x so small the sum's error is x itself, which halving might round; -0 stays -0.
    let tiny = if is_f32(x) { 1e-30 } else { 1e-290 };
    x.abs().lt(tiny).select(x, y)
}

/// log(1 + x + low) + bump * ln 2, low beyond the last place of x, for finite x > -1 of normal size.
pub(super) fn log1p_positive<'r>(x: S<'r>, low: Option<S<'r>>, bump: Option<S<'r>>) -> S<'r> {
    let format = float(x);
    let u = x + 1.0;
    let larger = x.max(1.0);
    let c = x.min(1.0) - (u - larger);
    let c = low.map_or(c, |low| c + low);
    let mut parts = LogParts::of_normal(u, None);
    // 2 * 2^-k: the power itself is subnormal for the largest u.
    let twice = format.power(x.bits(format.int, 2 * format.bias as u64 + 1) - parts.exponent);
    let (half, head) = (c * 0.5, parts.f);
    parts.f = half.fma(twice, head);
    parts.low = Some(half.fma(twice, head - parts.f));
    if let Some(bump) = bump {
        parts.k = parts.k + bump;
    }
    parts.log()
}

/// The results that are not finite: `y` is right where 0 < u < inf.
fn special<'r>(u: S<'r>, y: S<'r>) -> S<'r> {
    let y = u.lt(f64::INFINITY).select(y, u);
    let pole = u.eq(0.0).select(u.lit(f64::NEG_INFINITY), f64::NAN);
    u.gt(0.0).select(y, pole)
}

/// A positive number as 2^k (1 + f).
pub(super) struct LogParts<'r> {
    /// Exponent, as a float.
    pub(super) k: S<'r>,
    /// Exponent with the format's bias, as an integer.
    pub(super) exponent: S<'r>,
    /// Significand minus one.
    pub(super) f: S<'r>,
    /// What f leaves out, if anything.
    low: Option<S<'r>>,
}

impl<'r> LogParts<'r> {
    /// Parts of any positive finite number.
    pub(super) fn of_any(x: S<'r>) -> LogParts<'r> {
        let format = float(x);
        let lift = (format.fraction + 2) as f64;
        let small = x.lt(format.tiny);
        let x = small.select(x * lift.exp2(), x);
        LogParts::of_normal(x, Some((small, lift)))
    }

    /// Parts of a normal number, from whose exponent the number is taken where the `bool` holds.
    pub(super) fn of_normal(x: S<'r>, lifted: Option<(S<'r>, f64)>) -> LogParts<'r> {
        let format = float(x);
        // Carries into the exponent where the significand is at least that of sqrt(2).
        let t = x.bitcast(format.int) + (format.one() - format.sqrt_half);
        let exponent = t.shr_l(format.fraction);
        let f = ((t & format.mask()) + format.sqrt_half).bitcast(format.dtype) - 1.0;
        // An integer below 2^fraction becomes a float by standing in the significand of
        // 2^fraction; `f32` has a conversion on every machine.
        let power = (format.fraction as f64).exp2();
        let (k, bias) = if is_f32(x) {
            (exponent.convert(format.dtype), format.bias as f64)
        } else {
            let bits = x.lit(power).bitcast(format.int);
            ((exponent | bits).bitcast(format.dtype), power + format.bias as f64)
        };
        let k = match lifted {
            Some((when, by)) => k - when.select(x.lit(bias + by), bias),
            None => k - bias,
        };
        LogParts { k, exponent, f, low: None }
    }

    /// k ln 2 + log(1 + f).
    pub(super) fn log(&self) -> S<'r> {
        let (k, f) = (self.k, self.f);
        if is_f32(f) {
            let g = poly_then(f, &[-0.5], &LOG_32);
            // ln 2 is within 2^-28 of an f32 number: no tail is needed.
            let y = match self.low {
                None => (f * f).fma(g, f),
                Some(low) => f + (f * f).fma(g, low),
            };
            return k.fma(LN_2, y);
        }
        let (ln2_hi, ln2_lo) = ln2(f);
        // log(1 + f) = f - (h - s (h + z P(z))), h = f^2 / 2: f itself is exact.
        let s = f / (f + 2.0);
        let z = s * s;
        let h = f * f * 0.5;
        let small = self.low.map_or(k * ln2_lo, |low| k.fma(ln2_lo, low));
        let tail = s.fma(z.fma(poly(z, &LOG_64), h), small);
        k.fma(ln2_hi, f - (h - tail))
    }
}

/// (log(1 + f) - f + f^2 / 2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2), as f32, relative to the
/// logarithm. Error 2^-27.3.
const LOG_32: [f64; 8] = [
    0.3333333,
    -0.25000823,
    0.2000126,
    -0.1662335,
    0.14201106,
    -0.13159548,
    0.12765303,
    -0.07640485,
];

/// (2 atanh(s) - 2 s) / s^3 in z = s^2, s = f / (2 + f), sqrt(1/2) <= 1 + f <= sqrt(2), relative
/// to 2 atanh(s). Error 2^-59.5.
const LOG_64: [f64; 7] = [
    0.6666666666666735,
    0.3999999999940915,
    0.2857142874377582,
    0.2222219841533586,
    0.18183573287725197,
    0.15313802814589128,
    0.14798604964038042,
];
