//! Element types of StableHLO, and how each is stored: a type that the IR lacks is promoted to one that holds its
//! values, and what may leave its range is brought back.

use adfuse_ir::{DType, Literal};
use std::fmt;

/// An element type of StableHLO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ElementType {
    /// `f64 f32 bf16 f16`.
    Float(DType),
    /// `i1`.
    Bool,
    /// Integers of 2, 4, 8, 16, 32 and 64 bits.
    Int {
        /// Width.
        bits: u32,
        /// Two's complement, or from 0.
        signed: bool,
    },
}

/// The element type of both parts of complex numbers, by name: `f32` or `f64`.
pub(crate) fn complex_part(name: &str) -> Option<&str> {
    let part = name.strip_prefix("complex<")?.strip_suffix('>')?.trim();
    matches!(part, "f32" | "f64").then_some(part)
}

impl ElementType {
    /// `i32`, the type of places and of counts.
    pub(crate) const I32: ElementType = ElementType::Int { bits: 32, signed: true };

    /// The element type of this name, if it can be imported.
    pub(crate) fn named(name: &str) -> Option<ElementType> {
        let int = |bits: &str, signed| {
            let bits = bits.parse().ok().filter(|b| matches!(b, 2 | 4 | 8 | 16 | 32 | 64))?;
            Some(ElementType::Int { bits, signed })
        };
        match name {
            "f64" => Some(ElementType::Float(DType::F64)),
            "f32" => Some(ElementType::Float(DType::F32)),
            "bf16" => Some(ElementType::Float(DType::BF16)),
            "f16" => Some(ElementType::Float(DType::F16)),
            "i1" | "ui1" => Some(ElementType::Bool),
            _ => match name.strip_prefix("ui") {
                Some(bits) => int(bits, false),
                None => int(name.strip_prefix("si").or(name.strip_prefix('i'))?, true),
            },
        }
    }

    /// The type in which its values are kept and computed.
    pub(crate) fn storage(self) -> DType {
        match self {
            ElementType::Float(dtype) => dtype,
            ElementType::Bool => DType::Bool,
            ElementType::Int { bits: 64, .. } => DType::I64,
            ElementType::Int { bits: 16 | 32, signed: true } => DType::I32,
            ElementType::Int { bits: 16 | 32, signed: false } => DType::U32,
            ElementType::Int { signed: true, .. } => DType::I8,
            ElementType::Int { signed: false, .. } => DType::U8,
        }
    }

    /// Whether it is unsigned with 64 bits, which are kept in `i64`.
    pub(crate) fn is_u64(self) -> bool {
        self == ElementType::Int { bits: 64, signed: false }
    }

    /// Whether it is narrower than what it is kept in.
    pub(crate) fn is_promoted(self) -> bool {
        self != ElementType::Bool && self.bits() < self.storage().bits()
    }

    /// Width.
    pub(crate) fn bits(self) -> u32 {
        match self {
            ElementType::Float(dtype) => dtype.bits(),
            ElementType::Bool => 1,
            ElementType::Int { bits, .. } => bits,
        }
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, ElementType::Int { signed: true, .. })
    }

    pub(crate) fn is_int(self) -> bool {
        matches!(self, ElementType::Int { .. })
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, ElementType::Float(_))
    }

    /// The value of these bits, of its width, in the low ones.
    pub(crate) fn of_bits(self, raw: u64) -> Literal {
        let bits = self.bits();
        let raw = if bits < 64 { raw & ((1 << bits) - 1) } else { raw };
        let negative = self.is_signed() && bits < 64 && raw >> (bits - 1) == 1;
        let extended = if negative { raw | (u64::MAX << bits) } else { raw };
        Literal::from_bits(self.storage(), extended)
    }

    /// The least value: negative infinity of floats.
    pub(crate) fn least(self) -> Literal {
        match self {
            ElementType::Float(dtype) => Literal::from_f64(dtype, f64::NEG_INFINITY),
            ElementType::Int { bits, signed: true } => self.of_bits(1 << (bits - 1)),
            _ => self.of_bits(0),
        }
    }

    /// The greatest value: infinity of floats.
    pub(crate) fn greatest(self) -> Literal {
        match self {
            ElementType::Float(dtype) => Literal::from_f64(dtype, f64::INFINITY),
            ElementType::Int { bits, signed: true } => self.of_bits((1 << (bits - 1)) - 1),
            _ => self.of_bits(u64::MAX),
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementType::Float(dtype) => write!(f, "{dtype}"),
            ElementType::Bool => f.write_str("i1"),
            ElementType::Int { bits, signed: true } => write!(f, "i{bits}"),
            ElementType::Int { bits, signed: false } => write!(f, "ui{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_extended_by_the_sign_of_the_type() {
        let of = |name: &str, raw| ElementType::named(name).expect("a type").of_bits(raw).to_i64();
        assert_eq!(of("i16", 0x8000), -32768);
        assert_eq!(of("ui16", 0x8000), 32768);
        assert_eq!(of("i4", 0xf), -1);
        assert_eq!(of("ui64", u64::MAX), -1);
        assert_eq!(of("i1", 3), 1);
    }
}
