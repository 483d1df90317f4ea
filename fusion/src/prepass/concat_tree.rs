//! Rewrites a concatenation of many operands into a tree of concatenations of few.
//!
//! A kernel selects the operand of an element by one guard an operand. With many operands its code is long and not
//! vectorized, and each element or segment evaluates all guards, so compile time and run time grow with the square. In
//! a tree, an element moves once for each level.

use crate::analysis::shifts::MOST_SHIFTED;
use adfuse_ir::rewrite::{Exactness, Pattern, Reads, Rule, RuleTable, Site, When, rewrite};
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Op, Value};

/// The most operands of one concatenation: as many ways of reading one parameter as vectors have.
const MOST_OPERANDS: usize = 16;

/// The function with the concatenations of many operands as trees.
pub(crate) fn concatenations_as_trees(f: &Function) -> Result<Function, Diagnostic> {
    Ok(rewrite(f, &CONCATENATIONS, Exactness::Exact)?.0)
}

/// Concatenations of many operands as trees.
pub(crate) static CONCATENATIONS: RuleTable = RuleTable {
    name: "concatenation trees",
    doc: "Before planning, after windows.",
    reads: Reads::Source,
    regions: false,
    rules: &[Rule {
        name: "concat-tree",
        doc: "A concatenation of more than 16 operands becomes a tree of concatenations.",
        exactness: Exactness::Exact,
        pattern: Pattern::AnyOf(&[Op::Concatenate]),
        then: &When {
            condition: |m| (m.root.args.len() > MOST_OPERANDS).then_some(()),
            build: tree,
        },
    }],
};

fn tree(s: &mut Site<'_, '_>, (): ()) -> Value {
    let (f, i) = (s.f, s.root.inst);
    let mut parts: Vec<Value> = f.args(i).iter().map(|&a| s.get(a)).collect();
    while parts.len() > MOST_OPERANDS {
        parts = level(s.b, &parts, f, i);
    }
    joined(s.b, &parts, f, i)
}

/// One level of the tree. The last one groups no more operands than it has to, and no fewer than are
/// kept: a group that is written out where it is read would make its reader the wide one again.
fn level(b: &mut Builder, parts: &[Value], f: &Function, i: Inst) -> Vec<Value> {
    let least = MOST_SHIFTED as usize + 1;
    // Each group stands for its members, so one of n leaves n - 1 operands fewer.
    let mut excess = parts.len() - MOST_OPERANDS;
    let (mut next, mut rest) = (Vec::new(), parts);
    while excess > 0 && rest.len() >= least {
        let size = (excess + 1).clamp(least, MOST_OPERANDS).min(rest.len());
        let (group, others) = rest.split_at(size);
        next.push(joined(b, group, f, i));
        excess = excess.saturating_sub(size - 1);
        rest = others;
    }
    next.extend(rest);
    next
}

fn joined(b: &mut Builder, parts: &[Value], f: &Function, i: Inst) -> Value {
    b.op_with(Op::Concatenate, parts, f.attrs(i).clone())
}
