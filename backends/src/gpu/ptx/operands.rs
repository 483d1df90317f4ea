//! Operands of instructions: classes of registers, suffixes of types, constants, choices.

use super::asm::{Asm, Class, Reg};
use adfuse_ir::{DType, Literal};

/// The registers that values of a type are in.
pub(crate) fn class(dtype: DType) -> Class {
    match dtype {
        DType::Bool => Class::Pred,
        DType::BF16 | DType::F16 => Class::Half,
        DType::F32 => Class::Single,
        DType::F64 => Class::Double,
        DType::I64 => Class::Long,
        DType::I32 | DType::U32 | DType::I8 | DType::U8 | DType::Token => Class::Word,
    }
}

/// How arithmetic spells a type.
pub(crate) fn spelled(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::I64 => "s64",
        DType::U32 | DType::U8 => "u32",
        _ => "s32",
    }
}

/// A constant.
pub(crate) fn constant(asm: &mut Asm, value: Literal) -> Reg {
    let bits = value.bits();
    match value.dtype() {
        DType::Bool => asm.truth(bits == 1),
        DType::F32 => asm.pure(Class::Single, "mov.f32", format_args!("0f{bits:08X}")),
        DType::F64 => asm.pure(Class::Double, "mov.f64", format_args!("0d{bits:016X}")),
        DType::BF16 | DType::F16 => asm.pure(Class::Half, "mov.b16", format_args!("{bits}")),
        DType::I64 => asm.long(bits as i64),
        _ => asm.word(value.to_i64()),
    }
}

/// `p ? x : y`
pub(crate) fn select(asm: &mut Asm, p: Reg, x: Reg, y: Reg) -> Reg {
    if x == y {
        return x;
    }
    if x.class == Class::Pred {
        let left = asm.pure(Class::Pred, "and.pred", format_args!("{p}, {x}"));
        let not = not(asm, p);
        let right = asm.pure(Class::Pred, "and.pred", format_args!("{not}, {y}"));
        return asm.pure(Class::Pred, "or.pred", format_args!("{left}, {right}"));
    }
    let op = format!("selp.{}", x.class.moved());
    asm.pure(x.class, &op, format_args!("{x}, {y}, {p}"))
}

pub(crate) fn not(asm: &mut Asm, p: Reg) -> Reg {
    asm.pure(Class::Pred, "not.pred", format_args!("{p}"))
}

pub(crate) fn both(asm: &mut Asm, p: Reg, q: Reg) -> Reg {
    asm.pure(Class::Pred, "and.pred", format_args!("{p}, {q}"))
}
