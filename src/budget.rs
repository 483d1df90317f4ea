//! Plans within a budget of memory and of the time to compile: made, or found in the plan cache.

use crate::fusion::{
    Effort, EngineModel, Plan, PlanBudget, PlanOptions, PlanPoint, graph_hash, plan_frontier,
    plan_point,
};
use crate::ir::{Diagnostic, Function};
use crate::plan_cache::{CachedPlan, Lookup, PlanCache, PlanKey};

/// The plan for a budget.
#[derive(Clone, Debug)]
pub struct BudgetChoice {
    /// The plan, with its cost.
    pub point: PlanPoint,
    /// Predicted seconds of the fastest plan without a budget.
    pub fastest_seconds: f64,
    /// Its peak in bytes.
    pub fastest_peak: u64,
    /// Problems with the plan cache; they do not change the plan.
    pub notes: Vec<String>,
}

/// The fastest plan of a [prepared](crate::fusion::prepare()) function within a budget of memory and of the time to
/// compile, with an engine, whose name tells its plans from those of others. Where plans are kept, the one
/// that was chosen before is taken, and one that is made is kept; a kept plan is measured before it is
/// trusted.
///
/// # Errors
/// As [`plan_frontier`], and [`Kind::Limit`](crate::ir::Kind::Limit) if no plan is within the budget: the
/// error says what the least one is, and which value is in the way.
pub fn choose(
    f: &Function,
    options: &PlanOptions,
    budget: impl Into<PlanBudget>,
    (engine, name): (&dyn EngineModel, &str),
    cache: Option<&PlanCache>,
) -> Result<BudgetChoice, Diagnostic> {
    let budget = budget.into();
    // One plan alone is made faster than it is found.
    let cache = cache.filter(|_| options.effort != Effort::Off);
    let graph = graph_hash(f);
    let counting = match engine.donated() {
        [] => name.to_owned(),
        given => format!("{name} donating {given:?}"),
    };
    let key = PlanKey::new(&graph, &counting, options, budget);
    let mut notes = Vec::new();
    if let Some(cache) = cache {
        match cache.find(&key) {
            Lookup::Absent => {}
            Lookup::Spoiled(why) => notes.push(format!("a kept plan is made anew: {why}")),
            Lookup::Found(entry) => match followed(f, options, budget, engine, &entry) {
                Ok(point) => {
                    let CachedPlan { fastest_seconds, fastest_peak, .. } = entry;
                    return Ok(BudgetChoice { point, fastest_seconds, fastest_peak, notes });
                }
                Err(why) => notes.push(format!("a kept plan is made anew: {why}")),
            },
        }
    }
    let frontier = plan_frontier(f, options, engine)?;
    let point = frontier.within(&budget)?.clone();
    let fastest = frontier.fastest().unwrap_or(&point);
    let (fastest_seconds, fastest_peak) = (fastest.seconds, fastest.peak);
    if let Some(cache) = cache {
        let entry = CachedPlan { plan: point.plan.text(f), fastest_seconds, fastest_peak };
        if let Err(e) = cache.keep(&key, &entry) {
            notes.push(format!("the plan is not kept in `{}`: {e}", cache.folder().display()));
        }
    }
    Ok(BudgetChoice { point, fastest_seconds, fastest_peak, notes })
}

/// A cached plan, once it is verified to be one of this function within the budget.
fn followed(
    f: &Function,
    options: &PlanOptions,
    budget: PlanBudget,
    engine: &dyn EngineModel,
    entry: &CachedPlan,
) -> Result<PlanPoint, String> {
    let plan = Plan::parse(&entry.plan, f).map_err(|d| d.message)?;
    let point = plan_point(f, plan, options, engine).map_err(|d| d.message)?;
    if point.plan.donated != engine.donated() {
        return Err("it is for a caller who gives up other inputs".into());
    }
    if point.plan.fp != options.fp {
        return Err(format!("it is for --fp {}", point.plan.fp.name()));
    }
    match budget.has_room_for(&point) {
        true => Ok(point),
        false => {
            let (peak, ms) = (point.peak, point.compile.seconds * 1e3);
            Err(format!("it takes {peak} bytes and {ms:.3} ms to compile"))
        }
    }
}
