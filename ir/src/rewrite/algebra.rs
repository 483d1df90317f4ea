//! Algebraic simplification: rules about single instructions and their operands, most of which keep every bit.

use super::pattern::Pattern::{AnyOf, Class, Commuted, Number, Op as Of, Var};
use super::pattern::{Match, Pattern, Root};
use super::rule::{Exactness, Reads, Rule, RuleTable, Site, When, always, rewrite};
use crate::DType;
use crate::attrs::Attrs;
use crate::diag::Diagnostic;
use crate::entity::Value;
use crate::function::{Function, ValueDef};
use crate::literal::Literal;
use crate::op::{Body, Op};
use crate::scalar::{eval_one, expand};

/// The function with the rules applied once, in program order, and what they freed removed.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn simplify(f: &Function, allowed: Exactness) -> Result<Function, Diagnostic> {
    let (mut new, _) = rewrite(f, &ALGEBRA, allowed)?;
    super::dce(&mut new);
    Ok(new)
}

/// Algebraic rules, which see what others wrote.
pub static ALGEBRA: RuleTable = RuleTable {
    name: "algebra",
    doc: "Simplification, after differentiation and before planning.",
    reads: Reads::Written,
    regions: true,
    rules: RULES,
};

const X: Pattern = Var('x');

macro_rules! rules {
    ($($name:literal $exactness:ident $doc:literal: $pattern:expr, $condition:expr => $build:expr;)*) => {
        const RULES: &[Rule] = &[$(Rule {
            name: $name,
            doc: $doc,
            exactness: Exactness::$exactness,
            pattern: $pattern,
            then: &When { condition: $condition, build: $build },
        }),*];
    };
}

rules! {
    "fold-literals" Exact "An elementwise op of literals becomes a literal.":
        ELEMENTWISE, |m| folded(m.f, m.root, m.root.args) => |s, l| s.b.literal(s.root.ty, l);
    "one-times-x" Exact "`1 * x` becomes `x`.":
        Commuted(Op::Mul, &[X, Number(Literal::is_one)]), always => x;
    "x-minus-zero" Exact "`x - 0` becomes `x`.":
        Of(Op::Sub, &[X, Number(Literal::is_positive_zero)]), always => x;
    "x-plus-negative-zero" Exact "`x + -0` becomes `x`; of integers, `x + 0`.":
        Commuted(Op::Add, &[X, Number(is_neutral)]), always => x;
    "x-over-one" Exact "`x / 1` becomes `x`.":
        Of(Op::Div, &[X, Number(Literal::is_one)]), always => x;
    "minus-one-times-x" Exact "`-1 * x` of floats becomes `-x`.":
        Commuted(Op::Mul, &[X, Number(is_minus_one)]), always => |s, ()| {
            let x = s.var('x');
            s.b.op(Op::Neg, &[x])
        };
    "twice-negated" Exact "`-(-x)` becomes `x`.":
        Of(Op::Neg, &[Of(Op::Neg, &[X])]), always => x;
    "twice-complemented" Exact "`not (not x)` becomes `x`.":
        Of(Op::Not, &[Of(Op::Not, &[X])]), always => x;
    "twice-reversed" Exact "`rev (rev x)` along the same axes becomes `x`.":
        Of(Op::Rev, &[Of(Op::Rev, &[X])]),
        |m| (m.f.attrs(m.inner(0)) == m.root.attrs).then_some(()) => x;
    "chosen" Exact "A selection by a literal, or between a value and itself, becomes what it selects.":
        Of(Op::SelectN, &[Var('p'), X, Var('y')]), chosen => |_, v| v;
    "same-type" Exact "A conversion to the type that a value has becomes the value.":
        Of(Op::ConvertElementType, &[X]), same_type => x;
    "same-shape" Exact "A reshape or broadcast to the shape that a value has becomes the value.":
        AnyOf(&[Op::Reshape, Op::BroadcastInDim]), same_shape => |_, v| v;
    "nothing-moved" Exact "A view or reduction that moves and folds nothing becomes its operand.":
        AnyOf(&[Op::Transpose, Op::Pad, Op::Slice, Op::Rev, Op::ReduceSum, Op::ReduceProd, Op::ReduceMax,
            Op::ReduceMin, Op::Concatenate]),
        |m| moves_nothing(m).then(|| m.root.args[0]) => |_, v| v;
    "reshape-of-reshape" Exact "Two reshapes become one, or none.":
        Of(Op::Reshape, &[Of(Op::Reshape, &[X])]), always => |s, ()| {
            let x = s.var('x');
            if s.b.ty(x) == s.root.ty { return x; }
            s.b.op_as(Op::Reshape, &[x], Attrs::none(), s.root.ty)
        };
    "transpose-of-transpose" Exact "Two transpositions become one, or none.":
        Of(Op::Transpose, &[Of(Op::Transpose, &[X])]), both_permutations => |s, both| {
            let x = s.var('x');
            if is_identity(&both) { return x; }
            s.b.op_with(Op::Transpose, &[x], Attrs::none().with_ints("perm", both))
        };
    "broadcast-of-literal" Exact "An elementwise op reads a literal itself instead of its broadcast.":
        ELEMENTWISE, splat => |s, splat| match splat {
            Splat::Folded(l) => s.b.literal(s.root.ty, l),
            Splat::Operands(operands) => over_splats(s, &operands),
        };
    "first-power" Exact "`x^1` becomes `x`.":
        Of(Op::IntegerPow, &[X]), |m| (m.root.attrs.int("y") == 1).then_some(()) => x;
    "relu-of-relu" Exact "`relu (relu x)` becomes `relu x`.":
        Of(Op::Relu, &[Of(Op::Relu, &[X])]), |m| Some(m.root.args[0]) => |_, v| v;
    "x-plus-zero" Finite "`x + 0` becomes `x`.":
        Commuted(Op::Add, &[X, Number(Literal::is_zero)]), always => x;
    "zero-times-x" Finite "`0 * x` becomes `0`.":
        Commuted(Op::Mul, &[X, Number(Literal::is_zero)]), always => |s, ()| {
            s.b.literal(s.root.ty, Literal::zero(s.root.ty.dtype))
        };
}

