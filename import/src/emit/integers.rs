//! Integers that the IR lacks: those of 64 bits without sign as `i64`, those of 2, 4 and 16 bits in the next wider
//! type.

use super::InstEmitter;
use super::element::ElementType;
use super::refusal::Unlowered;
use adfuse_ir::{DType, Literal, Op, Value};

/// The value with the order that its storage type has: unsigned numbers of 64 bits have their top bit flipped, others are as
/// they are. Twice it gives the value back.
pub(crate) fn ordered(
    cx: &mut InstEmitter,
    element: ElementType,
    x: Value,
) -> Result<Value, Unlowered> {
    if element.is_u64() { flipped(cx, x) } else { Ok(x) }
}

/// The value with its top bit flipped: the order of unsigned numbers becomes that of signed ones.
fn flipped(cx: &mut InstEmitter, x: Value) -> Result<Value, Unlowered> {
    let least = cx.literal_like(x, Literal::from_i64(DType::I64, i64::MIN));
    cx.op(Op::Xor, &[x, least])
}

/// An op on unsigned numbers of 64 bits.
pub(crate) fn unsigned(cx: &mut InstEmitter, op: Op, args: &[Value]) -> Result<Value, Unlowered> {
    match op {
        Op::Lt | Op::Le | Op::Gt | Op::Ge => {
            let (x, y) = (flipped(cx, args[0])?, flipped(cx, args[1])?);
            cx.op(op, &[x, y])
        }
        Op::Max | Op::Min => {
            let (x, y) = (flipped(cx, args[0])?, flipped(cx, args[1])?);
            let best = cx.op(op, &[x, y])?;
            flipped(cx, best)
        }
        Op::Div => Ok(quotient(cx, args[0], args[1])?.0),
        Op::Rem => Ok(quotient(cx, args[0], args[1])?.1),
        Op::Sign => {
            let zero = cx.literal_like(args[0], Literal::zero(DType::I64));
            let there = cx.op(Op::Ne, &[args[0], zero])?;
            cx.storage(there, DType::I64)
        }
        op => cx.op(op, args),
    }
}

/// Quotient and remainder of unsigned numbers of 64 bits; all ones and the dividend where the divisor is 0.
fn quotient(cx: &mut InstEmitter, x: Value, y: Value) -> Result<(Value, Value), Unlowered> {
    let (zero, one) = (
        cx.literal_like(x, Literal::zero(DType::I64)),
        cx.literal_like(x, Literal::one(DType::I64)),
    );
    // Half of the dividend is not negative; what its quotient leaves is less than twice the divisor.
    let half = cx.op(Op::ShiftRightLogical, &[x, one])?;
    let half = cx.op(Op::Div, &[half, y])?;
    let low = cx.op(Op::ShiftLeft, &[half, one])?;
    let product = cx.op(Op::Mul, &[low, y])?;
    let rest = cx.op(Op::Sub, &[x, product])?;
    let more = unsigned(cx, Op::Ge, &[rest, y])?;
    let step = cx.storage(more, DType::I64)?;
    let small = cx.op(Op::Add, &[low, step])?;
    // A divisor with its top bit set goes into the dividend once or never.
    let reached = unsigned(cx, Op::Ge, &[x, y])?;
    let large = cx.storage(reached, DType::I64)?;
    let top = cx.op(Op::Lt, &[y, zero])?;
    let q = cx.op(Op::SelectN, &[top, small, large])?;
    let nothing = cx.op(Op::Eq, &[y, zero])?;
    let ones = cx.literal_like(x, Literal::from_i64(DType::I64, -1));
    let q = cx.op(Op::SelectN, &[nothing, q, ones])?;
    let product = cx.op(Op::Mul, &[q, y])?;
    Ok((q, cx.op(Op::Sub, &[x, product])?))
}

/// Unsigned numbers of 64 bits as floats, rounded once.
pub(crate) fn float_of_unsigned(
    cx: &mut InstEmitter,
    x: Value,
    dtype: DType,
) -> Result<Value, Unlowered> {
    let (zero, one) = (
        cx.literal_like(x, Literal::zero(DType::I64)),
        cx.literal_like(x, Literal::one(DType::I64)),
    );
    // Half of a large number, with its last bit kept where it can still decide a tie.
    let half = cx.op(Op::ShiftRightLogical, &[x, one])?;
    let last = cx.op(Op::And, &[x, one])?;
    let half = cx.op(Op::Or, &[half, last])?;
    let half = cx.storage(half, dtype)?;
    let large = cx.op(Op::Add, &[half, half])?;
    let small = cx.storage(x, dtype)?;
    let top = cx.op(Op::Lt, &[x, zero])?;
    cx.op(Op::SelectN, &[top, small, large])
}

