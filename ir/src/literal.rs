//! One element's value as bits with its type, and exact conversion between element types.

use crate::dtype::DType;
use half::{bf16, f16};
use std::fmt;

/// A scalar constant: the bits of one element, in the low bits of a `u64`, and their type.
///
/// NaN payloads are not kept: every NaN is the type's canonical quiet NaN, so equality of bits is
/// equality of values (with `-0.0` and `0.0` told apart).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Literal {
    dtype: DType,
    bits: u64,
}

impl Literal {
    /// The value with the given bits; bits above the type's width are dropped, NaNs canonicalised.
    pub fn from_bits(dtype: DType, bits: u64) -> Literal {
        Literal { dtype, bits: canonical(dtype, bits) }
    }

    /// The value of type `dtype` nearest to `x` (ties to even; integers truncate and saturate).
    pub fn from_f64(dtype: DType, x: f64) -> Literal {
        let bits = match dtype {
            DType::F64 => x.to_bits(),
            DType::F32 => (x as f32).to_bits().into(),
            DType::BF16 => bf16_from_f64(x).to_bits().into(),
            DType::F16 => f16_from_f64(x).to_bits().into(),
            DType::I64 => (x as i64) as u64,
            DType::I32 => (x as i32) as u32 as u64,
            DType::U32 => (x as u32).into(),
            DType::I8 => (x as i8) as u8 as u64,
            DType::U8 => (x as u8).into(),
            DType::Bool => (x != 0.0).into(),
            DType::Token => 0,
        };
        Literal::from_bits(dtype, bits)
    }

    /// The value of type `dtype` for the integer `x`: floats round to nearest even, integers wrap.
    pub fn from_i64(dtype: DType, x: i64) -> Literal {
        let bits = match dtype {
            DType::F64 => (x as f64).to_bits(),
            DType::F32 => (x as f32).to_bits().into(),
            DType::BF16 | DType::F16 => return Literal::from_f64(dtype, x as f64),
            DType::Bool => (x != 0).into(),
            _ => x as u64,
        };
        Literal::from_bits(dtype, bits)
    }

    /// +0, 0 or false.
    pub fn zero(dtype: DType) -> Literal {
        Literal { dtype, bits: 0 }
    }

    /// 1 or true.
    pub fn one(dtype: DType) -> Literal {
        Literal::from_i64(dtype, 1)
    }

    /// The element type.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The bits, zero-extended.
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// The value as `f64`: exact for every type but `i64` (which rounds).
    pub fn to_f64(self) -> f64 {
        match self.dtype {
            DType::F64 => f64::from_bits(self.bits),
            DType::F32 => f32::from_bits(self.bits as u32).into(),
            DType::BF16 => bf16::from_bits(self.bits as u16).to_f64(),
            DType::F16 => f16::from_bits(self.bits as u16).to_f64(),
            _ => self.to_i64() as f64,
        }
    }

    /// The value as an integer; floats truncate and saturate.
    pub fn to_i64(self) -> i64 {
        match self.dtype {
            DType::I64 => self.bits as i64,
            DType::I32 => (self.bits as u32 as i32).into(),
            DType::I8 => (self.bits as u8 as i8).into(),
            DType::U32 | DType::U8 | DType::Bool | DType::Token => self.bits as i64,
            _ => self.to_f64() as i64,
        }
    }

    /// Whether this is +0, -0, 0 or false.
    pub fn is_zero(self) -> bool {
        if self.dtype.is_float() { self.to_f64() == 0.0 } else { self.bits == 0 }
    }

    /// Whether this is exactly +0 (or 0, or false): the additive identity of sums that start from +0.
    pub fn is_positive_zero(self) -> bool {
        self.bits == 0
    }

    /// Whether this is exactly 1 (or true).
    pub fn is_one(self) -> bool {
        self == Literal::one(self.dtype)
    }

    /// The same number in another type: rounds to nearest even, saturates to integers (NaN to 0),
    /// wraps between integers, and is `x != 0` to `bool`.
    pub fn convert(self, to: DType) -> Literal {
        if to == self.dtype {
            self
        } else if self.dtype.is_float() {
            // Through f64: exact for every source, so that one rounding remains.
            Literal::from_f64(to, self.to_f64())
        } else {
            Literal::from_i64(to, self.to_i64())
        }
    }
}

