//! What reads and makes the bits of elements: reinterpretation, the total order of floats, rounding to fewer bits,
//! neighbouring numbers.

use super::attributes::{find, number};
use super::context::{LoweredValues, ModuleLowering, Val, written_type};
use crate::emit::element::ElementType;
use crate::emit::integers::{count, wrap};
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction};
use adfuse_ir::{Attrs, DType, Literal, Op, TensorType, Value};
use smallvec::smallvec;

pub(crate) fn bitcast(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let x = cx.operand(inst, 0)?;
    let element = cx.element_of(written_type(inst, 0)?)?;
    if element == x.element {
        return Ok(smallvec![x]);
    }
    if element.bits() != x.element.bits() {
        let (_, ty) = cx.result_type(inst, 0)?;
        return regroup(cx, x, element, &ty).map(|v| smallvec![v]);
    }
    Ok(smallvec![bitcast_to(cx, x, element)?])
}

/// The same bits as an element of the same width.
pub(crate) fn bitcast_to(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    to: ElementType,
) -> Result<Val, Unlowered> {
    let (from, dtype) = (x.element.storage(), to.storage());
    let ty = cx.b.ty(x.value).clone();
    if x.element.is_float() && to.is_float() && x.element.bits() == 16 {
        let raw = bits_of_half(cx, x, HALF_WORD)?;
        return half_of_bits(cx, raw, to);
    }
    if x.element.is_promoted() || to.is_promoted() {
        return match (x.element.is_float(), to.is_float()) {
            // Between signs: the lowest bits are the same.
            (false, false) => {
                let value = cx.storage(x.value, dtype)?;
                Ok(Val { element: to, value: wrap(cx, to, value)? })
            }
            (true, false) => bits_of_half(cx, x, to),
            (false, true) => half_of_bits(cx, x, to),
            (true, true) => refuse("bits of a float as those of another"),
        };
    }
    if from == dtype {
        return Ok(Val { element: to, value: x.value });
    }
    let ty: TensorType = ty.with_dtype(dtype);
    let value = match cx.b.func().literal(x.value) {
        Some(l) => cx.b.literal(&ty, Literal::from_bits(dtype, l.bits())),
        None => cx.emit_as(Op::BitcastConvert, &[x.value], Attrs::none(), &ty)?,
    };
    Ok(Val { element: to, value })
}

/// Bits as elements of another width: the last axis is split, or merged, low bits first.
pub(crate) fn regroup(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    to: ElementType,
    ty: &TensorType,
) -> Result<Val, Unlowered> {
    let (from, width) = (x.element.bits(), to.bits());
    let (narrow, wide) = (from.min(width), from.max(width));
    let rank = cx.b.ty(x.value).rank();
    let splits = from == wide;
    let fits = if splits { ty.rank() == rank + 1 } else { ty.rank() + 1 == rank };
    if !wide.is_multiple_of(narrow) || narrow < 8 || !fits {
        return refuse(format!("bits of {} as {to}", x.element));
    }
    let parts = wide / narrow;
    let unsigned = |bits| ElementType::Int { bits, signed: false };
    let raw = bitcast_to(cx, x, unsigned(from))?;
    let (small, large) = (unsigned(narrow), unsigned(wide));
    let mut pieces: Vec<Value> = Vec::new();
    if splits {
        let part = ty.with_dtype(small.storage());
        let mut one = part.clone();
        one.shape[rank] = 1.into();
        for k in 0..parts {
            let by = count(cx, raw.value, k * narrow);
            let value = cx.op(Op::ShiftRightLogical, &[raw.value, by])?;
            let value = cx.storage(value, small.storage())?;
            let value = wrap(cx, small, value)?;
            pieces.push(cx.emit_as(Op::Reshape, &[value], Attrs::none(), &one)?);
        }
        let value =
            cx.emit(Op::Concatenate, &pieces, Attrs::none().with_int("axis", rank as i64))?;
        return bitcast_to(cx, Val { element: small, value }, to);
    }
    let dims = cx.dims(raw)?;
    if dims.last() != Some(&u64::from(parts)) {
        return refuse(format!("bits of {} as {to}", x.element));
    }
    let mut sum: Option<Value> = None;
    for k in 0..parts {
        let mut start = vec![0i64; rank];
        let mut limit: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        (start[rank - 1], limit[rank - 1]) = (k.into(), i64::from(k) + 1);
        let attrs = Attrs::none().with_ints("start", start).with_ints("limit", limit);
        let part = cx.emit(Op::Slice, &[raw.value], attrs.with_ints("stride", vec![1; rank]))?;
        let part =
            cx.emit_as(Op::Reshape, &[part], Attrs::none(), &ty.with_dtype(small.storage()))?;
        let part = cx.storage(part, large.storage())?;
        let by = count(cx, part, k * narrow);
        let part = cx.op(Op::ShiftLeft, &[part, by])?;
        sum = Some(match sum {
            Some(sum) => cx.op(Op::Or, &[sum, part])?,
            None => part,
        });
    }
    match sum {
        Some(value) => bitcast_to(cx, Val { element: large, value }, to),
        None => refuse("bits of nothing"),
    }
}

