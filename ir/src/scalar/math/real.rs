//! Numbers of one word or two, so that a formula is written once: in single `f64` arithmetic where
//! the result is an `f32`, in unevaluated sums of two where it is an `f64`.

use super::double::{Double, fast_two_sum, two_product, two_sum};
use super::log::LogParts;
use super::pow::log_double;
use crate::scalar::record::S;
use std::ops::{Add, Mul, Neg};

/// An `f64` number, or a sum of two.
pub(super) trait Real<'r>:
    Copy + Add<Output = Self> + Mul<Output = Self> + Neg<Output = Self>
{
    /// A single word.
    fn of(x: S<'r>) -> Self;

    /// The constant `hi + lo`.
    fn constant(like: S<'r>, hi: f64, lo: f64) -> Self;

    /// `a + b`, which need no order.
    fn sum(a: S<'r>, b: S<'r>) -> Self;

    /// The quotient.
    fn over(self, divisor: Self) -> Self;

    /// The natural logarithm of a positive number.
    fn log(self) -> Self;

    /// `choice ? a : b`
    fn select(choice: S<'r>, a: Self, b: Self) -> Self;

    /// The leading word.
    fn head(self) -> S<'r>;

    /// What the leading word leaves out.
    fn tail(self) -> Option<S<'r>>;

    /// The number in one word.
    fn value(self) -> S<'r> {
        self.tail().map_or(self.head(), |tail| self.head() + tail)
    }

    /// The power of a whole exponent of at least 1, by repeated squaring.
    fn power(self, exponent: u32) -> Self {
        let (mut result, mut square, mut rest) = (None, self, exponent);
        loop {
            if rest & 1 == 1 {
                result = Some(result.map_or(square, |r| r * square));
            }
            rest >>= 1;
            match result {
                Some(result) if rest == 0 => return result,
                _ => square = square * square,
            }
        }
    }
}

impl<'r> Real<'r> for S<'r> {
    fn of(x: S<'r>) -> S<'r> {
        x
    }

    fn constant(like: S<'r>, hi: f64, _: f64) -> S<'r> {
        like.lit(hi)
    }

    fn sum(a: S<'r>, b: S<'r>) -> S<'r> {
        a + b
    }

    fn over(self, divisor: S<'r>) -> S<'r> {
        self / divisor
    }

    fn log(self) -> S<'r> {
        LogParts::of_any(self).log()
    }

    fn select(choice: S<'r>, a: S<'r>, b: S<'r>) -> S<'r> {
        choice.select(a, b)
    }

    fn head(self) -> S<'r> {
        self
    }

    fn tail(self) -> Option<S<'r>> {
        None
    }
}

impl<'r> Real<'r> for Double<'r> {
    fn of(x: S<'r>) -> Double<'r> {
        Double { hi: x, lo: x.lit(0.0) }
    }

    fn constant(like: S<'r>, hi: f64, lo: f64) -> Double<'r> {
        Double { hi: like.lit(hi), lo: like.lit(lo) }
    }

    fn sum(a: S<'r>, b: S<'r>) -> Double<'r> {
        two_sum(a, b)
    }

    fn over(self, divisor: Double<'r>) -> Double<'r> {
        let inverse = 1.0 / divisor.hi;
        let q = self.hi * inverse;
        let residual = q.fma(-divisor.lo, q.fma(-divisor.hi, self.hi) + self.lo);
        fast_two_sum(q, residual * inverse)
    }

    fn log(self) -> Double<'r> {
        let log = log_double(LogParts::of_any(self.hi));
        two_sum(log.hi, log.lo + self.lo / self.hi)
    }

    fn select(choice: S<'r>, a: Double<'r>, b: Double<'r>) -> Double<'r> {
        Double { hi: choice.select(a.hi, b.hi), lo: choice.select(a.lo, b.lo) }
    }

    fn head(self) -> S<'r> {
        self.hi
    }

    fn tail(self) -> Option<S<'r>> {
        Some(self.lo)
    }
}

impl<'r> Add for Double<'r> {
    type Output = Double<'r>;
    fn add(self, other: Double<'r>) -> Double<'r> {
        let s = two_sum(self.hi, other.hi);
        fast_two_sum(s.hi, s.lo + (self.lo + other.lo))
    }
}

impl<'r> Mul for Double<'r> {
    type Output = Double<'r>;
    fn mul(self, other: Double<'r>) -> Double<'r> {
        let p = two_product(self.hi, other.hi);
        fast_two_sum(p.hi, self.hi.fma(other.lo, self.lo.fma(other.hi, p.lo)))
    }
}

impl<'r> Neg for Double<'r> {
    type Output = Double<'r>;
    fn neg(self) -> Double<'r> {
        Double { hi: -self.hi, lo: -self.lo }
    }
}
