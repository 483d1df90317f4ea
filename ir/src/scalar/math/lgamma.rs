//! The logarithm of the gamma function's magnitude.
//!
//! For |x| <= 5/2: with n = round(x) and u = x - n, the recurrence gamma(x + 1) = x gamma(x) (DLMF
//! 5.5.1) leads to lgamma(2 + u), a polynomial times u, and the logarithm of a product in u, all of
//! whose factors are exact sums; so the zeros at 1 and 2 keep their relative accuracy. Beyond it is
//! Stirling's formula (DLMF 5.11.1) as (a - 1/2) (log a - 1) + (log(2 pi) - 1) / 2 + S(1 / a^2) / a,
//! and for negative x the reflection gamma(-a) gamma(a) = -pi / (a sin(pi a)) (DLMF 5.5.3), where
//! a - round(a) is exact.

use super::double::Double;
use super::float::{is_f32, poly};
use super::real::Real;
use crate::dtype::DType;
use crate::scalar::record::S;

/// log |gamma(x)|; the poles are +inf.
pub(super) fn lgamma<'r>(x: S<'r>) -> S<'r> {
    if is_f32(x) {
        let fits = LgammaFits { near_two: &NEAR_TWO_32, stirling: &STIRLING_32, sinc: &SINC_32 };
        in_f64::<S<'r>>(x.convert(DType::F64), &fits).convert(DType::F32)
    } else {
        let fits = LgammaFits { near_two: &NEAR_TWO_64, stirling: &STIRLING_64, sinc: &SINC_64 };
        in_f64::<Double<'r>>(x, &fits)
    }
}

/// The polynomials of one format.
struct LgammaFits {
    near_two: &'static [f64],
    stirling: &'static [f64],
    sinc: &'static [f64],
}

fn in_f64<'r, R: Real<'r>>(x: S<'r>, fits: &LgammaFits) -> S<'r> {
    let a = x.abs();
    let n = x.round_even();
    let u = x - n;
    let direct = a.le(2.5);
    let word = R::of;
    let number = |v: f64| R::constant(x, v, 0.0);

    // x (x + 1) .. (1 + u), empty for n = 2.
    let square = word(u) * word(u) + number(-1.0);
    let first = R::sum(x.lit(1.0), u);
    let product = R::select(n.gt(1.5), number(1.0), first);
    let product = R::select(n.lt(0.5), first * word(u), product);
    let product = R::select(n.lt(-0.5), square * word(u), product);
    let product = R::select(n.lt(-1.5), square * word(u) * R::sum(u, x.lit(-2.0)), product);
    let log = R::select(direct, absolute(product), word(a)).log();

    let [head, rest @ ..] = fits.near_two else { unreachable!("a polynomial has coefficients") };
    let near_two = R::constant(x, *head, DIGAMMA_TWO_TAIL) + word(u * poly(u, rest));
    let small = near_two * word(u) + -log;

    let inverse = 1.0 / a;
    let stirling = inverse * poly(inverse * inverse, fits.stirling);
    let rest = R::constant(x, HALF_LOG, HALF_LOG_TAIL) + word(stirling);
    let large = R::sum(a, x.lit(-0.5)) * (log + number(-1.0)) + rest;

    // a |sin(pi a)| / pi
    let z = u * u;
    let [head, rest @ ..] = fits.sinc else { unreachable!("a polynomial has coefficients") };
    let slope = R::constant(x, *head, ZETA_TAIL) + word(z * poly(z, rest));
    let sinc = slope * (word(u) * word(u)) + number(1.0);
    let reflected = -((word(a) * word(u.abs()) * sinc).log() + large);

    let y = R::select(x.lt(0.0), reflected, large);
    let y = R::select(direct, small, y).value();
    let pole = u.eq(0.0) & x.le(0.0);
    // Beyond this the result is infinite.
    (pole | a.gt(2.55634816387169e305)).select(x.lit(f64::INFINITY), y)
}

fn absolute<'r, R: Real<'r>>(x: R) -> R {
    R::select(x.head().lt(0.0), -x, x)
}

/// (log(2 pi) - 1) / 2, and what that leaves out.
const HALF_LOG: f64 = 0.4189385332046727;
const HALF_LOG_TAIL: f64 = 1.6728209650585413e-17;

/// digamma(2) minus the f64 nearest to it.
const DIGAMMA_TWO_TAIL: f64 = 4.942915152430645e-18;

/// -pi^2 / 6 minus the f64 nearest to it.
const ZETA_TAIL: f64 = -3.040672350398476e-17;

/// lgamma(2 + u) / u on |u| <= 1/2, for f32, relative. Error 2^-30.8.
const NEAR_TWO_32: [f64; 10] = [
    0.4227843350004583,
    0.3224670334689425,
    -0.0673522814721006,
    0.020580799471518252,
    -0.007386174155633413,
    0.002890795321559696,
    -0.0011858600344983208,
    0.0005065171429518161,
    -0.0002538170956727826,
    0.00011347281994554691,
];

/// As [`NEAR_TWO_32`], for f64. Error 2^-55.2.
const NEAR_TWO_64: [f64; 20] = [
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319814,
    0.02058080842778457,
    -0.0073855510286681535,
    0.002890510330738737,
    -0.0011927539120010226,
    0.0005096695248853096,
    -0.00022315475074520367,
    9.945750909889392e-05,
    -4.4926351103833334e-05,
    2.050726741605779e-05,
    -9.438458716242811e-06,
    4.374374916915131e-06,
    -2.0449201467015115e-06,
    9.578663334114758e-07,
    -4.303558760359961e-07,
    2.0304806751615227e-07,
    -1.3412819758517287e-07,
    6.379047507619774e-08,
];

/// a times what Stirling's formula leaves out, in 1 / a^2 for a >= 5/2, for f32, absolute in lgamma. Error 2^-38.1.
const STIRLING_32: [f64; 6] = [
    0.08333333332119255,
    -0.0027777722755089004,
    0.0007932347497640351,
    -0.000583264274996044,
    0.0006739540713499723,
    -0.0006237716568267406,
];

/// As [`STIRLING_32`], for f64. Error 2^-59.1.
const STIRLING_64: [f64; 15] = [
    0.08333333333333333,
    -0.00277777777777564,
    0.0007936507926348371,
    -0.000595237901728115,
    0.0008417311910507532,
    -0.0019162977796173123,
    0.0063585250426269006,
    -0.027991038472754432,
    0.1441477835152572,
    -0.7483471308222778,
    3.424671398438795,
    -12.402133683741674,
    32.1370565409822,
    -52.04252919784544,
    39.20440586228919,
];

/// (sin(pi u) / (pi u) - 1) / z in z = u^2 <= 1/4, for f32, relative to 1. Error 2^-42.2.
const SINC_32: [f64; 6] = [
    -1.6449340668474173,
    0.8117424250502567,
    -0.19075181323710377,
    0.026147661795368305,
    -0.002344642285181905,
    0.00014328491328779113,
];

/// As [`SINC_32`], for f64. Error 2^-57.4.
const SINC_64: [f64; 9] = [
    -1.6449340668482264,
    0.8117424252833536,
    -0.19075182412208389,
    0.026147847817640922,
    -0.002346081035170168,
    0.0001484287897277088,
    -6.975851212141997e-06,
    2.5303274566591236e-07,
    -7.114052818015395e-09,
];
