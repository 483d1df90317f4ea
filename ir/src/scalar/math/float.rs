//! What the functions need to know about a float format, and polynomials.

use crate::dtype::DType;
use crate::scalar::record::S;

/// The constants of a binary float format.
pub(super) struct FloatFormat {
    /// The format itself.
    pub(super) dtype: DType,
    /// The signed integer of its width.
    pub(super) int: DType,
    /// Stored bits of the significand, where the exponent field begins.
    pub(super) fraction: i64,
    /// Exponent field of 1.
    pub(super) bias: i64,
    /// 1.5 * 2^fraction: adding it rounds a small number to an integer, which then stands in the
    /// low bits of the sum. Exact to subtract again.
    pub(super) magic: f64,
    /// The smallest normal number.
    pub(super) tiny: f64,
    /// Bits of the significand of sqrt(1/2) with an exponent of -1.
    pub(super) sqrt_half: i64,
}

const F32: FloatFormat = FloatFormat {
    dtype: DType::F32,
    int: DType::I32,
    fraction: 23,
    bias: 127,
    magic: 12_582_912.0,
    tiny: 1.175_494_350_822_287_5e-38,
    sqrt_half: 0x3f35_04f3,
};

const F64: FloatFormat = FloatFormat {
    dtype: DType::F64,
    int: DType::I64,
    fraction: 52,
    bias: 1023,
    magic: 6_755_399_441_055_744.0,
    tiny: f64::MIN_POSITIVE,
    sqrt_half: 0x3fe6_a09e_667f_3bcd,
};

/// The format of `x`.
pub(super) fn float(x: S<'_>) -> &'static FloatFormat {
    if is_f32(x) { &F32 } else { &F64 }
}

/// Whether `x` is an `f32` (and not an `f64`).
pub(super) fn is_f32(x: S<'_>) -> bool {
    x.dtype() == DType::F32
}

impl FloatFormat {
    /// The bits of 1.
    pub(super) fn one(&self) -> i64 {
        self.bias << self.fraction
    }

    /// The lowest `fraction` bits.
    pub(super) fn mask(&self) -> i64 {
        (1 << self.fraction) - 1
    }

    /// 2^n for the exponent field n + bias held in the low bits of `k`; what stands above that
    /// field is shifted out.
    pub(super) fn power<'r>(&self, k: S<'r>) -> S<'r> {
        k.shl(self.fraction).bitcast(self.dtype)
    }
}

/// `coefficients[0] + z * (coefficients[1] + z * ..)` by Horner's rule in fma.
pub(super) fn poly<'r>(z: S<'r>, coefficients: &[f64]) -> S<'r> {
    poly_then(z, coefficients, &[])
}

/// The polynomial whose lowest coefficients are `low` and whose others are `high`.
pub(super) fn poly_then<'r>(z: S<'r>, low: &[f64], high: &[f64]) -> S<'r> {
    let mut all = low.iter().chain(high).rev();
    let mut y = z.lit(all.next().copied().unwrap_or(0.0));
    for &c in all {
        y = y.fma(z, c);
    }
    y
}
