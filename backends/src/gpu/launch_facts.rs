//! How many launches a step becomes, and what these read and write beyond the step's own buffers.

use super::launches::{Arg, Launch, StepCode};
use super::ptx::entry::place;
use super::ptx::module::step_launches;
use super::ptx::tree_fold::levels;
use super::schedule::program::{GpuSchedule, StepSchedule};
use super::schedule::rows::{Chains, ScheduledRows};
use super::schedule::scheduled::Scheduled;
use super::schedule::shape::loaded;
use super::schedule::tree_fold::{TreeFold, TreeLevel};
use super::schedule::warpgroup::{WarpgroupMember, WarpgroupProduct};
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::facts::LaunchFacts;
use adfuse_ir::kernel::{Buffer, Program, Sink, Stage};
use hashbrown::HashSet;
use std::slice;

/// The launches of a step of a schedule, and what they read and write beyond what the step reads and writes once. What launches touch is known of most
/// work without printing it, which takes half of the time that examining a step takes.
pub(super) fn launches_of(schedule: &GpuSchedule, n: usize) -> Result<LaunchFacts, Diagnostic> {
    let printed = || Ok::<_, Diagnostic>(of_code(&schedule.program, &step_launches(schedule, n)?));
    let Some(launches) = touched(&schedule.steps[n]) else { return printed() };
    let of = |mut buffers: Vec<Buffer>| {
        // A launch is given a buffer once, of whose elements it may have several loads.
        buffers.sort_unstable();
        buffers.dedup();
        let args = buffers.iter().map(|&b| place(&schedule.homes, b)).collect();
        Launch { args, ..Launch::new(String::new(), [1; 3], 1) }
    };
    let launches = launches.into_iter().map(of).collect();
    let code = StepCode { launches, scratch: schedule.steps[n].scratch, ..StepCode::default() };
    let found = of_code(&schedule.program, &code);
    debug_assert!(
        !printed().is_ok_and(|printed| printed != found),
        "{}",
        schedule.program.steps[n].title()
    );
    Ok(found)
}

/// For each launch of a step the buffers that it reads and writes; `None` where the step has work of which only printing says that.
fn touched(step: &StepSchedule) -> Option<Vec<Vec<Buffer>>> {
    let mut all = Vec::new();
    for work in &step.works {
        match work {
            Scheduled::Elementwise(e) => all.push(of_stage(&e.flat.stage)),
            Scheduled::Transpose(turned) => all.push(of_stage(&turned.flat.stage)),
            Scheduled::Rows(rows) => {
                all.push(of_rows(rows));
                all.extend(of_trees(&rows.trees));
            }
            Scheduled::Join { fold, .. } => all.extend(of_trees(slice::from_ref(fold))),
            Scheduled::Warpgroup(product) => all.push(of_products(product)),
            _ => return None,
        }
    }
    Some(all)
}

/// What a stage whose sinks store reads and writes.
fn of_stage(stage: &Stage) -> Vec<Buffer> {
    let mut touched = loaded(&stage.params);
    touched.extend(stage.sinks.iter().filter_map(stored));
    touched
}

fn stored(sink: &Sink) -> Option<Buffer> {
    match sink {
        Sink::Store { buffer, .. } => Some(*buffer),
        _ => None,
    }
}

/// What the launch of rows touches: parts of the folds of columns that trees join, or their results.
fn of_rows(rows: &ScheduledRows) -> Vec<Buffer> {
    let mut touched: Vec<Buffer> = rows.layout.kernel.stages.iter().flat_map(of_stage).collect();
    for Chains { fold, .. } in &rows.chains {
        match fold.parts {
            Some((parts, _)) => touched.push(parts),
            None => touched.extend(of_stage(&fold.then)),
        }
    }
    touched
}

/// What each level of trees touches.
fn of_trees(trees: &[TreeFold]) -> Vec<Vec<Buffer>> {
    let of = |&(fold, level): &(&TreeFold, &TreeLevel)| {
        let parts = [Some(level.from), level.to].into_iter().flatten();
        let mut touched: Vec<Buffer> =
            parts.flat_map(|(b, places)| [Some(b), places]).flatten().collect();
        if level.to.is_none() {
            touched.extend(of_stage(&fold.fold.then));
        }
        touched
    };
    levels(trees).iter().map(|launch| launch.iter().flat_map(of).collect()).collect()
}

/// What a launch of products touches: sums of columns go where parts of them are.
fn of_products(product: &WarpgroupProduct) -> Vec<Buffer> {
    let mut touched = Vec::new();
    for WarpgroupMember { member, parts, .. } in &product.members {
        for (_, feed, _) in member.feeds() {
            touched.extend(loaded(&feed.params));
        }
        touched.extend(loaded(&member.then.params));
        let sinks = member.then.sinks.iter().zip(parts);
        touched.extend(sinks.filter_map(|(sink, part)| part.or_else(|| stored(sink))));
    }
    touched
}

/// The launches of a step, and what they read and write beyond what it reads and writes once: scratch each time, and
/// buffers that a launch before has touched.
fn of_code(program: &Program, code: &StepCode) -> LaunchFacts {
    let args = || code.launches.iter().flat_map(Launch::given);
    let offset = |arg: Arg| match arg {
        Arg::Scratch { offset } => Some(offset),
        _ => None,
    };
    let mut offsets: Vec<u64> = args().filter_map(offset).chain([code.scratch]).collect();
    offsets.sort_unstable();
    offsets.dedup();
    let size = |at: u64| {
        let next = offsets.iter().find(|&&o| o > at).copied().unwrap_or(at);
        next.saturating_sub(at)
    };
    let mut touched: HashSet<Buffer> = HashSet::new();
    let mut beyond = 0u64;
    for launch in &code.launches {
        let mut now: Vec<Buffer> = Vec::new();
        for arg in launch.given() {
            match arg {
                Arg::Scratch { offset } => beyond = beyond.saturating_add(size(offset)),
                Arg::Buffer(b) if touched.contains(&b) => {
                    beyond = beyond.saturating_add(program.buffers[b].bytes());
                }
                Arg::Buffer(b) => now.push(b),
                _ => {}
            }
        }
        touched.extend(now);
    }
    let count = code.launches.len() as u64;
    LaunchFacts { count, beyond_bytes: beyond, ..LaunchFacts::default() }
}
