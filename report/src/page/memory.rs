//! The picture of memory over time, and the list of what is there at the peak.

use super::markup::{Svg, cut, escaped, marks};
use crate::collect::answers::at_peak;
use crate::collect::memory::live_bytes;
use crate::data::{LiveValue, Report, ValueKind};
use crate::units::{bytes, limit, mark_bytes, seconds};
use std::fmt::Write as _;

/// Kinds from the ground up, with their classes and names: what the caller holds, then what the plan decides about.
pub(super) const KINDS: [(ValueKind, &str, &str); 8] = [
    (ValueKind::Parameter, "parameter", "parameters"),
    (ValueKind::State, "state", "optimizer state"),
    (ValueKind::Input, "input", "inputs"),
    (ValueKind::Constant, "constant", "constants"),
    (ValueKind::Result, "result", "results"),
    (ValueKind::Gradient, "gradient", "gradients"),
    (ValueKind::Residual, "residual", "residuals"),
    (ValueKind::Temporary, "temporary", "temporaries"),
];

const WIDTH: f64 = 1080.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 118.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 34.0;

/// The coordinates of the picture.
struct TimeAxes {
    /// Where each step begins and ends, in seconds.
    spans: Vec<(f64, f64)>,
    total: f64,
    most: f64,
}

impl TimeAxes {
    fn x(&self, t: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * t / self.total
    }

    fn y(&self, bytes: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * bytes / self.most
    }
}

/// Live bytes of each kind, stacked, while each step runs.
pub(super) fn picture(r: &Report) -> Svg {
    let m = &r.memory;
    let title = format!(
        "Live memory over time: {} at the peak, in step {}",
        limit(m.peak_live),
        m.peak_step
    );
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    let spans: Vec<(f64, f64)> = r.steps.iter().map(|s| (s.start, s.start + s.seconds)).collect();
    let total = spans.last().map_or(1.0, |s| s.1).max(f64::MIN_POSITIVE);
    let held = m.held.max(m.peak_live) as f64;
    // A budget far away would leave no room for what is there.
    let budget = m.budget.map(|b| b as f64);
    let near = budget.filter(|b| *b <= 1.6 * held);
    let axes = TimeAxes { spans, total, most: held.max(near.unwrap_or(0.0)).max(1.0) * 1.04 };
    frame(&mut svg, &axes, r);
    let mut ground = vec![0.0; r.steps.len()];
    for (kind, class, _) in KINDS {
        let of: Vec<LiveValue> = m.values.iter().filter(|v| v.kind == kind).cloned().collect();
        let scratch =
            if kind == ValueKind::Temporary { m.scratch.clone() } else { vec![0; m.scratch.len()] };
        let live = live_bytes(&of, &scratch);
        if live.iter().all(|&n| n == 0) {
            continue;
        }
        let top: Vec<f64> = ground.iter().zip(&live).map(|(g, &n)| g + n as f64).collect();
        area(&mut svg, &axes, class, (&ground, &top));
        ground = top;
    }
    limits(&mut svg, &axes, r, (budget, near));
    peak(&mut svg, &axes, r);
    for (n, (s, live)) in r.steps.iter().zip(&ground).enumerate() {
        let (from, to) = axes.spans[n];
        let (x, w) = (axes.x(from), (axes.x(to) - axes.x(from)).max(0.3));
        svg.put(format_args!(
            "<rect class=\"hit\" data-step=\"{n}\" x=\"{x:.2}\" y=\"{TOP}\" width=\"{w:.2}\" height=\"{:.0}\"><title>step {n}, {}: {} live</title></rect>",
            HEIGHT - TOP - BOTTOM,
            escaped(&s.label),
            bytes(*live)
        ));
    }
    svg
}

/// Axes, and which part of the time is forward.
fn frame(svg: &mut Svg, axes: &TimeAxes, r: &Report) {
    for mark in marks(axes.most, 6, true) {
        let y = axes.y(mark);
        svg.line("grid", (LEFT, y), (WIDTH - RIGHT, y));
        svg.text("tick end", (LEFT - 8.0, y + 4.0), &mark_bytes(mark));
    }
    for mark in marks(axes.total, 6, false) {
        let x = axes.x(mark);
        svg.line("tickmark", (x, HEIGHT - BOTTOM), (x, HEIGHT - BOTTOM + 4.0));
        svg.text("tick middle", (x, HEIGHT - BOTTOM + 17.0), &seconds(mark));
    }
    let mut from = 0;
    while from < r.steps.len() {
        let phase = r.steps[from].phase;
        let count = r.steps[from..].iter().take_while(|s| s.phase == phase).count();
        let (x0, x1) = (axes.x(axes.spans[from].0), axes.x(axes.spans[from + count - 1].1));
        if from > 0 && x1 - x0 > 3.0 {
            svg.line("phase", (x0, TOP - 22.0), (x0, HEIGHT - BOTTOM));
        }
        if x1 - x0 > 60.0 {
            svg.text("phase-name", (x0 + 6.0, TOP - 12.0), &phase_name(phase));
        }
        from += count;
    }
}

/// What people call a phase.
pub(super) fn phase_name(phase: u16) -> String {
    match phase {
        0 => "forward \u{2192}".into(),
        1 => "backward \u{2192}".into(),
        n => format!("phase {n} \u{2192}"),
    }
}

