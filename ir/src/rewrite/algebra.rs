//! Algebraic simplification: a table of rules, each marked with whether it keeps every bit.

use super::Copier;
use crate::DType;
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::literal::Literal;
use crate::op::{Body, Op};
use crate::scalar::{eval_one, expand};
use crate::types::TensorType;

/// Which rules may be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exactness {
    /// Only rules that keep every bit of every result: what strict mode allows.
    Exact,
    /// Also rules that are off where zeros are negative or operands are not finite.
    Finite,
}

/// A rule: given an instruction, the value that may stand for its only result.
pub struct Rule {
    /// For people and tests.
    pub name: &'static str,
    /// What it keeps.
    pub exactness: Exactness,
    apply: fn(&mut Builder, &Site<'_>) -> Option<Value>,
}

/// An instruction about to be copied, operands already new.
struct Site<'a> {
    op: Op,
    args: &'a [Value],
    attrs: &'a Attrs,
    ty: &'a TensorType,
}

/// The function with the rules applied once, in program order, and what they freed removed.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn simplify(f: &Function, allowed: Exactness) -> Result<Function, Diagnostic> {
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    b.func_mut().rule = f.rule.clone();
    let mut copier = Copier::new(f);
    copier.params(&mut b);
    for &i in f.body_insts() {
        place(f, &mut copier, &mut b, i, allowed);
    }
    let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    let mut new = b.finish()?;
    super::dce(&mut new);
    Ok(new)
}

fn place(f: &Function, copier: &mut Copier<'_>, b: &mut Builder, i: Inst, allowed: Exactness) {
    if let &[result] = f.inst_results(i)
        && f.inst(i).regions.is_empty()
        && !f.op(i).is_effect()
    {
        b.set_phase(f.inst(i).phase);
        b.set_span(f.span(i));
        let args: Vec<Value> = f.args(i).iter().map(|&a| copier.get(b, a)).collect();
        let ty = f.ty(result);
        let mut best = apply(b, &Site { op: f.op(i), args: &args, attrs: f.attrs(i), ty }, allowed);
        // What a rule wrote may allow another: a bounded number, since none is known to need more.
        for _ in 0..4 {
            let Some(ValueDef::Inst(new, 0)) = best.map(|v| b.func().def(v)) else { break };
            if b.func().region(b.region()).insts.last() != Some(&new) {
                break;
            }
            let (op, args) = (b.func().op(new), b.func().args(new).to_vec());
            let attrs = b.func().attrs(new).clone();
            match apply(b, &Site { op, args: &args, attrs: &attrs, ty }, allowed) {
                Some(v) => best = Some(v),
                None => break,
            }
        }
        if let Some(v) = best {
            copier.set(result, v);
            return;
        }
    }
    let nested = copier.inst_with(b, i, &mut |copier, b, i| {
        place(f, copier, b, i, allowed);
        Ok(())
    });
    debug_assert!(nested.is_ok());
}

/// What the first rule that fits makes of an instruction.
fn apply(b: &mut Builder, site: &Site<'_>, allowed: Exactness) -> Option<Value> {
    if site.args.is_empty() {
        return None;
    }
    let rules = RULES.iter().filter(|r| r.exactness <= allowed);
    let replaced = rules.filter_map(|r| (r.apply)(b, site)).next();
    replaced.filter(|&v| b.ty(v) == site.ty)
}

macro_rules! rules {
    ($($name:literal $exactness:ident |$b:pat_param, $s:ident| $body:expr;)*) => {
        /// Every rule, in the order they are tried.
        pub const RULES: &[Rule] = &[$(Rule {
            name: $name,
            exactness: Exactness::$exactness,
            apply: |$b, $s| $body,
        }),*];
    };
}

