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

mod attention;
mod attention_layout;
mod band;
mod exponential;
pub(super) mod shape;
mod variance;

pub use exponential::is_softmax_sum;

use super::inline::inline_keeping_rules;
use super::pattern::Pattern::AnyOf;
use super::rule::{
    Exactness, Reads, Recognised, Rule, RuleTable, Site, When, rewrite, rewrite_where,
};
use super::steps::AttentionSteps;
use crate::attrs::Attrs;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::fp::Fp;
use crate::function::Function;
use crate::module::Module;
use crate::op::Op;
use cranelift_entity::EntitySet;

/// Stable forms. One instruction ends at most one pattern: the first rule that fits is used.
pub static STABLE: RuleTable = RuleTable {
    name: "stable forms",
    doc: "Formulas that overflow or cancel, before differentiation; not in strict mode.",
    reads: Reads::Source,
    regions: true,
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        name: "softmax",
        doc: "`exp(x) / spread(sum(exp(x)))`, or a product with the reciprocal, becomes \
              `exp(x - m) / spread(sum(exp(x - m)))` for the maximum `m` of `x` over the summed axes.",
        exactness: Exactness::Real,
        pattern: AnyOf(&[Op::Div, Op::Mul]),
        then: &When { condition: exponential::is_softmax, build: exponential::softmax },
    },
    Rule {
        name: "log-softmax",
        doc: "`log` of a softmax, and `x - spread(log(sum(exp(x))))`, become \
              `(x - m) - spread(log(sum(exp(x - m))))`; of a softmax that is shifted already, \
              without a second shift.",
        exactness: Exactness::Real,
        pattern: AnyOf(&[Op::Log, Op::Sub]),
        then: &When { condition: exponential::is_log_softmax, build: exponential::log_softmax },
    },
    Rule {
        name: "logsumexp",
        doc: "`log(sum(exp(x)))` becomes `m + log(sum(exp(x - m)))`.",
        exactness: Exactness::Real,
        pattern: AnyOf(&[Op::Log]),
        then: &When { condition: exponential::is_logsumexp, build: exponential::logsumexp },
    },
    Rule {
        name: "softplus",
        doc: "`log(exp(x) + 1)` and `log1p(exp(x))` become `logaddexp(x, 0)`.",
        exactness: Exactness::Real,
        pattern: AnyOf(&[Op::Log, Op::Log1p]),
        then: &When { condition: exponential::is_softplus, build: exponential::softplus },
    },
    Rule {
        name: "variance",
        doc: "`mean(x * x) - mean(x)^2` becomes `mean((x - spread(mean(x)))^2)`; a mean is a sum that \
              is divided by, or multiplied with the reciprocal of, the number of summed elements.",
        exactness: Exactness::Real,
        pattern: AnyOf(&[Op::Sub]),
        then: &When { condition: variance::is_variance, build: variance::variance },
    },
];

/// Attention, for engines that have a step for it.
pub static ATTENTION: RuleTable = RuleTable {
    name: "attention",
    doc: "Softmax of products, before differentiation, on engines with a step for attention; not in strict mode.",
    reads: Reads::Source,
    regions: true,
    rules: &[Rule {
        name: "attention",
        doc: "`softmax(q k^T) v` along the last axis becomes `attention q, k, v`: scaled by one element, with a bias or a mask, causal, in a \
              window of places, or none of these. Operands have their axes in any order. Where places hide a key, a number of -1e9 or less may \
              stand for -inf, chosen or added; where a mask that chooses such a number hides all of a row, the row has equal weights and a query of 0. A softmax \
              in f32 of 16-bit floats, rounded to their type, is one too. A softmax of fewer than 128 keys is not rewritten; nor is one that other instructions read.",
        exactness: Exactness::Real,
        pattern: AnyOf(&[Op::DotGeneral]),
        then: &When { condition: attention::is_attention, build: attention::attention },
    }],
};

/// What goes wrong where a formula is computed as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hazard {
    /// An exponential is infinite although the result need not be.
    Overflow,
    /// Two numbers that are nearly equal are subtracted.
    Cancellation,
}

/// What each rule of [`STABLE`] avoids.
const HAZARDS: &[(&str, Hazard)] = &[
    ("softmax", Hazard::Overflow),
    ("log-softmax", Hazard::Overflow),
    ("logsumexp", Hazard::Overflow),
    ("softplus", Hazard::Overflow),
    ("variance", Hazard::Cancellation),
];

impl Hazard {
    /// What the stable form of a rule avoids.
    pub fn of(rule: &str) -> Option<Hazard> {
        HAZARDS.iter().find(|(name, _)| *name == rule).map(|&(_, hazard)| hazard)
    }

