//! Elementwise ops: maps, comparison, choice, conversion of element types, reinterpretation of bits.

use super::attributes::find;
use super::context::{Lowered, Lowering, Results, Val};
use super::element::Element;
use super::refusal::{Why, refuse};
use super::{bits, integers};
use crate::text::tree::{Attr, Instruction};
use adfuse_ir::{DType, Op, Value};
use smallvec::smallvec;

/// An op applied to each element of its operands.
pub(crate) fn map(cx: &mut Lowering<'_>, op: Op, inst: &Instruction<'_>) -> Lowered {
    let args = cx.operands(inst)?;
    if args.is_empty() {
        return refuse("no operands");
    }
    Ok(smallvec![apply(cx, op, &args)?])
}

/// An op applied to each element of values of one element type.
pub(crate) fn apply(cx: &mut Lowering<'_>, op: Op, args: &[Val]) -> Result<Val, Why> {
    let element = args[0].element;
    let values: Vec<Value> = args.iter().map(|a| a.value).collect();
    let value = match (element, op) {
        (Element::Bool, Op::Add) => cx.op(Op::Or, &values)?,
        (Element::Bool, Op::Mul) => cx.op(Op::And, &values)?,
        (e, Op::Pow) if e.is_int() => integers::power(cx, e, values[0], values[1])?,
        (e, op) if e.is_u64() => integers::unsigned(cx, op, &values)?,
        (e, op) if e.is_promoted() => integers::promoted(cx, e, op, &values)?,
        (_, op) => cx.op(op, &values)?,
    };
    let result = if op.is_comparison() { Element::Bool } else { element };
    Ok(Val { element: result, value })
}

/// Whether an op gives truth values of numbers.
trait Comparison {
    fn is_comparison(self) -> bool;
}

impl Comparison for Op {
    fn is_comparison(self) -> bool {
        matches!(self, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge | Op::IsFinite)
    }
}

/// Direction and order of a comparison.
pub(crate) fn direction(inst: &Instruction<'_>) -> Result<(Op, bool), Why> {
    let of = |name: &str, k: usize| {
        find(inst, &[name]).and_then(Attr::word).or_else(|| inst.words.get(k).and_then(Attr::word))
    };
    let op = match of("comparison_direction", 0) {
        Some("EQ") => Op::Eq,
        Some("NE") => Op::Ne,
        Some("LT") => Op::Lt,
        Some("LE") => Op::Le,
        Some("GT") => Op::Gt,
        Some("GE") => Op::Ge,
        other => return refuse(format!("the direction {}", other.unwrap_or("that is missing"))),
    };
    Ok((op, of("compare_type", 1) == Some("TOTALORDER")))
}

pub(crate) fn compare(cx: &mut Lowering<'_>, inst: &Instruction<'_>) -> Lowered {
    let (op, total) = direction(inst)?;
    let mut args = cx.operands(inst)?;
    let [x, y] = args[..] else { return refuse("a comparison of other than two operands") };
    if total && x.element.is_float() {
        args = vec![bits::total_order(cx, x)?, bits::total_order(cx, y)?];
    }
    Ok(smallvec![apply(cx, op, &args)?])
}

pub(crate) fn select(cx: &mut Lowering<'_>, inst: &Instruction<'_>) -> Lowered {
    let args = cx.operands(inst)?;
    let [p, yes, no] = args[..] else { return refuse("a choice of other than three operands") };
    let shape = cx.b.ty(yes.value).clone();
    let p = if cx.b.ty(p.value).rank() == 0 { cx.splat(p, &shape)? } else { p };
    Ok(smallvec![Val { value: cx.op(Op::SelectN, &[p.value, no.value, yes.value])?, ..yes }])
}

pub(crate) fn clamp(cx: &mut Lowering<'_>, inst: &Instruction<'_>) -> Lowered {
    let args = cx.operands(inst)?;
    let [low, x, high] = args[..] else { return refuse("a clamp of other than three operands") };
    let shape = cx.b.ty(x.value).clone();
    let mut full = |v: Val| if cx.b.ty(v.value).rank() == 0 { cx.splat(v, &shape) } else { Ok(v) };
    let (low, high) = (full(low)?, full(high)?);
    if x.element == Element::Bool || x.element.is_u64() {
        let raised = apply(cx, Op::Max, &[low, x])?;
        return Ok(smallvec![apply(cx, Op::Min, &[raised, high])?]);
    }
    Ok(smallvec![Val { value: cx.op(Op::Clamp, &[low.value, x.value, high.value])?, ..x }])
}

pub(crate) fn convert(cx: &mut Lowering<'_>, inst: &Instruction<'_>) -> Lowered {
    let x = cx.operand(inst, 0)?;
    let (element, _) = cx.result_type(inst, 0)?;
    Ok(smallvec![convert_to(cx, x, element)?])
}

/// The same numbers as elements of another type.
pub(crate) fn convert_to(cx: &mut Lowering<'_>, x: Val, to: Element) -> Result<Val, Why> {
    if x.element == to {
        return Ok(x);
    }
    let value = match (x.element, to) {
        (from, Element::Float(dtype)) if from.is_u64() => {
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
            let narrows = to.is_promoted() && x.element != Element::Bool;
            if narrows { integers::wrap(cx, to, value)? } else { value }
        }
    };
    Ok(Val { element: to, value })
}

/// The operands as they are: what says where or how a value is kept.
pub(crate) fn identity(cx: &mut Lowering<'_>, inst: &Instruction<'_>) -> Lowered {
    cx.operands(inst).map(Results::from_vec)
}

/// The sign bit of a float, by which -0 is told from +0, is not part of `abs`; of unsigned integers it is the operand.
pub(crate) fn abs(cx: &mut Lowering<'_>, inst: &Instruction<'_>) -> Lowered {
    let x = cx.operand(inst, 0)?;
    match x.element {
        Element::Int { signed: false, .. } => Ok(smallvec![x]),
        _ => map(cx, Op::Abs, inst),
    }
}
