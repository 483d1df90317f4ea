//! Partial results of folds, in registers.

use super::asm::{Class, Reg};
use super::emit::Emit;
use super::operands::{constant, select};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Literal};

/// The value that changes nothing it is combined with, and a place that loses to any.
pub(crate) fn neutral(monoid: Monoid, dtype: DType) -> Literal {
    match monoid {
        // -0 + x is x for every x; +0 is not.
        Monoid::Sum if dtype.is_float() => Literal::from_f64(dtype, -0.0),
        Monoid::ArgMax => Monoid::Max.empty(dtype),
        Monoid::ArgMin => Monoid::Min.empty(dtype),
        m => m.empty(dtype),
    }
}

/// A partial result: a value, and its place where that is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) value: Reg,
    pub(crate) place: Option<Reg>,
}

impl Emit<'_> {
    /// What a fold begins with.
    pub(crate) fn empty_part(&mut self, monoid: Monoid, dtype: DType) -> Part {
        let value = constant(&mut self.asm, neutral(monoid, dtype));
        let place = monoid.is_arg().then(|| self.asm.word(i32::MAX.into()));
        Part { value, place }
    }

    /// Two parts as one, the lower places on the left.
    pub(crate) fn join(&mut self, monoid: Monoid, dtype: DType, x: Part, y: Part) -> Part {
        let (Some(px), Some(py)) = (x.place, y.place) else {
            let value = self.combine(monoid, dtype, x.value, y.value);
            return Part { value, place: None };
        };
        let t = crate::gpu::ptx::operands::spelled(dtype);
        let relation = if monoid == Monoid::ArgMax { "gt" } else { "lt" };
        let (a, b) = (x.value, y.value);
        let mut test = |relation: &str, t: &str, a: Reg, b: Reg| {
            self.asm.pure(Class::Pred, &format!("setp.{relation}.{t}"), format_args!("{a}, {b}"))
        };
        // y wins where it is better, or alone is NaN, or is as good and comes before.
        let better = test(relation, t, b, a);
        let mut equal = test("eq", t, a, b);
        let before = test("lt", "s32", py, px);
        let mut wins = better;
        if dtype.is_float() {
            let (nan_x, nan_y) = (test("nan", t, a, a), test("nan", t, b, b));
            let not_x = crate::gpu::ptx::operands::not(&mut self.asm, nan_x);
            let alone = crate::gpu::ptx::operands::both(&mut self.asm, nan_y, not_x);
            let two = crate::gpu::ptx::operands::both(&mut self.asm, nan_x, nan_y);
            let or = |asm: &mut crate::gpu::ptx::asm::Asm, p: Reg, q: Reg| {
                asm.pure(Class::Pred, "or.pred", format_args!("{p}, {q}"))
            };
            wins = or(&mut self.asm, wins, alone);
            equal = or(&mut self.asm, equal, two);
        }
        let tie = crate::gpu::ptx::operands::both(&mut self.asm, equal, before);
        let wins = self.asm.pure(Class::Pred, "or.pred", format_args!("{wins}, {tie}"));
        let value = select(&mut self.asm, wins, b, a);
        Part { value, place: Some(select(&mut self.asm, wins, py, px)) }
    }

    /// A part of the thread whose number in the warp differs in these bits.
    pub(crate) fn exchanged_part(&mut self, x: Part, bits: u32) -> Part {
        Part {
            value: self.exchanged(x.value, bits),
            place: x.place.map(|p| self.exchanged(p, bits)),
        }
    }

    /// A copy of a part that may be written again.
    pub(crate) fn kept_part(&mut self, x: Part) -> Part {
        Part { value: self.asm.copied(x.value), place: x.place.map(|p| self.asm.copied(p)) }
    }

    /// Writes a part again.
    pub(crate) fn set_part(&mut self, to: Part, from: Part) {
        self.asm.set(to.value, from.value);
        if let (Some(to), Some(from)) = (to.place, from.place) {
            self.asm.set(to, from);
        }
    }

    /// The part, or what changes nothing where a condition does not hold.
    pub(crate) fn part_if(
        &mut self,
        p: Option<Reg>,
        x: Part,
        monoid: Monoid,
        dtype: DType,
    ) -> Part {
        let Some(p) = p else { return x };
        let empty = self.empty_part(monoid, dtype);
        let place = x.place.zip(empty.place).map(|(a, b)| select(&mut self.asm, p, a, b));
        Part { value: select(&mut self.asm, p, x.value, empty.value), place }
    }
}