    /// In plain words, for formulas of this type.
    pub fn words(self, dtype: DType) -> String {
        match self {
            Hazard::Overflow => {
                // The logarithm of the largest finite number.
                let most = match dtype {
                    DType::F16 => 65504f64.ln(),
                    DType::F64 => f64::MAX.ln(),
                    _ => f64::from(f32::MAX).ln(),
                };
                format!("exp is inf above {most:.2} in {dtype}, and the result inf or nan then")
            }
            Hazard::Cancellation => "where the mean is large beside the deviation, the difference \
                 has few right digits and may be negative"
                .into(),
        }
    }
}

/// The function with stable forms for naive ones, and which rules fired, in program order.
///
/// Not for strict mode: the bits of results change.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn stabilize(f: &Function) -> Result<(Function, Vec<Recognised>), Diagnostic> {
    let (mut new, mut fired) = rewrite(f, &STABLE, Exactness::Real)?;
    super::dce(&mut new);
    // A softmax inside a log-softmax, say, was rewritten for its own sake and then not needed.
    let mut left = EntitySet::new();
    new.walk(&mut |_, i| {
        left.insert(i);
    });
    fired.retain(|r: &Recognised| left.contains(r.at));
    Ok((new, fired))
}

/// The function with attention for what is written out of it, where an engine has a step for it in this mode, and which rules
/// fired.
///
/// Not for strict mode: the bits of results change.
///
/// # Errors
/// As [`stabilize`].
pub fn with_attention(
    f: &Function,
    steps: AttentionSteps,
    fp: Fp,
) -> Result<(Function, Vec<Recognised>), Diagnostic> {
    let chosen = |i: Inst| attention::has_step(f, i, steps, fp);
    let (mut new, fired) = rewrite_where(f, &ATTENTION, Exactness::Real, &chosen)?;
    super::dce(&mut new);
    Ok((new, fired))
}

/// A function of a module in a mode, and the module with all that it still calls: formulas that go over calls are inlined and have
/// stable forms, and attention is the op, where an engine has a step for it. In strict mode nothing changes. Each rule that fired is
/// told, with the function in which it did.
///
/// # Errors
/// As [`stabilize`]; if inlining gives too many instructions.
pub fn in_stable_forms(
    module: &Module,
    f: &Function,
    (steps, fp): (AttentionSteps, Fp),
    told: &mut dyn FnMut(&Function, Recognised),
) -> Result<(Module, Function), Diagnostic> {
    if fp == Fp::Strict {
        return Ok((module.clone(), f.clone()));
    }
    let mut rewritten = |f: &Function| {
        // Differentiation keeps the calls of functions with rules alone, too.
        let whole = inline_keeping_rules(module, f, &|callee| callee.rule.is_none())?;
        let (new, fired) = stabilize(&whole)?;
        fired.iter().for_each(|&rule| told(&new, rule));
        let (new, fired) = with_attention(&new, steps, fp)?;
        fired.iter().for_each(|&rule| told(&new, rule));
        Ok::<Function, Diagnostic>(new)
    };
    let made = rewritten(f)?;
    let reached = module.reached_names(&made);
    let mut around = Module::default();
    for g in module.funcs.values() {
        around.funcs.push(match g.name == f.name {
            true => made.clone(),
            false if reached.contains(&g.name) => rewritten(g)?,
            false => g.clone(),
        });
    }
    Ok((around, made))
}

impl Site<'_, '_> {
    /// The same reduction, of its op or another, of a new value.
    fn reduce(&mut self, op: Op, x: Value, like: Inst) -> Value {
        self.b.op_with(op, &[x], self.f.attrs(like).clone())
    }

    /// A value over the axes that a reduction keeps, repeated along those that it reduces.
    fn spread(&mut self, v: Value, reduction: Inst) -> Value {
        let to = self.f.ty(self.f.args(reduction)[0]);
        let dims = shape::kept(self.f, reduction).into_iter().map(|d| d as i64);
        self.b.op_as(Op::BroadcastInDim, &[v], Attrs::none().with_ints("dims", dims), to)
    }

    /// The views that `shape::strip` took off, put on a new value.
    fn under_views(&mut self, views: &[Inst], v: Value) -> Value {
        views.iter().rev().fold(v, |v, &i| {
            let ty = self.f.ty(self.f.inst_results(i)[0]);
            self.b.op_as(self.f.op(i), &[v], self.f.attrs(i).clone(), ty)
        })
    }
}
