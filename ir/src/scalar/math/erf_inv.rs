//! The inverse of the error function.
//!
//! erf_inv(x) / x is a smooth function of w = -log(1 - x^2) near zero and of sqrt(w - 1) from there
//! on, after Giles, "Approximating the ei function" (GPU Computing Gems, 2011). An error in w
//! counts for less than half in the result, so that w needs no second word; 1 - x^2 is rounded once.

use super::float::{is_f32, poly};
use super::log::LogParts;
use crate::scalar::record::S;

/// The inverse of the error function.
pub(super) fn erf_inv<'r>(x: S<'r>) -> S<'r> {
    let square = x.fma(-x, 1.0);
    let w = -LogParts::of_normal(square, None).log();
    let (centre, tail): (&[f64], &[f64]) =
        if is_f32(x) { (&CENTRE_32, &TAIL_32) } else { (&CENTRE_64, &TAIL_64) };
    // The middles are where the lowest coefficient is nearly a number of its format.
    let (at_centre, at_tail) = if is_f32(x) { MIDDLES_32 } else { MIDDLES_64 };
    let near = poly(w - at_centre, centre);
    let far = poly((w - 1.0).sqrt() - at_tail, tail);
    let y = x * w.lt(5.0).select(near, far);
    let pole = square.eq(0.0).select(x.lit(f64::INFINITY).copysign(x), f64::NAN);
    square.gt(0.0).select(y, pole)
}

/// Where the two polynomials are expanded, in w and in sqrt(w - 1).
const MIDDLES_32: (f64, f64) = (2.5703125, 2.98046875);

/// As [`MIDDLES_32`], for f64.
const MIDDLES_64: (f64, f64) = (2.58203125, 4.078125);

/// erf_inv(x) / x from the middle of 0 <= w <= 5 on, as f32, relative. Error 2^-27.5.
const CENTRE_32: [f64; 12] = [
    1.5187302,
    0.24603456,
    -0.0044351122,
    -0.0011915916,
    0.00021625949,
    -6.3914704e-06,
    -3.1886914e-06,
    4.860589e-07,
    9.733834e-09,
    -1.052299e-08,
    5.2955573e-10,
    1.2346577e-10,
];

/// As [`CENTRE_32`], for f64. Error 2^-54.8.
const CENTRE_64: [f64; 24] = [
    1.521612769985253,
    0.24593012735615183,
    -0.004476819371401602,
    -0.001181467690480499,
    0.00021586551456629258,
    -6.609693971408307e-06,
    -3.1396934502386726e-06,
    4.849606904162176e-07,
    5.683147866686799e-09,
    -1.0076374229959822e-08,
    1.0015851097866573e-09,
    8.957210734099611e-11,
    -2.9822473360244465e-11,
    1.4719680991497613e-12,
    4.404760898987842e-13,
    -7.816201701040677e-14,
    -4.200052985505011e-16,
    1.6527276676674645e-15,
    -1.6826908692252587e-16,
    -1.68500175803201e-17,
    4.8254315723227814e-18,
    -7.356082293537841e-20,
    -6.060014773475017e-20,
    3.55648610012859e-21,
];

/// erf_inv(x) / x in sqrt(w - 1) from its middle on, for 5 <= w <= 16, as f32, relative. Error 2^-26.8.
const TAIL_32: [f64; 11] = [
    2.977147,
    0.9518311,
    0.022230487,
    -0.008946809,
    0.004026571,
    -0.0019622487,
    0.0007765035,
    -9.239363e-05,
    -0.00012756952,
    6.5902204e-05,
    -2.7683072e-06,
];

/// erf_inv(x) / x in sqrt(w - 1) from its middle on, for 5 <= w <= 36.1, relative. Error 2^-55.6.
const TAIL_64: [f64; 34] = [
    4.040656642134401,
    0.9808428388867113,
    0.007584079616145337,
    -0.0021652439251451496,
    0.0005487647499620392,
    -0.00013358808289334588,
    3.5518271605454464e-05,
    -1.254545487163332e-05,
    5.830691940538159e-06,
    -2.7645699013562914e-06,
    1.0726557738385415e-06,
    -2.6264417914672643e-07,
    -1.2700195449076954e-08,
    5.0811223126154505e-08,
    -2.7322687314317822e-08,
    7.458653826366382e-09,
    -1.0911446269026604e-10,
    -8.889233134454939e-10,
    4.216257571273066e-10,
    -9.015073202946873e-11,
    -6.908108384226778e-12,
    1.4362140652665534e-11,
    -4.718591487252429e-12,
    -5.137247174809726e-13,
    5.137536012667829e-13,
    1.2896469928293576e-13,
    -6.840733651949413e-14,
    -3.2705197399861647e-14,
    1.1714807636132853e-14,
    3.416930465291225e-15,
    -1.0753698481418862e-15,
    -1.828271638728694e-16,
    3.8609205174418115e-17,
    4.726392776803284e-18,
];
