//! Ops on elements of any type that can be imported, and conversions between those types.

use super::element::ElementType;
use super::refusal::Unlowered;
use super::{InstEmitter, Val, integers};
use adfuse_ir::{DType, Op, Value};

/// An op applied to each element of values of one element type.
pub(crate) fn apply(cx: &mut InstEmitter, op: Op, args: &[Val]) -> Result<Val, Unlowered> {
    let element = args[0].element;
    let values: Vec<Value> = args.iter().map(|a| a.value).collect();
    let value = match (element, op) {
        (ElementType::Bool, Op::Add) => cx.op(Op::Or, &values)?,
        (ElementType::Bool, Op::Mul) => cx.op(Op::And, &values)?,
        (e, Op::Pow) if e.is_int() => integers::power(cx, e, values[0], values[1])?,
        (e, op) if e.is_u64() => integers::unsigned(cx, op, &values)?,
        (e, op) if e.is_promoted() => integers::promoted(cx, e, op, &values)?,
        (_, op) => cx.op(op, &values)?,
    };
    let result = if is_comparison(op) { ElementType::Bool } else { element };
    Ok(Val { element: result, value })
}

/// Whether an op gives truth values of numbers.
fn is_comparison(op: Op) -> bool {
    matches!(op, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge | Op::IsFinite)
}

/// The same numbers as elements of another type.
pub(crate) fn convert_to(cx: &mut InstEmitter, x: Val, to: ElementType) -> Result<Val, Unlowered> {
    if x.element == to {
        return Ok(x);
    }
    let value = match (x.element, to) {
        (from, ElementType::Float(dtype)) if from.is_u64() => {
            integers::float_of_unsigned(cx, x.value, dtype)?
        }
        (from, to) if from.is_float() && to.is_u64() => integers::unsigned_of_float(cx, x.value)?,
        (from, to) if from.is_float() && to.is_promoted() => {
            let wide = cx.storage(x.value, DType::I32)?;
            let low = cx.literal_like(wide, to.least().convert(DType::I32));
            let high = cx.literal_like(wide, to.greatest().convert(DType::I32));
            let inside = cx.op(Op::Clamp, &[low, wide, high])?;
            cx.storage(inside, to.storage())?
        }
        (_, to) => {
            let value = cx.storage(x.value, to.storage())?;
            let narrows = to.is_promoted() && x.element != ElementType::Bool;
            if narrows { integers::wrap(cx, to, value)? } else { value }
        }
    };
    Ok(Val { element: to, value })
}
