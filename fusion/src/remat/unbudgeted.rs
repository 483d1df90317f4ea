//! The plan without a budget: the planner's own, with each decision taken otherwise that makes it better for nothing.

use super::single_changes::taken_for_nothing;
use crate::memory::engine::{AnyEngine, EngineModel};
use crate::plan::Plan;
use crate::plan::options::PlanOptions;
use crate::search::planner::{PlanWithAttempts, plan_with};
use adfuse_ir::{Diagnostic, Function};

/// Plans a [prepared](crate::prepare()) function: the fastest plan that is found, by the cost model. Of plans that are
/// equally fast it is the one of the lower peak.
///
/// # Errors
/// For what has no lowering: symbolic extents and calls. The error names the symbol
/// or the instruction.
pub fn plan(f: &Function, options: &PlanOptions) -> Result<Plan, Diagnostic> {
    plan_for(f, options, &AnyEngine)
}

/// As [`plan`](crate::plan()), for an engine that says what it makes of each step.
///
/// # Errors
/// As there.
pub fn plan_for(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Plan, Diagnostic> {
    Ok(plan_among(f, options, engine)?.plan)
}

/// As [`plan_for`], with the plans that it was chosen from.
///
/// # Errors
/// As there.
pub fn plan_among(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanWithAttempts, Diagnostic> {
    plan_with(f, options, engine, &|base, plan, engine| {
        taken_for_nothing(f, plan, options, (base, engine))
    })
}
