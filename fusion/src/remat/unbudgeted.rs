//! The plan without a budget: the planner's own, with each decision taken otherwise that makes it better for nothing.

use super::costless_decisions::taken_for_nothing;
use crate::lower::linked::LinkBase;
use crate::memory::engine::{AnyEngine, EngineModel, MemoEngine};
use crate::plan::Plan;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::fastest::Attempts;
use crate::search::planner::{PlanWithAttempts, fastest_among, fastest_of_attempts};
use crate::search::point::plan_seconds;
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
    // Plans that differ in one decision have most groups in common with the others.
    let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
    let mut made = fastest_among(f, options, engine)?;
    made.plan = bettered(f, made.plan, options, (None, engine))?;
    Ok(made)
}

/// The plan of [`plan_among`], where the plans are known that it is chosen from.
///
/// # Errors
/// As there.
pub(super) fn plan_of_attempts<'f>(
    (f, attempts): (&'f Function, &Attempts),
    options: &PlanOptions,
    (base, engine): (Option<&LinkBase<'f>>, &dyn EngineModel),
) -> Result<Plan, Diagnostic> {
    let plan = fastest_of_attempts((f, attempts), options, (base, engine))?;
    bettered(f, plan, options, (base, engine))
}

/// A plan with what is taken for nothing, and with effort search the plan of effort default where that is faster.
fn bettered<'f>(
    f: &'f Function,
    mut plan: Plan,
    options: &PlanOptions,
    (base, engine): (Option<&LinkBase<'f>>, &dyn EngineModel),
) -> Result<Plan, Diagnostic> {
    if options.effort >= Effort::Default
        && let Some(better) = taken_for_nothing((f, &plan), options, (base, engine))?
    {
        plan = better;
    }
    if options.effort == Effort::Search {
        // A search ends elsewhere than what decisions make of the plan that it began with.
        let lesser = PlanOptions { effort: Effort::Default, ..options.clone() };
        let other = plan_among(f, &lesser, engine)?.plan;
        let seconds = |plan: &Plan| plan_seconds(f, plan, &options.device, engine);
        if seconds(&other)? < seconds(&plan)? {
            plan = other;
        }
    }
    Ok(plan)
}
