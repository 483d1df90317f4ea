//! Constants: `dense<..>` with one value for all, nested lists, or the bytes of all elements in hexadecimal.

use super::context::{LoweredValues, ModuleLowering, Val};
use super::number::ComplexPart;
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, DenseText, Instruction};
use adfuse_ir::{Attr as IrAttr, Attrs, Elements, Literal, Op, TensorType};
use smallvec::smallvec;
use std::borrow::Cow;

pub(crate) fn constant(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let (element, ty) = cx.result_type(inst, 0)?;
    let dense = inst.words.first().or(inst.attr("value"));
    let Some(Attribute::Dense(dense)) = dense else {
        return refuse("values that are not written as `dense<..>`");
    };
    Ok(smallvec![written(cx, dense, element, &ty)?])
}

/// The value of `dense<..>`.
pub(crate) fn written(
    cx: &mut ModuleLowering<'_>,
    dense: &DenseText<'_>,
    element: ElementType,
    ty: &TensorType,
) -> Result<Val, Unlowered> {
    let Some(count) = ty.elements() else { return refuse("an extent that is not known") };
    let text = dense.payload.trim();
    let part = cx.part.filter(|_| text.contains('(') || text.starts_with('"'));
    let text = match part {
        Some(part) => Cow::Owned(part_of(text, element, part)?),
        None => Cow::Borrowed(text),
    };
    let value = match elements(&text, element, count)? {
        Values::All(l) => cx.b.literal(ty, l),
        Values::Each(all) if cx.lift.is_some() => {
            return refuse(format!("{} values in a function of elements", all.len()));
        }
        Values::Each(all) if ty.rank() == 1 && are_places(&all) => {
            cx.emit_as(Op::Iota, &[], Attrs::none().with_int("axis", 0), ty)?
        }
        Values::Each(all) => {
            let attrs = Attrs::none().with("values", IrAttr::Literals(all));
            cx.emit_as(Op::Constant, &[], attrs, ty)?
        }
    };
    Ok(Val { element, value })
}

/// Shorter constants are kept as they are.
const PLACES: usize = 16;

/// Whether elements are their own places, as a traced `arange` of NumPy leaves them: rules know `iota`, and it takes no memory.
fn are_places(all: &Elements) -> bool {
    let is_place = |(k, l): (usize, Literal)| l.dtype().is_int() && l.to_i64() == k as i64;
    all.len() >= PLACES && all.iter().enumerate().all(is_place)
}

/// The values of one part of complex numbers, which are written as pairs `(1.0, 2.0)`, or as bytes one behind the other.
fn part_of(text: &str, element: ElementType, part: ComplexPart) -> Result<String, Unlowered> {
    let first = usize::from(part == ComplexPart::Imaginary);
    if let Some(hex) = text.strip_prefix("\"0x").and_then(|t| t.strip_suffix('"')) {
        let width = 2 * element.bits().div_ceil(8) as usize;
        if !hex.is_ascii() {
            return refuse("digits that are not hexadecimal");
        }
        let parts = hex.as_bytes().chunks(width).skip(first).step_by(2).flatten();
        return Ok(format!("\"0x{}\"", parts.map(|&b| char::from(b)).collect::<String>()));
    }
    let words = text.split(|c: char| "[](),".contains(c) || c.is_ascii_whitespace());
    let parts: Vec<&str> = words.filter(|w| !w.is_empty()).skip(first).step_by(2).collect();
    match (text.starts_with('['), &parts[..]) {
        (false, [only]) => Ok((*only).to_string()),
        (true, _) => Ok(format!("[{}]", parts.join(", "))),
        _ => refuse("values that are no pairs"),
    }
}

enum Values {
    All(Literal),
    Each(Elements),
}

/// The elements of a tensor of this many.
fn elements(text: &str, element: ElementType, count: u64) -> Result<Values, Unlowered> {
    if count == 0 {
        return Ok(Values::All(Literal::zero(element.storage())));
    }
    if let Some(hex) = text.strip_prefix("\"0x").and_then(|t| t.strip_suffix('"')) {
        return blob(hex, element, count);
    }
    if text.starts_with('"') {
        return refuse("values that are strings");
    }
    if !text.starts_with('[') {
        return Ok(Values::All(scalar(text, element)?));
    }
    let words = text.split(|c: char| matches!(c, '[' | ']' | ',') || c.is_ascii_whitespace());
    let all: Elements =
        words.filter(|w| !w.is_empty()).map(|w| scalar(w, element)).collect::<Result<_, _>>()?;
    match all.len() as u64 == count {
        true => Ok(Values::Each(all)),
        false => refuse(format!("{} values for {count} elements", all.len())),
    }
}

