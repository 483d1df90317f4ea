//! Plans under a budget: which values are saved for the backward pass and which are recomputed, decided for forward and
//! backward together.
//!
//! The plan without a budget defines the groups, what each leaves to others, and its cost. As a graph of operations
//! ([`crate::remat::schedule`]) it has schedules that trade memory for time. Each schedule becomes a plan in which
//! groups recur. Its instructions are grouped again, so that recomputed values join their readers; then the plan is
//! lowered, priced and packed. Plans that differ from the fastest in one decision are tried as well. The plans that no
//! other beats in both memory and time are the frontier. It does not depend on a budget: a budget selects from it, so a
//! smaller budget never has a higher peak, and a larger one is never slower.

pub(crate) mod alternatives;
pub(crate) mod crossing;
pub(crate) mod decisions;
pub(crate) mod group_graph;
pub(crate) mod instantiate;
pub(crate) mod inverse;
pub(crate) mod loop_choice;
pub(crate) mod loop_frontier;
pub(crate) mod lossy;
pub mod schedule;
pub(crate) mod single_changes;

use crate::analysis::facts::Facts;
use crate::fuse::greedy::plan_at;
pub use crate::lower::instances::recomputed_values;
use crate::lower::lowered;
pub use crate::lower::steps::steps_of;
use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::blocks::block_plans;
use crate::search::measure::Predicted;
use crate::search::planner::plan_attempts;
use crate::search::planner::search;
use crate::search::point::{PlanPoint, measured};
use crate::search::policy::Uniform;
use crate::search::price::PRICES;
use crate::search::space::PlanSpace;
use crate::search::walk::SearchOptions;
use adfuse_ir::{At, Diagnostic, Function, Kind};
pub use crossing::{Reading, ValueSource};
pub use decisions::{
    Alternative, Constraint, Decider, Decision, Difference, NoAlternative, ResidualChoice,
    decisions,
};
use schedule::frontier;
use schedule::frontier::FrontierOptions;

use group_graph::GroupGraph;
use instantiate::{recurring, regrouped};

/// The frontier of plans: peaks rise and seconds fall, both strictly.
#[derive(Clone, Debug)]
pub struct PlanFrontier {
    points: Vec<PlanPoint>,
    /// The largest buffer at the peak moment of the point that takes least.
    binding: String,
    /// The name of the function.
    func: String,
}

impl PlanFrontier {
    /// The points. There is at least one.
    pub fn points(&self) -> &[PlanPoint] {
        &self.points
    }

    /// The fastest point.
    pub fn fastest(&self) -> Option<&PlanPoint> {
        self.points.last()
    }

    /// The fastest point within a budget, in bytes.
    ///
    /// # Errors
    /// [`Kind::Limit`] if there is none: the error says what the least budget is, and which buffer is
    /// in the way.
    pub fn at(&self, budget: u64) -> Result<&PlanPoint, Diagnostic> {
        let fit = self.points.partition_point(|p| p.peak <= budget);
        fit.checked_sub(1).map(|k| &self.points[k]).ok_or_else(|| {
            let least = self.points.first().map_or(0, |p| p.peak);
            let m = format!(
                "no plan within {budget} bytes was found: the least takes {least}, and `%{}` is the largest \
                 buffer at its peak",
                self.binding
            );
            let at = At { func: Some(self.func.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, m)
        })
    }
}

/// Instructions of all candidates together that are lowered and measured, about.
const MEASURED: usize = 40_000;

/// Plans a [prepared](crate::prepare()) function for all budgets at once.
///
/// # Errors
/// As [`plan`](crate::plan()), and those of the engine.
pub fn plan_frontier(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanFrontier, Diagnostic> {
    let mut points = Vec::new();
    let prices = if options.effort == Effort::Off { &PRICES[..1] } else { &PRICES };
    let most = (MEASURED / prices.len() / f.inst_count().max(1)).clamp(16, 48);
    let mut bases: Vec<Plan> = Vec::new();
    let blocks = block_plans(f, options)?;
    for (_, point) in plan_attempts(f, options, engine)? {
        points.push(point);
    }
    for &price in prices {
        let base = plan_at(f, options, price, &blocks)?;
        if bases.contains(&base) {
            continue;
        }
        let (point, program) = measured(f, base.clone(), options, engine)?;
        points.push(point);
        bases.push(base.clone());
        if options.effort == Effort::Off {
            continue;
        }
        let mut facts = Facts::of(f, true)?;
        base.inline.iter().for_each(|&i| facts.set_free(i));
        let graph = GroupGraph::of(&facts, &base, &program, &options.device).map_err(|e| {
            let at = At { func: Some(f.name.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, e.to_string())
        })?;
        let wanted = FrontierOptions { points: Some(most), ..FrontierOptions::default() };
        for point in frontier(&graph.graph, &wanted).points() {
            let (plan, again) = recurring(&facts, &base, &graph, &point.schedule);
            if !again.contains(&true) {
                continue;
            }
            let joined = regrouped(f, &plan, &again, options, price)?;
            for plan in [Some(plan), joined].into_iter().flatten() {
                // Parts of a group need not be a group; then the other plan is there.
                if let Ok((point, _)) = measured(f, plan, options, engine) {
                    points.push(point);
                }
            }
        }
    }
    let mut found = chosen(f, points, options, engine);
    if options.effort >= Effort::Default
        && let Some(fastest) = found.fastest()
    {
        let more = single_changes::decided_otherwise(f, fastest, options, engine)?;
        found = chosen(f, [found.points, more].concat(), options, engine);
    }
    match options.effort {
        Effort::Search => bettered(f, found, options, engine),
        _ => Ok(found),
    }
}

/// A frontier with what a search finds from each of its points within the point's peak.
fn bettered(
    f: &Function,
    found: PlanFrontier,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanFrontier, Diagnostic> {
    let space = PlanSpace::new(f, options, engine, &Predicted)?;
    let all = SearchOptions::default();
    let steps = all.steps / found.points.len().max(1) as u32;
    let mut points = Vec::new();
    for point in found.points {
        let wanted = SearchOptions { steps, budget: Some(point.peak), ..all };
        let better = search(&space, &point.plan, &wanted, &mut Uniform::new(wanted.seed));
        if let Some(better) = better.filter(|b| b.price != b.began) {
            points.push(measured(f, better.plan, options, engine)?.0);
        }
        points.push(point);
    }
    Ok(chosen(f, points, options, engine))
}

/// The points that no other beats in both peak and time, by their peaks.
fn undominated<T>(mut points: Vec<T>, of: impl Fn(&T) -> &PlanPoint) -> Vec<T> {
    points.sort_by(|a, b| {
        let (a, b) = (of(a), of(b));
        a.peak.cmp(&b.peak).then(a.seconds.total_cmp(&b.seconds))
    });
    let mut best: Vec<T> = Vec::new();
    for point in points {
        if best.last().is_none_or(|last| of(&point).seconds < of(last).seconds) {
            best.push(point);
        }
    }
    best
}

/// The frontier of these points.
fn chosen(
    f: &Function,
    points: Vec<PlanPoint>,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> PlanFrontier {
    let best = undominated(points, |point| point);
    let binding = best.first().and_then(|p| binding(f, &p.plan, &options.device, engine));
    PlanFrontier { points: best, binding: binding.unwrap_or_default(), func: f.name.clone() }
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
