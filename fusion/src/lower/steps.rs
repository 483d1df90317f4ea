//! The steps that each group of a plan is lowered to.

use crate::plan::{Group, Plan};
use adfuse_ir::Inst;
use adfuse_ir::kernel::{Program, Step};
use std::ops::Range;

/// The steps of a program that each group of its plan has become, by number.
pub fn steps_of(plan: &Plan, program: &Program) -> Vec<Range<usize>> {
    step_ranges(plan, &program.steps.iter().collect::<Vec<&Step>>())
}

/// As [`steps_of`], of these steps.
pub(crate) fn step_ranges(plan: &Plan, steps: &[&Step]) -> Vec<Range<usize>> {
    let mut next = 0;
    let range = |group: &Group| {
        let whole = match steps.get(next) {
            Some(Step::Bundle(_)) => true,
            Some(Step::Contract(c)) => c.members.len() == group.parts.len(),
            _ => true,
        };
        // Contractions that turned out not to share an operand are steps of their own.
        let from = next;
        next += if whole { 1 } else { group.parts.len() };
        from..next.min(steps.len())
    };
    plan.groups.iter().map(range).collect()
}

/// The instructions that each step computes, in the order of the plan; none for what only fills a
/// result with a literal.
pub fn computed_by_steps(plan: &Plan, program: &Program) -> Vec<Vec<Inst>> {
    let mut all: Vec<Vec<Inst>> = Vec::with_capacity(program.steps.len());
    for (group, steps) in plan.groups.iter().zip(steps_of(plan, program)) {
        match steps.len() {
            1 => all.push(group.parts.concat()),
            _ => all.extend(group.parts.iter().cloned()),
        }
    }
    all.resize(program.steps.len(), Vec::new());
    all
}