/// An elementwise op of whatever operands.
const ELEMENTWISE: Pattern = Class(|body| matches!(body, Body::Map(_)));

/// The build of rules after which `x` stands alone.
fn x(s: &mut Site<'_, '_>, (): ()) -> Value {
    s.var('x')
}

/// What changes no number when it is added: of floats -0 alone.
fn is_neutral(l: Literal) -> bool {
    l.is_zero() && (!l.is_positive_zero() || !l.dtype().is_float())
}

fn is_minus_one(l: Literal) -> bool {
    l == Literal::from_i64(l.dtype(), -1) && l.dtype().is_float()
}

fn chosen(m: &Match<'_>) -> Option<Value> {
    match m.f.literal(m.var('p')) {
        Some(p) => Some(m.var(if p.is_one() { 'y' } else { 'x' })),
        None => (m.var('x') == m.var('y')).then(|| m.var('x')),
    }
}

fn same_type(m: &Match<'_>) -> Option<()> {
    (m.f.ty(m.var('x')) == m.root.ty).then_some(())
}

fn same_shape(m: &Match<'_>) -> Option<Value> {
    let in_order = m.root.op == Op::Reshape || m.root.attrs.ints("dims").len() == m.root.ty.rank();
    let &x = m.root.args.first()?;
    (in_order && m.f.ty(x) == m.root.ty).then_some(x)
}

fn moves_nothing(m: &Match<'_>) -> bool {
    let ints = |name| m.root.attrs.ints(name);
    let zeros = |name| ints(name).iter().all(|&i| i == 0);
    match m.root.op {
        Op::Transpose => is_identity(ints("perm")),
        Op::Pad => zeros("low") && zeros("high") && zeros("interior"),
        Op::Slice => m.f.ty(m.root.args[0]) == m.root.ty,
        Op::Concatenate => m.root.args.len() == 1,
        _ => ints("axes").is_empty(),
    }
}

fn is_identity(perm: &[i64]) -> bool {
    perm.iter().enumerate().all(|(k, &p)| k as i64 == p)
}

fn both_permutations(m: &Match<'_>) -> Option<Vec<i64>> {
    let first = m.f.attrs(m.inner(0)).ints("perm");
    Some(m.root.attrs.ints("perm").iter().map(|&p| first[p as usize]).collect())
}

/// The literal that an elementwise op of literals is.
fn folded(f: &Function, root: Root<'_>, args: &[Value]) -> Option<Literal> {
    let literals: Vec<Literal> = args.iter().map(|&a| f.literal(a)).collect::<Option<_>>()?;
    of_literals(root, &literals)
}

fn of_literals(root: Root<'_>, literals: &[Literal]) -> Option<Literal> {
    let dtypes: Vec<DType> = literals.iter().map(|l| l.dtype()).collect();
    let program = expand(&root.op.scalar_program(&dtypes, root.ty.dtype, root.attrs)?);
    Some(eval_one(&program, literals))
}

/// What an elementwise op becomes when it reads literals instead of their broadcasts.
enum Splat {
    /// All operands are literals.
    Folded(Literal),
    /// For each operand the literal that is read instead, if any.
    Operands(Vec<Option<Literal>>),
}

fn splat(m: &Match<'_>) -> Option<Splat> {
    let f = m.f;
    let broadcast = |&a: &Value| match f.def(a) {
        ValueDef::Inst(i, _) if f.op(i) == Op::BroadcastInDim => {
            // The literal takes the broadcast's element type, which is its own.
            f.literal(f.args(i)[0])
        }
        _ => None,
    };
    let splats: Vec<Option<Literal>> = m.root.args.iter().map(broadcast).collect();
    if splats.iter().all(Option::is_none) {
        return None;
    }
    let literal = |(&a, splat): (&Value, &Option<Literal>)| splat.or_else(|| f.literal(a));
    let literals: Option<Vec<Literal>> = m.root.args.iter().zip(&splats).map(literal).collect();
    match literals {
        Some(literals) => of_literals(m.root, &literals).map(Splat::Folded),
        None => Some(Splat::Operands(splats)),
    }
}

fn over_splats(s: &mut Site<'_, '_>, splats: &[Option<Literal>]) -> Value {
    let mut args = s.root.args.to_vec();
    for (arg, splat) in args.iter_mut().zip(splats) {
        if let Some(l) = *splat {
            let ty = s.b.ty(*arg).clone();
            *arg = s.b.literal(&ty, l);
        }
    }
    let ty = std::slice::from_ref(s.root.ty);
    s.b.inst(s.root.op, &args, s.root.attrs.clone(), Some(ty))[0]
}
