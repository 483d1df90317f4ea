//! The layout of a plan: on a CPU the one in which the greedy plan takes less time, on a GPU the one that products want.

use crate::fuse::greedy::plan_at;
use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::layout::Layout;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::point::plan_seconds;
use adfuse_ir::{Diagnostic, Function, Inst, Op, Value};

/// The part of a function's elements that are in short rows from which on another layout is priced.
const WORTH_PRICING: f64 = 0.1;

/// What a layout must take of the time of the row-major one: it is chosen before single changes, which may gain more in
/// the other one.
const WORTH_CHOOSING: f64 = 0.9;

/// The fewest multiply-adds of a product for which rows are aligned: below that it takes no longer than a launch.
const WORTH_ALIGNING: f64 = (1 << 26) as f64;

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
    let device = &options.device;
    if options.effort == Effort::Off {
        return Ok(Layout::RowMajor);
    }
    // Where lanes have coordinates of their own, short rows leave none idle.
    if device.line <= 1 {
        let layout = Layout::AlignedRows;
        let chosen = device.is_gpu() && multiplies(f, layout) && layout.refused_by(f).is_none();
        return Ok(if chosen { layout } else { Layout::RowMajor });
    }
    let layout = Layout::StructureOfArrays;
    if !has_many_short_rows(f) || layout.refused_by(f).is_some() {
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
    let is_short = |&v: &Value| Layout::StructureOfArrays.moves(f.ty(v));
    let short: f64 = values().filter(is_short).map(count).sum();
    short > 0.0 && short >= WORTH_PRICING * values().map(count).sum::<f64>()
}

/// Whether a large product reads or gives a temporary that has strides in a layout. Neither the library nor the engine's own tiles
/// multiply rows at their full rate that do not begin at multiples of 16 bytes: a third of it on an H200.
fn multiplies(f: &Function, layout: Layout) -> bool {
    let is_temporary =
        |&v: &Value| layout.moves(f.ty(v)) && !f.params().contains(&v) && !f.results().contains(&v);
    let elements = |v: Value| f.ty(v).elements().map_or(0.0, |n| n as f64);
    let is_large = |i: Inst| {
        let (result, lhs) = (f.inst_results(i)[0], f.args(i)[0]);
        let (contracted, _) = f.attrs(i).pair("contract");
        let extent = |&d: &i64| f.ty(lhs).dims().map_or(0.0, |dims| dims[d as usize] as f64);
        elements(result) * contracted.iter().map(extent).product::<f64>() >= WORTH_ALIGNING
    };
    f.body_insts().iter().any(|&i| {
        f.op(i) == Op::DotGeneral
            && f.args(i).iter().chain(f.inst_results(i)).any(is_temporary)
            && is_large(i)
    })
}
