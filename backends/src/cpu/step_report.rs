//! What is said of steps: what makes their code, and the work that is not in it.

use super::shape::in_code;
use crate::runtime::report::StepReport;
use adfuse_ir::kernel::{
    Argsort, Buffer, Contract, Kernel, Loop, LoopTrips, Member, Program, Run, Scatter, Sink, Step,
    volume,
};

/// What is known of a step once it is made; `products_by` says what multiplies for each member of a contraction.
pub(super) fn told(
    program: &Program,
    step: &Step,
    origin: usize,
    emitters: &[&'static str],
    products_by: &[&'static str],
) -> StepReport {
    let mut notes = Vec::new();
    let mut by = emitters.to_vec();
    match step {
        Step::Kernel(kernel) => folds(kernel, &mut notes),
        Step::Bundle(bundle) => bundle.kernels.iter().for_each(|k| folds(k, &mut notes)),
        Step::Contract(contract) => {
            products(contract, products_by, &mut notes);
            // Where nothing multiplies, sums are in sweeps.
            if !products_by.is_empty() && !contract.members.iter().any(computes) {
                by.clear();
            }
            by.extend(products_by);
            by.dedup();
        }
        Step::Scatter(scatter) => notes.push(added(program, scatter)),
        Step::Argsort(argsort) => {
            notes.push(sorted(program, argsort));
            by = vec!["rust"];
        }
        Step::Transfer(t) => {
            notes.push(format!("copies {} to {}", named(program, t.from), named(program, t.to)));
            by = vec!["copy"];
        }
        Step::Library(library) => {
            notes.push(format!("@{} is called", library.function));
            by = vec!["the user's"];
        }
        Step::Exchange(exchange) => {
            notes.push(format!("exchanges with the other {} ranks", exchange.ranks.max(1) - 1));
            by = vec!["ranks"];
        }
        Step::Print(print) => {
            notes.push(format!("writes {} out as {:?}", named(program, print.from), print.label));
            by = vec!["rust"];
        }
        Step::Loop(step) => notes.push(repeated(program, step)),
        Step::Branch(branch) => {
            let (n, by) = (branch.blocks.len(), named(program, branch.selector));
            notes.push(format!("one of {n} programs runs, as {by} selects"));
        }
        Step::Attend(_) => {
            by.extend(products_by);
            by.push("rust");
        }
    }
    let folded =
        matches!(step, Step::Kernel(_) | Step::Bundle(_) | Step::Scatter(_)) && !notes.is_empty();
    if folded {
        by.push("rust");
    }
    let (name, generator) = (step.name().into(), by.join(" + "));
    StepReport { origin, name, generator, notes, ..StepReport::default() }
}

/// Adds what is known of the steps of a program in a step.
pub(super) fn add_block(report: &mut StepReport, role: &str, made: &[StepReport]) {
    let mut by: Vec<&str> = report.generator.split(" + ").filter(|by| !by.is_empty()).collect();
    for step in made {
        by.extend(step.generator.split(" + ").filter(|by| !by.is_empty()));
        let notes = step.notes.iter().map(|note| format!("{role}.{}: {note}", step.name));
        report.notes.extend(notes);
    }
    let mut once: Vec<&str> = Vec::new();
    for word in by {
        if !once.contains(&word) {
            once.push(word);
        }
    }
    report.generator = once.join(" + ");
}

/// How often a loop repeats its step, and how it goes back.
fn repeated(program: &Program, step: &Loop) -> String {
    let mut text = match &step.trips {
        LoopTrips::Known(n) => format!("{n} steps"),
        LoopTrips::Count(n) => format!("as many steps as {} says", named(program, *n)),
        LoopTrips::Range(from, to) => {
            format!("steps from {} to before {}", named(program, *from), named(program, *to))
        }
        LoopTrips::While { most: 0, .. } => "steps while the test holds".into(),
        LoopTrips::While { most, .. } => format!("{most} steps at most, while the test holds"),
    };
    if step.reverse {
        text.push_str(", from the last position to the first");
    }
    if let Some(back) = &step.back {
        text.push_str(&format!(", and back with {} checkpoints", step.checkpoints(back)));
    }
    text
}

fn named(program: &Program, b: Buffer) -> String {
    format!("%{}", program.buffers[b].name)
}

/// What a kernel does with the values and the parts of folds that its sweeps leave.
fn folds(kernel: &Kernel, lines: &mut Vec<String>) {
    for (k, stage) in kernel.stages.iter().enumerate() {
        let first = kernel.domain.len();
        // Sizes that are too much were refused when the step was made.
        let in_code = in_code(kernel, stage).unwrap_or_default();
        for (sink, n) in stage.sinks.iter().zip(0..) {
            let folded = in_code.get(n).copied().flatten();
            let from = match folded {
                Some(_) => format!("parts that {}.{k} leaves are joined", kernel.name),
                None => format!("what {}.{k} leaves is folded", kernel.name),
            };
            lines.push(match sink {
                // One part is the row.
                Sink::Reduce { .. } if folded.is_some_and(|f| f.by.parts() == Some(1)) => continue,
                Sink::Reduce { monoid, runs, into } => {
                    format!("{from} by {} over {} to {into}", monoid.name(), along(runs, first))
                }
                Sink::Fold { monoid, runs, .. } => {
                    let (axes, name) = (along(runs, 0), &kernel.name);
                    format!("{from} by {} over {axes} for {name}.folded", monoid.name())
                }
                Sink::Scan { monoid, axis, reverse, into } => {
                    let axis = first + usize::from(*axis);
                    let back = if *reverse { ", from the last" } else { "" };
                    format!("{into} is scanned by {} along d{axis}{back}", monoid.name())
                }
                Sink::Store { .. } | Sink::Keep(_) | Sink::Leave(_) => continue,
            });
        }
    }
}

/// The axes of runs, in the order in which they fold.
fn along(runs: &[Run], first: usize) -> String {
    let run = |r: &Run| {
        let axes: Vec<String> =
            r.axes.iter().map(|&a| format!("d{}", first + usize::from(a))).collect();
        format!("{}({})", r.order.name(), axes.join(", "))
    };
    match runs.is_empty() {
        true => "one element".into(),
        false => runs.iter().map(run).collect::<Vec<_>>().join(", then "),
    }
}

/// The products of a contraction.
fn products(contract: &Contract, by: &[&str], lines: &mut Vec<String>) {
    let in_sweeps = if by.is_empty() { Some("sweeps") } else { None };
    let all_by = by.iter().copied().chain(in_sweeps.into_iter().cycle());
    for (m, by) in contract.members.iter().zip(all_by) {
        let [batch, rows, cols, depth] = [&m.batch, &m.rows, &m.cols, &m.depth].map(volume);
        let sum = m.sum;
        lines.push(format!(
            "{batch} x products of {rows} x {depth} by {depth} x {cols}, sums in {sum}, by {by}"
        ));
    }
}

/// Whether more than the product is computed.
fn computes(m: &Member) -> bool {
    let plain = |program: &adfuse_ir::scalar::ScalarProgram| program.insts.len() <= 1;
    !(plain(&m.lhs.program) && plain(&m.rhs.program) && plain(&m.then.program))
}

fn added(program: &Program, scatter: &Scatter) -> String {
    format!("updates are added to {}, by ranges of it", named(program, scatter.out))
}

fn sorted(program: &Program, argsort: &Argsort) -> String {
    let Argsort { from, axis, descending, .. } = *argsort;
    let order = if descending { "descending" } else { "ascending" };
    format!("lines of {} along axis {axis} are put in {order} order", named(program, from))
}
