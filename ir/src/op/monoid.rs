//! What a monoid is to everybody who folds with one: its neutral value, its operation, its types.

use super::def::Monoid;
use crate::dtype::DType;
use crate::literal::Literal;
use crate::scalar::{Recorder, ScalarProgram};
use smallvec::SmallVec;

impl Monoid {
    /// Every monoid.
    pub const ALL: [Monoid; 8] = [
        Monoid::Sum,
        Monoid::Prod,
        Monoid::Max,
        Monoid::Min,
        Monoid::And,
        Monoid::Or,
        Monoid::ArgMax,
        Monoid::ArgMin,
    ];

    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            Monoid::Sum => "sum",
            Monoid::Prod => "prod",
            Monoid::Max => "max",
            Monoid::Min => "min",
            Monoid::And => "and",
            Monoid::Or => "or",
            Monoid::ArgMax => "argmax",
            Monoid::ArgMin => "argmin",
        }
    }

    /// Whether the result is a place, not a value.
    pub fn is_arg(self) -> bool {
        matches!(self, Monoid::ArgMax | Monoid::ArgMin)
    }

    /// The type of the result of folding elements of a type; `None` where it does not fold them.
    /// 16-bit floats are not folded: they accumulate as `f32`.
    pub fn result(self, dtype: DType) -> Option<DType> {
        let number = dtype.is_float() || dtype.is_int();
        let fits = dtype.compute() == dtype
            && match self {
                Monoid::Sum | Monoid::Prod | Monoid::ArgMax | Monoid::ArgMin => number,
                Monoid::Max | Monoid::Min => number || dtype == DType::Bool,
                Monoid::And | Monoid::Or => dtype.is_int() || dtype == DType::Bool,
            };
        fits.then_some(if self.is_arg() { DType::I32 } else { dtype })
    }

    /// The result of folding no elements of a type.
    pub fn empty(self, dtype: DType) -> Literal {
        let extreme = |top: bool| match dtype {
            d if d.is_float() => {
                Literal::from_f64(d, if top { f64::INFINITY } else { f64::NEG_INFINITY })
            }
            DType::Bool => Literal::from_i64(dtype, top.into()),
            // Saturation gives the type's own bounds.
            d => Literal::from_f64(d, if top { f64::MAX } else { f64::MIN }),
        };
        match self {
            Monoid::Sum | Monoid::Or => Literal::zero(dtype),
            Monoid::Prod => Literal::one(dtype),
            Monoid::Max => extreme(false),
            Monoid::Min => extreme(true),
            Monoid::And => Literal::from_bits(dtype, u64::MAX),
            Monoid::ArgMax | Monoid::ArgMin => Literal::zero(DType::I32),
        }
    }

    /// The operation on two elements of a type, as a program of them; for the two that give places,
    /// the operation on the values at those.
    pub fn combine(self, dtype: DType) -> ScalarProgram {
        Recorder::record(&[dtype, dtype], &[dtype], |_, x| {
            let y = match self {
                Monoid::Sum => x[0] + x[1],
                Monoid::Prod => x[0] * x[1],
                Monoid::Max | Monoid::ArgMax => x[0].max(x[1]),
                Monoid::Min | Monoid::ArgMin => x[0].min(x[1]),
                Monoid::And => x[0] & x[1],
                Monoid::Or => x[0] | x[1],
            };
            SmallVec::from_iter([y])
        })
    }
}
