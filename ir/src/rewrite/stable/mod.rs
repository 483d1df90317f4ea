//! Stable forms: formulas that overflow or cancel although their result does not, rewritten to the
//! ones that everybody means.
//!
//! The result is the same number, not the same bits, so this is for the modes `reproducible` and
//! `fast`; `strict` keeps the order that is written. It is meant for a primal before it is
//! differentiated: each rule keeps derivatives of every order as well as values.
//!
//! Patterns are looked for in the function as it stands and each is rewritten where its last
//! instruction stands. What else reads a part of a pattern keeps that part; what nothing reads any more
//! goes. No rule fires on what a rule makes, so that a second time changes nothing.

mod exponential;
mod pattern;
mod variance;

use super::Copier;
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::op::Op;
use cranelift_entity::EntitySet;

/// A rule: a form that is recognised and what stands for it.
pub struct StableRule {
    /// For people, plans and tests.
    pub name: &'static str,
    /// What it matches and what it makes of it.
    pub doc: &'static str,
    apply: fn(&mut Site<'_, '_>) -> Option<Value>,
}

/// A rule that fired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognised {
    /// The rule's name.
    pub rule: &'static str,
    /// The instruction of the new function that gives the result.
    pub at: Inst,
}

/// Every rule. One instruction ends at most one pattern: the first rule that fits is used.
pub const STABLE_RULES: &[StableRule] = &[
    StableRule {
        name: "softmax",
        doc: "`exp(x) / spread(sum(exp(x)))`, or a product with the reciprocal, becomes \
              `exp(x - m) / spread(sum(exp(x - m)))` for the maximum `m` of `x` over the summed axes",
        apply: exponential::softmax,
    },
    StableRule {
        name: "log-softmax",
        doc: "`log` of a softmax, and `x - spread(log(sum(exp(x))))`, become \
              `(x - m) - spread(log(sum(exp(x - m))))`; of a softmax that is shifted already, \
              without a second shift",
        apply: exponential::log_softmax,
    },
    StableRule {
        name: "logsumexp",
        doc: "`log(sum(exp(x)))` becomes `m + log(sum(exp(x - m)))`",
        apply: exponential::logsumexp,
    },
    StableRule {
        name: "variance",
        doc: "`mean(x * x) - mean(x)^2` becomes `mean((x - spread(mean(x)))^2)`; a mean is a sum that \
              is divided by, or multiplied with the reciprocal of, the number of summed elements",
        apply: variance::variance,
    },
];

/// The function with stable forms for naive ones, and which rules fired, in program order.
///
/// Not for strict mode: the bits of results change.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn stabilize(f: &Function) -> Result<(Function, Vec<Recognised>), Diagnostic> {
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    b.func_mut().rule = f.rule.clone();
    let mut copier = Copier::new(f);
    copier.params(&mut b);
    let mut fired = Vec::new();
    for &i in f.body_insts() {
        place(f, &mut copier, &mut b, i, &mut fired)?;
    }
    let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    let mut new = b.finish()?;
    super::dce(&mut new);
    // A softmax inside a log-softmax, say, was rewritten for its own sake and then not needed.
    let mut left = EntitySet::new();
    new.walk(&mut |_, i| {
        left.insert(i);
    });
    fired.retain(|r: &Recognised| left.contains(r.at));
    Ok((new, fired))
}

fn place(
    f: &Function,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
    fired: &mut Vec<Recognised>,
) -> Result<(), Diagnostic> {
    if let &[result] = f.inst_results(i)
        && f.inst(i).regions.is_empty()
        && f.ty(result).dtype.is_float()
    {
        b.set_phase(f.inst(i).phase);
        b.set_span(f.span(i));
        let mut site = Site { f, b: &mut *b, copier: &mut *copier, inst: i };
        let made = STABLE_RULES.iter().find_map(|r| Some((r.name, (r.apply)(&mut site)?)));
        if let Some((rule, new)) = made
            && let ValueDef::Inst(at, _) = b.func().def(new)
        {
            b.func_mut().set_name(new, f.name_of(result));
            copier.set(result, new);
            fired.push(Recognised { rule, at });
            return Ok(());
        }
    }
    copier.inst_with(b, i, &mut |copier, b, i| place(f, copier, b, i, fired))?;
    Ok(())
}

/// An instruction of the old function that may end a pattern, and where to write what stands for it.
struct Site<'s, 'c> {
    f: &'s Function,
    b: &'s mut Builder,
    copier: &'s mut Copier<'c>,
    inst: Inst,
}

impl<'s> Site<'s, '_> {
    fn op(&self) -> Op {
        self.f.op(self.inst)
    }

    fn args(&self) -> &'s [Value] {
        self.f.args(self.inst)
    }

    /// The new value for an old one.
    fn get(&mut self, old: Value) -> Value {
        self.copier.get(self.b, old)
    }

    /// The same reduction, of its op or another, of a new value.
    fn reduce(&mut self, op: Op, x: Value, like: Inst) -> Value {
        self.b.op_with(op, &[x], self.f.attrs(like).clone())
    }

    /// A value over the axes that a reduction keeps, repeated along those that it reduces.
    fn spread(&mut self, v: Value, reduction: Inst) -> Value {
        let to = self.f.ty(self.f.args(reduction)[0]);
        let dims = pattern::kept(self.f, reduction).into_iter().map(|d| d as i64);
        self.b.op_as(Op::BroadcastInDim, &[v], Attrs::none().with_ints("dims", dims), to)
    }

    /// The views that `pattern::strip` took off, put on a new value.
    fn under_views(&mut self, views: &[Inst], v: Value) -> Value {
        views.iter().rev().fold(v, |v, &i| {
            let ty = self.f.ty(self.f.inst_results(i)[0]);
            self.b.op_as(self.f.op(i), &[v], self.f.attrs(i).clone(), ty)
        })
    }
}
