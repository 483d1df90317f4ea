//! Elementwise ops: maps, comparison, choice, conversion of element types, reinterpretation of bits.

use super::attributes::find;
use super::bits;
use super::context::{LoweredValues, ModuleLowering, Val, Vals, written_type};
pub(crate) use crate::emit::arithmetic::{apply, convert_to};
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction};
use adfuse_ir::Op;
use smallvec::smallvec;

/// An op applied to each element of its operands.
pub(crate) fn map(cx: &mut ModuleLowering<'_>, op: Op, inst: &Instruction<'_>) -> LoweredValues {
    let args = cx.operands(inst)?;
    if args.is_empty() {
        return refuse("no operands");
    }
    Ok(smallvec![apply(cx, op, &args)?])
}

/// Direction and order of a comparison.
pub(crate) fn direction(inst: &Instruction<'_>) -> Result<(Op, bool), Unlowered> {
    let of = |name: &str, k: usize| {
        find(inst, &[name])
            .and_then(Attribute::word)
            .or_else(|| inst.words.get(k).and_then(Attribute::word))
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

pub(crate) fn compare(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let (op, total) = direction(inst)?;
    let mut args = cx.operands(inst)?;
    let [x, y] = args[..] else { return refuse("a comparison of other than two operands") };
    if total && x.element.is_float() {
        args = vec![bits::total_order(cx, x)?, bits::total_order(cx, y)?];
    }
    Ok(smallvec![apply(cx, op, &args)?])
}

pub(crate) fn select(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let args = cx.operands(inst)?;
    let [p, yes, no] = args[..] else { return refuse("a choice of other than three operands") };
    let shape = cx.b.ty(yes.value).clone();
    let p = if cx.b.ty(p.value).rank() == 0 { cx.splat(p, &shape)? } else { p };
    Ok(smallvec![Val { value: cx.op(Op::SelectN, &[p.value, no.value, yes.value])?, ..yes }])
}

pub(crate) fn clamp(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let args = cx.operands(inst)?;
    let [low, x, high] = args[..] else { return refuse("a clamp of other than three operands") };
    let shape = cx.b.ty(x.value).clone();
    let mut full = |v: Val| if cx.b.ty(v.value).rank() == 0 { cx.splat(v, &shape) } else { Ok(v) };
    let (low, high) = (full(low)?, full(high)?);
    if x.element == ElementType::Bool || x.element.is_u64() {
        let raised = apply(cx, Op::Max, &[low, x])?;
        return Ok(smallvec![apply(cx, Op::Min, &[raised, high])?]);
    }
    Ok(smallvec![Val { value: cx.op(Op::Clamp, &[low.value, x.value, high.value])?, ..x }])
}

pub(crate) fn convert(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let x = cx.operand(inst, 0)?;
    let element = cx.element_of(written_type(inst, 0)?)?;
    Ok(smallvec![convert_to(cx, x, element)?])
}

/// The operands as they are: what says where or how a value is kept.
pub(crate) fn identity(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    cx.operands(inst).map(Vals::from_vec)
}

/// The sign bit of a float, by which -0 is told from +0, is not part of `abs`; of unsigned integers it is the operand.
pub(crate) fn abs(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let x = cx.operand(inst, 0)?;
    match x.element {
        ElementType::Int { signed: false, .. } => Ok(smallvec![x]),
        _ => map(cx, Op::Abs, inst),
    }
}
