//! Which values are live while each step runs, what they are, and why they are there.

use super::context::{Collected, size};
use crate::data::{LiveValue, MemoryTimeline, PlanStep, ResidualRow, ValueKind};
use adfuse_fusion::ValueWords;
use adfuse_ir::ValueDef;
use adfuse_ir::kernel::{Buffer, BufferData, Role, Space, lives};
use std::collections::BTreeMap;

/// Live memory over the steps.
pub(super) fn timeline(
    c: &Collected<'_>,
    steps: &[PlanStep],
    residuals: &[ResidualRow],
) -> MemoryTimeline {
    let program = &c.laid.program;
    let end = program.steps.len().saturating_sub(1);
    let lives = lives(program);
    let by_value: BTreeMap<&str, &ResidualRow> =
        residuals.iter().map(|r| (r.value.as_str(), r)).collect();
    let lines = c.lines();
    let formulas = formulas(c);
    let mut values = Vec::new();
    for (b, data) in program.buffers.iter() {
        let bytes = if data.space == Space::Host { 0 } else { data.bytes() };
        let donor = c.laid.memory.in_donor[b].is_some();
        let (from, to) = match (&data.role, lives[b]) {
            (Role::Input, live) if data.donated => (0, live.map_or(0, |(_, last)| last)),
            (Role::Input | Role::Constant(_), _) => (0, end),
            (Role::Output, live) => (live.map_or(0, |(first, _)| first), end),
            (Role::Temp, Some(live)) => live,
            (Role::Temp, None) => continue,
        };
        // What is written in place takes the memory over in the step in which the other one dies.
        let heir = c.laid.memory.in_place.iter().find(|p| p.parent == b).filter(|p| to == p.step);
        let to = if heir.is_some() && from < to { to - 1 } else { to };
        // A result in the memory of an input that nothing reads any more takes none of its own.
        let own = !(data.role == Role::Output && donor);
        let kind = kind(c, b, data, (from, to), steps);
        let held = c.laid.held[b];
        let name = format!("%{}", data.name);
        let row = held.map(|v| c.name(v)).and_then(|name| by_value.get(name.as_str()).copied());
        let mut why = why(kind, (from, to), steps, row, own);
        if let Some(p) = heir {
            why += &format!("; %{} is then written in its place", program.buffers[p.child].name);
        }
        let line = held.and_then(|v| match c.source.function.def(v) {
            ValueDef::Inst(i, _) => lines.of_inst(i),
            _ => None,
        });
        let ty = format!("{}{:?}", data.dtype, data.dims.as_slice()).replace(' ', "");
        let bytes = if own { bytes } else { 0 };
        let what = held.and_then(|v| formulas.get(&c.name(v)).cloned());
        values.push(LiveValue { name, what, ty, kind, bytes, from, to, why, line });
    }
    let scratch: Vec<u64> =
        (0..=end).map(|n| c.laid.scratch.get(n).copied().unwrap_or(0)).collect();
    let live = live_bytes(&values, &scratch);
    // The first of the steps with the most.
    let most = live.iter().copied().max().unwrap_or(0);
    let peak_step = live.iter().position(|&n| n == most).unwrap_or(0);
    let (budget, held) = (c.source.budget, c.laid.memory.peak);
    MemoryTimeline { budget, held, peak_step, peak_live: most, scratch, values }
}

/// What the values are that have no names, by their numbers: `exp(%x)`.
fn formulas(c: &Collected<'_>) -> BTreeMap<String, String> {
    let words = ValueWords::new(c.source.function, "");
    for b in c.laid.program.buffers.keys() {
        if let Some(v) = c.laid.held[b] {
            // It is then in the legend.
            words.name(v);
        }
    }
    let told = words.legend().into_iter();
    let parts = told.filter_map(|line| {
        let (name, rest) = line.split_once(" is ")?;
        let formula = rest.rsplit_once(": ").map_or(rest, |(formula, _)| formula);
        Some((name.to_string(), formula.to_string()))
    });
    parts.collect()
}

/// Live bytes while each step runs.
pub(crate) fn live_bytes(values: &[LiveValue], scratch: &[u64]) -> Vec<u64> {
    let mut changes = vec![0i128; scratch.len() + 1];
    for v in values {
        changes[v.from.min(scratch.len())] += i128::from(v.bytes);
        changes[(v.to + 1).min(scratch.len())] -= i128::from(v.bytes);
    }
    let mut now = 0i128;
    let mut all = Vec::with_capacity(scratch.len());
    for (change, scratch) in changes.iter().zip(scratch) {
        now += change;
        all.push(u64::try_from(now).unwrap_or(0).saturating_add(*scratch));
    }
    all
}

fn kind(
    c: &Collected<'_>,
    b: Buffer,
    data: &BufferData,
    (from, to): (usize, usize),
    steps: &[PlanStep],
) -> ValueKind {
    let program = &c.laid.program;
    match data.role {
        Role::Constant(_) => ValueKind::Constant,
        Role::Input => {
            let at = program.inputs().position(|input| input == b);
            at.and_then(|k| c.source.parameters.get(k)).copied().unwrap_or(ValueKind::Input)
        }
        Role::Output => {
            let at = program.outputs.iter().position(|&output| output == b);
            at.and_then(|k| c.source.results.get(k)).copied().unwrap_or(ValueKind::Result)
        }
        Role::Temp => {
            let phase = |n: usize| steps.get(n).map_or(0, |s| s.phase);
            if phase(from) < phase(to) { ValueKind::Residual } else { ValueKind::Temporary }
        }
    }
}

/// Why a value is in memory.
fn why(
    kind: ValueKind,
    (from, to): (usize, usize),
    steps: &[PlanStep],
    row: Option<&ResidualRow>,
    own: bool,
) -> String {
    let at = |n: usize| {
        steps.get(n).map_or_else(|| format!("step {n}"), |s| format!("step {n} ({})", s.label))
    };
    match kind {
        ValueKind::Parameter => "a parameter, which the caller holds for the whole run".into(),
        ValueKind::State => "the optimizer's, which the caller holds for the whole run".into(),
        ValueKind::Input => "an input, which the caller holds for the whole run".into(),
        ValueKind::Constant => "written in the program".into(),
        ValueKind::Result | ValueKind::Gradient if !own => {
            "a result in the memory of an input that nothing reads any more".into()
        }
        ValueKind::Result => format!("a result, from {} on", at(from)),
        ValueKind::Gradient => format!("a gradient for the caller, from {} on", at(from)),
        ValueKind::Temporary => format!("{} writes it, {} reads it last", at(from), at(to)),
        ValueKind::Residual => {
            let cost = row.and_then(|r| r.instead.as_ref()).filter(|x| x.decision == "remat");
            let instead = cost.map_or_else(String::new, |x| {
                let peak = match u64::try_from(-x.peak) {
                    Ok(freed) if freed > 0 => format!("lowers the peak by {}", size(freed)),
                    _ => "does not lower the peak".into(),
                };
                let time = crate::units::seconds(x.seconds);
                match x.seconds >= 0.0 {
                    true => format!("; computing it again takes {time} more and {peak}"),
                    false => format!("; computing it again changes the time by {time} and {peak}"),
                }
            });
            format!("kept for {}{instead}", at(to))
        }
    }
}
