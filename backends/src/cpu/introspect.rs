//! Introspection of executables: steps, functions, memory, and a map of functions for profilers.

use super::codegen::vector_width::Emitter;
use super::executable::CpuExecutable;
use super::shape::in_code;
use crate::runtime::report::{MemoryReport, StepReport};
use adfuse_ir::kernel::{
    Argsort, Buffer, Contract, Kernel, Member, Program, Run, Scatter, Sink, Step,
};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A sweep: one function of machine code.
#[derive(Clone, Copy, Debug)]
pub struct CompiledSweep<'e> {
    /// The number of its step, among those that run.
    pub step: usize,
    /// The step's name and the role of the function: `softmax.1` is stage 1.
    pub name: &'e str,
    /// What made it.
    pub emitter: Emitter,
    /// The machine code.
    pub code: &'e [u8],
    /// How long it took to make.
    pub took: Duration,
    /// What else is known, for an executable that was made to be read.
    pub texts: Option<SweepTexts<'e>>,
}

/// What a sweep is, as text.
#[derive(Clone, Copy, Debug)]
pub struct SweepTexts<'e> {
    /// Where it walks, what it reads and what it writes.
    pub accesses: &'e str,
    /// What Cranelift is given; nothing where another emitter made it.
    pub clif: &'e str,
    /// The instructions of the host.
    pub asm: &'e str,
}

impl CpuExecutable {
    /// The steps, in the order in which they run.
    pub fn steps(&self) -> &[StepReport] {
        &self.made
    }

    /// The functions of machine code, in the order in which they were made.
    pub fn sweeps(&self) -> impl ExactSizeIterator<Item = CompiledSweep<'_>> {
        self.code.listed().map(|(noted, code)| CompiledSweep {
            step: noted.step,
            name: &noted.name,
            emitter: noted.emitter,
            code,
            took: noted.took,
            texts: noted.texts.as_ref().map(|[accesses, clif, asm]| SweepTexts {
                accesses,
                clif,
                asm,
            }),
        })
    }

    /// Bytes that it holds, and those that a caller hands it.
    pub fn memory(&self) -> MemoryReport {
        MemoryReport { spare: self.store.bytes(), ..self.report }
    }

    /// Adds the functions to the map that profilers read for this process, `/tmp/perf-PID.map`, and says
    /// where that is.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_perf_map(&self) -> io::Result<PathBuf> {
        let path = Path::new("/tmp").join(format!("perf-{}.map", std::process::id()));
        self.add_to_map(&path)?;
        Ok(path)
    }

    /// A line for each function: where it begins, its size, both in hexadecimal, and its name.
    fn add_to_map(&self, path: &Path) -> io::Result<()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let mut lines = String::new();
        for sweep in self.sweeps() {
            let (at, size) = (sweep.code.as_ptr().addr(), sweep.code.len());
            // Nothing is wrong with writing to a string.
            let _ = writeln!(lines, "{at:x} {size:x} {}", sweep.name);
        }
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(lines.as_bytes())
    }
}

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
        Step::Contract(contract) => {
            products(contract, products_by, &mut notes);
            if !contract.members.iter().any(computes) {
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
        Step::Attend(_) | Step::Loop(_) | Step::Branch(_) => {}
    }
    let folded = matches!(step, Step::Kernel(_) | Step::Scatter(_)) && !notes.is_empty();
    if folded {
        by.push("rust");
    }
    let (name, generator) = (step.name().into(), by.join(" + "));
    StepReport { origin, name, generator, notes, ..StepReport::default() }
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
    for (m, by) in contract.members.iter().zip(by) {
        let count = |extents: &[i64]| extents.iter().fold(1i64, |all, n| all.saturating_mul(*n));
        let [batch, rows, cols, depth] = [&m.batch, &m.rows, &m.cols, &m.depth].map(|e| count(e));
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