/// The area between two lines of steps.
fn area(svg: &mut Svg, axes: &TimeAxes, class: &str, (low, high): (&[f64], &[f64])) {
    if axes.spans.is_empty() {
        return;
    }
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut go = |x: f64, y: f64| match points[..] {
        // Of a level line the ends are enough.
        [.., (_, before), (_, last)] if before == y && last == y => {
            let end = points.len() - 1;
            points[end].0 = x;
        }
        _ => points.push((x, y)),
    };
    for (&top, &(from, to)) in high.iter().zip(&axes.spans) {
        go(axes.x(from), axes.y(top));
        go(axes.x(to), axes.y(top));
    }
    for (&bottom, &(from, to)) in low.iter().zip(&axes.spans).rev() {
        go(axes.x(to), axes.y(bottom));
        go(axes.x(from), axes.y(bottom));
    }
    let mut path = String::new();
    for (n, (x, y)) in points.into_iter().enumerate() {
        let _ = write!(path, "{}{x:.2} {y:.2}", if n == 0 { "M" } else { "L" });
    }
    svg.put(format_args!("<path class=\"area {class}\" data-kind=\"{class}\" d=\"{path}Z\"/>"));
}

/// What the plan holds for the whole run, and the budget.
fn limits(svg: &mut Svg, axes: &TimeAxes, r: &Report, (budget, near): (Option<f64>, Option<f64>)) {
    let x = WIDTH - RIGHT;
    let held = r.memory.held as f64;
    let y = axes.y(held);
    svg.line("held", (LEFT, y), (x, y));
    let shift = match near {
        Some(b) if (axes.y(b) - y).abs() < 28.0 => 22.0,
        _ => 4.0,
    };
    svg.text("note", (x + 6.0, y + shift), "held by the plan");
    svg.text("note strong", (x + 6.0, y + shift + 13.0), &limit(r.memory.held));
    if let Some(b) = near {
        let y = axes.y(b);
        svg.line("budget", (LEFT, y), (x, y));
        svg.text("note alert", (x + 6.0, y - 6.0), &format!("budget {}", limit(b as u64)));
    } else if let Some(b) = budget {
        svg.text(
            "note alert end",
            (x, TOP - 30.0),
            &format!("budget {}, above this picture", limit(b as u64)),
        );
    }
}

fn peak(svg: &mut Svg, axes: &TimeAxes, r: &Report) {
    let m = &r.memory;
    let Some(&(from, to)) = axes.spans.get(m.peak_step) else { return };
    let (x, y) = (axes.x((from + to) / 2.0), axes.y(m.peak_live as f64));
    svg.line("peak", (x, y - 4.0), (x, HEIGHT - BOTTOM));
    svg.put(format_args!("<circle class=\"peak-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"));
    let label = format!("peak {} in step {}", limit(m.peak_live), m.peak_step);
    let (class, at) = if x > WIDTH / 2.0 {
        ("note strong halo end", x - 8.0)
    } else {
        ("note strong halo", x + 8.0)
    };
    svg.text(class, (at, y + 18.0), &label);
}

/// Swatches with what each kind takes at the peak.
pub(super) fn legend(r: &Report) -> String {
    let mut out = String::from(
        "<ul class=\"legend\" aria-label=\"Kinds of values, with their bytes at the peak\">",
    );
    let there = at_peak(r);
    for (kind, class, name) in KINDS {
        let has = r.memory.values.iter().any(|v| v.kind == kind && v.bytes > 0);
        let mut sum: u64 = there.iter().filter(|v| v.kind == kind).map(|v| v.bytes).sum();
        // What kernels need for themselves is drawn with the temporaries.
        let scratch = kind == ValueKind::Temporary && r.memory.scratch.iter().any(|&n| n > 0);
        if scratch {
            sum += r.memory.scratch.get(r.memory.peak_step).copied().unwrap_or(0);
        }
        let name = if scratch { "temporaries and scratch" } else { name };
        if has || scratch {
            let _ = write!(
                out,
                "<li data-kind=\"{class}\"><span class=\"swatch {class}\"></span>{name} <b>{}</b></li>",
                bytes(sum as f64)
            );
        }
    }
    out + "</ul>"
}

/// The most rows of the list of values at the peak.
const MOST_ROWS: usize = 40;

/// The values at the peak, the largest first, with why each is there.
pub(super) fn table(r: &Report) -> String {
    let there = at_peak(r);
    let mut out = String::from(
        "<table id=\"peak-values\" class=\"sortable\"><thead><tr><th>value</th><th>kind</th><th>type</th><th class=\"n\">bytes</th><th class=\"n\">of the peak</th><th>why it is there</th></tr></thead><tbody>",
    );
    for v in there.iter().take(MOST_ROWS) {
        let kind = KINDS.iter().find(|k| k.0 == v.kind).map_or("", |k| k.1);
        let what = v
            .what
            .as_ref()
            .map_or_else(String::new, |w| format!("<br><small>{}</small>", escaped(&cut(w, 48))));
        let line = super::tables::line(v.line.as_deref());
        let name = escaped(&v.name);
        let share = v.bytes as f64 / r.memory.peak_live.max(1) as f64;
        let _ = write!(
            out,
            "<tr data-value=\"{name}\"><th scope=\"row\"><code>{name}</code>{line}{what}</th><td><span class=\"swatch {kind}\"></span>{kind}</td><td><code>{}</code></td>\
             <td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\" data-v=\"{share:.6}\">{:.1} %</td><td>{}</td></tr>",
            escaped(&v.ty),
            v.bytes,
            bytes(v.bytes as f64),
            share * 100.0,
            escaped(&v.why),
        );
    }
    out += "</tbody></table>";
    if there.len() > MOST_ROWS {
        let rest = &there[MOST_ROWS..];
        let sum: u64 = rest.iter().map(|v| v.bytes).sum();
        let _ = write!(
            out,
            "<p class=\"more\">and {} smaller values, {} together</p>",
            rest.len(),
            bytes(sum as f64)
        );
    }
    out
}
