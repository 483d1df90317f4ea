//! The picture of what kernels do beside what the machine can do.

use super::markup::{PlotArea, Svg, cut, escaped};
use crate::collect::answers::distances;
use crate::data::{Report, Roof};
use crate::units::{metric, seconds};
use std::collections::BTreeMap;

const AREA: PlotArea =
    PlotArea { width: 1080.0, height: 400.0, left: 76.0, right: 178.0, top: 18.0, bottom: 46.0 };

/// Powers of ten that the axes begin and end with.
struct LogAxes {
    x: (f64, f64),
    y: (f64, f64),
}

impl LogAxes {
    fn place(&self, intensity: f64, rate: f64) -> (f64, f64) {
        let part = |v: f64, (low, high): (f64, f64)| (v.log10() - low) / (high - low);
        (AREA.x(part(intensity, self.x)), AREA.y(part(rate, self.y)))
    }
}

/// A kernel, and equal ones.
struct Kernels {
    step: usize,
    count: usize,
    intensity: f64,
    rate: f64,
    measured: Option<f64>,
    seconds: f64,
}

/// Operations a second over operations a byte, of the steps that have operations.
pub(super) fn picture(r: &Report) -> Svg {
    let kernels = kernels(r);
    let title = "Operations a second of each kernel beside the limits of the machine";
    let mut svg = AREA.picture(title, ("operations for each byte moved", "operations/s"));
    let top = r.roofs.iter().filter(|f| !f.is_memory).map(|f| f.per_second).fold(1.0, f64::max);
    let range = |values: &mut dyn Iterator<Item = f64>, least: f64, most: f64| {
        let (mut low, mut high) = (least, most);
        values.filter(|v| *v > 0.0).for_each(|v| {
            low = v.min(low);
            high = v.max(high);
        });
        (low.log10().floor(), high.log10().ceil())
    };
    let x = range(&mut kernels.iter().map(|k| k.intensity), 0.1, 100.0);
    let rates = kernels.iter().flat_map(|k| [k.rate, k.measured.unwrap_or(k.rate)]);
    let y = range(&mut { rates }, top / 1e3, top * 1.2);
    let axes = LogAxes { x, y };
    frame(&mut svg, &axes);
    roofs(&mut svg, &axes, &r.roofs);
    let all: f64 = kernels.iter().map(|k| k.seconds).sum();
    let furthest = furthest(r, &kernels);
    let mut by_time: Vec<usize> = (0..kernels.len()).collect();
    by_time.sort_by(|a, b| kernels[*b].seconds.total_cmp(&kernels[*a].seconds));
    let named: Vec<usize> = by_time.iter().take(3).copied().chain(furthest).collect();
    // Large ones lie below small ones.
    for &k in &by_time {
        point(&mut svg, &axes, r, (&kernels[k], all));
    }
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for (n, k) in named.iter().enumerate() {
        if named[..n].contains(k) {
            continue;
        }
        label(&mut svg, &axes, r, (&kernels[*k], Some(*k) == furthest), &mut taken);
    }
    svg
}

/// The kernel that is furthest from its limit, as the page's answer has it.
fn furthest(r: &Report, kernels: &[Kernels]) -> Option<usize> {
    let all = distances(r);
    let total: f64 = all.iter().map(|x| x.2).sum();
    let long = all.iter().filter(|x| x.2 >= total / 200.0);
    let &(step, ..) = long.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let same = |k: &Kernels| {
        let (a, b) = (&r.steps[k.step], &r.steps[step]);
        k.step == step
            || (a.name == b.name
                && a.ops == b.ops
                && a.seconds == b.seconds
                && a.measured == b.measured)
    };
    kernels.iter().position(same)
}

/// Steps with operations, those with equal figures once.
fn kernels(r: &Report) -> Vec<Kernels> {
    let mut found: BTreeMap<(u64, u64, u64, Option<u64>, &str), Kernels> = BTreeMap::new();
    for (n, s) in r.steps.iter().enumerate() {
        let moved = s.read_bytes.saturating_add(s.written_bytes);
        if s.ops == 0 || s.seconds <= 0.0 || moved == 0 {
            continue;
        }
        let measured = s.measured.as_ref().map(|m| m.seconds).filter(|t| *t > 0.0);
        let key = (s.ops, moved, s.seconds.to_bits(), measured.map(f64::to_bits), s.name.as_str());
        let k = found.entry(key).or_insert(Kernels {
            step: n,
            count: 0,
            intensity: s.ops as f64 / moved as f64,
            rate: s.ops as f64 / s.seconds,
            measured: measured.map(|t| s.ops as f64 / t),
            seconds: 0.0,
        });
        k.count += 1;
        k.seconds += s.seconds;
    }
    found.into_values().collect()
}

fn frame(svg: &mut Svg, axes: &LogAxes) {
    let powers = |(low, high): (f64, f64)| {
        let count = (high - low).round() as i32;
        let by = (count / 8 + 1) as usize;
        (0..=count).step_by(by).map(move |k| 10f64.powi(low as i32 + k))
    };
    for v in powers(axes.x) {
        let (x, _) = axes.place(v, 1.0);
        AREA.mark_x(svg, x, &number(v));
    }
    for v in powers(axes.y) {
        let (_, y) = axes.place(1.0, v);
        AREA.mark_y(svg, y, &metric(v));
    }
}

