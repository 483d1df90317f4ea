//! Steps of a program as people name them.

use crate::fusion::{Plan, steps_of};
use crate::ir::Inst;
use crate::ir::kernel::{Buffer, Extents, Program, Role, Step};

/// The instructions that each step computes, in the order of the plan; none for what only fills a
/// result with a literal.
pub(super) fn computed(plan: &Plan, program: &Program) -> Vec<Vec<Inst>> {
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

/// The extents that a step runs over: the points of a kernel, the results of contractions, the elements
/// of a sort.
pub(super) fn domains(program: &Program, step: &Step) -> Vec<Extents> {
    let join = |parts: &[&Extents]| parts.iter().flat_map(|e| e.iter().copied()).collect();
    match step {
        Step::Kernel(k) => vec![k.domain.clone()],
        Step::Contract(c) => {
            c.members.iter().map(|m| join(&[&m.batch, &m.rows, &m.cols])).collect()
        }
        Step::Attend(a) => vec![join(&[&a.batch, &a.rows, &a.width])],
        Step::Scatter(s) => vec![s.domain.clone()],
        Step::Argsort(s) => vec![program.buffers[s.from].dims.clone()],
        Step::Library(_) | Step::Transfer(_) => Vec::new(),
    }
}

/// The names of buffers, with `%`.
pub(super) fn names(program: &Program, buffers: impl Iterator<Item = Buffer>) -> Vec<String> {
    buffers.map(|b| format!("%{}", program.buffers[b].name)).collect()
}

/// A step as a program of its own, which reads back: what it reads is given, what it writes returned.
pub(super) fn alone(program: &Program, step: &Step) -> String {
    let (reads, writes): (Vec<Buffer>, Vec<Buffer>) =
        (step.reads().collect(), step.writes().collect());
    let mut one = Program { steps: vec![step.clone()], outputs: writes.clone(), ..program.clone() };
    one.name = step.name().into();
    let mut absent = Vec::new();
    for (b, data) in one.buffers.iter_mut() {
        if writes.contains(&b) {
            data.role = Role::Output;
        } else if !reads.contains(&b) {
            data.role = Role::Input;
            absent.push(format!("  input %{}: ", data.name));
        } else if !matches!(data.role, Role::Constant(_)) {
            data.role = Role::Input;
        }
    }
    let text = one.to_string();
    let there = |line: &&str| !absent.iter().any(|a| line.starts_with(a.as_str()));
    text.lines().filter(there).map(|l| format!("{l}\n")).collect()
}
