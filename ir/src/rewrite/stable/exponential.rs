//! Sums of exponentials: softmax, log-softmax, logsumexp, softplus.
//!
//! All are shifted by the maximum `m` of the exponents over the summed axes. Where `m` is not finite
//! the shift is 0 instead, which leaves the naive form: a row of -inf has the logsumexp -inf, and no
//! NaN comes from inf - inf. `m` is held fixed for derivatives. That is right at every order, since
//! the shifted forms do not depend on the shift at all.

use super::shape::{
    REACH, Spread, both_ways, kept, made_by, narrowed, number, operand, strip, unrounded,
};
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::literal::Literal;
use crate::op::Op;
use crate::rewrite::pattern::Match;
use crate::rewrite::rule::Site;

/// Exponents and the sum of their exponentials.
pub(super) struct Sum {
    pub(super) x: Value,
    pub(super) sum: Inst,
}

/// The exponents of a sum of exponentials, where the sum is one.
fn exponents(f: &Function, sum: Inst) -> Option<Value> {
    let axes = !f.attrs(sum).ints("axes").is_empty();
    let x = operand(f, narrowed(f, f.args(sum)[0]), Op::Exp).filter(|_| axes)?;
    f.literal(x).is_none().then_some(x)
}

/// The softmax that an instruction is, naive or shifted. The sum of 16-bit exponentials may be in a wider type.
pub(super) fn quotient(f: &Function, i: Inst) -> Option<Sum> {
    let of = |above: Value, below: Spread| {
        let x = operand(f, above, Op::Exp)?;
        let sum = below.with(f, |v| unrounded(f, v)).reduction(f, Op::ReduceSum, f.ty(above))?;
        (exponents(f, sum)? == x).then_some(Sum { x, sum })
    };
    match (f.op(i), f.args(i)) {
        (Op::Div, &[above, below]) => of(above, Spread::of(f, below)),
        (Op::Mul, args) => both_ways(args)
            .into_iter()
            .find_map(|(above, factor)| of(above, Spread::of(f, factor).through_reciprocal(f)?)),
        _ => None,
    }
}

/// Whether a sum has the type of its exponents.
fn is_of_one_type(f: &Function, s: &Sum) -> bool {
    f.ty(f.args(s.sum)[0]) == f.ty(s.x)
}

/// `x - spread(log(sum(exp(x))))`.
fn difference(f: &Function, i: Inst) -> Option<Sum> {
    let (Op::Sub, &[x, log]) = (f.op(i), f.args(i)) else { return None };
    let sum = Spread::of(f, log).through(f, Op::Log)?.reduction(f, Op::ReduceSum, f.ty(x))?;
    (exponents(f, sum)? == x).then_some(Sum { x, sum })
}

/// Whether `x` is some `z` less its maximum over the axes that `sum` sums: its exponentials are at
/// most 1, and one of them is 1.
fn is_shifted(f: &Function, x: Value, sum: Inst) -> bool {
    is_below(f, x, sum, maximum)
}

/// Whether a sum is one of exponentials less their maximum over the summed axes, which may be guarded where it is not
/// finite. Then it is at least 1 and at most the number of exponentials; or it is 0, infinite or NaN.
pub fn is_softmax_sum(f: &Function, sum: Inst) -> bool {
    f.op(sum) == Op::ReduceSum
        && exponents(f, sum).is_some_and(|x| is_below(f, x, sum, finite_maximum))
}

/// As [`is_shifted`]; `unguarded` takes off what guards a maximum.
fn is_below(f: &Function, x: Value, sum: Inst, unguarded: fn(&Function, Value) -> Value) -> bool {
    let mut x = x;
    // A positive factor may have been applied after the shift.
    for _ in 0..REACH {
        let positive = |v| number(f, v).is_some_and(|l| l.to_f64() > 0.0);
        x = if let Some(inner) = operand(f, x, Op::StopGradient) {
            inner
        } else if let Some(i) = made_by(f, x, Op::Div).filter(|&i| positive(f.args(i)[1])) {
            f.args(i)[0]
        } else if let Some(i) = made_by(f, x, Op::Mul)
            && let Some((inner, _)) =
                both_ways(f.args(i)).into_iter().find(|&(_, factor)| positive(factor))
        {
            inner
        } else {
            break;
        };
    }
    let by_maximum = |z: Value, shift: Spread| {
        is_maximum(f, &shift.with(f, |v| unguarded(f, v)), z, sum).is_some()
    };
    if let Some(i) = made_by(f, x, Op::Sub) {
        return by_maximum(f.args(i)[0], Spread::of(f, f.args(i)[1]));
    }
    made_by(f, x, Op::Add).is_some_and(|i| {
        both_ways(f.args(i)).into_iter().any(|(z, minus)| {
            Spread::of(f, minus).through(f, Op::Neg).is_some_and(|shift| by_maximum(z, shift))
        })
    })
}

