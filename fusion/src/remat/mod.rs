//! Plans under a budget: which values are saved for the backward pass and which are recomputed, decided for forward and
//! backward together.
//!
//! The plan without a budget defines the groups, what each leaves to others, and its cost. As a graph of operations
//! ([`crate::remat::schedule`]) it has schedules that trade memory for time. Each schedule becomes a plan in which
//! groups recur. Its instructions are grouped again, so that recomputed values join their readers; then the plan is
//! lowered, priced and packed. Plans that differ from the fastest in one decision are tried as well. The plans that no
//! other beats in both memory and time are the frontier of the function. Those of the function and all its rewrites
//! together are what budgets select from ([`budget_frontier`](crate::budget_frontier())). That does not depend on a budget, so a smaller budget
//! never has a higher peak, and a larger one is never slower.

pub(crate) mod alternatives;
mod base_plan;
pub(crate) mod budget_frontier;
mod bundled_within;
mod candidates;
pub(crate) mod compile_budget;
mod costless_decisions;
pub(crate) mod crossing;
pub(crate) mod decisions;
pub(crate) mod divide;
pub(crate) mod frontier;
pub(crate) mod group_graph;
pub(crate) mod instantiate;
pub(crate) mod inverse;
mod lone_price;
pub(crate) mod loop_choice;
pub(crate) mod lossy;
mod plan_gains;
mod pruning;
mod recurring_plans;
pub(crate) mod residual_decision;
pub mod schedule;
mod schedule_choice;
mod schedule_promises;
mod segment_plans;
pub(crate) mod single_changes;
pub(crate) mod unbudgeted;
mod value_changes;

pub use crate::lower::instances::recomputed_values;
use crate::lower::lowered;
pub use crate::lower::steps::steps_of;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::plan::Plan;
use crate::plan::layout::Layout;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::blocks::block_plans;
use crate::search::bundles::{bundled_points, bundling_bound, launches_saved};
use crate::search::fastest::{Attempts, UnfusedPlan, are_alike, attempts};
use crate::search::measure::Predicted;
use crate::search::parallel::{beside, each};
use crate::search::planner::search;
use crate::search::point::{PlanPoint, measured};
use crate::search::policy::Uniform;
use crate::search::space::PlanSpace;
use crate::search::walk::SearchOptions;
use adfuse_ir::{Diagnostic, Function};
use bundled_within::bundled_within;
pub use crossing::{Reading, ValueSource};
pub use decisions::{Decider, decisions};
pub use frontier::PlanFrontier;
use frontier::{FoundPlans, undominated};
use pruning::{KnownPoints, PlanEvaluator};
pub use residual_decision::{
    Alternative, Constraint, Decision, Difference, NoAlternative, ResidualChoice,
};
use single_changes::decided_otherwise;
use unbudgeted::plan_of_attempts;

