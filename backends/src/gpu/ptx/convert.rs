//! Conversions between element types, as `Literal::convert` defines them.

use super::asm::{Asm, Class, Reg};
use super::operands::{class, constant, select};
use adfuse_ir::{DType, Literal};

/// A number of 32 bits as the type of 8 bits that it is one of, extended to 32; others as they are.
pub(crate) fn narrowed(asm: &mut Asm, x: Reg, d: DType) -> Reg {
    match d {
        DType::I8 => asm.pure(Class::Word, "bfe.s32", format_args!("{x}, 0, 8")),
        DType::U8 => asm.pure(Class::Word, "and.b32", format_args!("{x}, 255")),
        _ => x,
    }
}

/// The float, or the canonical NaN where it is one.
pub(crate) fn canonical(asm: &mut Asm, x: Reg, d: DType) -> Reg {
    let quiet = constant(asm, Literal::from_f64(d, f64::NAN));
    let nan = match d {
        DType::F32 => asm.pure(Class::Pred, "setp.nan.f32", format_args!("{x}, {x}")),
        DType::F64 => asm.pure(Class::Pred, "setp.nan.f64", format_args!("{x}, {x}")),
        _ => {
            let wide = widened(asm, x, d);
            asm.pure(Class::Pred, "setp.nan.f32", format_args!("{wide}, {wide}"))
        }
    };
    select(asm, nan, quiet, x)
}

/// A 16-bit float as the `f32` that it is.
fn widened(asm: &mut Asm, x: Reg, d: DType) -> Reg {
    match d {
        DType::BF16 => {
            // Its bits are the upper half; bits of a register pair are named from below.
            let zero = asm.pure(Class::Half, "mov.b16", "0");
            asm.pure(Class::Single, "mov.b32", format_args!("{{{zero}, {x}}}"))
        }
        _ => asm.pure(Class::Single, "cvt.f32.f16", x),
    }
}

/// A number in another type.
pub(crate) fn convert(asm: &mut Asm, x: Reg, from: DType, to: DType) -> Reg {
    match (from, to) {
        _ if from == to => x,
        (DType::BF16 | DType::F16, _) => {
            let wide = widened(asm, x, from);
            convert(asm, wide, DType::F32, to)
        }
        (_, DType::Bool) => nonzero(asm, x, from),
        (DType::Bool, _) => {
            let (one, zero) = (constant(asm, Literal::one(to)), constant(asm, Literal::zero(to)));
            select(asm, x, one, zero)
        }
        (DType::F32, DType::F64) => asm.pure(Class::Double, "cvt.f64.f32", x),
        (DType::F64, DType::F32) => asm.pure(Class::Single, "cvt.rn.f32.f64", x),
        (DType::F32, DType::BF16) => asm.pure(Class::Half, "cvt.rn.bf16.f32", x),
        (DType::F32, DType::F16) => asm.pure(Class::Half, "cvt.rn.f16.f32", x),
        (DType::F64, DType::F16) => asm.pure(Class::Half, "cvt.rn.f16.f64", x),
        (DType::F64, DType::BF16) => {
            let odd = rounded_to_odd(asm, x);
            asm.pure(Class::Half, "cvt.rn.bf16.f32", odd)
        }
        // Exact but for i64, which is rounded on the way.
        (_, DType::BF16 | DType::F16) => {
            let wide = convert(asm, x, from, DType::F64);
            convert(asm, wide, DType::F64, to)
        }
        (_, DType::F32 | DType::F64) => {
            let source = match from {
                DType::I64 => "s64",
                DType::U32 | DType::U8 => "u32",
                _ => "s32",
            };
            let target = if to == DType::F32 { "f32" } else { "f64" };
            asm.pure(class(to), &format!("cvt.rn.{target}.{source}"), x)
        }
        (DType::F32 | DType::F64, _) => truncated(asm, x, from, to),
        (DType::I64, _) => {
            let low = asm.pure(Class::Word, "cvt.u32.u64", x);
            narrowed(asm, low, to)
        }
        (_, DType::I64) => {
            let op = if from.is_signed_int() { "cvt.s64.s32" } else { "cvt.u64.u32" };
            asm.pure(Class::Long, op, x)
        }
        _ => narrowed(asm, x, to),
    }
}

fn nonzero(asm: &mut Asm, x: Reg, from: DType) -> Reg {
    let zero = constant(asm, Literal::zero(from));
    let op = match from {
        DType::F32 => "setp.neu.f32",
        DType::F64 => "setp.neu.f64",
        DType::I64 => "setp.ne.s64",
        _ => "setp.ne.s32",
    };
    asm.pure(Class::Pred, op, format_args!("{x}, {zero}"))
}

/// An `f64` as an `f32` whose last bit says whether bits were lost: rounding it again rounds once.
fn rounded_to_odd(asm: &mut Asm, x: Reg) -> Reg {
    let toward = asm.pure(Class::Single, "cvt.rz.f32.f64", x);
    let back = asm.pure(Class::Double, "cvt.f64.f32", toward);
    let lost = asm.pure(Class::Pred, "setp.ne.f64", format_args!("{back}, {x}"));
    let bits = asm.pure(Class::Word, "mov.b32", toward);
    let odd = asm.pure(Class::Word, "or.b32", format_args!("{bits}, 1"));
    let bits = select(asm, lost, odd, bits);
    asm.pure(Class::Single, "mov.b32", bits)
}

/// A float as an integer: truncated, saturated, and 0 for NaN.
fn truncated(asm: &mut Asm, x: Reg, from: DType, to: DType) -> Reg {
    let source = if from == DType::F32 { "f32" } else { "f64" };
    let (c, target) = match to {
        DType::I64 => (Class::Long, "s64"),
        DType::U32 => (Class::Word, "u32"),
        _ => (Class::Word, "s32"),
    };
    let whole = asm.pure(c, &format!("cvt.rzi.{target}.{source}"), x);
    let nan = asm.pure(Class::Pred, &format!("setp.nan.{source}"), format_args!("{x}, {x}"));
    let zero = if c == Class::Long { asm.long(0) } else { asm.word(0) };
    let whole = select(asm, nan, zero, whole);
    let (least, most) = match to {
        DType::I8 => (-128, 127),
        DType::U8 => (0, 255),
        _ => return whole,
    };
    let low = asm.pure(Class::Word, "max.s32", format_args!("{whole}, {least}"));
    asm.pure(Class::Word, "min.s32", format_args!("{low}, {most}"))
}