/// Whether `shift` is the maximum of `z` over the axes that `sum` sums, spread over them. The maximum may be of what `z` is under views.
fn is_maximum(f: &Function, shift: &Spread, z: Value, sum: Inst) -> Option<()> {
    let max = made_by(f, shift.value, Op::ReduceMax)?;
    let base = |v: Value| Spread::of(f, v).with(f, |v| free(f, v));
    let (of_z, of_max) = (base(z), base(f.args(max)[0]));
    let same = of_z.value == of_max.value && f.literal(of_z.value).is_none();
    let is_summed = |d: usize| f.attrs(sum).ints("axes").contains(&(d as i64));
    let kept = kept(f, max);
    let in_place = |(in_z, in_max): (&Option<usize>, &Option<usize>)| match (*in_z, *in_max) {
        (None, _) => true,
        (Some(d), None) => is_summed(d),
        (Some(d), Some(m)) => match kept.iter().position(|&k| k == m) {
            Some(k) => !is_summed(d) && shift.along[k] == Some(d),
            None => is_summed(d),
        },
    };
    (same && of_z.along.iter().zip(&of_max.along).all(in_place)).then_some(())
}

/// The exponents without the maximum over the axes that `sum` sums, where that is what was subtracted last.
pub(super) fn unshifted(f: &Function, x: Value, sum: Inst) -> Value {
    match made_by(f, x, Op::Sub) {
        Some(i) if is_shifted(f, x, sum) => f.args(i)[0],
        _ => x,
    }
}

/// The value without what only stops derivatives.
fn free(f: &Function, v: Value) -> Value {
    let inner = |&v: &Value| operand(f, v, Op::StopGradient);
    std::iter::successors(Some(v), inner).take(REACH).last().unwrap_or(v)
}

/// The value without what guards a maximum: a choice or a bound by a number.
fn maximum(f: &Function, v: Value) -> Value {
    let mut v = v;
    for _ in 0..REACH {
        v = free(f, v);
        let pair = if let Some(i) = made_by(f, v, Op::SelectN) {
            [f.args(i)[1], f.args(i)[2]]
        } else if let Some(i) = made_by(f, v, Op::Max) {
            [f.args(i)[0], f.args(i)[1]]
        } else {
            return v;
        };
        let Some((inner, _)) = both_ways(&pair).into_iter().find(|p| number(f, p.1).is_some())
        else {
            return v;
        };
        v = inner;
    }
    v
}

/// The value without a choice of a number where it is not finite, and without a bound that is -inf.
fn finite_maximum(f: &Function, v: Value) -> Value {
    let mut v = v;
    for _ in 0..REACH {
        v = free(f, v);
        let inner = if let Some(i) = made_by(f, v, Op::SelectN) {
            let &[finite, other, max] = f.args(i) else { return v };
            let of = operand(f, finite, Op::IsFinite).map(|of| free(f, of));
            (number(f, other).is_some() && of == Some(free(f, max))).then_some(max)
        } else if let Some(i) = made_by(f, v, Op::Max) {
            let least = |l: Literal| l.to_f64() == f64::NEG_INFINITY;
            let mut pairs = both_ways(f.args(i)).into_iter();
            pairs.find(|p| number(f, p.1).is_some_and(least)).map(|p| p.0)
        } else {
            None
        };
        let Some(inner) = inner else { return v };
        v = inner;
    }
    v
}

impl Site<'_, '_> {
    /// The shift of exponents over the kept axes, and the exponents less it.
    fn shifted(&mut self, s: &Sum) -> (Value, Value) {
        let x = self.get(s.x);
        let max = self.reduce(Op::ReduceMax, x, s.sum);
        let fixed = self.b.op(Op::StopGradient, &[max]);
        let finite = self.b.op(Op::IsFinite, &[fixed]);
        let ty = self.b.ty(fixed).clone();
        let zero = self.b.literal(&ty, Literal::zero(ty.dtype));
        let shift = self.b.op(Op::SelectN, &[finite, zero, fixed]);
        let spread = self.spread(shift, s.sum);
        (shift, self.b.op(Op::Sub, &[x, spread]))
    }
}

