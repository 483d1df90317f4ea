//! The cotangent between two of its poles, for the reflections of the gamma family.

use super::float::poly;
use super::real::Real;
use crate::scalar::record::S;

/// pi cot(pi r) for |r| <= 1/2: (1 - 4 z) C(z) / (r (1 - z)) with z = r^2 takes its zeros and its
/// nearest poles out, so that C is smooth and near 1.
pub(super) fn pi_cot<'r, R: Real<'r>>(r: S<'r>, fit: &[f64]) -> R {
    let number = |v: f64| R::constant(r, v, 0.0);
    let z = R::of(r) * R::of(r);
    let smooth = R::sum(r.lit(1.0), z.head() * poly(z.head(), fit));
    let top = (z * number(-4.0) + number(1.0)) * smooth;
    top.over(R::of(r) * (-z + number(1.0)))
}

/// (pi r cot(pi r) (1 - z) / (1 - 4 z) - 1) / z in z = r^2 <= 1/4, for f32, relative to 1. Error 2^-34.0.
pub(super) const COT_32: [f64; 5] = [
    -0.28986813391686683,
    -0.03425082448370145,
    -0.00704453028629473,
    -0.0016256598223832314,
    -0.00046726170680210855,
];

/// As [`COT_32`], for f64. Error 2^-59.6.
pub(super) const COT_64: [f64; 10] = [
    -0.28986813369645287,
    -0.034250868511635196,
    -0.007043130593136719,
    -0.0016411108009236305,
    -0.0003988810250312333,
    -9.854757746780566e-05,
    -2.4507063471450285e-05,
    -6.1387970280205696e-06,
    -1.4459699890135655e-06,
    -5.255308857880036e-07,
];
