//! The points of a frontier, as a table and as JSON.

use super::recomputed;
use super::table::{bytes, columns, limit};
use super::times::{compile_limit, milliseconds, slower};
use crate::planning::PlanRequest;
use adfuse::fusion::{BudgetPoint, Layout, graph_hash};
use serde_json::{Value, json};

/// The most values that a line of the table names; JSON has all.
const MOST_VALUES: usize = 12;

/// This many of the points, the first and the last among them, the others evenly between; all where
/// there are no more.
fn some(points: &[BudgetPoint], count: usize) -> Vec<&BudgetPoint> {
    let last = points.len().saturating_sub(1);
    match count.min(points.len()) {
        0 => Vec::new(),
        1 => points.last().into_iter().collect(),
        n => (0..n).map(|k| &points[k * last / (n - 1)]).collect(),
    }
}

fn fastest(frontier: &[BudgetPoint]) -> f64 {
    frontier.last().map_or(0.0, |p| p.point.seconds)
}

/// What is decided for the loops of a point, in words.
fn loops(p: &BudgetPoint) -> Vec<String> {
    p.point.plan.rewrites.loops.iter().map(ToString::to_string).collect()
}

/// A line a point, tightest first.
pub(super) fn text(ready: &PlanRequest, frontier: &[BudgetPoint], count: usize) -> String {
    let f = &ready.function;
    let options = &ready.options;
    let shown = some(frontier, count);
    let mut out = format!(
        "@{} on {}, fp {}, effort {}: {} of {} plans\n\n",
        f.name,
        options.device.name,
        options.fp.name(),
        ready.effort(),
        shown.len(),
        frontier.len()
    );
    let head = [
        "budget",
        "bytes",
        "ms",
        "slower",
        "to compile",
        "code",
        "saved for backward",
        "computed again",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    let decides = frontier.iter().any(|p| !p.point.plan.rewrites.loops.is_empty());
    rows[0].extend(decides.then(|| "loops".to_string()));
    let is_laid_out = frontier.iter().any(|p| p.point.plan.layout != Layout::default());
    rows[0].extend(is_laid_out.then(|| "layout".to_string()));
    let fastest = fastest(frontier);
    rows.extend(shown.iter().map(|of| {
        let (p, f) = (&of.point, &of.rewritten.decided.function);
        let mut row = vec![
            limit(p.peak),
            p.peak.to_string(),
            format!("{:.4}", p.seconds * 1e3),
            format!("{:.1} %", slower(p.seconds, fastest)),
            compile_limit(p.compile.seconds),
            bytes(p.compile.code_bytes),
            bytes(p.saved),
            recomputed::summary(
                &p.plan.rewrites.segments,
                &recomputed::named(f, &p.again),
                MOST_VALUES,
            ),
        ];
        row.extend(decides.then(|| loops(of).join(", ")));
        row.extend(is_laid_out.then(|| p.plan.layout.name().to_string()));
        row
    }));
    out += &columns(&rows);
    out
}

/// The same as data.
pub(super) fn json(ready: &PlanRequest, frontier: &[BudgetPoint], count: usize) -> Value {
    let (f, options) = (&ready.function, &ready.options);
    let fastest = fastest(frontier);
    let point = |of: &BudgetPoint| {
        let (p, f) = (&of.point, &of.rewritten.decided.function);
        let mut all = json!({
            "peak_bytes": p.peak,
            "predicted_ms": milliseconds(p.seconds),
            "slower_percent": slower(p.seconds, fastest),
            "compile_ms": milliseconds(p.compile.seconds),
            "code_bytes": p.compile.code_bytes,
            "saved_bytes": p.saved,
            "plan": p.plan.hash(f),
            "layout": p.plan.layout.name(),
            "again": recomputed::json(&recomputed::named(f, &p.again)),
        });
        if !p.plan.rewrites.segments.is_empty() {
            all["segments"] = recomputed::segments_json(&p.plan.rewrites.segments);
        }
        if !p.plan.rewrites.loops.is_empty() {
            all["loops"] = json!(loops(of));
        }
        all
    };
    let points: Vec<Value> = some(frontier, count).into_iter().map(point).collect();
    json!({
        "function": f.name,
        "device": options.device.name,
        "fp": options.fp.name(),
        "effort": ready.effort(),
        "graph": graph_hash(f),
        "plans": frontier.len(),
        "points": points,
    })
}
