//! Loops: what they carry and keep, and the schedules of checkpoints.

use super::markup::{Svg, escaped, marks};
use crate::data::{LoopCheckpoints, LoopSummary, Report, ScheduleAction};
use crate::units::{bytes, count};
use std::fmt::Write as _;

const WIDTH: f64 = 1080.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;

/// The loops as a table, with what the backward pass reads of each.
pub(super) fn table(r: &Report) -> String {
    let mut out = String::from(
        "<table id=\"loop-rows\"><thead><tr><th>loop</th><th class=\"n\">steps</th><th class=\"n\">carried</th><th>stacks</th><th class=\"n\">checkpoints</th><th class=\"n\">their bytes</th><th class=\"n\">steps forward</th></tr></thead><tbody>",
    );
    for l in &r.loops {
        let trips = match (l.trips, &l.counted_by) {
            (Some(n), _) => count(n as f64),
            (None, by) => format!("by {}", by.as_deref().unwrap_or("a test")),
        };
        let stacks: Vec<String> = l
            .stacks
            .iter()
            .map(|(name, n)| format!("{} {}", escaped(name), bytes(*n as f64)))
            .collect();
        let back = l.checkpoints.as_ref();
        let number = |n: Option<u64>| n.map_or_else(|| "\u{2013}".into(), |n| count(n as f64));
        let _ = write!(
            out,
            "<tr><th scope=\"row\"><code>{}</code></th><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escaped(&l.name),
            escaped(&trips),
            bytes(l.carried_bytes as f64),
            if stacks.is_empty() { "\u{2013}".into() } else { stacks.join("<br>") },
            number(back.map(|b| b.count)),
            back.map_or_else(|| "\u{2013}".into(), |b| bytes(b.bytes as f64)),
            number(back.and_then(|b| b.forward_steps)),
        );
    }
    out += "</tbody></table>";
    for l in r.loops.iter().filter(|l| !l.residuals.is_empty()) {
        out += &residuals(l);
    }
    out
}

fn residuals(l: &LoopSummary) -> String {
    let mut out = format!(
        "<h3>What the backward pass over <code>{}</code> reads</h3><table class=\"sortable\"><thead><tr><th>value</th><th>type, of one step</th><th>class</th><th class=\"n\">bytes of all steps</th></tr></thead><tbody>",
        escaped(&l.name)
    );
    for x in &l.residuals {
        let _ = write!(
            out,
            "<tr><th scope=\"row\"><code>{}</code></th><td><code>{}</code></td><td>{}</td><td class=\"n\" data-v=\"{}\">{}</td></tr>",
            escaped(&x.name),
            escaped(&x.ty),
            escaped(&x.class),
            x.bytes,
            bytes(x.bytes as f64)
        );
    }
    out + "</tbody></table>"
}

/// The pictures of schedules: which step of the loop is done at which time, and which states are kept.
pub(super) fn pictures(r: &Report) -> Vec<Svg> {
    let drawn = |l: &LoopSummary| {
        let back = l.checkpoints.as_ref().filter(|b| !b.schedule.is_empty())?;
        Some(picture(l, back))
    };
    r.loops.iter().filter_map(drawn).collect()
}

fn picture(l: &LoopSummary, back: &LoopCheckpoints) -> Svg {
    let title = format!("The backward pass over {}: {} checkpoints over time", l.name, back.count);
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    let steps = l.trips.unwrap_or(1).max(1) as f64;
    // A step of the loop forward or back is one unit of time.
    let length = |a: &ScheduleAction| match *a {
        ScheduleAction::Advance(from, to) => to.saturating_sub(from) as f64,
        ScheduleAction::Turn(_) => 1.0,
        ScheduleAction::Keep(_) | ScheduleAction::Restore(_) => 0.0,
    };
    let total: f64 = back.schedule.iter().map(length).sum::<f64>().max(1.0);
    let x = |t: f64| LEFT + (WIDTH - LEFT - 20.0) * t / total;
    let y = |step: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * step / steps;
    for mark in marks(steps, 4, false) {
        svg.line("grid", (LEFT, y(mark)), (WIDTH - 20.0, y(mark)));
        svg.text("tick end", (LEFT - 8.0, y(mark) + 4.0), &count(mark));
    }
    svg.text("axis", (0.0, 12.0), "step of the loop");
    svg.text("axis middle", (WIDTH / 2.0, HEIGHT - 8.0), "time, in steps forward and back");
    let mut kept: Vec<(u64, f64)> = Vec::new();
    let mut now = 0.0;
    let mut held = Vec::new();
    for action in &back.schedule {
        match *action {
            ScheduleAction::Keep(step) => kept.push((step, now)),
            ScheduleAction::Advance(from, to) => {
                svg.line(
                    "advance",
                    (x(now), y(from as f64)),
                    (x(now + length(action)), y(to as f64)),
                );
            }
            ScheduleAction::Turn(step) => {
                svg.line("turn", (x(now), y(step as f64 + 1.0)), (x(now + 1.0), y(step as f64)));
                // A checkpoint is free once its own step is gone back over.
                let (done, left): (Vec<_>, Vec<_>) =
                    kept.into_iter().partition(|k: &(u64, f64)| k.0 >= step);
                held.extend(done.into_iter().map(|(s, since)| (s, since, now + 1.0)));
                kept = left;
            }
            ScheduleAction::Restore(_) => {}
        }
        now += length(action);
    }
    for (step, from, to) in held {
        svg.line("checkpoint", (x(from), y(step as f64)), (x(to), y(step as f64)));
    }
    svg
}