/// The word of 32 bits and the float that has its bits.
const HALF_WORD: ElementType = ElementType::Int { bits: 16, signed: false };
const WORD: ElementType = ElementType::Int { bits: 32, signed: false };
const SINGLE: ElementType = ElementType::Float(DType::F32);

fn word(cx: &mut ModuleLowering<'_>, like: Value, bits: u32) -> Value {
    cx.literal_like(like, Literal::from_bits(DType::U32, bits.into()))
}

/// The bits of a float of 16 bits, as an integer of 16 bits.
fn bits_of_half(cx: &mut ModuleLowering<'_>, x: Val, to: ElementType) -> Result<Val, Unlowered> {
    let single = cx.storage(x.value, DType::F32)?;
    let bits = bitcast_to(cx, Val { element: SINGLE, value: single }, WORD)?.value;
    let half = match x.element {
        // It is the upper half of a float of 32 bits.
        ElementType::Float(DType::BF16) => {
            let by = count(cx, bits, 16);
            cx.op(Op::ShiftRightLogical, &[bits, by])?
        }
        _ => narrow_bits(cx, single, bits)?,
    };
    let half = cx.storage(half, to.storage())?;
    Ok(Val { element: to, value: wrap(cx, to, half)? })
}

/// The bits of an `f16` that is held as `f32`.
fn narrow_bits(
    cx: &mut ModuleLowering<'_>,
    single: Value,
    bits: Value,
) -> Result<Value, Unlowered> {
    let magnitude = cx.op(Op::Abs, &[single])?;
    let number = |cx: &mut ModuleLowering<'_>, n: f64| {
        cx.literal_like(single, Literal::from_f64(DType::F32, n))
    };
    // Normal numbers have another bias, and fewer bits of mantissa, which are 0.
    let (mask, bias, by) =
        (word(cx, bits, 0x7fff_ffff), word(cx, bits, 112 << 23), count(cx, bits, 13));
    let normal = cx.op(Op::And, &[bits, mask])?;
    let normal = cx.op(Op::Sub, &[normal, bias])?;
    let normal = cx.op(Op::ShiftRightLogical, &[normal, by])?;
    // Subnormal ones are multiples of the least.
    let (unit, least, infinity) =
        (number(cx, 2f64.powi(24)), number(cx, 2f64.powi(-14)), number(cx, f64::INFINITY));
    let multiple = cx.op(Op::Mul, &[magnitude, unit])?;
    let multiple = cx.storage(multiple, DType::U32)?;
    let (small, large) =
        (cx.op(Op::Lt, &[magnitude, least])?, cx.op(Op::Eq, &[magnitude, infinity])?);
    let nan = cx.op(Op::Ne, &[single, single])?;
    let (inf_bits, nan_bits) = (word(cx, bits, 0x7c00), word(cx, bits, 0x7e00));
    let size = cx.op(Op::SelectN, &[small, normal, multiple])?;
    let size = cx.op(Op::SelectN, &[large, size, inf_bits])?;
    let size = cx.op(Op::SelectN, &[nan, size, nan_bits])?;
    let (down, top) = (count(cx, bits, 16), word(cx, bits, 0x8000));
    let sign = cx.op(Op::ShiftRightLogical, &[bits, down])?;
    let sign = cx.op(Op::And, &[sign, top])?;
    cx.op(Op::Or, &[size, sign])
}

