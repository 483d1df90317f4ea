//! A plan with its peak, its predicted time and its residuals.

use crate::lower::instances::recomputed_values;
use crate::lower::{Holders, belongs, placed};
use crate::memory::engine::EngineModel;
use crate::memory::memory_beside;
use crate::memory::residuals::saved_bytes;
use crate::plan::Plan;
use crate::plan::options::PlanOptions;
use adfuse_ir::kernel::Program;
use adfuse_ir::{Diagnostic, Function, Value};

/// A plan with its cost.
#[derive(Clone, Debug)]
pub struct PlanPoint {
    /// The plan.
    pub plan: Plan,
    /// The most bytes at once: inputs, outputs, constants, and the arena with what steps need.
    pub peak: u64,
    /// Predicted seconds.
    pub seconds: f64,
    /// Bytes that a phase leaves to a later one.
    pub saved: u64,
    /// Recomputed values in the order of the function, with counts.
    pub again: Vec<(Value, u32)>,
}

/// The cost of a plan of a [prepared](crate::prepare()) function.
///
/// # Errors
/// As [`lower`](crate::lower()), and those of the engine.
pub fn plan_point(
    f: &Function,
    plan: Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanPoint, Diagnostic> {
    belongs(f, &plan)?;
    measured(f, plan, options, engine).map(|(point, _)| point)
}

/// A plan with its cost and its program.
pub(crate) fn measured(
    f: &Function,
    plan: Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<(PlanPoint, Program), Diagnostic> {
    let (point, program, _) = measured_at(f, plan, options, engine)?;
    Ok((point, program))
}

/// As [`measured`], with the buffers that values are in.
pub(crate) fn measured_at(
    f: &Function,
    plan: Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<(PlanPoint, Program, Holders), Diagnostic> {
    let plan = match engine.donated() {
        [] => plan,
        given => plan.donating(given),
    };
    let (program, holders) = placed(f, &plan, &options.device)?;
    let seconds = engine.cost(&program, &options.device).seconds;
    let memory = memory_beside(&program, options.effort, &engine.scratch(&program)?)?;
    let peak = engine.peak(&program, &memory)?;
    let saved = saved_bytes(f, &plan)?;
    let again = recomputed_values(f, &plan);
    Ok((PlanPoint { plan, peak, seconds, saved, again }, program, holders))
}
