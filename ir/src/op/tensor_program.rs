//! Scalar programs written as instructions on tensors.

use super::opcode::Op;
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::literal::Literal;
use crate::scalar::{Prim, SOp, ScalarProgram};
use crate::types::TensorType;

/// Writes a scalar program as instructions on tensors of a shape. `params` are the tensors that its parameters stand for;
/// only those that the program reads need to be given. 16-bit floats count as `f32` in the program, and the tensors keep
/// the element type of `ty`. `None` where the program reads a parameter that is not given.
///
/// # Panics
/// If the program uses a primitive that is no op, which is a mistake in a row of the op table.
pub fn tensor_program(
    b: &mut Builder,
    program: &ScalarProgram,
    params: &[Option<Value>],
    ty: &TensorType,
) -> Option<Value> {
    let live = program.live();
    let mut values: Vec<Option<Value>> = Vec::with_capacity(program.insts.len());
    for (v, inst) in program.insts.iter() {
        if !live[v.as_u32() as usize] {
            values.push(None);
            continue;
        }
        let arg = |k: usize| values[inst.args[k].as_u32() as usize];
        values.push(match inst.op {
            SOp::Param(k) => params[k as usize],
            SOp::Const(c) => Some(tensor_literal(b, c, ty)),
            SOp::Prim(Prim::Convert) => arg(0).map(|x| {
                let to = ty.with_dtype(tensor_dtype(inst.dtype, ty));
                b.op_as(Op::ConvertElementType, &[x], Attrs::none(), &to)
            }),
            op => {
                let (op, order, attrs) = Op::of_scalar(op)
                    .unwrap_or_else(|| panic!("a row's program uses {op:?}, which is not an op"));
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
    values[program.outputs[0].as_u32() as usize]
}

/// A scalar program's constant as a tensor of a shape.
pub fn tensor_literal(b: &mut Builder, c: Literal, ty: &TensorType) -> Value {
    let dtype = tensor_dtype(c.dtype(), ty);
    b.literal(&ty.with_dtype(dtype), c.convert(dtype))
}

/// A scalar program computes 16-bit floats in `f32`; the tensor keeps its own type.
fn tensor_dtype(scalar: DType, ty: &TensorType) -> DType {
    if scalar == ty.dtype.compute() { ty.dtype } else { scalar }
}