/// The float of 16 bits that has the bits of an integer.
fn half_of_bits(cx: &mut ModuleLowering<'_>, x: Val, to: ElementType) -> Result<Val, Unlowered> {
    let bits = cx.storage(x.value, DType::U32)?;
    let up = count(cx, bits, 16);
    let high = cx.op(Op::ShiftLeft, &[bits, up])?;
    if to == ElementType::Float(DType::BF16) {
        let single = bitcast_to(cx, Val { element: WORD, value: high }, SINGLE)?.value;
        return Ok(Val { element: to, value: cx.storage(single, DType::BF16)? });
    }
    let (mask, by, bias) = (word(cx, bits, 0x7fff), count(cx, bits, 13), word(cx, bits, 112 << 23));
    let size = cx.op(Op::And, &[bits, mask])?;
    let wide = cx.op(Op::ShiftLeft, &[size, by])?;
    let normal = cx.op(Op::Add, &[wide, bias])?;
    let normal = bitcast_to(cx, Val { element: WORD, value: normal }, SINGLE)?.value;
    let special = word(cx, bits, 0x7f80_0000);
    let special = cx.op(Op::Or, &[wide, special])?;
    let special = bitcast_to(cx, Val { element: WORD, value: special }, SINGLE)?.value;
    let unit = cx.literal_like(normal, Literal::from_f64(DType::F32, 2f64.powi(-24)));
    let multiple = cx.storage(size, DType::F32)?;
    let multiple = cx.op(Op::Mul, &[multiple, unit])?;
    let (least, most) = (word(cx, bits, 0x0400), word(cx, bits, 0x7c00));
    let (small, large) = (cx.op(Op::Lt, &[size, least])?, cx.op(Op::Ge, &[size, most])?);
    let value = cx.op(Op::SelectN, &[small, normal, multiple])?;
    let value = cx.op(Op::SelectN, &[large, value, special])?;
    let sign = word(cx, bits, 0x8000_0000);
    let sign = cx.op(Op::And, &[high, sign])?;
    let raw = bitcast_to(cx, Val { element: SINGLE, value }, WORD)?.value;
    let raw = cx.op(Op::Or, &[raw, sign])?;
    let value = bitcast_to(cx, Val { element: WORD, value: raw }, SINGLE)?.value;
    Ok(Val { element: to, value: cx.storage(value, DType::F16)? })
}

/// A float as `f32`, or as `f64` where it is that.
fn widened(cx: &mut ModuleLowering<'_>, x: Val) -> Result<Val, Unlowered> {
    match x.element {
        ElementType::Float(DType::F64) => Ok(x),
        _ => Ok(Val { element: SINGLE, value: cx.storage(x.value, DType::F32)? }),
    }
}

/// A float rounded to `e` bits of exponent and `m` of mantissa, ties to even; what is too large is infinite, what is
/// below the normal numbers is 0.
pub(crate) fn fewer_bits(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    e: u32,
    m: u32,
) -> Result<Val, Unlowered> {
    let ElementType::Float(dtype) = x.element else { return refuse("elements that are no floats") };
    let wide = widened(cx, x)?;
    let (bits, mantissa, bias) = if dtype == DType::F64 { (64, 52, 1023) } else { (32, 23, 127) };
    if e == 0 {
        return refuse(format!("a format of {e} and {m} bits"));
    }
    // A format with more bits has every number.
    let (e, m) = (e.min(bits - 1 - mantissa), m.min(mantissa));
    let int = ElementType::Int { bits, signed: true };
    let mut raw = bitcast_to(cx, wide, int)?.value;
    if m < mantissa {
        let cut = mantissa - m;
        let constant = |cx: &mut ModuleLowering<'_>, n: i64| {
            cx.literal_like(raw, Literal::from_i64(int.storage(), n))
        };
        let (by, one) = (constant(cx, cut.into()), constant(cx, 1));
        let (half, keep) =
            (constant(cx, (1i64 << (cut - 1)) - 1), constant(cx, !((1i64 << cut) - 1)));
        let last = cx.op(Op::ShiftRightLogical, &[raw, by])?;
        let last = cx.op(Op::And, &[last, one])?;
        let up = cx.op(Op::Add, &[raw, half])?;
        let up = cx.op(Op::Add, &[up, last])?;
        raw = cx.op(Op::And, &[up, keep])?;
    }
    let rounded = bitcast_to(cx, Val { element: int, value: raw }, wide.element)?.value;
    let range = (1i32 << (e - 1)) - 1;
    let mut value = rounded;
    if range < bias {
        let magnitude = cx.op(Op::Abs, &[rounded])?;
        let most = (2.0 - 2f64.powi(-(m as i32))) * 2f64.powi(range);
        let number = |cx: &mut ModuleLowering<'_>, n: f64| {
            cx.literal_like(rounded, Literal::from_f64(wide.element.storage(), n))
        };
        let (most, least) = (number(cx, most), number(cx, 2f64.powi(1 - range)));
        let (zero, infinity) = (number(cx, 0.0), number(cx, f64::INFINITY));
        let (over, under) =
            (cx.op(Op::Gt, &[magnitude, most])?, cx.op(Op::Lt, &[magnitude, least])?);
        let large = signed(cx, infinity, rounded, int)?;
        let small = signed(cx, zero, rounded, int)?;
        value = cx.op(Op::SelectN, &[over, value, large])?;
        value = cx.op(Op::SelectN, &[under, value, small])?;
    }
    let nan = cx.op(Op::Ne, &[wide.value, wide.value])?;
    value = cx.op(Op::SelectN, &[nan, value, wide.value])?;
    Ok(Val { element: x.element, value: cx.storage(value, dtype)? })
}

