//! From a partial derivative, a scalar program in the op's row, to tensor instructions.

use adfuse_ir::op::{Op, tensor_literal, tensor_program};
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{Builder, DType, Literal, TensorType, Value};

/// What a partial derivative does to a tangent or a cotangent.
pub(crate) enum Factor {
    /// Stops it.
    Zero,
    /// Lets it pass.
    One,
    /// Flips its sign.
    MinusOne,
    /// Passes it where a `bool` tensor is true.
    Gate(Value),
    /// Multiplies it.
    Times(Value),
}

/// Writes the partial's program as instructions on tensors; `y` is the answer, `args` the operands.
/// Only values the program reads need to be given.
pub(crate) fn factor(
    b: &mut Builder,
    program: &ScalarProgram,
    y: Option<Value>,
    args: &[Option<Value>],
    ty: &TensorType,
) -> Factor {
    if let Some(c) = program.as_const() {
        return match c {
            c if c.is_zero() => Factor::Zero,
            c if c.is_one() => Factor::One,
            c if c == Literal::from_f64(c.dtype(), -1.0) => Factor::MinusOne,
            c => Factor::Times(tensor_literal(b, c, ty)),
        };
    }
    let params: Vec<Option<Value>> = std::iter::once(y).chain(args.iter().copied()).collect();
    let value =
        tensor_program(b, program, &params, ty).expect("a partial reads only what its caller has");
    match b.ty(value).dtype {
        DType::Bool => Factor::Gate(value),
        _ => Factor::Times(value),
    }
}

/// Applies a factor to a tangent or cotangent; `None` is zero.
pub(crate) fn apply(b: &mut Builder, factor: &Factor, t: Value) -> Option<Value> {
    match *factor {
        Factor::Zero => None,
        Factor::One => Some(t),
        Factor::MinusOne => Some(b.op(Op::Neg, &[t])),
        Factor::Gate(mask) => {
            let ty = b.ty(t).clone();
            let zero = b.literal(&ty, Literal::zero(ty.dtype));
            Some(b.op(Op::SelectN, &[mask, zero, t]))
        }
        Factor::Times(x) => Some(b.op(Op::Mul, &[t, x])),
    }
}

/// A sum of two contributions, either of which may be zero.
pub(crate) fn accumulate(b: &mut Builder, a: Option<Value>, c: Option<Value>) -> Option<Value> {
    match (a, c) {
        (Some(a), Some(c)) => Some(b.op(Op::Add, &[a, c])),
        (a, c) => a.or(c),
    }
}