/// Plans a [prepared](crate::prepare()) function, as it is, for all budgets at once. Budgets choose from the
/// [plans of all its rewrites](crate::budget_frontier()).
///
/// # Errors
/// As [`plan`](crate::plan()), and those of the engine.
pub fn plan_frontier(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanFrontier, Diagnostic> {
    // Plans of one function have most groups in common.
    let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
    let found = plans_beside(f, options, engine, &KnownPoints::default())?;
    let least = found.points.first();
    let binding = least.and_then(|p| binding(f, &p.plan, &options.device, engine));
    Ok(PlanFrontier {
        points: found.points,
        compact: found.compact,
        binding: binding.unwrap_or_default(),
        func: f.name.clone(),
    })
}

/// Launches that take a smaller part of a plan's time all together stay as they are.
const BUNDLED_GAIN: f64 = 1e-3;

/// The plans of a function that may be on a frontier, beside those that are known: none of them is beaten by one of these.
fn plans_beside(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
    known: &KnownPoints,
) -> Result<FoundPlans, Diagnostic> {
    let evaluator = PlanEvaluator::of(f, options, engine, known)?;
    let (base, blocks) = (evaluator.base(), block_plans(f, options, engine)?);
    let made = attempts(f, options, &blocks, (base, engine), UnfusedPlan::Wanted)?;
    // What is taken for nothing, and what a search finds that holds no peak: a budget that excludes nothing costs nothing.
    let unbudgeted = || plan_of_attempts((f, &made), options, (base, engine));
    if options.effort < Effort::Default {
        return budgeted(f, options, (&blocks, engine), &evaluator, &made).map(Budgeted::found);
    }
    let budgeted = || budgeted(f, options, (&blocks, engine), &evaluator, &made);
    let (plan, points) = beside(f, unbudgeted, budgeted);
    let (mut found, plan) = (points?, plan.unwrap_or_else(unbudgeted)?);
    found.points.push(measured(f, plan, options, engine)?.point);
    Ok(found.found())
}

/// The plans of budgets.
struct Budgeted {
    points: Vec<PlanPoint>,
    /// As [`FoundPlans::is_coarse`].
    is_coarse: bool,
}

impl Budgeted {
    fn found(self) -> FoundPlans {
        FoundPlans { is_coarse: self.is_coarse, ..FoundPlans::of(self.points) }
    }
}

/// The plans of a function that may be on a frontier, beside those that are known, but for the plan without a budget.
fn budgeted(
    f: &Function,
    options: &PlanOptions,
    (blocks, engine): (&[Plan], &dyn EngineModel),
    evaluator: &PlanEvaluator<'_>,
    made: &Attempts,
) -> Result<Budgeted, Diagnostic> {
    let candidates = candidates::candidates((f, made), options, (blocks, engine), evaluator)?;
    let unbudgeted = candidates
        .fastest_unbudgeted(|p| launches_saved(evaluator.base(), (f, &p.plan), options, engine));
    let (mut points, is_coarse) = (candidates.points, candidates.is_coarse);
    if options.effort >= Effort::Default
        && let Some(fastest) = undominated(points.iter().collect()).last()
    {
        points.extend(decided_otherwise(f, fastest, evaluator)?);
    }
    let mut found = FoundPlans::of(evaluator.packed(points)?);
    if options.effort == Effort::Search {
        found = bettered(f, found, options, engine)?;
    }
    // Last: what shares a launch is in the way of other changes. Of plans that are equally fast the leanest is left, and another
    // one may be faster once its kernels share launches: then that is the plan without a budget.
    let is_left = |plan: &Plan| found.points.iter().any(|p| p.plan == *plan);
    let others = unbudgeted.into_iter().filter(|p| !is_left(&p.plan)).collect();
    let fastest = found.points.last().map_or(0.0, |point| point.seconds);
    let all: Vec<PlanPoint> = [found.points, others].concat();
    let bundled = |point: &PlanPoint| {
        // The fastest one is what a plan without a budget is compared with.
        let least = if are_alike(point.seconds, fastest) { 0.0 } else { BUNDLED_GAIN };
        bundled_points(evaluator.base(), (f, point), least, options, engine)
    };
    let bundled = match evaluator.budget() {
        None => each(&all, bundled),
        Some(budget) => {
            let bound = |p: &PlanPoint| bundling_bound(evaluator.base(), (f, p), options, engine);
            bundled_within(&all, (budget, fastest), &bound, &bundled)
        }
    };
    let mut points = found.compact;
    for (point, bundled) in all.into_iter().zip(bundled) {
        points.extend(bundled);
        points.push(point);
    }
    Ok(Budgeted { points, is_coarse })
}

/// What was found, with what a search finds from each of the points within the point's peak.
fn bettered(
    f: &Function,
    found: FoundPlans,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<FoundPlans, Diagnostic> {
    let layout = found.points.last().map_or_else(Layout::default, |point| point.plan.layout);
    let space = PlanSpace::new(f, options, engine, &Predicted)?.laid_out(layout);
    let all = SearchOptions::default();
    let steps = all.steps / found.points.len().max(1) as u32;
    let mut points = Vec::new();
    for point in found.points {
        let wanted = SearchOptions { steps, budget: Some(point.peak), ..all };
        let better = search(&space, &point.plan, &wanted, &mut Uniform::new(wanted.seed));
        if let Some(better) = better.filter(|b| b.price != b.began) {
            points.push(measured(f, better.plan, options, engine)?.point);
        }
        points.push(point);
    }
    points.extend(found.compact);
    Ok(FoundPlans::of(points))
}

/// The largest buffer at the moment at which a plan takes most.
fn binding(
    f: &Function,
    plan: &Plan,
    device: &MachineModel,
    engine: &dyn EngineModel,
) -> Option<String> {
    let program = lowered(f, plan, device).ok()?;
    let scratch = engine.scratch(&program).ok()?;
    crate::memory::peak::binding(&program, &scratch)
}