/// The magnitude with the sign bit of `like`.
fn signed(
    cx: &mut ModuleLowering<'_>,
    magnitude: Value,
    like: Value,
    int: ElementType,
) -> Result<Value, Unlowered> {
    let element = ElementType::Float(cx.b.ty(like).dtype);
    let bits = bitcast_to(cx, Val { element, value: like }, int)?.value;
    let least = cx.literal_like(bits, int.least());
    let sign = cx.op(Op::And, &[bits, least])?;
    let size = bitcast_to(cx, Val { element, value: magnitude }, int)?.value;
    let both = cx.op(Op::Or, &[size, sign])?;
    Ok(bitcast_to(cx, Val { element: int, value: both }, element)?.value)
}

/// An integer with the total order of a float: -inf, .., -0, +0, .., inf, NaN.
pub(crate) fn total_order(cx: &mut ModuleLowering<'_>, x: Val) -> Result<Val, Unlowered> {
    let wide = widened(cx, x)?;
    let bits = wide.element.bits();
    let element = ElementType::Int { bits, signed: true };
    let raw = bitcast_to(cx, wide, element)?;
    let count = cx.literal_like(raw.value, element.of_bits(u64::from(bits) - 1));
    let most = cx.literal_like(raw.value, element.greatest());
    let sign = cx.op(Op::ShiftRightArithmetic, &[raw.value, count])?;
    let flip = cx.op(Op::And, &[sign, most])?;
    Ok(Val { element, value: cx.op(Op::Xor, &[raw.value, flip])? })
}

/// Rounds a float to fewer bits of exponent and mantissa.
pub(crate) fn reduce_precision(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> LoweredValues {
    let x = cx.operand(inst, 0)?;
    let pair = match find(inst, &["format"]).and_then(Attribute::word) {
        Some(format) => format
            .strip_prefix('e')
            .and_then(|f| f.split_once('m'))
            .map(|(e, m)| (e.parse().ok(), m.parse().ok())),
        None => {
            let of = |name: &str| {
                find(inst, &[name]).and_then(|a| number(a).ok().and_then(|n| u32::try_from(n).ok()))
            };
            Some((of("exponent_bits"), of("mantissa_bits")))
        }
    };
    let Some((Some(exponent), Some(mantissa))) = pair else {
        return refuse("a format that is not read");
    };
    fewer_bits(cx, x, exponent, mantissa).map(|v| smallvec![v])
}

/// The next number after the first operand towards the second.
pub(crate) fn next_after(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let args = cx.operands(inst)?;
    let [x, y] = args[..] else { return refuse("other than two operands") };
    if !x.element.is_float() {
        return refuse(format!("elements of type {}", x.element));
    }
    let int = ElementType::Int { bits: x.element.bits(), signed: true };
    let zero = cx.literal_like(x.value, Literal::zero(x.element.storage()));
    let bits = bitcast_to(cx, x, int)?.value;
    let one = cx.literal_like(bits, int.of_bits(1));
    // Away from zero the bits grow.
    let (up, down) = (cx.op(Op::Add, &[bits, one])?, cx.op(Op::Sub, &[bits, one])?);
    let (rises, negative) = (cx.op(Op::Lt, &[x.value, y.value])?, cx.op(Op::Lt, &[x.value, zero])?);
    let inward = cx.op(Op::Xor, &[rises, negative])?;
    let moved = cx.op(Op::SelectN, &[inward, down, up])?;
    // From zero it is the least number of the other's sign.
    let sign = cx.literal_like(bits, int.least());
    let least = cx.op(Op::Or, &[one, sign])?;
    let below = cx.op(Op::Lt, &[y.value, zero])?;
    let from_zero = cx.op(Op::SelectN, &[below, one, least])?;
    let at_zero = cx.op(Op::Eq, &[x.value, zero])?;
    let moved = cx.op(Op::SelectN, &[at_zero, moved, from_zero])?;
    let moved = bitcast_to(cx, Val { element: int, value: moved }, x.element)?.value;
    let same = cx.op(Op::Eq, &[x.value, y.value])?;
    let result = cx.op(Op::SelectN, &[same, moved, y.value])?;
    // A sum is NaN where an operand is.
    let sum = cx.op(Op::Add, &[x.value, y.value])?;
    let (xn, yn) = (cx.op(Op::Ne, &[x.value, x.value])?, cx.op(Op::Ne, &[y.value, y.value])?);
    let nan = cx.op(Op::Or, &[xn, yn])?;
    Ok(smallvec![Val { element: x.element, value: cx.op(Op::SelectN, &[nan, result, sum])? }])
}
