//! Printing: what each piece of a program's work becomes as PTX text.

use super::entry::Out;
use super::loop_entries;
use super::read_order::reads_first;
use crate::gpu::launches::{Arg, BlockCode, Launch, PtxModule, StepCode};
use crate::gpu::schedule::bundle::SharedLaunches;
use crate::gpu::schedule::elementwise::Elementwise;
use crate::gpu::schedule::program::{GpuSchedule, StepSchedule};
use crate::gpu::schedule::scheduled::Scheduled;
use crate::gpu::schedule::shape::internal;
use crate::gpu::schedule::text::Writer;
use adfuse_ir::kernel::{Buffer, EqualSteps};
use adfuse_ir::{At, Diagnostic};

/// Prints a schedule as PTX. Equal steps with equal decisions are printed once, and launch the same entry points.
///
/// # Errors
/// Where a step outgrows what a launch can have; the error names the step.
pub fn print(schedule: &GpuSchedule) -> Result<PtxModule, Diagnostic> {
    module(schedule, true, |out| all_steps(schedule, out, ""))
}

/// The module of a schedule: what runs before and after the steps, and these as `steps` gives them. `writes` says whether it
/// has its text.
pub(super) fn module(
    schedule: &GpuSchedule,
    writes: bool,
    steps: impl FnOnce(&mut Out) -> Result<Vec<StepCode>, Diagnostic>,
) -> Result<PtxModule, Diagnostic> {
    let mut out = Out::new(schedule.target, writes);
    let apart = |out: &mut Out, name: &str, step: &StepSchedule| {
        name.clone_into(&mut out.prefix);
        printed(schedule, out, step).map_err(|d| within(schedule, d, None))
    };
    let enter = apart(&mut out, "enter", &schedule.enter)?;
    let steps = steps(&mut out)?;
    let leave = apart(&mut out, "leave", &schedule.leave)?;
    loop_entries::shared(&mut out, &schedule.program);
    let users = std::mem::take(&mut out.users);
    let concurrent = schedule.concurrent.iter().map(|range| range.0.clone()).collect();
    Ok(PtxModule { text: out.module(), users, concurrent, enter, steps, leave })
}

/// An error with the program and the step that it is about.
pub(super) fn within(schedule: &GpuSchedule, mut d: Diagnostic, step: Option<usize>) -> Diagnostic {
    let titled =
        |n: usize| Some(format!("step {n}: {}", schedule.program.steps.get(n)?.title()).into());
    let func = Some(schedule.name.clone());
    d.at = At { func, inst: step.and_then(titled).or(d.at.inst), ..At::default() };
    d
}

/// The steps of a program; its entry points have names that begin with this.
fn all_steps(schedule: &GpuSchedule, out: &mut Out, of: &str) -> Result<Vec<StepCode>, Diagnostic> {
    let mut steps: Vec<StepCode> = Vec::new();
    // What a block's step is given depends on where the block has its buffers.
    let equal =
        if of.is_empty() { EqualSteps::of(&schedule.program) } else { EqualSteps::default() };
    for (n, step) in schedule.steps.iter().enumerate() {
        let first = equal.first(n);
        if first < n && decisions(step) == decisions(&schedule.steps[first]) {
            steps.push(
                relaunched(&steps[first], &equal, n).map_err(|d| within(schedule, d, Some(n)))?,
            );
            continue;
        }
        steps.push(step_code(schedule, out, of, n)?);
    }
    Ok(steps)
}

/// The text of all decisions of a step.
fn decisions(step: &StepSchedule) -> String {
    let mut text = Writer::default();
    step.works.iter().for_each(|work| work.write(&mut text));
    text.text
}

/// The launches of a step that runs the code of the first of its equals, on its own buffers.
fn relaunched(first: &StepCode, equal: &EqualSteps, n: usize) -> Result<StepCode, Diagnostic> {
    let mut code = first.clone();
    with_buffers(&mut code, &|b| equal.counterpart(n, b))?;
    Ok(code)
}

/// Gives launches other buffers.
pub(super) fn with_buffers(
    code: &mut StepCode,
    other: &dyn Fn(Buffer) -> Option<Buffer>,
) -> Result<(), Diagnostic> {
    for arg in code.launches.iter_mut().flat_map(Launch::given_mut) {
        if let Arg::Buffer(b) | Arg::Caller(b) = arg {
            *b = other(*b)
                .ok_or_else(|| internal("a launch is given what its step does not name"))?;
        }
    }
    Ok(())
}

/// What the names of a step's entry points begin with, in a program whose own begin with `of`.
pub(super) fn entry_prefix(schedule: &GpuSchedule, of: &str, n: usize) -> String {
    format!("{of}s{n}_{}", spelled(schedule.program.steps[n].name()))
}

