//! Exponentials of scores and what is made of their sums: as the chip has them in `fast`, as they are defined elsewhere.

use super::scores::LEAST;
use super::tile::made;
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::isel;
use adfuse_ir::scalar::{Recorder, ScalarProgram, expand};
use adfuse_ir::{DType, Fp};

/// log2(e) and ln(2), rounded.
const LOG2_E: &str = "0f3FB8AA3B";
const LN_2: &str = "0f3F317218";
const ZERO: &str = "0f00000000";

/// The functions of a mode.
pub(super) enum ScoreFunctions {
    /// Powers and logarithms of two, and reciprocals, of the chip's special unit.
    Approximate,
    /// Scalar programs, with one result on every engine.
    Defined { exp: ScalarProgram, log: ScalarProgram },
}

impl ScoreFunctions {
    pub(super) fn new(fp: Fp) -> ScoreFunctions {
        if fp == Fp::Fast {
            return ScoreFunctions::Approximate;
        }
        let exp = expand(&Recorder::record_any(&[DType::F32], |x| x[0].exp()));
        let log = expand(&Recorder::record_any(&[DType::F32], |x| x[0].log()));
        ScoreFunctions::Defined { exp, log }
    }

    /// What an [`exponential`](Self::exponential) is less by: a maximum or the logarithm of a sum, or 0 where it is that of nothing.
    pub(super) fn shift(&self, asm: &mut Asm, most: Reg) -> Reg {
        let none = made(asm, Class::Pred, "setp.eq.f32", format_args!("{most}, {LEAST}"));
        let by = made(asm, Class::Single, "selp.f32", format_args!("{ZERO}, {most}, {none}"));
        match self {
            ScoreFunctions::Approximate => {
                made(asm, Class::Single, "mul.rn.f32", format_args!("{by}, {LOG2_E}"))
            }
            ScoreFunctions::Defined { .. } => by,
        }
    }

    /// exp(x) of a score that is less by a [`shift`](Self::shift).
    pub(super) fn exponential(&self, asm: &mut Asm, x: Reg, shift: Reg) -> Reg {
        match self {
            ScoreFunctions::Approximate => {
                let less = made(asm, Class::Single, "neg.f32", shift);
                let power = format!("{x}, {LOG2_E}, {less}");
                let power = made(asm, Class::Single, "fma.rn.f32", power);
                made(asm, Class::Single, "ex2.approx.ftz.f32", power)
            }
            ScoreFunctions::Defined { exp, .. } => {
                let less = made(asm, Class::Single, "sub.rn.f32", format_args!("{x}, {shift}"));
                applied(asm, exp, less)
            }
        }
    }

    /// log(sum exp(x)) of scores, whose exponentials were less by a [`shift`](Self::shift) and sum up to `total`.
    pub(super) fn log_sum(&self, asm: &mut Asm, total: Reg, shift: Reg) -> Reg {
        match self {
            ScoreFunctions::Approximate => {
                let log = made(asm, Class::Single, "lg2.approx.f32", total);
                let log = made(asm, Class::Single, "add.rn.f32", format_args!("{log}, {shift}"));
                made(asm, Class::Single, "mul.rn.f32", format_args!("{log}, {LN_2}"))
            }
            ScoreFunctions::Defined { log, .. } => {
                let total = asm.copied(total);
                let log = applied(asm, log, total);
                made(asm, Class::Single, "add.rn.f32", format_args!("{shift}, {log}"))
            }
        }
    }

    /// Divides numbers by a sum of weights, in place.
    pub(super) fn divide(&self, asm: &mut Asm, all: impl Iterator<Item = Reg>, total: Reg) {
        match self {
            ScoreFunctions::Approximate => {
                let below = made(asm, Class::Single, "rcp.approx.ftz.f32", total);
                all.for_each(|x| asm.emit(format_args!("mul.rn.f32 {x}, {x}, {below}")));
            }
            ScoreFunctions::Defined { .. } => {
                all.for_each(|x| asm.emit(format_args!("div.rn.f32 {x}, {x}, {total}")));
            }
        }
    }
}

fn applied(asm: &mut Asm, program: &ScalarProgram, x: Reg) -> Reg {
    isel::outputs(asm, program, &[Some(x)]).first().copied().unwrap_or(x)
}