/// Floats as unsigned numbers of 64 bits: towards zero, saturated, 0 of NaN.
pub(crate) fn unsigned_of_float(cx: &mut InstEmitter, x: Value) -> Result<Value, Unlowered> {
    let x = cx.storage(x, DType::F64)?;
    let limit = cx.literal_like(x, Literal::from_f64(DType::F64, 9_223_372_036_854_775_808.0));
    let small = cx.storage(x, DType::I64)?;
    let zero = cx.literal_like(small, Literal::zero(DType::I64));
    let small = cx.op(Op::Max, &[small, zero])?;
    let rest = cx.op(Op::Sub, &[x, limit])?;
    let rest = cx.storage(rest, DType::I64)?;
    let large = flipped(cx, rest)?;
    let above = cx.op(Op::Ge, &[x, limit])?;
    cx.op(Op::SelectN, &[above, small, large])
}

pub(crate) fn count(cx: &mut InstEmitter, like: Value, bits: u32) -> Value {
    let dtype = cx.b.ty(like).dtype;
    cx.literal_like(like, Literal::from_i64(dtype, bits.into()))
}

/// The value as its type has it, read off the low bits.
pub(crate) fn wrap(
    cx: &mut InstEmitter,
    element: ElementType,
    x: Value,
) -> Result<Value, Unlowered> {
    if !element.is_promoted() {
        return Ok(x);
    }
    if let Some(l) = cx.b.func().literal(x) {
        return Ok(cx.literal_like(x, element.of_bits(l.bits())));
    }
    if element.is_signed() {
        let by = count(cx, x, element.storage().bits() - element.bits());
        let top = cx.op(Op::ShiftLeft, &[x, by])?;
        return cx.op(Op::ShiftRightArithmetic, &[top, by]);
    }
    low_bits(cx, element, x)
}

/// The low bits alone, as many as the type has.
fn low_bits(cx: &mut InstEmitter, element: ElementType, x: Value) -> Result<Value, Unlowered> {
    let mask = Literal::from_i64(element.storage(), (1 << element.bits()) - 1);
    let mask = cx.literal_like(x, mask);
    cx.op(Op::And, &[x, mask])
}

/// An op on integers that are narrower than what they are kept in.
pub(crate) fn promoted(
    cx: &mut InstEmitter,
    e: ElementType,
    op: Op,
    args: &[Value],
) -> Result<Value, Unlowered> {
    match op {
        Op::Add | Op::Sub | Op::Mul | Op::Neg | Op::Abs | Op::ShiftLeft | Op::Div | Op::Not => {
            let value = cx.op(op, args)?;
            wrap(cx, e, value)
        }
        Op::PopulationCount => {
            let x = low_bits(cx, e, args[0])?;
            cx.op(op, &[x])
        }
        Op::Clz => {
            let x = low_bits(cx, e, args[0])?;
            let zeros = cx.op(op, &[x])?;
            let more = count(cx, x, e.storage().bits() - e.bits());
            cx.op(Op::Sub, &[zeros, more])
        }
        Op::ShiftRightLogical => {
            let x = low_bits(cx, e, args[0])?;
            let value = cx.op(op, &[x, args[1]])?;
            wrap(cx, e, value)
        }
        Op::ShiftRightArithmetic if !e.is_signed() => {
            let by = count(cx, args[0], e.storage().bits() - e.bits());
            let top = cx.op(Op::ShiftLeft, &[args[0], by])?;
            let extended = cx.op(op, &[top, by])?;
            let value = cx.op(op, &[extended, args[1]])?;
            wrap(cx, e, value)
        }
        op => cx.op(op, args),
    }
}

/// An integer power by repeated squaring; a negative exponent gives the integer part of the reciprocal.
pub(crate) fn power(
    cx: &mut InstEmitter,
    e: ElementType,
    x: Value,
    y: Value,
) -> Result<Value, Unlowered> {
    let dtype = e.storage();
    let (zero, one) =
        (cx.literal_like(x, Literal::zero(dtype)), cx.literal_like(x, Literal::one(dtype)));
    let (mut base, mut result) = (x, one);
    for bit in 0..e.bits() {
        let by = count(cx, y, bit);
        let shifted = cx.op(Op::ShiftRightLogical, &[y, by])?;
        let odd = cx.op(Op::And, &[shifted, one])?;
        let odd = cx.op(Op::Ne, &[odd, zero])?;
        let product = cx.op(Op::Mul, &[result, base])?;
        result = cx.op(Op::SelectN, &[odd, result, product])?;
        base = cx.op(Op::Mul, &[base, base])?;
    }
    let result = wrap(cx, e, result)?;
    if !e.is_signed() {
        return Ok(result);
    }
    // Of negative exponents 1 and -1 alone have something left.
    let size = cx.op(Op::Abs, &[x])?;
    let unit = cx.op(Op::Eq, &[size, one])?;
    let below = cx.op(Op::Lt, &[y, zero])?;
    let gone = cx.op(Op::Not, &[unit])?;
    let gone = cx.op(Op::And, &[below, gone])?;
    cx.op(Op::SelectN, &[gone, result, zero])
}
