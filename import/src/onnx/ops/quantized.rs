//! Quantized numbers: integers with a scale and a zero point.

use super::elementwise::named_type;
use super::linear::centered;
use super::window::{convolved, with_bias};
use super::{
    Cx, ElementType, F32, I32, I64, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val,
    axis_of, refuse,
};
use adfuse_ir::{DType, Dim, Op, Shape};
use smallvec::smallvec;

const U8: ElementType = ElementType::Int { bits: 8, signed: false };

/// A scale or a zero point in the shape of a value: one number, one for each place of an axis, or one a block.
fn spread(cx: Cx<'_, '_>, v: Val, like: &Shape, axis: usize, block: i64) -> LoweredValue {
    let shape = cx.shape(v);
    if shape.is_empty() || shape[..] == [Dim::Const(1)] && like.len() != 1 {
        let v = cx.reshape(v, &[])?;
        return cx.expand(v, like);
    }
    if shape.len() == 1 && block == 0 {
        return cx.broadcast_in(v, like, &[axis as i64]);
    }
    let (Ok(block), Some(&Dim::Const(count)), Some(&Dim::Const(extent))) =
        (u64::try_from(block), shape.get(axis), like.get(axis))
    else {
        return refuse("blocks of an axis of no known extent");
    };
    if block == 0
        || shape.len() != like.len()
        || count.checked_mul(block).is_none_or(|n| n < extent)
    {
        return refuse(format!("{count} blocks of {block} for {extent} elements"));
    }
    let mut wide = shape.clone();
    wide.insert(axis + 1, Dim::Const(block));
    let dims: Vec<i64> = (0..wide.len() as i64).filter(|&d| d != axis as i64 + 1).collect();
    let v = cx.broadcast_in(v, &wide, &dims)?;
    let mut joined = shape.clone();
    joined[axis] = Dim::Const(count * block);
    let v = cx.reshape(v, &joined)?;
    cx.slice(v, axis, 0, extent)
}

/// The axis that scales lie along.
fn axis(cx: Cx<'_, '_>, n: &OnnxOperation<'_>, x: Val, scale: Val) -> Result<usize, Unlowered> {
    let given = n.int("axis", 1);
    match cx.rank(scale) {
        0 => Ok(0),
        _ if cx.shape(scale)[..] == [Dim::Const(1)] => Ok(0),
        _ => axis_of(given, cx.rank(x)),
    }
}

/// Numbers rounded, moved by the zero point, and kept in the range of a type.
fn saturated(cx: Cx<'_, '_>, x: Val, zero: Option<Val>, to: ElementType) -> LoweredValue {
    if !to.is_int() || to.bits() > 32 {
        return refuse(format!("numbers quantized to {to}"));
    }
    let wide = cx.convert(x, if to.bits() > 16 { ElementType::Float(DType::F64) } else { F32 })?;
    let mut y = cx.unary(Op::RoundNearestEven, wide)?;
    if let Some(zero) = zero {
        let zero = cx.convert(zero, y.element)?;
        y = cx.add(y, zero)?;
    }
    y = cx.with(Op::Max, y, to.least().to_f64())?;
    y = cx.with(Op::Min, y, to.greatest().to_f64())?;
    let y = cx.convert(y, I64)?;
    cx.convert(y, to)
}

pub(crate) fn quantize<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    n.ignore(&["saturate", "precision"]);
    let (x, scale, zero) = (n.input(0)?, n.input(1)?, n.optional(2));
    let to = match zero {
        Some(zero) => zero.element,
        None => U8,
    };
    let to = named_type(n, "output_dtype", to)?;
    let (axis, block, shape) = (axis(cx, n, x, scale)?, n.int("block_size", 0), cx.shape(x));
    let scale = spread(cx, scale, &shape, axis, block)?;
    let x = cx.convert(x, scale.element)?;
    let ratio = cx.div(x, scale)?;
    let zero = zero.map(|z| spread(cx, z, &shape, axis, block)).transpose()?;
    Ok(smallvec![saturated(cx, ratio, zero, to)?])
}