/// A naive softmax.
pub(super) fn is_softmax(m: &Match<'_>) -> Option<Sum> {
    quotient(m.f, m.root.inst).filter(|s| is_of_one_type(m.f, s) && !is_shifted(m.f, s.x, s.sum))
}

pub(super) fn softmax(site: &mut Site<'_, '_>, s: Sum) -> Value {
    let (_, x) = site.shifted(&s);
    let e = site.b.op(Op::Exp, &[x]);
    let sum = site.reduce(Op::ReduceSum, e, s.sum);
    let below = site.spread(sum, s.sum);
    site.b.op(Op::Div, &[e, below])
}

/// The sum of a log-softmax, and whether its exponents are shifted already.
pub(super) fn is_log_softmax(m: &Match<'_>) -> Option<(Sum, bool)> {
    let f = m.f;
    let of_log = match (m.root.op, f.def(m.root.args[0])) {
        (Op::Log, ValueDef::Inst(i, _)) => quotient(f, i).filter(|s| is_of_one_type(f, s)),
        _ => None,
    };
    match of_log {
        Some(s) => {
            let shifted = is_shifted(f, s.x, s.sum);
            Some((s, shifted))
        }
        None => {
            let s = difference(f, m.root.inst).filter(|s| !is_shifted(f, s.x, s.sum))?;
            Some((s, false))
        }
    }
}

pub(super) fn log_softmax(site: &mut Site<'_, '_>, (s, is_shifted): (Sum, bool)) -> Value {
    let (x, sum) = if is_shifted {
        // Shifted exponents give a finite sum, but their quotient may be 0 where its log is not -inf.
        let x = site.get(s.x);
        (x, site.get(site.f.inst_results(s.sum)[0]))
    } else {
        let (_, x) = site.shifted(&s);
        let e = site.b.op(Op::Exp, &[x]);
        (x, site.reduce(Op::ReduceSum, e, s.sum))
    };
    let log = site.b.op(Op::Log, &[sum]);
    let spread = site.spread(log, s.sum);
    site.b.op(Op::Sub, &[x, spread])
}

/// A naive sum under a logarithm, and the views between the two.
pub(super) fn is_logsumexp(m: &Match<'_>) -> Option<(Sum, Vec<Inst>)> {
    let f = m.f;
    let mut views = Vec::new();
    let sum = made_by(f, strip(f, m.root.args[0], &mut views), Op::ReduceSum)?;
    let s = Sum { x: exponents(f, sum)?, sum };
    (is_of_one_type(f, &s) && !is_shifted(f, s.x, sum)).then_some((s, views))
}

pub(super) fn logsumexp(site: &mut Site<'_, '_>, (s, views): (Sum, Vec<Inst>)) -> Value {
    let (shift, x) = site.shifted(&s);
    let e = site.b.op(Op::Exp, &[x]);
    let sum = site.reduce(Op::ReduceSum, e, s.sum);
    let log = site.b.op(Op::Log, &[sum]);
    let whole = site.b.op(Op::Add, &[shift, log]);
    site.under_views(&views, whole)
}

/// The operand of a naive softplus.
pub(super) fn is_softplus(m: &Match<'_>) -> Option<Value> {
    let f = m.f;
    let e = match m.root.op {
        Op::Log1p => m.root.args[0],
        _ => {
            let sum = made_by(f, m.root.args[0], Op::Add)?;
            let is_one = |v| number(f, v).is_some_and(|l| l.to_f64() == 1.0);
            both_ways(f.args(sum)).into_iter().find(|&(_, one)| is_one(one))?.0
        }
    };
    operand(f, e, Op::Exp).filter(|&x| f.literal(x).is_none())
}

pub(super) fn softplus(site: &mut Site<'_, '_>, x: Value) -> Value {
    let x = site.get(x);
    let ty = site.b.ty(x).clone();
    let zero = site.b.literal(&ty, Literal::zero(ty.dtype));
    site.b.op(Op::Logaddexp, &[x, zero])
}
