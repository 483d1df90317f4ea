//! Operators of tensors and numbers, and what may stand beside a tensor.

use super::record::apply;
use super::{SharedTrace, Tensor, number};
use crate::ir::attrs::Attrs;
use crate::ir::{DType, Number, Op, TensorType, Value};
use std::iter;
use std::ops;

/// An operand of a tensor operator: another tensor, or a number of its type.
///
/// A number takes the tensor's element type: `x * 0.5` of integers is an error, `x * 2` of floats is not. Tensors
/// of two element types do not combine either: [`Tensor::convert`] makes them one.
pub trait TensorOperand {
    /// The operand as a tensor like `other`. A number must be one of `other`'s element type.
    #[track_caller]
    fn beside(self, other: &Tensor) -> Tensor;

    /// The tensor, unless it is a number.
    fn tensor(&self) -> Option<Tensor> {
        None
    }
}

impl TensorOperand for Tensor {
    #[track_caller]
    fn beside(self, _: &Tensor) -> Tensor {
        self
    }

    fn tensor(&self) -> Option<Tensor> {
        Some(self.clone())
    }
}

impl TensorOperand for &Tensor {
    #[track_caller]
    fn beside(self, _: &Tensor) -> Tensor {
        self.clone()
    }

    fn tensor(&self) -> Option<Tensor> {
        Some((*self).clone())
    }
}

macro_rules! numbers {
    ($($rust:ty => $number:expr;)*) => {
        $(impl TensorOperand for $rust {
            #[track_caller]
            fn beside(self, other: &Tensor) -> Tensor {
                number(other, $number(self))
            }
        })*
    };
}

numbers! {
    f64 => Number::Float;
    f32 => |x: f32| Number::Float(x.into());
    i64 => Number::Int;
    i32 => |x: i32| Number::Int(x.into());
    bool => Number::Bool;
}

macro_rules! operators {
    ($($trait:ident $method:ident $assign:ident $assigned:ident $op:expr, $($left:ty)*;)*) => {
        $(impl<O: TensorOperand> ops::$trait<O> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: O) -> Tensor {
                self.binary($op(self.ty.dtype), &other.beside(self))
            }
        }
        impl<O: TensorOperand> ops::$trait<O> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: O) -> Tensor {
                ops::$trait::$method(&self, other)
            }
        }
        impl<O: TensorOperand> ops::$assign<O> for Tensor {
            #[track_caller]
            fn $assigned(&mut self, other: O) {
                *self = ops::$trait::$method(&*self, other);
            }
        }
        // One type of floats and one of integers alone: with two, `2.0 * x` would leave its own type open, and
        // `(2.0 * x).exp()` would not compile.
        $(impl ops::$trait<&Tensor> for $left {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                ops::$trait::$method(&self.beside(other), other)
            }
        }
        impl ops::$trait<Tensor> for $left {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                ops::$trait::$method(self, &other)
            }
        })*)*
    };
}

operators! {
    Add add AddAssign add_assign |_| Op::Add, f64 i64;
    Sub sub SubAssign sub_assign |_| Op::Sub, f64 i64;
    Mul mul MulAssign mul_assign |_| Op::Mul, f64 i64;
    Div div DivAssign div_assign |_| Op::Div, f64 i64;
    Rem rem RemAssign rem_assign |_| Op::Rem, f64 i64;
    BitAnd bitand BitAndAssign bitand_assign |_| Op::And, i64;
    BitOr bitor BitOrAssign bitor_assign |_| Op::Or, i64;
    BitXor bitxor BitXorAssign bitxor_assign |_| Op::Xor, i64;
    Shl shl ShlAssign shl_assign |_| Op::ShiftLeft, i64;
    Shr shr ShrAssign shr_assign right_shift, i64;
}

/// As in Rust: with the sign where the type has one.
fn right_shift(dtype: DType) -> Op {
    if dtype.is_signed_int() { Op::ShiftRightArithmetic } else { Op::ShiftRightLogical }
}

macro_rules! prefixes {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(impl ops::$trait for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                apply(&self.state, Op::$op, &[self], Attrs::none(), None)
            }
        }
        impl ops::$trait for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                ops::$trait::$method(&self)
            }
        })*
    };
}

prefixes! { Neg neg Neg; Not not Not; }

/// The sum of tensors of one type. No tensors have a sum that belongs to no trace: its use is an error.
impl iter::Sum for Tensor {
    #[track_caller]
    fn sum<I: Iterator<Item = Tensor>>(mut tensors: I) -> Tensor {
        let mut sum = tensors.next().unwrap_or_else(of_no_trace);
        for x in tensors {
            sum += x;
        }
        sum
    }
}

impl<'t> iter::Sum<&'t Tensor> for Tensor {
    #[track_caller]
    fn sum<I: Iterator<Item = &'t Tensor>>(mut tensors: I) -> Tensor {
        let mut sum = tensors.next().cloned().unwrap_or_else(of_no_trace);
        for x in tensors {
            sum += x;
        }
        sum
    }
}

pub(super) fn of_no_trace() -> Tensor {
    let ty = TensorType::scalar(DType::F32);
    Tensor { state: SharedTrace::default(), value: Value::from_u32(0), ty }
}
