//! Patterns of rewrite rules: trees of ops with variables.

use crate::attrs::Attrs;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::literal::Literal;
use crate::op::{Body, Op};
use crate::types::TensorType;
use smallvec::SmallVec;

/// What a value, or the root of a match, has to be.
pub enum Pattern {
    /// Any value. A variable that occurs twice is the same value both times. Not for roots.
    Var(char),
    /// A literal of which this holds. Not for roots.
    Number(fn(Literal) -> bool),
    /// A result of an instruction of this op, whose operands match these patterns, one each.
    Op(Op, &'static [Pattern]),
    /// As `Op`, of a commutative op with two operands, which may be the other way around.
    Commuted(Op, &'static [Pattern; 2]),
    /// A result of an instruction of one of these ops, whatever its operands.
    AnyOf(&'static [Op]),
    /// A result of an instruction with a body of this kind and at least one operand.
    Class(fn(&Body) -> bool),
}

/// The instruction that a match begins at. Its operands are those of the function that is matched; the instruction
/// itself is one of the source, which may have had other operands, or another op.
#[derive(Clone, Copy)]
pub struct Root<'a> {
    /// The op.
    pub op: Op,
    /// The operands.
    pub args: &'a [Value],
    /// The attributes.
    pub attrs: &'a Attrs,
    /// The type of the first result.
    pub ty: &'a TensorType,
    /// The instruction of the source.
    pub inst: Inst,
}

impl<'a> Root<'a> {
    /// An instruction as it stands; `None` where it has no result.
    pub(super) fn of(f: &'a Function, inst: Inst) -> Option<Root<'a>> {
        let ty = f.ty(*f.inst_results(inst).first()?);
        Some(Root { op: f.op(inst), args: f.args(inst), attrs: f.attrs(inst), ty, inst })
    }
}

/// What a pattern bound.
#[derive(Default)]
pub(super) struct Bound {
    values: SmallVec<[(char, Value); 2]>,
    insts: SmallVec<[Inst; 2]>,
}

impl Bound {
    /// The value of a variable.
    ///
    /// # Panics
    /// If the pattern has no such variable, which is a defect of the rule.
    pub(super) fn value(&self, name: char) -> Value {
        let found = self.values.iter().find(|(n, _)| *n == name);
        found.expect("a variable of the pattern").1
    }
}

/// A pattern that was found.
pub struct Match<'a> {
    /// The function that the values are of.
    pub f: &'a Function,
    /// Where it was found.
    pub root: Root<'a>,
    bound: Bound,
}

impl Match<'_> {
    /// The value of a variable.
    ///
    /// # Panics
    /// If the pattern has no such variable, which is a defect of the rule.
    pub fn var(&self, name: char) -> Value {
        self.bound.value(name)
    }

    /// The instruction number `k` below the root, of those that the pattern names by their op.
    pub fn inner(&self, k: usize) -> Inst {
        self.bound.insts[k]
    }

    pub(super) fn into_bound(self) -> Bound {
        self.bound
    }
}

impl Pattern {
    /// The match of the pattern at a root whose operands are of `f`.
    pub(super) fn find<'a>(&self, f: &'a Function, root: Root<'a>) -> Option<Match<'a>> {
        let mut bound = Bound::default();
        self.root(f, root.op, root.args, &mut bound).then_some(Match { f, root, bound })
    }

    fn root(&self, f: &Function, op: Op, args: &[Value], bound: &mut Bound) -> bool {
        match *self {
            Pattern::Var(_) | Pattern::Number(_) => false,
            Pattern::AnyOf(ops) => ops.contains(&op),
            Pattern::Class(is) => !args.is_empty() && is(&op.def().body),
            Pattern::Op(wanted, patterns) => {
                op == wanted && patterns.len() == args.len() && all(f, patterns, args, bound)
            }
            Pattern::Commuted(wanted, [first, second]) => {
                let &[a, b] = args else { return false };
                if op != wanted {
                    return false;
                }
                let (values, insts) = (bound.values.len(), bound.insts.len());
                if first.value(f, a, bound) && second.value(f, b, bound) {
                    return true;
                }
                bound.values.truncate(values);
                bound.insts.truncate(insts);
                first.value(f, b, bound) && second.value(f, a, bound)
            }
        }
    }

    fn value(&self, f: &Function, v: Value, bound: &mut Bound) -> bool {
        match *self {
            Pattern::Var(name) => match bound.values.iter().find(|(n, _)| *n == name) {
                Some(&(_, known)) => known == v,
                None => {
                    bound.values.push((name, v));
                    true
                }
            },
            Pattern::Number(is) => f.literal(v).is_some_and(is),
            _ => {
                let ValueDef::Inst(i, _) = f.def(v) else { return false };
                bound.insts.push(i);
                self.root(f, f.op(i), f.args(i), bound)
            }
        }
    }
}

fn all(f: &Function, patterns: &[Pattern], args: &[Value], bound: &mut Bound) -> bool {
    patterns.iter().zip(args).all(|(p, &v)| p.value(f, v, bound))
}
