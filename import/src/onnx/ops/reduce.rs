//! Folds over axes, and places of extremes.

use super::ElementType;
use super::shape::axes;
use super::{Cx, I64, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, axis_of};
use crate::emit::integers::{ordered, wrap};
use adfuse_ir::{Attrs, DType, Dim, Op};
use smallvec::smallvec;

/// The axes of a fold: all where none are given, or none where a flag says so.
fn folded_axes(cx: Cx<'_, '_>, n: &OnnxOperation<'_>, x: Val) -> Result<Vec<usize>, Unlowered> {
    let rank = cx.rank(x);
    let none = n.flag("noop_with_empty_axes", false);
    match axes(cx, n, 1, rank)? {
        Some(axes) if !axes.is_empty() => Ok(axes),
        _ if none => Ok(Vec::new()),
        _ => Ok((0..rank).collect()),
    }
}

/// A fold of what a function makes of each element.
fn folded<'m>(
    cx: Cx<'_, 'm>,
    n: &OnnxOperation<'m>,
    op: Op,
    each: impl FnOnce(Cx<'_, 'm>, Val) -> LoweredValue,
) -> LoweredValue {
    let x = n.input(0)?;
    let (axes, keeps) = (folded_axes(cx, n, x)?, n.flag("keepdims", true));
    let each = each(cx, x)?;
    if each.element == ElementType::Bool {
        let op = if op == Op::ReduceMax { Op::ReduceOr } else { Op::ReduceAnd };
        return cx.reduce(op, each, &axes, keeps);
    }
    cx.reduce(op, each, &axes, keeps)
}

pub(crate) fn reduce<'m>(cx: Cx<'_, 'm>, op: Op, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![folded(cx, n, op, |_, x| Ok(x))?])
}

pub(crate) fn mean<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axes = folded_axes(cx, n, x)?;
    let sum = cx.reduce(Op::ReduceSum, x, &axes, n.flag("keepdims", true))?;
    let count = cx.count(x, &axes, sum)?;
    Ok(smallvec![cx.div(sum, count)?])
}

pub(crate) fn l1<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![folded(cx, n, Op::ReduceSum, |cx, x| cx.unary(Op::Abs, x))?])
}

pub(crate) fn sum_square<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![folded(cx, n, Op::ReduceSum, |cx, x| cx.mul(x, x))?])
}

pub(crate) fn l2<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let sum = sum_square(cx, n)?[0];
    Ok(smallvec![cx.unary(Op::Sqrt, sum)?])
}

pub(crate) fn log_sum<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let sum = folded(cx, n, Op::ReduceSum, |_, x| Ok(x))?;
    Ok(smallvec![cx.unary(Op::Log, sum)?])
}

/// The logarithm of a sum of exponentials, without overflow.
pub(crate) fn log_sum_exp<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axes = folded_axes(cx, n, x)?;
    let keeps = n.flag("keepdims", true);
    let most = cx.reduce(Op::ReduceMax, x, &axes, true)?;
    // Infinities are no shift.
    let finite = cx.unary(Op::IsFinite, most)?;
    let zero = cx.number(most, 0.0);
    let shift = cx.select(finite, most, zero)?;
    let moved = cx.sub(x, shift)?;
    let powers = cx.unary(Op::Exp, moved)?;
    let sum = cx.reduce(Op::ReduceSum, powers, &axes, true)?;
    let log = cx.unary(Op::Log, sum)?;
    let mut result = cx.add(log, shift)?;
    if !keeps {
        for &axis in axes.iter().rev() {
            result = cx.squeeze(result, axis)?;
        }
    }
    Ok(smallvec![result])
}

/// The place of an extreme of an axis; the last one where that is asked for.
pub(crate) fn arg_extreme<'m>(cx: Cx<'_, 'm>, op: Op, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axis = axis_of(n.int("axis", 0), cx.rank(x))?;
    let last = n.flag("select_last_index", false);
    let mut full = cx.b.materialize(x.value);
    full = match x.element {
        ElementType::Bool => cx.storage(full, DType::U8)?,
        e => ordered(cx, e, full)?,
    };
    if last {
        full = cx.reverse(Val { value: full, ..x }, [axis as i64])?.value;
    }
    let place = cx.emit(op, &[full], Attrs::none().with_int("axis", axis as i64))?;
    let value = cx.storage(place, DType::I64)?;
    let mut place = Val { element: I64, value };
    if last {
        let extent = cx.extent(cx.shape(x)[axis])?;
        let end = cx.number(place, extent as f64 - 1.0);
        place = cx.sub(end, place)?;
    }
    if n.flag("keepdims", true) {
        place = cx.unsqueeze(place, axis)?;
    }
    Ok(smallvec![place])
}

/// A running fold; without the element itself where that is asked for.
pub(crate) fn running<'m>(cx: Cx<'_, 'm>, op: Op, n: &OnnxOperation<'m>) -> LoweredValues {
    let mut x = n.input(0)?;
    let axis = cx.int(n.input(1)?)?;
    let axis = axis_of(axis, cx.rank(x))?;
    let (exclusive, reverse) = (n.flag("exclusive", false), n.flag("reverse", false));
    if exclusive {
        // Elements move one place along, and the neutral one comes in.
        let shape = cx.shape(x);
        let extent = cx.extent(shape[axis])?;
        if extent > 0 {
            let mut one = shape.clone();
            one[axis] = Dim::Const(1);
            let neutral =
                cx.numbers(x.element, &[], &[if op == Op::Cumsum { 0.0 } else { 1.0 }])?;
            let neutral = cx.expand(neutral, &one)?;
            x = if reverse {
                let rest = cx.slice(x, axis, 1, extent)?;
                cx.concat(&[rest, neutral], axis)?
            } else {
                let rest = cx.slice(x, axis, 0, extent - 1)?;
                cx.concat(&[neutral, rest], axis)?
            };
        }
    }
    let attrs =
        Attrs::none().with_int("axis", axis as i64).with("reverse", adfuse_ir::Attr::Bool(reverse));
    let full = cx.b.materialize(x.value);
    let value = cx.emit(op, &[full], attrs)?;
    let value = wrap(cx, x.element, value)?;
    Ok(smallvec![Val { value, ..x }])
}
