//! The exact remainder of floats, with the sign of the dividend.

use super::asm::{Asm, Class, Reg};
use super::operands::{class, constant, select, spelled};
use adfuse_ir::{DType, Literal};

/// `x - y * trunc(x / y)` without rounding: the divisor is doubled until it exceeds the half of what is
/// divided, and taken away wherever it fits on the way back. Each difference is of numbers within a
/// factor of two, and so is exact.
pub(crate) fn float_remainder(asm: &mut Asm, d: DType, x: Reg, y: Reg) -> Reg {
    let (c, t) = (class(d), spelled(d));
    let moved = c.moved();
    let value = |asm: &mut Asm, v: f64| constant(asm, Literal::from_f64(d, v));
    let (quiet, infinity, zero) =
        (value(asm, f64::NAN), value(asm, f64::INFINITY), value(asm, 0.0));
    let half = value(asm, 0.5);
    let a = asm.pure(c, &format!("abs.{t}"), x);
    let b = asm.pure(c, &format!("abs.{t}"), y);
    let rest = asm.copied(a);
    let step = asm.copied(b);
    let (up, down, done) = (asm.label(), asm.label(), asm.label());
    let p = asm.fresh(Class::Pred);
    let twice = asm.fresh(c);
    // Not a number, no divisor, nothing to take away: no loop. All but a < b are settled below.
    for (relation, left, right) in
        [("ltu", a, b), ("equ", a, infinity), ("equ", b, zero), ("equ", b, infinity)]
    {
        asm.emit(format_args!("setp.{relation}.{t} {p}, {left}, {right}"));
        asm.emit(format_args!("@{p} bra {done}"));
    }
    asm.place(&up);
    asm.emit(format_args!("add.rn.{t} {twice}, {step}, {step}"));
    asm.emit(format_args!("setp.le.{t} {p}, {twice}, {rest}"));
    asm.emit(format_args!("@{p} mov.{moved} {step}, {twice}"));
    asm.emit(format_args!("@{p} bra {up}"));
    asm.place(&down);
    asm.emit(format_args!("setp.ge.{t} {p}, {rest}, {step}"));
    asm.emit(format_args!("@{p} sub.rn.{t} {rest}, {rest}, {step}"));
    asm.emit(format_args!("setp.gt.{t} {p}, {step}, {b}"));
    asm.emit(format_args!("@{p} mul.rn.{t} {step}, {step}, {half}"));
    asm.emit(format_args!("@{p} bra {down}"));
    asm.place(&done);
    let rest = {
        // The register is written again where this code stands in a loop.
        let kept = asm.fresh(c);
        asm.set(kept, rest);
        kept
    };
    let signed = asm.pure(c, &format!("copysign.{t}"), format_args!("{x}, {rest}"));
    let none = asm.pure(Class::Pred, &format!("setp.equ.{t}"), format_args!("{b}, {zero}"));
    let endless = asm.pure(Class::Pred, &format!("setp.equ.{t}"), format_args!("{a}, {infinity}"));
    let found = select(asm, none, quiet, signed);
    select(asm, endless, quiet, found)
}
