//! Index expressions over the variables that a launch has: what they range over, and their instructions.

use super::asm::{Asm, Class, Reg};
use crate::gpu::schedule::index::{fits, range};
use adfuse_ir::DType;
use adfuse_ir::affine::simplified;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::Extents;

/// What coordinates are made of: numbers below known extents, in registers of 32 bits where they fit.
#[derive(Clone, Default)]
pub(crate) struct Vars {
    regs: Vec<Reg>,
    /// Their extents, as expressions are simplified with.
    pub(crate) extents: Extents,
}

impl Vars {
    /// Adds a variable below an extent.
    pub(crate) fn push(&mut self, reg: Reg, extent: i64) -> IndexExpr {
        self.regs.push(reg);
        self.extents.push(extent.max(1));
        IndexExpr::axis(self.regs.len() - 1)
    }
}

/// An integer that a parameter read, by which places are chosen.
pub(crate) type Datum = Option<(Reg, DType)>;

/// An expression of coordinates as one of the variables.
pub(crate) fn resolved(e: &IndexExpr, at: &[IndexExpr], vars: &Vars) -> IndexExpr {
    simplified(&e.compose(at), &vars.extents)
}

/// Instructions for index arithmetic of one width.
struct Width {
    class: Class,
    signed: &'static str,
    unsigned: &'static str,
    raw: &'static str,
}

const NARROW: Width = Width { class: Class::Word, signed: "s32", unsigned: "u32", raw: "b32" };
const WIDE: Width = Width { class: Class::Long, signed: "s64", unsigned: "u64", raw: "b64" };

/// The value of a resolved expression: of 32 bits with a sign where every number on the way fits.
pub(crate) fn value(asm: &mut Asm, e: &IndexExpr, vars: &Vars, data: &[Datum]) -> Reg {
    if !asm.writes {
        return asm.fresh(Class::Word);
    }
    let width = if fits(e, &vars.extents) { &NARROW } else { &WIDE };
    of_width(asm, e, vars, data, width)
}

/// As [`value`], of 64 bits.
pub(crate) fn long(asm: &mut Asm, e: &IndexExpr, vars: &Vars, data: &[Datum]) -> Reg {
    let found = value(asm, e, vars, data);
    widened(asm, found)
}

/// A number of 32 bits with a sign as one of 64.
pub(crate) fn widened(asm: &mut Asm, x: Reg) -> Reg {
    match x.class {
        Class::Word => asm.pure(Class::Long, "cvt.s64.s32", x),
        _ => x,
    }
}

fn of_width(asm: &mut Asm, e: &IndexExpr, vars: &Vars, data: &[Datum], w: &Width) -> Reg {
    match e {
        IndexExpr::Axis(a) => {
            let reg = vars.regs.get(usize::from(*a)).copied().unwrap_or_else(|| asm.word(0));
            resized(asm, reg, w)
        }
        IndexExpr::Const(c) => constant(asm, *c, w),
        IndexExpr::Add(a, b) => {
            let x = of_width(asm, a, vars, data, w);
            let op = format!("add.{}", w.signed);
            match b.as_ref() {
                IndexExpr::Const(c) => asm.pure(w.class, &op, format_args!("{x}, {c}")),
                b => {
                    let y = of_width(asm, b, vars, data, w);
                    asm.pure(w.class, &op, format_args!("{x}, {y}"))
                }
            }
        }
        IndexExpr::Mul(a, c) => {
            let x = of_width(asm, a, vars, data, w);
            asm.pure(w.class, &format!("mul.lo.{}", w.signed), format_args!("{x}, {c}"))
        }
        IndexExpr::FloorDiv(a, c) => {
            let (x, moved) = above_zero(asm, a, *c, vars, data, w);
            let q = match c.count_ones() {
                1 => {
                    let op = format!("shr.{}", w.unsigned);
                    asm.pure(w.class, &op, format_args!("{x}, {}", c.trailing_zeros()))
                }
                _ => asm.pure(w.class, &format!("div.{}", w.unsigned), format_args!("{x}, {c}")),
            };
            match moved {
                0 => q,
                k => asm.pure(w.class, &format!("sub.{}", w.signed), format_args!("{q}, {k}")),
            }
        }
        IndexExpr::Mod(a, c) => {
            let (x, _) = above_zero(asm, a, *c, vars, data, w);
            match c.count_ones() {
                1 => asm.pure(w.class, &format!("and.{}", w.raw), format_args!("{x}, {}", c - 1)),
                _ => asm.pure(w.class, &format!("rem.{}", w.unsigned), format_args!("{x}, {c}")),
            }
        }
        IndexExpr::Data { param, lo, hi } => {
            let datum = data.get(*param as usize).copied().flatten();
            let Some((x, d)) = datum else { return constant(asm, *lo, w) };
            clamped(asm, x, d, (*lo, *hi), w)
        }
    }
}

