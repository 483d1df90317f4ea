//! From a partial derivative, a scalar program in the op's row, to tensor instructions.

use adfuse_ir::op::Op;
use adfuse_ir::scalar::{Prim, SOp, ScalarProgram};
use adfuse_ir::{Attrs, Builder, DType, Literal, TensorType, Value};

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
            c => Factor::Times(literal(b, c, ty)),
        };
    }
    let live = program.live();
    let mut values: Vec<Option<Value>> = Vec::with_capacity(program.insts.len());
    for (v, inst) in program.insts.iter() {
        if !live[v.as_u32() as usize] {
            values.push(None);
            continue;
        }
        let arg = |k: usize| values[inst.args[k].as_u32() as usize];
        values.push(match inst.op {
            SOp::Param(0) => y,
            SOp::Param(k) => args[k as usize - 1],
            SOp::Const(c) => Some(literal(b, c, ty)),
            SOp::Prim(Prim::Convert) => arg(0).map(|x| {
                let to = ty.with_dtype(tensor_dtype(inst.dtype, ty));
                b.op_as(Op::ConvertElementType, &[x], Attrs::none(), &to)
            }),
            op => {
                let (op, order, attrs) = Op::of_scalar(op)
                    .unwrap_or_else(|| panic!("a partial uses {op:?}, which is not an op"));
                // The last of a row of derivatives has none of its own.
                if let Err(why) = attrs.clone().conform(op.def().attrs) {
                    b.refuse(format!("its derivative would be `{op}` where {why}"));
                }
                let args: Option<Vec<Value>> = order.iter().map(|&k| arg(k)).collect();
                // The type is written, so that literals may stand for all operands.
                let to = ty.with_dtype(tensor_dtype(inst.dtype, ty));
                args.map(|args| b.op_as(op, &args, attrs, &to))
            }
        });
    }
    let value = values[program.outputs[0].as_u32() as usize]
        .expect("a partial reads only what its caller has");
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

/// The value in an element type, as it is where it has that.
pub(crate) fn converted(b: &mut Builder, v: Value, dtype: DType) -> Value {
    let ty = b.ty(v).with_dtype(dtype);
    if b.ty(v) == &ty { v } else { b.op_as(Op::ConvertElementType, &[v], Attrs::none(), &ty) }
}

/// A scalar program computes 16-bit floats in `f32`; the tensor keeps its own type.
fn tensor_dtype(scalar: DType, ty: &TensorType) -> DType {
    if scalar == ty.dtype.compute() { ty.dtype } else { scalar }
}

fn literal(b: &mut Builder, c: Literal, ty: &TensorType) -> Value {
    let dtype = tensor_dtype(c.dtype(), ty);
    b.literal(&ty.with_dtype(dtype), c.convert(dtype))
}