fn number(v: f64) -> String {
    if v >= 1000.0 { metric(v) } else { format!("{v}") }
}

/// Slopes of memories and levels of arithmetic, equal ones once.
fn roofs(svg: &mut Svg, axes: &LogAxes, roofs: &[Roof]) {
    let (low, high) = (10f64.powf(axes.x.0), 10f64.powf(axes.x.1));
    let ceiling = 10f64.powf(axes.y.1);
    let floor = 10f64.powf(axes.y.0);
    let most = roofs.iter().filter(|f| !f.is_memory).map(|f| f.per_second).fold(0.0, f64::max);
    let mut levels: Vec<(f64, Vec<&str>)> = Vec::new();
    for f in roofs {
        if f.is_memory {
            let (from, to) =
                ((floor / f.per_second).max(low), (most.min(ceiling) / f.per_second).min(high));
            if from < to {
                let (a, b) =
                    (axes.place(from, from * f.per_second), axes.place(to, to * f.per_second));
                svg.line("roof", a, b);
                let text = format!("{} {}B/s", f.name, metric(f.per_second));
                let angle = ((b.1 - a.1) / (b.0 - a.0)).atan().to_degrees();
                let (x, y) = (a.0 + (b.0 - a.0) * 0.12, a.1 + (b.1 - a.1) * 0.12 - 5.0);
                svg.put(format_args!(
                    "<text class=\"roof-name\" transform=\"translate({x:.1} {y:.1}) rotate({angle:.1})\">{}</text>",
                    escaped(&text)
                ));
            }
        } else {
            match levels.iter_mut().find(|(rate, _)| *rate == f.per_second) {
                Some((_, names)) => names.push(f.name),
                None => levels.push((f.per_second, vec![f.name])),
            }
        }
    }
    let bandwidth = roofs.iter().filter(|f| f.is_memory).map(|f| f.per_second).fold(1.0, f64::max);
    levels.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut above = f64::NEG_INFINITY;
    for (rate, names) in levels {
        let from = (rate / bandwidth).clamp(low, high);
        let (a, b) = (axes.place(from, rate), axes.place(high, rate));
        svg.line("roof", a, b);
        // Labels keep their distance from the one above.
        let y = (b.1 + 4.0).max(above + 26.0);
        above = y;
        svg.text("roof-name", (b.0 + 6.0, y - 5.0), &cut(&names.join("; "), 28));
        svg.text("roof-name", (b.0 + 6.0, y + 8.0), &format!("{}op/s", metric(rate)));
    }
}

fn point(svg: &mut Svg, axes: &LogAxes, r: &Report, (k, all): (&Kernels, f64)) {
    let s = &r.steps[k.step];
    let (x, y) = axes.place(k.intensity, k.rate);
    let radius = 3.0 + 13.0 * (k.seconds / all.max(f64::MIN_POSITIVE)).sqrt();
    let title = format!(
        "step {}{}, {}: {} operations for each byte, {}op/s predicted, {} in all",
        k.step,
        if k.count > 1 { format!(" and {} like it", k.count - 1) } else { String::new() },
        s.label,
        number((k.intensity * 100.0).round() / 100.0),
        metric(k.rate),
        seconds(k.seconds)
    );
    if let Some(rate) = k.measured {
        let (_, measured) = axes.place(k.intensity, rate);
        svg.line("joined", (x, y), (x, measured));
        svg.put(format_args!(
            "<circle class=\"measured\" data-step=\"{}\" cx=\"{x:.1}\" cy=\"{measured:.1}\" r=\"{radius:.1}\"><title>{}, {}op/s measured</title></circle>",
            k.step,
            escaped(&title),
            metric(rate)
        ));
    }
    svg.put(format_args!(
        "<circle class=\"kernel {}\" data-step=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>{}</title></circle>",
        s.bound,
        k.step,
        escaped(&title)
    ));
}

/// The name of a kernel beside its point, where there is room.
fn label(
    svg: &mut Svg,
    axes: &LogAxes,
    r: &Report,
    (k, furthest): (&Kernels, bool),
    taken: &mut Vec<(f64, f64)>,
) {
    let (x, mut y) = axes.place(k.intensity, k.measured.unwrap_or(k.rate));
    while taken.iter().any(|t| (t.1 - y).abs() < 14.0 && (t.0 - x).abs() < 170.0) {
        y += 14.0;
    }
    taken.push((x, y));
    let s = &r.steps[k.step];
    let label = cut(&s.label, 26);
    let text = if furthest { format!("{label} (furthest from its limit)") } else { label };
    let end = x > AREA.x(1.0) - 190.0;
    let (class, at) =
        if end { ("point-name halo end", x - 14.0) } else { ("point-name halo", x + 14.0) };
    svg.text(class, (at, y + 4.0), &text);
}