fn constant(asm: &mut Asm, c: i64, w: &Width) -> Reg {
    if w.class == Class::Long { asm.long(c) } else { asm.word(c) }
}

fn resized(asm: &mut Asm, x: Reg, w: &Width) -> Reg {
    match (x.class, w.class) {
        (Class::Word, Class::Long) => asm.pure(Class::Long, "cvt.s64.s32", x),
        (Class::Long, Class::Word) => asm.pure(Class::Word, "cvt.u32.u64", x),
        _ => x,
    }
}

/// An expression moved above zero by this many times `c`, and how many times that was.
fn above_zero(
    asm: &mut Asm,
    e: &IndexExpr,
    c: i64,
    vars: &Vars,
    data: &[Datum],
    w: &Width,
) -> (Reg, i128) {
    let x = of_width(asm, e, vars, data, w);
    let (lo, _) = range(e, &vars.extents);
    if lo >= 0 {
        return (x, 0);
    }
    let times = -lo.div_euclid(c.into());
    let op = format!("add.{}", w.signed);
    (asm.pure(w.class, &op, format_args!("{x}, {}", times * i128::from(c))), times)
}

fn clamped(asm: &mut Asm, x: Reg, d: DType, (lo, hi): (i64, i64), w: &Width) -> Reg {
    // In 64 bits, where every integer type fits, and then as wide as it is wanted.
    let wide = match (x.class, d) {
        (Class::Long, _) => x,
        (_, DType::U32) => asm.pure(Class::Long, "cvt.u64.u32", x),
        _ => asm.pure(Class::Long, "cvt.s64.s32", x),
    };
    let low = asm.pure(Class::Long, "max.s64", format_args!("{wide}, {lo}"));
    let both = asm.pure(Class::Long, "min.s64", format_args!("{low}, {hi}"));
    resized(asm, both, w)
}

/// What is known of a condition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    Always,
    Never,
    When(Reg),
}

/// Whether all guards hold.
pub(crate) fn holds(
    asm: &mut Asm,
    guards: &[Guard],
    at: &[IndexExpr],
    vars: &Vars,
    data: &[Datum],
) -> Truth {
    let mut all = Truth::Always;
    for guard in guards {
        let e = resolved(&guard.expr, at, vars);
        let (lo, hi) = range(&e, &vars.extents);
        let (from, to) = (guard.range.start, guard.range.end);
        if lo >= i128::from(to) || hi < i128::from(from) || from >= to {
            return Truth::Never;
        }
        let mut tests = Vec::new();
        if lo < i128::from(from) {
            tests.push(("ge", from));
        }
        if hi >= i128::from(to) {
            tests.push(("lt", to));
        }
        for (relation, bound) in tests {
            let x = value(asm, &e, vars, data);
            let signed = if x.class == Class::Long { "s64" } else { "s32" };
            let op = format!("setp.{relation}.{signed}");
            let p = asm.pure(Class::Pred, &op, format_args!("{x}, {bound}"));
            all = match all {
                Truth::When(q) => {
                    Truth::When(asm.pure(Class::Pred, "and.pred", format_args!("{q}, {p}")))
                }
                _ => Truth::When(p),
            };
        }
    }
    all
}
