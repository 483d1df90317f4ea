//! The picture of time over the budget of memory.

use super::markup::{PlotArea, Svg, escaped, marks_between};
use crate::data::{BudgetRow, Report};
use crate::units::{bytes, limit, mark_bytes, percent, seconds};
use std::fmt::Write as _;

const AREA: PlotArea =
    PlotArea { width: 1080.0, height: 320.0, left: 76.0, right: 60.0, top: 26.0, bottom: 46.0 };

/// Places of bytes and seconds.
struct BudgetAxes {
    peak: (f64, f64),
    time: (f64, f64),
}

impl BudgetAxes {
    fn of(rows: &[BudgetRow]) -> BudgetAxes {
        let range = |of: &dyn Fn(&BudgetRow) -> f64| {
            let low = rows.iter().map(of).fold(f64::INFINITY, f64::min);
            let high = rows.iter().map(of).fold(0.0, f64::max);
            let spare = ((high - low) * 0.06).max(high * 0.02);
            ((low - spare).max(0.0), high + spare)
        };
        BudgetAxes { peak: range(&|r| r.peak as f64), time: range(&|r| r.seconds) }
    }

    fn x(&self, peak: f64) -> f64 {
        let (low, high) = self.peak;
        AREA.x((peak - low) / (high - low).max(f64::MIN_POSITIVE))
    }

    fn y(&self, time: f64) -> f64 {
        let (low, high) = self.time;
        AREA.y((time - low) / (high - low).max(f64::MIN_POSITIVE))
    }
}

/// The frontier as steps, its points, the plan of the report, and a fifth less than it takes.
pub(super) fn picture(r: &Report) -> Option<Svg> {
    let rows = &r.budget;
    if rows.is_empty() {
        return None;
    }
    let axes = BudgetAxes::of(rows);
    let title = "Predicted time of the fastest plan within each budget of memory";
    let mut svg = AREA.picture(title, ("memory that the plan holds", "time of a step"));
    for mark in marks_between(axes.peak, 7, true) {
        AREA.mark_x(&mut svg, axes.x(mark), &mark_bytes(mark));
    }
    for mark in marks_between(axes.time, 6, false) {
        AREA.mark_y(&mut svg, axes.y(mark), &seconds(mark));
    }
    let (top, bottom) = (AREA.y(1.0), AREA.y(0.0));
    let wanted = r.memory.held as f64 * 0.8;
    if wanted > axes.peak.0 {
        let x = axes.x(wanted);
        svg.line("less", (x, top), (x, bottom));
        svg.text("note end halo", (x - 6.0, top + 10.0), "20 % less memory");
    }
    if let Some(budget) =
        r.memory.budget.map(|b| b as f64).filter(|b| (axes.peak.0..=axes.peak.1).contains(b))
    {
        let x = axes.x(budget);
        svg.line("budget", (x, top), (x, bottom));
        svg.text(
            "note alert halo",
            (x + 6.0, top + 24.0),
            &format!("budget {}", limit(budget as u64)),
        );
    }
    stairs(&mut svg, &axes, rows);
    let first = rows.iter().position(|p| p.chosen).unwrap_or(0);
    for (k, p) in rows.iter().enumerate() {
        let (x, y) = (axes.x(p.peak as f64), axes.y(p.seconds));
        let (class, radius) = if p.chosen { ("chosen", 8) } else { ("point", 5) };
        let tab = if k == first { 0 } else { -1 };
        let title = format!(
            "{} and {} a step, {} values computed again",
            limit(p.peak),
            seconds(p.seconds),
            p.recomputed.len()
        );
        svg.put(format_args!(
            "<circle class=\"budget-point {class}\" role=\"button\" tabindex=\"{tab}\" data-point=\"{k}\" aria-label=\"{0}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{0}</title></circle>",
            escaped(&title)
        ));
        if p.chosen {
            let end = x > AREA.width / 2.0;
            let (class, at) = if end {
                ("note strong halo end", x - 12.0)
            } else {
                ("note strong halo", x + 12.0)
            };
            svg.text(
                class,
                (at, y - 26.0),
                &format!("this plan: {}, {}", limit(p.peak), seconds(p.seconds)),
            );
        }
    }
    Some(svg)
}

/// The least time for every budget.
fn stairs(svg: &mut Svg, axes: &BudgetAxes, rows: &[BudgetRow]) {
    let mut path = String::new();
    let mut best = f64::INFINITY;
    for p in rows {
        if p.seconds > best {
            continue;
        }
        best = p.seconds;
        let (x, y) = (axes.x(p.peak as f64), axes.y(p.seconds));
        let _ = match path.is_empty() {
            true => write!(path, "M{x:.1} {y:.1}"),
            false => write!(path, "H{x:.1}V{y:.1}"),
        };
    }
    svg.put(format_args!("<path class=\"stairs\" d=\"{path}H{:.1}\"/>", AREA.x(1.0)));
}

/// The points as a table.
pub(super) fn table(r: &Report) -> String {
    let now = r.figure("seconds").map_or(0.0, |f| f.fused).max(f64::MIN_POSITIVE);
    let mut out = String::from(
        "<details><summary>All points as a table</summary><table id=\"budget-points\" class=\"sortable\"><thead><tr><th class=\"n\">memory</th><th class=\"n\">beside this plan</th><th class=\"n\">time</th><th class=\"n\">beside this plan</th><th class=\"n\">saved for later phases</th><th class=\"n\">values computed again</th><th>segments and loops</th></tr></thead><tbody>",
    );
    for (k, p) in r.budget.iter().enumerate() {
        let memory = p.peak as f64 / r.memory.held.max(1) as f64 - 1.0;
        let time = p.seconds / now - 1.0;
        let class = if p.chosen { " class=\"chosen\"" } else { "" };
        let _ = write!(
            out,
            "<tr{class} data-point=\"{k}\"><td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\" data-v=\"{memory:.6}\">{}</td><td class=\"n\" data-v=\"{:e}\">{}</td>\
             <td class=\"n\" data-v=\"{time:.6}\">{}</td><td class=\"n\" data-v=\"{}\">{}</td><td class=\"n\" data-v=\"{n}\">{n}</td><td>{rewrites}</td></tr>",
            p.peak,
            limit(p.peak),
            signed(memory),
            p.seconds,
            seconds(p.seconds),
            signed(time),
            p.saved,
            bytes(p.saved as f64),
            n = p.recomputed.len(),
            rewrites = escaped(&p.rewrites.join(", ")),
        );
    }
    out + "</tbody></table></details>"
}

/// A change in percent with its sign.
fn signed(x: f64) -> String {
    match x {
        x if x.abs() < 5e-4 => "0 %".into(),
        x if x > 0.0 => format!("+{}", percent(x)),
        x => format!("\u{2212}{}", percent(-x)),
    }
}
