//! Index expressions over the variables that a launch has: what they range over, and their instructions.

use super::asm::{Asm, Class, Reg};
use adfuse_ir::affine::simplified;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::{DType, kernel::Extents};

/// What coordinates are made of: numbers below known extents, in registers of 32 bits where they fit.
#[derive(Clone, Default)]
pub(super) struct Vars {
    regs: Vec<Reg>,
    /// Their extents, as expressions are simplified with.
    pub(super) extents: Extents,
}

impl Vars {
    /// Adds a variable below an extent.
    pub(super) fn push(&mut self, reg: Reg, extent: i64) -> IndexExpr {
        self.regs.push(reg);
        self.extents.push(extent.max(1));
        IndexExpr::axis(self.regs.len() - 1)
    }
}

/// An integer that a parameter read, by which places are chosen.
pub(super) type Datum = Option<(Reg, DType)>;

/// An expression of coordinates as one of the variables.
pub(super) fn resolved(e: &IndexExpr, at: &[IndexExpr], vars: &Vars) -> IndexExpr {
    simplified(&e.compose(at), &vars.extents)
}

/// The least and the greatest value.
pub(super) fn range(e: &IndexExpr, extents: &[i64]) -> (i128, i128) {
    match e {
        IndexExpr::Axis(a) => {
            (0, i128::from(extents.get(usize::from(*a)).map_or(0, |n| (n - 1).max(0))))
        }
        IndexExpr::Const(c) => ((*c).into(), (*c).into()),
        IndexExpr::Add(a, b) => {
            let (a, b) = (range(a, extents), range(b, extents));
            (a.0 + b.0, a.1 + b.1)
        }
        IndexExpr::Mul(a, c) => {
            let a = range(a, extents);
            let (x, y) = (a.0 * i128::from(*c), a.1 * i128::from(*c));
            (x.min(y), x.max(y))
        }
        IndexExpr::FloorDiv(a, c) => {
            let a = range(a, extents);
            (a.0.div_euclid((*c).into()), a.1.div_euclid((*c).into()))
        }
        IndexExpr::Mod(a, c) => {
            let a = range(a, extents);
            match a.0 >= 0 && a.1 < i128::from(*c) {
                true => a,
                false => (0, i128::from(c - 1)),
            }
        }
        IndexExpr::Data { lo, hi, .. } => ((*lo).into(), (*hi).into()),
    }
}

/// Whether every number on the way to an expression's value fits 32 bits with a sign.
fn fits(e: &IndexExpr, extents: &[i64]) -> bool {
    let (lo, hi) = range(e, extents);
    let within = lo >= i128::from(i32::MIN) && hi <= i128::from(i32::MAX);
    within
        && match e {
            IndexExpr::Axis(_) | IndexExpr::Const(_) | IndexExpr::Data { .. } => true,
            IndexExpr::Add(a, b) => fits(a, extents) && fits(b, extents),
            IndexExpr::Mul(a, c) | IndexExpr::FloorDiv(a, c) | IndexExpr::Mod(a, c) => {
                // Quotients of numbers below zero are taken of larger ones.
                let (lo, hi) = range(a, extents);
                let moved = hi - lo + i128::from(*c).abs();
                fits(a, extents) && moved <= i128::from(i32::MAX) && i32::try_from(*c).is_ok()
            }
        }
}

/// Whether the value is a multiple of `n`, as far as its form says.
pub(super) fn divisible(e: &IndexExpr, n: i64) -> bool {
    n == 1
        || match e {
            IndexExpr::Const(c) => c % n == 0,
            IndexExpr::Add(a, b) => divisible(a, n) && divisible(b, n),
            IndexExpr::Mul(a, c) => c % n == 0 || divisible(a, n),
            IndexExpr::Mod(a, c) => c % n == 0 && divisible(a, n),
            IndexExpr::Axis(_) | IndexExpr::FloorDiv(..) | IndexExpr::Data { .. } => false,
        }
}

/// The expression without the constant that is added last, and that constant.
pub(super) fn split(e: &IndexExpr) -> (IndexExpr, i64) {
    match e {
        IndexExpr::Const(c) => (IndexExpr::Const(0), *c),
        IndexExpr::Add(a, b) => match b.as_ref() {
            IndexExpr::Const(c) => (a.as_ref().clone(), *c),
            _ => (e.clone(), 0),
        },
        _ => (e.clone(), 0),
    }
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
pub(super) fn value(asm: &mut Asm, e: &IndexExpr, vars: &Vars, data: &[Datum]) -> Reg {
    let width = if fits(e, &vars.extents) { &NARROW } else { &WIDE };
    of_width(asm, e, vars, data, width)
}

/// As [`value`], of 64 bits.
pub(super) fn long(asm: &mut Asm, e: &IndexExpr, vars: &Vars, data: &[Datum]) -> Reg {
    let found = value(asm, e, vars, data);
    widened(asm, found)
}

/// A number of 32 bits with a sign as one of 64.
pub(super) fn widened(asm: &mut Asm, x: Reg) -> Reg {
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

/// An expression moved above zero by so many times `c`, and how many times that was.
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
pub(super) enum Truth {
    Always,
    Never,
    When(Reg),
}

/// Whether all guards hold.
pub(super) fn holds(
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

/// Coordinates of a place among these extents, row-major.
pub(super) fn coordinates(place: &IndexExpr, extents: &[i64]) -> Vec<IndexExpr> {
    let mut within = 1i64;
    let mut at = Vec::new();
    for (k, &n) in extents.iter().enumerate().rev() {
        let part = place.clone().floor_div(within.max(1));
        // The outermost has no bound to take a remainder by.
        at.push(match extents[..k].iter().all(|&m| m == 1) {
            true if n != 1 => part,
            _ => part.modulo(n.max(1)),
        });
        within = within.saturating_mul(n.max(1));
    }
    at.reverse();
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_of_a_place_are_row_major() {
        let extents = [1, 3, 1, 4, 5];
        for place in 0..60 {
            let at: Vec<i64> = coordinates(&IndexExpr::axis(0), &extents)
                .iter()
                .map(|e| e.eval(&[place], &[]))
                .collect();
            assert_eq!(at, [0, place / 20, 0, place / 5 % 4, place % 5]);
        }
    }

    #[test]
    fn a_place_in_groups_is_the_group_and_the_rest() {
        // Four neighbours along the last axis of [6, 8], of group d0: a dense place is d0 * 4 + j.
        let group = IndexExpr::axis(0);
        let mut at = coordinates(&group, &[6, 2]);
        let last = at.pop().expect("two axes").times(4).plus(3);
        let place = at[0].clone().times(8).sum(last);
        let simple = simplified(&place, &[12]);
        assert_eq!(simple.to_string(), "d0 * 4 + 3");
        let (rest, constant) = split(&simple);
        assert!(divisible(&rest, 4) && !divisible(&rest, 8));
        assert_eq!(constant, 3);
    }

    #[test]
    fn ranges_hold_every_value() {
        let x = IndexExpr::axis(0).times(-3).plus(5);
        let all = [
            x.clone(),
            x.clone().floor_div(4),
            x.clone().modulo(7),
            x.times(-1).sum(IndexExpr::axis(1)),
        ];
        for e in all {
            let (lo, hi) = range(&e, &[9, 4]);
            for a in 0..9 {
                for b in 0..4 {
                    let v = i128::from(e.eval(&[a, b], &[]));
                    assert!(lo <= v && v <= hi, "{e} is {v}, not in {lo}..={hi}");
                }
            }
        }
    }
}