/// Rounds once from `f64` to `bf16`: the crate's own conversion goes through `f32` and rounds twice.
pub(crate) fn bf16_from_f64(x: f64) -> bf16 {
    bf16::from_f32(rounded_to_odd(x))
}

/// Rounds once from `f64` to `f16`, as [`bf16_from_f64`].
fn f16_from_f64(x: f64) -> f16 {
    f16::from_f32(rounded_to_odd(x))
}

/// The nearest `f32`, or its neighbour with an odd last bit where bits are lost: a second rounding, to fewer bits, sees whether
/// they were.
fn rounded_to_odd(x: f64) -> f32 {
    let f = x as f32;
    let back = f64::from(f);
    let bits = f.to_bits();
    if back == x || f.is_nan() || f.is_infinite() && x.is_infinite() || bits & 1 == 1 {
        return f;
    }
    let away = back.abs() > x.abs();
    f32::from_bits(if away { bits - 1 } else { bits + 1 })
}

fn canonical(dtype: DType, bits: u64) -> u64 {
    match dtype {
        DType::F64 if f64::from_bits(bits).is_nan() => 0x7ff8_0000_0000_0000,
        DType::F32 if f32::from_bits(bits as u32).is_nan() => 0x7fc0_0000,
        DType::BF16 if bf16::from_bits(bits as u16).is_nan() => 0x7fc0,
        DType::F16 if f16::from_bits(bits as u16).is_nan() => 0x7e00,
        DType::F64 | DType::I64 => bits,
        DType::F32 | DType::I32 | DType::U32 => bits & 0xffff_ffff,
        DType::BF16 | DType::F16 => bits & 0xffff,
        DType::I8 | DType::U8 => bits & 0xff,
        DType::Bool => bits & 1,
        DType::Token => 0,
    }
}

/// The text form: the shortest decimal that reads back to the same bits; floats always carry a
/// `.` or an exponent, specials are `inf`, `-inf` and `nan`.
impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            DType::Bool => write!(f, "{}", self.bits == 1),
            _ if self.dtype.is_float() && self.to_f64().is_nan() => f.write_str("nan"),
            DType::F64 => write!(f, "{:?}", f64::from_bits(self.bits)),
            DType::F32 => {
                let x = f32::from_bits(self.bits as u32);
                let short = format!("{x:?}");
                // Text is read as `f64` and then rounded, which for a few values (7.038531e-26 is
                // one) misses what the shortest decimal of an `f32` alone says.
                let read = short.parse().map(|s| Literal::from_f64(DType::F32, s));
                if read == Ok(*self) {
                    f.write_str(&short)
                } else {
                    write!(f, "{:?}", f64::from(x))
                }
            }
            DType::BF16 | DType::F16 => write!(f, "{:?}", shortest_half(*self)),
            _ => write!(f, "{}", self.to_i64()),
        }
    }
}

/// The shortest decimal (as an `f64`) that converts to this 16-bit float.
fn shortest_half(x: Literal) -> f64 {
    let exact = x.to_f64();
    if !exact.is_finite() {
        return exact;
    }
    (0..9)
        .filter_map(|digits| format!("{exact:.digits$e}").parse::<f64>().ok())
        .find(|&short| Literal::from_f64(x.dtype, short) == x)
        .unwrap_or(exact)
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}:{}", self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_floats_are_rounded_once() {
        let (tie, over) = (2f64.powi(-11), 2f64.powi(-40));
        // Halfway between two, and beyond that by less than an `f32` shows.
        for (x, bits) in [
            (1.0 + tie, 0x3c00),
            (1.0 + tie + over, 0x3c01),
            (-1.0 - tie - over, 0xbc01),
            (1.0 + 3.0 * tie, 0x3c02),
            (1.0 + 3.0 * tie - over, 0x3c01),
            (2f64.powi(-25), 0),
            (2f64.powi(-25) + 2f64.powi(-70), 1),
            (65520.0, 0x7c00),
            (65520.0 - 2f64.powi(-30), 0x7bff),
            (f64::MAX, 0x7c00),
            (1e-300, 0),
        ] {
            assert_eq!(Literal::from_f64(DType::F16, x).bits(), bits, "{x:e}");
        }
        let tie = 2f64.powi(-8);
        for (x, bits) in
            [(1.0 + tie, 0x3f80), (1.0 + tie + over, 0x3f81), (-1.0 - tie - over, 0xbf81)]
        {
            assert_eq!(Literal::from_f64(DType::BF16, x).bits(), bits, "{x:e}");
        }
    }
}
