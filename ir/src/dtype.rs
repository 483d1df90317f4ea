//! Element types and the sets of element types that op signatures speak of.

use std::fmt;
use std::str::FromStr;

/// The type of one element of a tensor, or the type of an effect token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// bfloat16: the upper half of a binary32. Arithmetic runs in `f32` and rounds once.
    BF16,
    /// IEEE 754 binary16. Arithmetic runs in `f32` and rounds once.
    F16,
    /// Two's complement, 64 bits, wrapping.
    I64,
    /// Two's complement, 32 bits, wrapping.
    I32,
    /// Unsigned, 32 bits, wrapping.
    U32,
    /// Two's complement, 8 bits, wrapping.
    I8,
    /// Unsigned, 8 bits, wrapping.
    U8,
    /// Truth value; stored as one byte, 0 or 1, unless a plan packs it.
    Bool,
    /// Orders effects. Has no elements and no storage.
    Token,
}

impl DType {
    /// Every element type, floats first, `Token` last.
    pub const ALL: [DType; 11] = [
        DType::F64,
        DType::F32,
        DType::BF16,
        DType::F16,
        DType::I64,
        DType::I32,
        DType::U32,
        DType::I8,
        DType::U8,
        DType::Bool,
        DType::Token,
    ];

    /// The name in `.ir` text.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::Bool => "bool",
            DType::Token => "token",
        }
    }

    /// Bytes one stored element takes.
    pub fn bytes(self) -> u64 {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::BF16 | DType::F16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::Token => 0,
        }
    }

    /// Bits of the value itself: as `bytes`, but 1 for `bool`.
    pub fn bits(self) -> u32 {
        match self {
            DType::Bool => 1,
            other => other.bytes() as u32 * 8,
        }
    }

    /// One of the four floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::BF16 | DType::F16)
    }

    /// One of the five integer types; `bool` is not one.
    pub fn is_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::U32 | DType::I8 | DType::U8)
    }

    /// A signed integer type.
    pub fn is_signed_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::I8)
    }

    /// The type scalar arithmetic on this type runs in: `f32` for `bf16` and `f16`, itself otherwise.
    pub fn compute(self) -> DType {
        match self {
            DType::BF16 | DType::F16 => DType::F32,
            other => other,
        }
    }

    /// Whether it is a float of 16 bits, whose arithmetic runs in a wider type.
    pub fn is_narrow_float(self) -> bool {
        self.compute() != self
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();

    fn from_str(s: &str) -> Result<DType, ()> {
        DType::ALL.into_iter().find(|d| d.name() == s).ok_or(())
    }
}

/// A set of element types, as an op's signature names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DTypeSet {
    /// `f64 f32 bf16 f16`.
    Float,
    /// `i64 i32 u32 i8 u8`.
    Int,
    /// Floats and integers.
    Number,
    /// Integers and `bool`.
    IntBool,
    /// Everything but `token`.
    Any,
    /// `f64 f32` and integers: what scalar programs compute on as it is.
    Plain,
    /// Exactly one type.
    Only(DType),
}

impl DTypeSet {
    /// Whether `d` belongs to the set.
    pub fn contains(self, d: DType) -> bool {
        match self {
            DTypeSet::Float => d.is_float(),
            DTypeSet::Int => d.is_int(),
            DTypeSet::Number => d.is_float() || d.is_int(),
            DTypeSet::IntBool => d.is_int() || d == DType::Bool,
            DTypeSet::Any => d != DType::Token,
            DTypeSet::Plain => matches!(d, DType::F64 | DType::F32) || d.is_int(),
            DTypeSet::Only(o) => d == o,
        }
    }
}

impl fmt::Display for DTypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DTypeSet::Float => "a float type",
            DTypeSet::Int => "an integer type",
            DTypeSet::Number => "a number type",
            DTypeSet::IntBool => "an integer type or bool",
            DTypeSet::Any => "any element type",
            DTypeSet::Plain => "f64, f32 or an integer type",
            DTypeSet::Only(d) => d.name(),
        })
    }
}
