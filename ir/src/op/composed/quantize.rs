//! Eight-bit quantization: affine, with a scale and a zero point for the whole or along one axis.

use crate::attrs::{Attr0, AttrKind, AttrSpec, Attrs, maybe};
use crate::builder::Builder;
use crate::dtype::{DType, DTypeSet};
use crate::entity::Value;
use crate::infer::{InferCx, InferError};
use crate::literal::Literal;
use crate::op::Op;
use crate::op::def::RuleCx;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

type Results = SmallVec<[Value; 1]>;

/// Schema of `quantize` and `dequantize`: one axis or none that scales and zero points lie along.
pub(in crate::op) const PER_AXIS: &[AttrSpec] = &[maybe("axis", AttrKind::Ints, Attr0::NoInts)];

/// The type of scales (of `dtype`) for a value of this shape.
fn scales(cx: &InferCx<'_>, x: &TensorType, dtype: DType) -> Result<TensorType, InferError> {
    match *cx.axes("axis", x.rank())? {
        [] => Ok(TensorType::scalar(dtype)),
        [axis] => Ok(TensorType::new(dtype, [x.shape[axis]])),
        _ => Err(InferError::attr("`axis` names at most one axis")),
    }
}

pub(in crate::op) fn check_quantize(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let x = cx.require(0, DTypeSet::Float)?.clone();
    cx.demand(1, &scales(cx, &x, x.dtype)?)?;
    cx.demand(2, &scales(cx, &x, DType::I8)?)
}

pub(in crate::op) fn check_dequantize(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let x = cx.arg(0)?.clone();
    if x.dtype != DType::I8 {
        return Err(InferError::dtype(format!("operand 0: expected i8, found {x}")));
    }
    let float = cx.require(1, DTypeSet::Float)?.dtype;
    cx.demand(1, &scales(cx, &x, float)?)?;
    cx.demand(2, &scales(cx, &x, DType::I8)?)
}

/// A scale or zero point for every element.
fn over(b: &mut Builder, v: Value, cx: &RuleCx<'_>) -> Value {
    let ty = cx.types[0].with_dtype(b.ty(v).dtype);
    let attrs = Attrs::none().with_ints("dims", cx.attrs.ints("axis").iter().copied());
    b.op_as(Op::BroadcastInDim, &[v], attrs, &ty)
}

/// `clamp(round_half_even(x / scale) + zero)`; NaN gives the zero point.
pub(in crate::op) fn quantize(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let ty = cx.types[0].with_dtype(cx.types[0].dtype.compute());
    let convert = |b: &mut Builder, v: Value, to: &TensorType| {
        if b.ty(v) == to { v } else { b.op_as(Op::ConvertElementType, &[v], Attrs::none(), to) }
    };
    let scale = over(b, cx.args[1], cx);
    let zero = over(b, cx.args[2], cx);
    let (x, scale) = (convert(b, cx.args[0], &ty), convert(b, scale, &ty));
    let zero = convert(b, zero, &ty);
    let steps = b.op(Op::Div, &[x, scale]);
    let whole = b.op(Op::RoundNearestEven, &[steps]);
    let placed = b.op(Op::Add, &[whole, zero]);
    // What is no number stands for zero.
    let number = b.op(Op::Eq, &[placed, placed]);
    let placed = b.op(Op::SelectN, &[number, zero, placed]);
    let bound = |b: &mut Builder, v: f64| b.literal(&ty, Literal::from_f64(ty.dtype, v));
    let (least, most) = (bound(b, -128.0), bound(b, 127.0));
    let held = b.op(Op::Clamp, &[least, placed, most]);
    smallvec![b.op_as(Op::ConvertElementType, &[held], Attrs::none(), &ty.with_dtype(DType::I8))]
}

/// `(q - zero) * scale`, rounded once.
pub(in crate::op) fn dequantize(b: &mut Builder, cx: &RuleCx<'_>) -> Results {
    let to = cx.types[0].with_dtype(cx.types[1].dtype);
    let whole = cx.types[0].with_dtype(DType::I32);
    let zero = over(b, cx.args[2], cx);
    let convert =
        |b: &mut Builder, v: Value, to| b.op_as(Op::ConvertElementType, &[v], Attrs::none(), to);
    let (q, zero) = (convert(b, cx.args[0], &whole), convert(b, zero, &whole));
    let steps = b.op(Op::Sub, &[q, zero]);
    let steps = convert(b, steps, &to);
    let scale = over(b, cx.args[1], cx);
    smallvec![b.op(Op::Mul, &[steps, scale])]
}
