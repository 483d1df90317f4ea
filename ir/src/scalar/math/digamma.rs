//! Digamma, the derivative of lgamma.
//!
//! On [1, 2] it is a polynomial in the distance from its zero; below 1 the recurrence psi(x) =
//! psi(x + 1) - 1/x (DLMF 5.5.2) leads there. From 2 on it is log x - 1/(2x) - L(1/x^2) / x^2 after
//! its asymptotic series (DLMF 5.11.2), and left of zero psi(-a) = psi(a) + 1/a + pi cot(pi a) (DLMF
//! 5.5.4), where a - round(a) is exact.

use super::cot::{COT_32, COT_64, pi_cot};
use super::double::{Double, two_sum};
use super::float::{is_f32, poly};
use super::log::LogParts;
use super::real::Real;
use crate::dtype::DType;
use crate::scalar::record::S;

/// The derivative of log |gamma(x)|; the poles are NaN.
pub(super) fn digamma<'r>(x: S<'r>) -> S<'r> {
    if is_f32(x) {
        let fits = DigammaFits { root: &ROOT_32, large: &LARGE_32, cot: &COT_32 };
        in_f64::<S<'r>>(x.convert(DType::F64), &fits).convert(DType::F32)
    } else {
        in_f64::<Double<'r>>(x, &DigammaFits { root: &ROOT_64, large: &LARGE_64, cot: &COT_64 })
    }
}

/// The polynomials of one format.
struct DigammaFits {
    root: &'static [f64],
    large: &'static [f64],
    cot: &'static [f64],
}

fn in_f64<'r, R: Real<'r>>(x: S<'r>, fits: &DigammaFits) -> S<'r> {
    let a = x.abs();
    let below = a.lt(1.0);
    let moved = two_sum(a, below.select(x.lit(1.0), 0.0));
    // The distance from the zero, to the last bit.
    let r = (moved.hi - ROOT) + (moved.lo - ROOT_TAIL);
    let near = r * poly(r, fits.root);

    let inverse = 1.0 / a;
    let z = inverse * inverse;
    let far = R::sum(LogParts::of_any(a).log(), -inverse.fma(0.5, z * poly(z, fits.large)));
    let y = R::select(a.lt(2.0), R::of(near), far);

    // -1/x of the recurrence and 1/a of the reflection are one term, and where both are due none.
    let negative = x.lt(0.0);
    let pole_term = -1.0 / x;
    let y = y + R::of((below ^ negative).select(pole_term, 0.0));
    let reflection = pi_cot::<R>(a - a.round_even(), fits.cot);
    let y = R::select(negative, y + reflection, y).value();
    let y = a.lt(f64::INFINITY).select(y, x);
    // The reflection's sums of two do not take what overflows.
    let y = a.lt(1e-300).select(pole_term, y);
    let pole = x.le(0.0) & x.round_even().eq(x);
    pole.select(x.lit(f64::NAN), y)
}

/// Digamma's positive zero, and what that leaves out.
const ROOT: f64 = 1.4616321449683622;
const ROOT_TAIL: f64 = 9.549995429965697e-17;

/// digamma(r0 + r) / r for 1 <= r0 + r <= 2 with the zero r0, for f32, relative. Error 2^-30.4.
const ROOT_32: [f64; 12] = [
    0.9676722450791886,
    -0.442763180420316,
    0.2584998764176289,
    -0.16394168010973348,
    0.10781808334784423,
    -0.07222433435976387,
    0.04891832032262166,
    -0.03293372033875614,
    0.021612093972741803,
    -0.016158484875735263,
    0.014378731129738405,
    -0.007476843099039942,
];

/// As [`ROOT_32`], for f64. Error 2^-54.4.
const ROOT_64: [f64; 24] = [
    0.9676722454476212,
    -0.44276316898359214,
    0.2584997609556509,
    -0.16394270544239933,
    0.10782405069127954,
    -0.07219956125728176,
    0.04880428816323914,
    -0.033161126430834756,
    0.022597648248248545,
    -0.015424767205798105,
    0.010538791788919843,
    -0.0072045109574719185,
    0.004926769418388227,
    -0.0033700709071922902,
    0.0023053483271584774,
    -0.0015749355480831084,
    0.0010766128230576774,
    -0.000747499595599249,
    0.0005180490833340102,
    -0.0003193696671207108,
    0.00019075640343160688,
    -0.00019476490125987326,
    0.00019426548768522768,
    -8.153978973309418e-05,
];

/// (log x - 1/(2x) - digamma(x)) x^2 in 1 / x^2 for x >= 2, for f32, relative to digamma. Error 2^-34.3.
const LARGE_32: [f64; 7] = [
    0.08333333318166714,
    -0.008333273281013605,
    0.0039642111342058075,
    -0.004059138890680653,
    0.006090124542540738,
    -0.00856992841132253,
    0.006584057586941969,
];

/// As [`LARGE_32`], for f64. Error 2^-57.9.
const LARGE_64: [f64; 18] = [
    0.08333333333333331,
    -0.008333333333282403,
    0.003968253945839079,
    -0.004166662685237482,
    0.007575376745469917,
    -0.02107005464707781,
    0.0824035488501189,
    -0.4154319062590684,
    2.4086326462795236,
    -14.175672125457217,
    76.38818033102122,
    -350.65966692873957,
    1303.3201682729227,
    -3758.4012850794807,
    8025.266418167724,
    -11879.665062271304,
    10847.141354712692,
    -4591.93856220739,
];
