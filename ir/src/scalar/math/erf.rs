//! Error functions.
//!
//! erf is an odd polynomial up to 1, and 1 - e^-Q(|x|) with a polynomial Q beyond, where Q has to
//! be right only as far as e^-Q is visible beside 1. erfc is e^(-a^2) times a smooth function of
//! 1 / (a + 2), after Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2)
//! erfc x" (1981), with the error of the square and of the quotient carried along.

use super::double::{fast_two_sum, two_product};
use super::exp::{EXPM1_32, EXPM1_64, ExpSplit, exp_coefficients, scale};
use super::float::{float, is_f32, poly, poly_then};
use crate::scalar::record::S;
use std::f64::consts::{LN_2, LOG2_E};

/// The error function.
pub(super) fn erf<'r>(x: S<'r>) -> S<'r> {
    let f = float(x);
    let small = erf_small(x);
    // From here on the result rounds to 1.
    let a = x.abs();
    let (end, tail): (f64, &[f64]) = if is_f32(x) { (4.0, &ERF_TAIL_32) } else { (6.0, &TAIL_64) };
    let q = -poly(a.min(end), tail);
    // e^q as 2^n e^r; with 2^n < 1/4 a rough reduction is enough.
    let magic = f.magic + f.bias as f64;
    let t = q.fma(LOG2_E, magic);
    let r = (t - magic).fma(-LN_2, q);
    let e = poly_then(r, &[1.0, 1.0], exp_coefficients(x));
    let large = 1.0 - e * f.power(t.bitcast(f.int));
    a.lt(1.0).select(small, large.copysign(x))
}

/// The complementary error function.
pub(super) fn erfc<'r>(x: S<'r>) -> S<'r> {
    // Beyond the end the result rounds to zero.
    let a = x.abs().min(if is_f32(x) { 10.5 } else { 27.5 });
    let f = float(x);
    // w = w0 + w1 = 1 / (a + 2), with w0 two bits short, so that t = 1 - 4 w0 is exact.
    let sum = a + 2.0;
    let sum_error = a - (sum - 2.0);
    let w0 = ((1.0 / sum).bitcast(f.int) & -4).bitcast(f.dtype);
    let w1 = w0 * w0.fma(-sum_error, w0.fma(-sum, 1.0));
    let t = w0.fma(-4.0, 1.0);
    let (c, tail): (&[f64], f64) =
        if is_f32(x) { (&ERFC_32, ERFC_32_TAIL) } else { (&ERFC_64, ERFC_64_TAIL) };
    // P(1 - 4w) as p + p_lo: the last product and the last sum are kept whole, w1 goes in by the
    // derivative, of which three terms are enough.
    let product = two_product(t, poly(t, &c[1..]));
    let p = fast_two_sum(x.lit(c[0]), product.hi);
    let slope = poly(t, &[-4.0 * c[1], -8.0 * c[2], -12.0 * c[3]]);
    let p_lo = w1.fma(slope, (product.lo + tail) + p.lo);
    // (p + p_lo) (w0 + w1)
    let e = two_product(p.hi, w0);
    let e_lo = w0.fma(p_lo, w1.fma(p.hi, e.lo));
    // e^-(a^2), with the square's error in the reduced argument.
    let na = -a;
    let square = na * a;
    let ExpSplit { k, r } = ExpSplit::of(square, Some(na.fma(a, -square)), 2 * f.bias);
    // (e + e_lo) (1 + r + r^2 Q(r)), smallest first.
    let high = r * r * poly(r, if is_f32(x) { &EXPM1_32 as &[f64] } else { &EXPM1_64 });
    let small = e.hi.fma(high, e_lo.fma(r + high, e_lo));
    let y = scale(e.hi + e.hi.fma(r, small), k);
    let y = x.lt(0.0).select(2.0 - y, y);
    // Near zero 1 - erf is better, and exact at zero.
    x.abs().lt(0.47).select(1.0 - erf_small(x), y)
}

/// erf for |x| <= 1.
fn erf_small<'r>(x: S<'r>) -> S<'r> {
    x.fma(poly(x * x, if is_f32(x) { &ERF_32 as &[f64] } else { &ERF_64 }), x)
}

/// erf(x) / x - 1 in z = x^2 <= 1, as f32, relative to erf x. Error 2^-29.4.
pub const ERF_32: [f64; 7] =
    [0.12837917, -0.37612626, 0.11283579, -0.026853347, 0.005187162, -7.997853e-4, 7.806903e-5];

/// As [`ERF_32`], for f64. Error 2^-56.0.
const ERF_64: [f64; 12] = [
    0.12837916709551256,
    -0.37612638903183343,
    0.11283791670936955,
    -0.026866170641960525,
    0.005223977596753151,
    -0.0008548325486094507,
    0.0001205528053644186,
    -1.4924466515456216e-05,
    1.644416229604839e-06,
    -1.6184083952600658e-07,
    1.361709318595403e-08,
    -7.608491975709252e-10,
];

/// -log erfc(a) on 1 <= a <= 4, as f32, weighted by erfc(a): the absolute error of erf. Error
/// 2^-29.8.
pub const ERF_TAIL_32: [f64; 7] =
    [3.5374027e-4, 1.1270399, 0.638226, 0.10303702, -0.0218051, 0.0029395374, -1.8556512e-4];

/// As [`ERF_TAIL_32`], for f64 and a <= 6. Error 2^-54.9.
const TAIL_64: [f64; 17] = [
    1.0818294600252103e-06,
    1.128368548575641,
    0.6366682574443877,
    0.10263592277870667,
    -0.01886236693466154,
    -0.0005879020062862638,
    0.002102451591750087,
    -0.0009226488534230967,
    0.00023219351947006137,
    -2.868537351367782e-05,
    -3.3740165564697066e-06,
    2.610366724004771e-06,
    -6.753105669814033e-07,
    1.0642385121898294e-07,
    -1.0725344492667367e-08,
    6.410117942734221e-10,
    -1.7401562865273472e-11,
];

/// (a + 2) e^(a^2) erfc(a) in t = (a - 2) / (a + 2) on 0.45 <= a <= 10.5, as f32, relative, with
/// [`ERFC_32_TAIL`] added to the lowest. Error 2^-27.8.
const ERFC_32: [f64; 10] = [
    1.0215827,
    -0.6871607,
    0.27947184,
    -0.036443282,
    -0.021505179,
    0.0064915586,
    0.0030491706,
    -8.8743685e-4,
    -5.357688e-4,
    1.09830726e-4,
];

const ERFC_32_TAIL: f64 = -1.506422897534776e-8;

/// As [`ERFC_32`], for f64 and a <= 27.5. Error 2^-57.9.
const ERFC_64: [f64; 24] = [
    1.021582705242023,
    -0.6871606844138106,
    0.2794720925560551,
    -0.03644223150687822,
    -0.021510661889522043,
    0.006479185067800772,
    0.0030906120605233914,
    -0.0008372960654390775,
    -0.0006630735286304681,
    3.437148956742427e-05,
    0.00014447096855439161,
    3.414836393006422e-05,
    -2.1697400581957673e-05,
    -1.6117627984797276e-05,
    -1.1220558956211826e-06,
    3.6306899643612628e-06,
    1.9975162622321584e-06,
    3.579794060096786e-08,
    -5.757020777326455e-07,
    -3.7901665113285483e-07,
    2.089311461455361e-08,
    1.6176372181064334e-07,
    2.3863273350383915e-08,
    -3.351881484633234e-08,
];

const ERFC_64_TAIL: f64 = -1.7997070148177716e-17;
