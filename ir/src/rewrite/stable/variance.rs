//! Variances as the mean of squares less the square of the mean, which cancels where the mean is
//! large beside the deviation, and may even be negative.

use super::shape::{both_ways, made_by, number, operand, same_views, strip};
use crate::entity::{Inst, Value};
use crate::function::Function;
use crate::literal::Literal;
use crate::op::Op;
use crate::rewrite::pattern::Match;
use crate::rewrite::rule::Site;

/// A mean, as it is written.
pub(super) struct Mean {
    /// The sum.
    sum: Inst,
    /// The op that makes the mean of it: `mul` or `div`.
    scale: Op,
    /// Its other operand, 1/n or n.
    by: Literal,
    /// The mean itself, where no view stands between it and the sum.
    value: Option<Value>,
}

/// The number of elements that one element of a reduction is made of.
fn reduced(f: &Function, reduction: Inst) -> Option<u64> {
    let shape = &f.ty(f.args(reduction)[0]).shape;
    let extents = f.attrs(reduction).ints("axes").iter().map(|&a| shape[a as usize].known());
    extents.into_iter().try_fold(1u64, |n, extent| n.checked_mul(extent?))
}

/// The mean that `v` is, the views on the way added to `views`.
fn mean(f: &Function, v: Value, views: &mut Vec<Inst>) -> Option<Mean> {
    let v = strip(f, v, views);
    let (scale, inner, by) = if let Some(i) = made_by(f, v, Op::Div) {
        (Op::Div, f.args(i)[0], number(f, f.args(i)[1])?)
    } else {
        let args = f.args(made_by(f, v, Op::Mul)?);
        let written = |(x, factor)| Some((x, number(f, factor)?));
        let (x, by) = both_ways(args).into_iter().find_map(written)?;
        (Op::Mul, x, by)
    };
    let before = views.len();
    let sum = made_by(f, strip(f, inner, views), Op::ReduceSum)?;
    let n = reduced(f, sum)? as f64;
    // The count itself must be a number of the type. Its reciprocal is rounded by whoever writes it.
    let exact = Literal::from_f64(by.dtype(), n);
    let due = match scale {
        Op::Div => exact,
        _ => Literal::from_f64(by.dtype(), 1.0 / n),
    };
    let value = (views.len() == before).then_some(v);
    (n > 0.0 && by == due && exact.to_f64() == n).then_some(Mean { sum, scale, by, value })
}

/// What `v` is the square of.
fn root(f: &Function, v: Value) -> Option<Value> {
    if let Some(x) = operand(f, v, Op::Square) {
        return Some(x);
    }
    if let Some(i) = made_by(f, v, Op::Mul) {
        return (f.args(i)[0] == f.args(i)[1]).then(|| f.args(i)[0]);
    }
    let i = made_by(f, v, Op::IntegerPow)?;
    (f.attrs(i).int("y") == 2).then(|| f.args(i)[0])
}

/// Two means over the same axes, of the squares and of what is squared, and the views around both.
pub(super) type Means = (Mean, Mean, Vec<Inst>);

/// The means of a variance of floats.
pub(super) fn is_variance(m: &Match<'_>) -> Option<Means> {
    let f = m.f;
    let &[of_squares, square] = m.root.args else { return None };
    if !m.root.ty.dtype.is_float() {
        return None;
    }
    let (mut outer, mut inner) = (Vec::new(), Vec::new());
    let of_squares = mean(f, of_squares, &mut outer)?;
    let square = strip(f, square, &mut inner);
    let plain = mean(f, root(f, square)?, &mut inner)?;
    let x = f.args(plain.sum)[0];
    let fits = root(f, f.args(of_squares.sum)[0]) == Some(x)
        && f.literal(x).is_none()
        && f.attrs(of_squares.sum) == f.attrs(plain.sum)
        && same_views(f, &outer, &inner);
    fits.then_some((of_squares, plain, outer))
}

impl Site<'_, '_> {
    fn scaled(&mut self, sum: Value, like: &Mean) -> Value {
        let ty = self.b.ty(sum).clone();
        let by = self.b.literal(&ty, like.by);
        self.b.op(like.scale, &[sum, by])
    }
}

pub(super) fn variance(site: &mut Site<'_, '_>, (of_squares, plain, views): Means) -> Value {
    let x = site.get(site.f.args(plain.sum)[0]);
    // The mean is often needed elsewhere too, to normalise.
    let mean = match plain.value {
        Some(v) => site.get(v),
        None => {
            let sum = site.get(site.f.inst_results(plain.sum)[0]);
            site.scaled(sum, &plain)
        }
    };
    // The mean is not held fixed: the result does depend on it, if only to second order.
    let spread = site.spread(mean, plain.sum);
    let centred = site.b.op(Op::Sub, &[x, spread]);
    let squares = site.b.op(Op::Square, &[centred]);
    let sum = site.reduce(Op::ReduceSum, squares, plain.sum);
    let variance = site.scaled(sum, &of_squares);
    site.under_views(&views, variance)
}