/// The code of a step, and of the programs in it.
pub(super) fn step_code(
    schedule: &GpuSchedule,
    out: &mut Out,
    of: &str,
    n: usize,
) -> Result<StepCode, Diagnostic> {
    let step = &schedule.steps[n];
    out.prefix = entry_prefix(schedule, of, n);
    let code = step_printed(schedule, out, n).map_err(|d| within(schedule, d, Some(n)))?;
    let mut blocks = Vec::new();
    for inner in &step.blocks {
        let of = format!("{of}s{n}b_{}_", inner.role);
        blocks.push(block(&inner.schedule, &inner.role, out, &of)?);
    }
    Ok(StepCode { blocks, ..code })
}

/// A program that a step runs.
fn block(
    schedule: &GpuSchedule,
    role: &str,
    out: &mut Out,
    of: &str,
) -> Result<BlockCode, Diagnostic> {
    let copies = |out: &mut Out, k: usize, name: &str| {
        out.prefix = format!("{of}{name}");
        out.entries = 0;
        loop_entries::copies(out, &schedule.copies[k]).map_err(|d| within(schedule, d, None))?;
        Ok::<_, Diagnostic>(std::mem::take(&mut out.launches))
    };
    let before = copies(out, 0, "before")?;
    let after = copies(out, 1, "after")?;
    let steps = all_steps(schedule, out, of)?;
    Ok(BlockCode {
        role: role.to_owned(),
        bindings: schedule.bindings.clone(),
        before,
        steps,
        after,
    })
}

/// The launches of a step without programs in it, and nothing of their text.
///
/// # Errors
/// As [`print()`].
pub(crate) fn step_launches(schedule: &GpuSchedule, n: usize) -> Result<StepCode, Diagnostic> {
    let mut out = Out::new(schedule.target, false);
    step_printed(schedule, &mut out, n).map_err(|d| within(schedule, d, Some(n)))
}

/// The code of a step without the programs in it.
pub(super) fn step_printed(
    schedule: &GpuSchedule,
    out: &mut Out,
    n: usize,
) -> Result<StepCode, Diagnostic> {
    let mut code = printed(schedule, out, &schedule.steps[n])?;
    code.reads_first = reads_first(&schedule.program.steps[n], &schedule.steps[n], &code);
    Ok(code)
}

/// Launches of the work of one step.
fn printed(s: &GpuSchedule, out: &mut Out, step: &StepSchedule) -> Result<StepCode, Diagnostic> {
    out.entries = 0;
    let shared = match step.works.last() {
        Some(Scheduled::Bundle(shared)) => shared.clone(),
        _ => SharedLaunches::default(),
    };
    for (k, work) in step.works.iter().enumerate() {
        match work {
            Scheduled::Bundle(_) => {}
            Scheduled::Elementwise(e) => match shared.at(k).as_deref() {
                None => {}
                Some([_]) => super::elementwise::stores(s, out, e)?,
                Some(pieces) => super::bundle::stores(s, out, &works_of(step, pieces))?,
            },
            Scheduled::Transpose(t) => super::transpose::transposed(s, out, t)?,
            Scheduled::Fold(fold) => super::fold::fold(s, out, fold)?,
            Scheduled::Rows(rows) => super::rows::rows(s, out, rows)?,
            Scheduled::Join { fold, .. } => {
                super::tree_fold::joined(s, out, std::slice::from_ref(fold))?
            }
            Scheduled::Scan { scan, grid } => super::scan::scan(s, out, scan, *grid)?,
            Scheduled::Pack { from, to, grid } => super::pack::pack(s, out, [*from, *to], *grid)?,
            Scheduled::Product(product) => super::matmul::product(s, out, product)?,
            Scheduled::Warpgroup(product) => super::warpgroup::product(s, out, product)?,
            Scheduled::Convolution(product) => super::convolution::product(s, out, product)?,
            Scheduled::Scatter(scatter) => super::scatter::scatter(s, out, scatter)?,
            Scheduled::Sort(sort) => super::sort::sort(s, out, sort)?,
            Scheduled::Attention(a) => super::attend::attention(s, out, a)?,
            Scheduled::Call(call) => super::user_call::call(s, out, call),
        }
    }
    let launches = std::mem::take(&mut out.launches);
    let pieces = step.works.iter().filter(|work| !matches!(work, Scheduled::Bundle(_))).count();
    Ok(StepCode { launches, pieces, scratch: step.scratch, ..StepCode::default() })
}

/// The elementwise work of these numbers.
fn works_of<'s>(step: &'s StepSchedule, pieces: &[usize]) -> Vec<&'s Elementwise> {
    let found = pieces.iter().filter_map(|&k| match step.works.get(k) {
        Some(Scheduled::Elementwise(e)) => Some(e),
        _ => None,
    });
    found.collect()
}

/// A name as entry points may have it.
pub(super) fn spelled(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().take(40).map(plain).collect()
}
