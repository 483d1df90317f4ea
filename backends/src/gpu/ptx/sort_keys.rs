//! Elements as whole numbers that are in the order of the elements: -0 is 0, and NaN is above all others.

use super::asm::{Asm, Class, Reg};
use super::operands::select;
pub(crate) use crate::gpu::schedule::sort::bits;
use adfuse_ir::DType;

/// The largest number of this many bits: what comes after everything else.
pub(crate) fn last(asm: &mut Asm, bits: u32) -> Reg {
    let most = u64::MAX >> (64 - bits);
    if bits > 32 { asm.long(most as i64) } else { asm.word(most as i64) }
}

/// The number of an element; of descending orders with all bits turned, so that smaller ones come first
/// in both, and equal ones as they come.
pub(crate) fn number(asm: &mut Asm, x: Reg, dtype: DType, descending: bool) -> Reg {
    let bits = bits(dtype);
    let (class, raw) = if bits > 32 { (Class::Long, "b64") } else { (Class::Word, "b32") };
    let number = match dtype {
        DType::Bool => asm.pure(Class::Word, "selp.b32", format_args!("1, 0, {x}")),
        d if d.is_float() => float(asm, x, d),
        d if d.is_signed_int() => {
            let moved = turned(asm, x, 1 << (bits - 1), class, raw);
            // What 8 bits were extended by is not theirs.
            match bits {
                8 => asm.pure(Class::Word, "and.b32", format_args!("{moved}, 255")),
                _ => moved,
            }
        }
        _ => x,
    };
    match descending {
        true => turned(asm, number, u64::MAX >> (64 - bits), class, raw),
        false => number,
    }
}

/// A number with these bits turned.
fn turned(asm: &mut Asm, x: Reg, bits: u64, class: Class, raw: &str) -> Reg {
    let mask = if class == Class::Long { asm.long(bits as i64) } else { asm.word(bits as i64) };
    asm.pure(class, &format!("xor.{raw}"), format_args!("{x}, {mask}"))
}

/// Bits of numbers above zero with their sign turned, of those below with all bits turned.
fn float(asm: &mut Asm, x: Reg, dtype: DType) -> Reg {
    let bits = dtype.bits();
    let (class, t, raw) = match bits {
        64 => (Class::Long, "u64", "b64"),
        _ => (Class::Word, "u32", "b32"),
    };
    let x = match bits {
        64 => asm.pure(class, "mov.b64", x),
        32 => asm.pure(class, "mov.b32", x),
        _ => asm.pure(class, "cvt.u32.u16", x),
    };
    let infinite: u64 = match dtype {
        DType::F64 => 0x7ff0 << 48,
        DType::F32 => 0x7f80 << 16,
        DType::BF16 => 0x7f80,
        _ => 0x7c00,
    };
    let sign = 1u64 << (bits - 1);
    let of = |asm: &mut Asm, bits: u64| match class {
        Class::Long => asm.long(bits as i64),
        _ => asm.word(bits as i64),
    };
    let (rest, sign_bit) = (of(asm, sign - 1), of(asm, sign));
    let (all, infinite) = (of(asm, u64::MAX >> (64 - bits)), of(asm, infinite));
    let size = asm.pure(class, &format!("and.{raw}"), format_args!("{x}, {rest}"));
    let below = asm.pure(Class::Pred, &format!("setp.ge.{t}"), format_args!("{x}, {sign_bit}"));
    let mask = select(asm, below, all, sign_bit);
    let moved = asm.pure(class, &format!("xor.{raw}"), format_args!("{x}, {mask}"));
    let zero = asm.pure(Class::Pred, &format!("setp.eq.{t}"), format_args!("{size}, 0"));
    let nan = asm.pure(Class::Pred, &format!("setp.gt.{t}"), format_args!("{size}, {infinite}"));
    let moved = select(asm, zero, sign_bit, moved);
    select(asm, nan, all, moved)
}