rules! {
    "fold-literals" Exact |b, s| fold(b, s);
    "one-times-x" Exact |b, s| commuted(b, s, Op::Mul, Literal::is_one);
    "x-minus-zero" Exact |b, s| right(b, s, Op::Sub, Literal::is_positive_zero);
    "x-plus-negative-zero" Exact |b, s| commuted(b, s, Op::Add, |l| {
        l.is_zero() && (!l.is_positive_zero() || !l.dtype().is_float())
    });
    "x-over-one" Exact |b, s| right(b, s, Op::Div, Literal::is_one);
    "minus-one-times-x" Exact |b, s| {
        let minus = |l: Literal| l == Literal::from_i64(l.dtype(), -1) && l.dtype().is_float();
        let x = commuted(b, s, Op::Mul, minus)?;
        Some(b.op(Op::Neg, &[x]))
    };
    "twice-negated" Exact |b, s| undone(b, s, Op::Neg);
    "twice-complemented" Exact |b, s| undone(b, s, Op::Not);
    "twice-reversed" Exact |b, s| {
        let inner = under(b, s, 0, Op::Rev)?;
        (s.op == Op::Rev && b.func().attrs(inner) == s.attrs).then(|| b.func().args(inner)[0])
    };
    "chosen" Exact |b, s| {
        if s.op != Op::SelectN { return None; }
        match b.func().literal(s.args[0]) {
            Some(p) => Some(s.args[1 + usize::from(p.is_one())]),
            None => (s.args[1] == s.args[2]).then_some(s.args[1]),
        }
    };
    "same-type" Exact |b, s| {
        (s.op == Op::ConvertElementType && b.ty(s.args[0]) == s.ty).then_some(s.args[0])
    };
    "same-shape" Exact |b, s| {
        let identity = match s.op {
            Op::Reshape => true,
            Op::BroadcastInDim => s.attrs.ints("dims").len() == s.ty.rank(),
            _ => false,
        };
        (identity && b.ty(s.args[0]) == s.ty).then_some(s.args[0])
    };
    "nothing-moved" Exact |b, s| {
        let ints = |name| s.attrs.ints(name);
        let zeros = |name| ints(name).iter().all(|&i| i == 0);
        let identity = match s.op {
            Op::Transpose => ints("perm").iter().enumerate().all(|(k, &p)| k as i64 == p),
            Op::Pad => zeros("low") && zeros("high") && zeros("interior"),
            Op::Slice => b.ty(s.args[0]) == s.ty,
            Op::Rev | Op::ReduceSum | Op::ReduceProd | Op::ReduceMax | Op::ReduceMin => {
                ints("axes").is_empty()
            }
            Op::Concatenate => s.args.len() == 1,
            _ => false,
        };
        identity.then_some(s.args[0])
    };
    "reshape-of-reshape" Exact |b, s| {
        if s.op != Op::Reshape { return None; }
        let inner = under(b, s, 0, Op::Reshape)?;
        let x = b.func().args(inner)[0];
        if b.ty(x) == s.ty { return Some(x); }
        Some(b.op_as(Op::Reshape, &[x], Attrs::none(), s.ty))
    };
    "transpose-of-transpose" Exact |b, s| {
        if s.op != Op::Transpose { return None; }
        let inner = under(b, s, 0, Op::Transpose)?;
        let first = b.func().attrs(inner).ints("perm").to_vec();
        let x = b.func().args(inner)[0];
        let both: Vec<i64> = s.attrs.ints("perm").iter().map(|&p| first[p as usize]).collect();
        if both.iter().enumerate().all(|(k, &p)| k as i64 == p) { return Some(x); }
        Some(b.op_with(Op::Transpose, &[x], Attrs::none().with_ints("perm", both)))
    };
    "broadcast-of-literal" Exact |b, s| splat(b, s);
    "first-power" Exact |_, s| {
        (s.op == Op::IntegerPow && s.attrs.int("y") == 1).then(|| s.args[0])
    };
    "relu-of-relu" Exact |b, s| {
        let inner = under(b, s, 0, Op::Relu)?;
        (s.op == Op::Relu).then(|| b.func().inst_results(inner)[0])
    };
    "x-plus-zero" Finite |b, s| commuted(b, s, Op::Add, Literal::is_zero);
    "zero-times-x" Finite |b, s| {
        commuted(b, s, Op::Mul, Literal::is_zero)?;
        Some(b.literal(s.ty, Literal::zero(s.ty.dtype)))
    };
}

/// The other operand of a commutative op with a literal that satisfies `test`.
fn commuted(b: &Builder, s: &Site<'_>, op: Op, test: impl Fn(Literal) -> bool) -> Option<Value> {
    if s.op != op {
        return None;
    }
    let is = |k: usize| b.func().literal(s.args[k]).is_some_and(&test);
    if is(1) { Some(s.args[0]) } else { is(0).then(|| s.args[1]) }
}

/// The first operand of an op whose second is a literal that satisfies `test`.
fn right(b: &Builder, s: &Site<'_>, op: Op, test: impl Fn(Literal) -> bool) -> Option<Value> {
    let l = (s.op == op).then(|| b.func().literal(s.args[1])).flatten()?;
    test(l).then_some(s.args[0])
}

/// The instruction that makes operand `k`, when it is of this op.
fn under(b: &Builder, s: &Site<'_>, k: usize, op: Op) -> Option<Inst> {
    match b.func().def(*s.args.get(k)?) {
        ValueDef::Inst(i, _) if b.func().op(i) == op => Some(i),
        _ => None,
    }
}

fn undone(b: &Builder, s: &Site<'_>, op: Op) -> Option<Value> {
    let inner = (s.op == op).then(|| under(b, s, 0, op)).flatten()?;
    Some(b.func().args(inner)[0])
}

/// An elementwise op of literals is a literal.
fn fold(b: &mut Builder, s: &Site<'_>) -> Option<Value> {
    if !matches!(s.op.def().body, Body::Map(_)) {
        return None;
    }
    let literals: Vec<Literal> =
        s.args.iter().map(|&a| b.func().literal(a)).collect::<Option<_>>()?;
    let dtypes: Vec<DType> = literals.iter().map(|l| l.dtype()).collect();
    let program = expand(&s.op.scalar_program(&dtypes, s.ty.dtype, s.attrs)?);
    Some(b.literal(s.ty, eval_one(&program, &literals)))
}

/// An elementwise op reads the literal itself instead of its broadcast.
fn splat(b: &mut Builder, s: &Site<'_>) -> Option<Value> {
    if !matches!(s.op.def().body, Body::Map(_)) {
        return None;
    }
    let mut changed = false;
    let mut args = s.args.to_vec();
    for (k, arg) in args.iter_mut().enumerate() {
        if let Some(i) = under(b, s, k, Op::BroadcastInDim)
            && let Some(l) = b.func().literal(b.func().args(i)[0])
        {
            let ty = b.ty(*arg).clone();
            *arg = b.literal(&ty, l);
            changed = true;
        }
    }
    if changed && args.iter().all(|&a| b.func().literal(a).is_some()) {
        return fold(b, &Site { args: &args, ..*s });
    }
    changed
        .then(|| {
            b.inst(s.op, &args, s.attrs.clone(), Some(std::slice::from_ref(s.ty))).first().copied()
        })
        .flatten()
}
