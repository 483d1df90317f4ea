//! The layout of a plan: the one in which the greedy plan takes less time.

use crate::fuse::greedy::plan_at;
use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::layout::{Layout, has_short_rows};
use crate::plan::options::{Effort, PlanOptions};
use crate::search::point::plan_seconds;
use adfuse_ir::{Diagnostic, Function, Value};

/// The part of a function's elements that are in short rows from which on another layout is priced.
const WORTH_PRICING: f64 = 0.1;

/// What a layout must take of the time of the row-major one: it is chosen before single changes, which may gain more in
/// the other one.
const WORTH_CHOOSING: f64 = 0.9;

/// The layout of the plans of a function, by what their greedy plan without a budget takes with an engine.
///
/// # Errors
/// As [`plan`](crate::plan()).
pub(crate) fn chosen_layout(
    f: &Function,
    options: &PlanOptions,
    blocks: &[Plan],
    engine: &dyn EngineModel,
) -> Result<Layout, Diagnostic> {
    let (device, layout) = (&options.device, Layout::StructureOfArrays);
    // Where lanes have coordinates of their own, short rows leave none idle.
    let alike = options.effort == Effort::Off || device.line <= 1;
    if alike || !has_many_short_rows(f) || layout.refused_by(f).is_some() {
        return Ok(Layout::RowMajor);
    }
    let plan = plan_at(f, options, 0.0, blocks)?;
    let rows = plan_seconds(f, &plan, device, engine)?;
    let columns = plan_seconds(f, &Plan { layout, ..plan }, device, engine)?;
    Ok(if columns < WORTH_CHOOSING * rows { layout } else { Layout::RowMajor })
}

/// Whether many elements of what a function computes are in short rows.
fn has_many_short_rows(f: &Function) -> bool {
    let count = |v: Value| f.ty(v).elements().map_or(0.0, |n| n as f64);
    let values = || f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
    let short: f64 = values().filter(|&v| has_short_rows(f.ty(v))).map(count).sum();
    short > 0.0 && short >= WORTH_PRICING * values().map(count).sum::<f64>()
}
