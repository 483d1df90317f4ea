//! Elements as Rust types, and the operations of monoids on them.

use adfuse_ir::DType;
use adfuse_ir::op::Monoid;

/// An element that folds. Truth values are bytes of 0 and 1.
pub(super) trait FoldElement: Copy + PartialOrd + Default + Send + Sync + 'static {
    /// From the low bits of a literal.
    fn from_bits(bits: u64) -> Self;

    /// Whether it is NaN.
    fn nan(self) -> bool;
}

macro_rules! elements {
    ($($t:ty: |$b:ident| $from:expr, |$x:ident| $nan:expr;)*) => {
        $(impl FoldElement for $t {
            fn from_bits($b: u64) -> $t { $from }
            #[inline(always)]
            fn nan(self) -> bool { let $x = self; $nan }
        })*
    };
}

elements! {
    f64: |b| f64::from_bits(b), |x| x.is_nan();
    f32: |b| f32::from_bits(b as u32), |x| x.is_nan();
    i64: |b| b as i64, |_x| false;
    i32: |b| b as i32, |_x| false;
    u32: |b| b as u32, |_x| false;
    i8: |b| b as i8, |_x| false;
    u8: |b| b as u8, |_x| false;
}

/// What is done with an operation, whatever the type of its elements is.
pub(super) trait Folding {
    /// With this operation. Of the two that give places, the operation is not to be used.
    fn with<T: FoldElement>(self, combine: impl Fn(T, T) -> T + Copy);
}

macro_rules! floats {
    ($monoid:expr, $folding:expr, $t:ty) => {
        match $monoid {
            Monoid::Sum => $folding.with(|a: $t, b: $t| a + b),
            Monoid::Prod => $folding.with(|a: $t, b: $t| a * b),
            // Without branches, so that lanes become vectors: `|` and `&` see each comparison.
            Monoid::Max | Monoid::ArgMax => $folding.with(|a: $t, b: $t| {
                let first = (a > b) | a.is_nan() | ((a == b) & a.is_sign_positive());
                if first { a } else { b }
            }),
            _ => $folding.with(|a: $t, b: $t| {
                let first = (a < b) | a.is_nan() | ((a == b) & a.is_sign_negative());
                if first { a } else { b }
            }),
        }
    };
}

macro_rules! ints {
    ($monoid:expr, $folding:expr, $t:ty) => {
        match $monoid {
            Monoid::Sum => $folding.with(|a: $t, b: $t| a.wrapping_add(b)),
            Monoid::Prod => $folding.with(|a: $t, b: $t| a.wrapping_mul(b)),
            Monoid::Max | Monoid::ArgMax => $folding.with(|a: $t, b: $t| a.max(b)),
            Monoid::Min | Monoid::ArgMin => $folding.with(|a: $t, b: $t| a.min(b)),
            Monoid::And => $folding.with(|a: $t, b: $t| a & b),
            Monoid::Or => $folding.with(|a: $t, b: $t| a | b),
        }
    };
}

/// Calls `folding` with a monoid's operation on a type.
pub(super) fn fold_with(monoid: Monoid, dtype: DType, folding: impl Folding) {
    match dtype {
        DType::F64 => floats!(monoid, folding, f64),
        DType::F32 => floats!(monoid, folding, f32),
        DType::I64 => ints!(monoid, folding, i64),
        DType::I32 => ints!(monoid, folding, i32),
        DType::U32 => ints!(monoid, folding, u32),
        DType::I8 => ints!(monoid, folding, i8),
        _ => ints!(monoid, folding, u8),
    }
}
