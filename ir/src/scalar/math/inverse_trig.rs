//! Inverse trigonometric functions: odd polynomials on a reduced interval, and the identities
//! asin x = pi/2 - 2 asin sqrt((1 - x) / 2) and atan x = pi/2 - atan(1 / x).

use super::float::{float, is_f32, poly};
use crate::scalar::record::S;
use std::f64::consts::{FRAC_PI_2, PI};

/// Inverse sine.
pub(super) fn asin<'r>(x: S<'r>) -> S<'r> {
    let Arc { inner, s, tail } = Arc::of(x.abs());
    // pi/2 - 2 (s + tail).
    let large = (s + (tail - 0.5 * half_pi_tail(x))).fma(-2.0, FRAC_PI_2);
    inner.select(s + tail, large).copysign(x)
}

/// Inverse cosine.
pub(super) fn acos<'r>(x: S<'r>) -> S<'r> {
    let Arc { inner, s, tail } = Arc::of(x.abs());
    let negative = x.lt(0.0);
    // Inner: pi/2 - (x + x^3 P). Right: 2 (s + tail). Left: pi - 2 (s + tail).
    let middle = FRAC_PI_2 - (s.copysign(x) + (tail.copysign(x) - half_pi_tail(x)));
    let right = s + tail;
    let left = (s + (tail - half_pi_tail(x))).fma(-2.0, PI);
    inner.select(middle, negative.select(left, right + right))
}

/// asin of s = |x| up to 1/2 (`inner`), of s = sqrt((1 - |x|) / 2) beyond, as s + tail.
struct Arc<'r> {
    inner: S<'r>,
    s: S<'r>,
    tail: S<'r>,
}

impl<'r> Arc<'r> {
    fn of(a: S<'r>) -> Arc<'r> {
        let inner = a.le(0.5);
        let z = inner.select(a * a, a.fma(-0.5, 0.5));
        // Beyond 1 the root is of a negative number: the NaN that both functions want.
        let s = inner.select(a, z.sqrt());
        let p = poly(z, if is_f32(a) { &ASIN_32 as &[f64] } else { &ASIN_64 });
        Arc { inner, s, tail: s * z * p }
    }
}

/// Inverse tangent.
pub(super) fn atan<'r>(x: S<'r>) -> S<'r> {
    let a = x.abs();
    let outer = a.gt(1.0);
    let t = outer.select(1.0 / a, a);
    let angle = atan_reduced(t);
    outer.select(FRAC_PI_2 - (angle - half_pi_tail(x)), angle).copysign(x)
}

/// Angle of the point (x, y), from -pi to pi.
pub(super) fn atan2<'r>(y: S<'r>, x: S<'r>) -> S<'r> {
    let (ax, ay) = (x.abs(), y.abs());
    let (small, large) = (ax.min(ay), ax.max(ay));
    // 0/0 counts as 0 and inf/inf as 1.
    let t = small / large.eq(0.0).select(x.lit(1.0), large);
    let t = small.eq(f64::INFINITY).select(x.lit(1.0), t);
    let angle = atan_reduced(t);
    // The sign bit, not the sign: -0 is on the left.
    let left = x.bitcast(float(x).int).lt(0);
    let outer = ay.gt(ax);
    let quarters = outer.select(x.lit(1.0), left.select(x.lit(2.0), 0.0));
    let angle = (left ^ outer).select(-angle, angle);
    let angle = quarters.fma(FRAC_PI_2, quarters.fma(half_pi_tail(x), angle));
    angle.copysign(y)
}

/// atan for 0 <= t <= 1.
fn atan_reduced<'r>(t: S<'r>) -> S<'r> {
    let z = t * t;
    (t * z).fma(poly(z, if is_f32(t) { &ATAN_32 as &[f64] } else { &ATAN_64 }), t)
}

/// pi/2 minus its nearest number in the format of `x`.
fn half_pi_tail(x: S<'_>) -> f64 {
    if is_f32(x) { -4.3711390001862426e-8 } else { 6.123233995736766e-17 }
}

/// (asin s - s) / s^3 in z = s^2 <= 1/4, as f32, relative to asin s. Error 2^-27.6.
const ASIN_32: [f64; 5] = [0.16666752, 0.074953094, 0.045469154, 0.024184735, 0.04215842];

/// As [`ASIN_32`], for f64. Error 2^-55.9.
const ASIN_64: [f64; 12] = [
    0.16666666666665408,
    0.07500000000337144,
    0.044642856828213444,
    0.030381959141959333,
    0.022371757925729374,
    0.017359706708906013,
    0.01388521567450725,
    0.01216934508005906,
    0.006527383707264038,
    0.019529922617763956,
    -0.016226912747999575,
    0.031914132683882865,
];

/// (atan t - t) / t^3 in z = t^2 <= 1, as f32, relative to atan t. Error 2^-28.5.
const ATAN_32: [f64; 9] = [
    -0.333333,
    0.1999853,
    -0.14264016,
    0.10950881,
    -0.08399311,
    0.057881452,
    -0.031096945,
    0.0108685475,
    -0.0017827464,
];

/// As [`ATAN_32`], for f64. Error 2^-57.6.
const ATAN_64: [f64; 20] = [
    -0.3333333333333307,
    0.19999999999951745,
    -0.14285714282587753,
    0.11111111007331377,
    -0.09090907007609889,
    0.07692279886761738,
    -0.06666404406398393,
    0.058805297119199886,
    -0.052535263763783924,
    0.047223470743521845,
    -0.0421924044206558,
    0.03664310107512839,
    -0.029905661708075324,
    0.021986981108130747,
    -0.013902493203737225,
    0.00719782831239436,
    -0.0028855809601228454,
    0.0008315497018428881,
    -0.00015220904239935198,
    1.322979484711629e-05,
];