/// One element as written: a decimal, the bits of a float, a truth value.
fn scalar(text: &str, element: ElementType) -> Result<Literal, Unlowered> {
    let wrong = || {
        Unlowered::Unsupported(format!(
            "the value `{}` of type {element}",
            text.chars().take(40).collect::<String>()
        ))
    };
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map(|bits| element.of_bits(bits)).map_err(|_| wrong());
    }
    match element {
        ElementType::Float(dtype) => {
            text.parse().map(|x| Literal::from_f64(dtype, x)).map_err(|_| wrong())
        }
        ElementType::Bool => match text {
            "true" | "1" => Ok(element.of_bits(1)),
            "false" | "0" => Ok(element.of_bits(0)),
            _ => Err(wrong()),
        },
        ElementType::Int { .. } => {
            let whole: i128 = text.parse().map_err(|_| wrong())?;
            let bits = whole as i64 as u64;
            let fits = i128::from(bits as i64) == whole || i128::from(bits) == whole;
            if fits { Ok(element.of_bits(bits)) } else { Err(wrong()) }
        }
    }
}

/// The bytes of all elements, or of one that stands for all, low bytes first; truth values are packed.
fn blob(hex: &str, element: ElementType, count: u64) -> Result<Values, Unlowered> {
    let width = match element {
        ElementType::Bool => 1,
        element => u64::from(element.bits().div_ceil(8)),
    };
    let digits = hex.as_bytes();
    let nibble = |d: u8| (d as char).to_digit(16);
    let byte = |k: usize| match (
        digits.get(2 * k).and_then(|&d| nibble(d)),
        digits.get(2 * k + 1).and_then(|&d| nibble(d)),
    ) {
        (Some(high), Some(low)) => Ok(u64::from(high * 16 + low)),
        _ => refuse("digits that are not hexadecimal"),
    };
    let given = digits.len() as u64 / 2;
    if element == ElementType::Bool && given == count.div_ceil(8) && count > 1 {
        let bit = |k: u64| byte((k / 8) as usize).map(|b| element.of_bits(b >> (k % 8)));
        return (0..count).map(bit).collect::<Result<_, _>>().map(Values::Each);
    }
    let at = |k: u64| {
        let first = (k * width) as usize;
        let mut bits = 0;
        for n in 0..width as usize {
            bits |= byte(first + n)? << (8 * n);
        }
        Ok(element.of_bits(bits))
    };
    if count.checked_mul(width) == Some(given) {
        return (0..count).map(at).collect::<Result<_, _>>().map(Values::Each);
    }
    match given == width {
        true => Ok(Values::All(at(0)?)),
        false => refuse(format!("{given} bytes for {count} elements of {width}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, name: &str, count: u64) -> Option<Vec<f64>> {
        let element = ElementType::named(name).expect("a type");
        match elements(text, element, count) {
            Ok(Values::All(l)) => Some(vec![l.to_f64()]),
            Ok(Values::Each(all)) => Some(all.iter().map(|l| l.to_f64()).collect()),
            Err(_) => None,
        }
    }

    #[test]
    fn splats_lists_and_blobs_are_read() {
        assert_eq!(read("1.500000e+00", "f32", 4), Some(vec![1.5]));
        assert_eq!(read("[[1, -2], [3, 4]]", "i16", 4), Some(vec![1.0, -2.0, 3.0, 4.0]));
        assert_eq!(read("\"0x0000803F000000C0\"", "f32", 2), Some(vec![1.0, -2.0]));
        assert_eq!(read("\"0x0000803F\"", "f32", 9), Some(vec![1.0]));
        assert_eq!(read("0x7F800000", "f32", 1), Some(vec![f64::INFINITY]));
        assert_eq!(read("\"0x05\"", "i1", 3), Some(vec![1.0, 0.0, 1.0]));
        assert_eq!(read("18446744073709551615", "ui64", 1), Some(vec![-1.0]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (text, name, count) in [
            ("[1, 2]", "f32", 3),
            ("\"0x0000\"", "f32", 1),
            ("\"0x00zz00zz\"", "f32", 1),
            ("1.5", "i32", 1),
            ("99999999999999999999", "i64", 1),
            ("\"abc\"", "i8", 3),
        ] {
            assert_eq!(read(text, name, count), None, "{text}");
        }
    }
}
