//! The frontier of plans, and what plans compute again.

use super::context::Collected;
use crate::data::{BudgetRow, RecomputedValue};
use adfuse_fusion::{BudgetPoint, Rewrites, recomputed_values};
use adfuse_ir::Value;
use adfuse_ir::text::Names;

/// The most points of a frontier that a report has.
const MOST_POINTS: usize = 60;

/// Values by name, with how often each is computed again.
pub(super) fn recomputed(
    name: &dyn Fn(Value) -> String,
    again: &[(Value, u32)],
) -> Vec<RecomputedValue> {
    again.iter().map(|&(v, times)| RecomputedValue { value: name(v), times }).collect()
}

/// The points of the frontier, those that the plan itself is beside always among them.
pub(super) fn rows(c: &Collected<'_>) -> Vec<BudgetRow> {
    let points = c.source.frontier;
    let (peak, seconds) = (c.laid.memory.peak, c.laid.cost.seconds);
    let shown = shown(points.len());
    let mut rows: Vec<BudgetRow> = shown.into_iter().map(|k| row(&points[k])).collect();
    if rows.is_empty() {
        return rows;
    }
    let again = recomputed_values(c.source.function, c.source.plan);
    let own = BudgetRow {
        peak,
        seconds,
        saved: adfuse_fusion::saved_bytes(c.source.function, c.source.plan).unwrap_or(0),
        recomputed: recomputed(&|v| c.name(v), &again),
        rewrites: rewrites(&c.source.plan.rewrites),
        chosen: true,
    };
    // The frontier has the plan itself, unless it was given or looked for in another way.
    rows.retain(|r| r.peak != peak);
    let at = rows.partition_point(|r| r.peak < peak);
    rows.insert(at, own);
    rows
}

/// The most ends of segments that a row names.
const MOST_ENDS: usize = 6;

/// Checkpoint segments and decisions about loops in words.
fn rewrites(made: &Rewrites) -> Vec<String> {
    let segments = made.segments.iter().map(|ends| match ends.names.len() {
        n if n > MOST_ENDS => format!("{} segments", n + 1),
        _ => format!("segments to {ends}"),
    });
    segments.chain(made.loops.iter().map(ToString::to_string)).collect()
}

fn row(of: &BudgetPoint) -> BudgetRow {
    let (p, f) = (&of.point, &of.rewritten.decided.function);
    let names = Names::of(f);
    BudgetRow {
        peak: p.peak,
        seconds: p.seconds,
        saved: p.saved,
        recomputed: recomputed(&|v| format!("%{}", names.get(v)), &p.again),
        rewrites: rewrites(&of.point.plan.rewrites),
        chosen: false,
    }
}

/// The numbers of the points that are shown: the first, the last, and others evenly between.
fn shown(points: usize) -> Vec<usize> {
    match points {
        n if n <= MOST_POINTS => (0..n).collect(),
        n => (0..MOST_POINTS).map(|k| k * (n - 1) / (MOST_POINTS - 1)).collect(),
    }
}
