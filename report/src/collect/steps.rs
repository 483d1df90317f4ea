//! The steps of a program: what each computes, its cost, and why it is a kernel of its own.

use super::context::Collected;
use super::step_classes::step_classes;
use crate::data::PlanStep;
use adfuse_fusion::{
    Bottleneck, Explainer, MachineModel, Occurrences, Ops, PatternMatch, Plan, StepCost,
    computed_by_steps, patterns, steps_of,
};
use adfuse_ir::kernel::{Program, Step};
use adfuse_ir::op::Body;
use adfuse_ir::{Diagnostic, Function, Inst, Op, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The most steps for which neighbours are compared.
const MOST_EXPLAINED: usize = 2000;

/// The steps of the plan.
pub(super) fn steps(c: &Collected<'_>) -> Result<Vec<PlanStep>, Diagnostic> {
    let (f, laid) = (c.source.function, &c.laid);
    let computed = computed_by_steps(laid.plan, &laid.program);
    let groups = groups(laid.plan, &laid.program);
    let found = patterns(f);
    let lines = c.lines();
    let (mut start, mut latest) = (0.0, 0);
    let mut known: BTreeSet<Inst> = BTreeSet::new();
    let mut all = Vec::with_capacity(laid.program.steps.len());
    for (n, (step, cost)) in laid.program.steps.iter().zip(&laid.cost.steps).enumerate() {
        let insts = computed[n].as_slice();
        let new: Vec<u16> = insts
            .iter()
            .filter(|&&i| known.insert(i))
            .map(|&i| u16::from(f.inst(i).phase.0))
            .collect();
        // What is all computed again serves the phase in which it is.
        let phase = new.iter().copied().max().unwrap_or(latest);
        latest = latest.max(phase);
        let ops = operations(&cost.ops);
        all.push(PlanStep {
            group: groups.get(n).copied().flatten(),
            name: step.name().into(),
            label: label(f, step, insts, &found),
            result: result(c, step),
            kind: step.kind().into(),
            phase,
            shared: new.iter().any(|&p| p != phase),
            domain: domain(&laid.program, step),
            reads: step.reads().map(|b| format!("%{}", laid.program.buffers[b].name)).collect(),
            writes: step.writes().map(|b| format!("%{}", laid.program.buffers[b].name)).collect(),
            computes: insts.iter().map(|&i| told(c, i)).collect(),
            lines: lines.of_insts(insts),
            read_bytes: cost.reads,
            written_bytes: cost.writes,
            ops,
            launches: cost.launches,
            start,
            seconds: cost.seconds,
            limit: limit(cost, c.device()),
            bound: match cost.bound {
                Bottleneck::Memory => "memory",
                Bottleneck::Compute => "compute",
                Bottleneck::Launch => "launch",
            },
            registers: cost.registers,
            occupancy: cost.occupancy,
            why: Vec::new(),
            measured: None,
        });
        start += cost.seconds;
    }
    let why = reasons(c, &computed, &all)?;
    all.iter_mut().zip(why).for_each(|(step, why)| step.why = why);
    Ok(all)
}

/// The group of each step; none for what only fills a result with a literal.
fn groups(plan: &Plan, program: &Program) -> Vec<Option<usize>> {
    let mut all = vec![None; program.steps.len()];
    for (g, steps) in steps_of(plan, program).into_iter().enumerate() {
        steps.for_each(|n| all[n] = Some(g));
    }
    all
}

/// An instruction with its result: `%h = relu`.
fn told(c: &Collected<'_>, i: Inst) -> String {
    let f = c.source.function;
    let op = f.op(i).name();
    match f.inst_results(i).first() {
        Some(&v) => format!("{} = {op}: {}", c.name(v), f.ty(v)),
        None => op.into(),
    }
}

/// What people call a step: the patterns that it computes most of, or the operation that it is about.
fn label(f: &Function, step: &Step, insts: &[Inst], found: &[PatternMatch]) -> String {
    let here = |p: &&PatternMatch| {
        let inside = p.insts.iter().filter(|i| insts.contains(i)).count();
        inside * 2 > p.insts.len()
    };
    let mut names: Vec<&str> = Vec::new();
    for p in found.iter().filter(here) {
        if !names.contains(&p.name) {
            names.push(p.name);
        }
    }
    let main = match step {
        Step::Contract(c) if c.members.len() > 1 => "products".into(),
        Step::Contract(_) => "product".into(),
        Step::Kernel(_) | Step::Bundle(_) => match insts.last() {
            Some(_) => operations_of(f, insts),
            None => "fill".into(),
        },
        other => other.name().to_string(),
    };
    match (names.as_slice(), step) {
        ([], _) => main,
        (names, Step::Contract(_)) => format!("{main} + {}", names[0]),
        (names, _) => names[0].to_string(),
    }
}

/// What a kernel is known by: its folds, or else the last operation that changes numbers.
fn operations_of(f: &Function, insts: &[Inst]) -> String {
    let body = |i: Inst| f.op(i).def().body;
    let mut folds: Vec<&str> = Vec::new();
    for &i in insts.iter().filter(|&&i| matches!(body(i), Body::Reduce(_) | Body::Scan(_))) {
        if !folds.contains(&f.op(i).name()) {
            folds.push(f.op(i).name());
        }
    }
    if !folds.is_empty() {
        return folds.join(" + ").replace('_', " ");
    }
    let changes =
        |i: &&Inst| !matches!(body(**i), Body::View(_)) && f.op(**i) != Op::ConvertElementType;
    let main = insts.iter().rev().find(changes).or(insts.last());
    main.map_or_else(String::new, |&i| f.op(i).name().replace('_', " "))
}

/// The largest value that a step stores; the last of equal ones.
fn result(c: &Collected<'_>, step: &Step) -> String {
    let program = &c.laid.program;
    let largest = step.writes().max_by_key(|&b| program.buffers[b].bytes());
    largest.map_or_else(String::new, |b| format!("%{}", program.buffers[b].name))
}

fn domain(program: &Program, step: &Step) -> String {
    let text = |dims: &[i64]| {
        let all: Vec<String> = dims.iter().map(i64::to_string).collect();
        if all.is_empty() { "1".into() } else { all.join("\u{d7}") }
    };
    match step {
        Step::Kernel(k) => text(&k.domain),
        Step::Bundle(b) => {
            b.kernels.iter().map(|k| text(&k.domain)).collect::<Vec<_>>().join(" + ")
        }
        Step::Contract(c) => {
            let one = |m: &adfuse_ir::kernel::Member| {
                let join = [&m.batch, &m.rows, &m.cols].into_iter().flatten().copied();
                text(&join.collect::<Vec<i64>>())
            };
            c.members.iter().map(one).collect::<Vec<_>>().join(" + ")
        }
        other => match other.writes().next() {
            Some(b) => text(&program.buffers[b].dims),
            None => String::new(),
        },
    }
}

/// Operations of every kind; a multiply-add is two.
fn operations(ops: &Ops) -> u64 {
    let products =
        ops.contract_f32.saturating_add(ops.contract_f16).saturating_add(ops.contract_f64);
    [ops.simple, ops.special, ops.integer, products, products]
        .into_iter()
        .fold(0, u64::saturating_add)
}

/// The least seconds that the bytes and the operations of a step take where each runs at its limit.
fn limit(cost: &StepCost, device: &MachineModel) -> f64 {
    let rate = if cost.resident { device.cache_bytes_per_s } else { device.memory_bytes_per_s };
    let moved = (cost.reads.saturating_add(cost.writes)) as f64 / rate;
    let ops = &cost.ops;
    let single = ops.simple.saturating_add(ops.special).saturating_add(ops.integer);
    let computed = single as f64 / device.ops_per_s
        + ops.contract_f32 as f64 / device.contract_f32_per_s
        + ops.contract_f16 as f64 / device.contract_f16_per_s
        + ops.contract_f64 as f64 / device.contract_f64_per_s;
    moved.max(computed)
}

/// Why each step does not share a kernel with the step before, in sentences. Steps that do the same work beside the same
/// steps are explained once.
fn reasons(
    c: &Collected<'_>,
    computed: &[Vec<Inst>],
    steps: &[PlanStep],
) -> Result<Vec<Vec<String>>, Diagnostic> {
    let (f, plan) = (c.source.function, c.source.plan);
    let mut all = vec![Vec::new(); computed.len()];
    if computed.len() > MOST_EXPLAINED {
        return Ok(all);
    }
    let planned = Occurrences::of(f, plan)?;
    let explainer = Explainer::new(&planned, c.device())?;
    let last = |insts: &[Inst]| -> Option<Value> {
        insts.last().and_then(|&i| f.inst_results(i).first().copied())
    };
    let classes = step_classes(steps);
    let mut explained: BTreeMap<usize, usize> = BTreeMap::new();
    for (n, pair) in computed.windows(2).enumerate() {
        let first = *explained.entry(classes[n + 1]).or_insert(n + 1);
        if first != n + 1 {
            if !all[first].is_empty() {
                all[n + 1] =
                    vec![format!("as step {first}, which does the same work beside equal steps")];
            }
            continue;
        }
        let (Some(a), Some(b)) = (last(&pair[0]), last(&pair[1])) else { continue };
        let found = explainer.explain(a, b);
        if found.together.is_empty() {
            let lines = found.lines(f, plan, c.device(), c.source.text).into_iter();
            // That each is in a group of its own is what the reader begins with.
            all[n + 1] = lines.filter(|l| !l.contains(": in group ")).collect();
        }
    }
    Ok(all)
}

/// The first step that computes each instruction.
pub(super) fn homes(c: &Collected<'_>) -> BTreeMap<Inst, usize> {
    let mut homes = BTreeMap::new();
    for (n, insts) in computed_by_steps(c.laid.plan, &c.laid.program).iter().enumerate() {
        insts.iter().for_each(|&i| {
            homes.entry(i).or_insert(n);
        });
    }
    homes
}
