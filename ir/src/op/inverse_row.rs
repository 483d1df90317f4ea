//! What an entry of the column of inverses in the op table holds.

use crate::dtype::{DType, DTypeSet};
use crate::scalar::S;

/// An operand from the answer `y` and the operands `x`, of which it does not read the one that it gives.
pub type InverseBody = for<'r> fn(S<'r>, &[S<'r>]) -> S<'r>;

/// How an operand is made.
#[derive(Clone, Copy)]
pub enum Recovery {
    /// By a scalar program at each element.
    Elementwise(InverseBody),
    /// The answer is converted back to the operand's type, which has fewer numbers.
    ConvertedBack,
    /// The op moves every element to one place, so its transposition moves the answer's elements back.
    Transposed,
}

/// How far what is recovered may be from the operand. The operand and the recovered value are NaN together, and have the
/// same infinities, but where an [error](InverseError) says otherwise.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Accuracy {
    /// It is the operand, to the bit.
    Exact,
    /// It differs by at most this many units in the last place of the operand.
    Approximate(InverseError),
}

/// The bound of an inverse that rounds, in units in the last place of the operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InverseError {
    /// For `f32`.
    pub f32: f64,
    /// For `f64`.
    pub f64: f64,
    /// Whether it may also differ by as much as the least normal number, however small the operand is: where a tiny
    /// answer has lost digits.
    pub tiny: bool,
    /// Whether it is NaN, whatever the operand is, where another operand that it reads is [singular](FloatRange::regular): 0,
    /// infinite or NaN. The answer says nothing of the operand there.
    pub singular: bool,
}

impl InverseError {
    /// The units for operands of a type; `None` for types that no inverse is stated for.
    pub fn ulps(&self, dtype: DType) -> Option<f64> {
        match dtype {
            DType::F32 => Some(self.f32),
            DType::F64 => Some(self.f64),
            _ => None,
        }
    }
}

/// The numbers that a float may be, both ends included; -0 is below +0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FloatRange {
    /// The least.
    pub lo: f64,
    /// The greatest.
    pub hi: f64,
    /// Whether it may be NaN, beside these numbers.
    pub nan: bool,
}

impl FloatRange {
    /// Anything.
    pub const ALL: FloatRange = FloatRange { lo: f64::NEG_INFINITY, hi: f64::INFINITY, nan: true };

    /// One number.
    pub fn one(x: f64) -> FloatRange {
        match x.is_nan() {
            true => FloatRange::ALL,
            false => FloatRange { lo: x, hi: x, nan: false },
        }
    }

    /// The numbers without NaN: what is asked of an operand that may also be 0, infinite or NaN.
    pub fn regular(self) -> FloatRange {
        FloatRange { nan: false, ..self }
    }

    /// Whether all of its numbers are between these. NaN does not count.
    pub fn within(&self, lo: f64, hi: f64) -> bool {
        lo.total_cmp(&self.lo).is_le() && self.hi.total_cmp(&hi).is_le()
    }

    /// Whether the magnitudes of all of its numbers are between these, and all have one sign. NaN does not count.
    pub fn magnitudes_within(&self, lo: f64, hi: f64) -> bool {
        self.within(lo, hi) || self.within(-hi, -lo)
    }
}

/// An inverse of an op for one operand.
#[derive(Clone, Copy)]
pub struct Inverse {
    /// The operand.
    pub operand: usize,
    /// Whether it gives the partial derivative in the operand, which may be all that later phases ask for.
    pub partial: bool,
    /// The types of the operand that it is for; approximate ones are for `f32` and `f64` alone.
    pub types: DTypeSet,
    /// How near it is.
    pub accuracy: Accuracy,
    /// Whether it holds for operands in these ranges. Ranges of integers are everything.
    pub holds: fn(&[FloatRange]) -> bool,
    /// What `holds` asks, for people; empty where it asks nothing.
    pub asks: &'static str,
    /// How the operand is made.
    pub recovery: Recovery,
}