pub(crate) fn dequantize<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, scale, zero) = (n.input(0)?, n.input(1)?, n.optional(2));
    let to = named_type(n, "output_dtype", scale.element)?;
    let (axis, block, shape) = (axis(cx, n, x, scale)?, n.int("block_size", 0), cx.shape(x));
    let scale = spread(cx, scale, &shape, axis, block)?;
    let mut y = cx.convert(x, I32)?;
    if let Some(zero) = zero {
        let zero = cx.convert(zero, I32)?;
        let zero = spread(cx, zero, &shape, axis, block)?;
        y = cx.sub(y, zero)?;
    }
    let y = cx.convert(y, scale.element)?;
    let y = cx.mul(y, scale)?;
    Ok(smallvec![cx.convert(y, to)?])
}

/// Numbers quantized by their own range, which has 0 in it.
pub(crate) fn dynamic<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axes: Vec<usize> = (0..cx.rank(x)).collect();
    let least = cx.reduce(Op::ReduceMin, x, &axes, false)?;
    let most = cx.reduce(Op::ReduceMax, x, &axes, false)?;
    let (least, most) = (cx.with(Op::Min, least, 0.0)?, cx.with(Op::Max, most, 0.0)?);
    let range = cx.sub(most, least)?;
    let scale = cx.with(Op::Div, range, 255.0)?;
    let first = cx.div(least, scale)?;
    let first = cx.unary(Op::Neg, first)?;
    let zero = saturated(cx, first, None, U8)?;
    let shape = cx.shape(x);
    let wide = cx.expand(scale, &shape)?;
    let ratio = cx.div(x, wide)?;
    let moved = cx.expand(zero, &shape)?;
    Ok(smallvec![saturated(cx, ratio, Some(moved), U8)?, scale, zero])
}

/// The product of two scales over a third, for places of an axis where they have several.
fn factor(cx: Cx<'_, '_>, scales: (Val, Val, Val), like: &Shape, axis: usize) -> LoweredValue {
    let (a, b, c) = scales;
    let a = cx.convert(a, F32)?;
    let b = cx.convert(b, F32)?;
    let c = cx.convert(c, F32)?;
    let a = spread(cx, a, like, axis.saturating_sub(1), 0)?;
    let b = spread(cx, b, like, axis, 0)?;
    let c = spread(cx, c, like, axis, 0)?;
    let product = cx.mul(a, b)?;
    cx.div(product, c)
}

/// Sums of products of integers, brought to the scale of the result.
fn requantized(
    cx: Cx<'_, '_>,
    sum: Val,
    scales: (Val, Val, Val),
    zero: Val,
    axis: usize,
) -> LoweredValue {
    let shape = cx.shape(sum);
    let factor = factor(cx, scales, &shape, axis)?;
    let wide = cx.convert(sum, F32)?;
    let scaled = cx.mul(wide, factor)?;
    let to = zero.element;
    let zero = spread(cx, zero, &shape, axis, 0)?;
    saturated(cx, scaled, Some(zero), to)
}

pub(crate) fn matmul<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (a, b) = (n.input(0)?, n.input(3)?);
    let (rows, columns) = (cx.rank(a).checked_sub(2), cx.rank(b).checked_sub(1));
    let x = centered(cx, a, n.optional(2), rows)?;
    let y = centered(cx, b, n.optional(5), columns)?;
    let sum = cx.matmul(x, y)?;
    let last = cx.rank(sum).saturating_sub(1);
    let scales = (n.input(1)?, n.input(4)?, n.input(6)?);
    Ok(smallvec![requantized(cx, sum, scales, n.input(7)?, last)?])
}

pub(crate) fn conv<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = centered(cx, n.input(0)?, n.optional(2), None)?;
    let w = centered(cx, n.input(3)?, n.optional(5), Some(0))?;
    let sum = convolved(cx, n, x, w, None)?;
    let sum = with_bias(cx, sum, n.optional(8))?;
    let scales = (n.input(1)?, n.input(4)?, n.input(6)?);
    Ok(smallvec![requantized(cx, sum, scales, n.input(7)?, 1)?])
}
