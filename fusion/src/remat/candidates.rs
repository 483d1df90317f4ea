//! The plans that a frontier is chosen from: greedy ones, and for each of them plans in which groups recur as schedules
//! say. Threads make them, each plan by itself.

use super::group_graph::GroupGraph;
use super::instantiate::{recurring, regrouped};
use super::schedule::frontier::{Frontier, FrontierOptions, frontier};
use super::schedule::steps::OpSchedule;
use crate::analysis::facts::Facts;
use crate::fuse::greedy::plan_at;
use crate::memory::engine::EngineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::{Group, Plan};
use crate::search::blocks::block_plans;
use crate::search::parallel::each;
use crate::search::planner::plan_attempts;
use crate::search::point::{PlanPoint, measured};
use crate::search::price::PRICES;
use adfuse_ir::kernel::Storage;
use adfuse_ir::{At, Diagnostic, Function, Inst, Kind, Value};
use hashbrown::HashSet;

/// Instructions of all candidates together that are lowered and measured, about.
const MEASURED: usize = 40_000;

/// A greedy plan, and schedules of its groups.
struct BasePlan<'f> {
    plan: Plan,
    price: f64,
    point: PlanPoint,
    facts: Facts<'f>,
    graph: GroupGraph,
    schedules: Frontier,
}

/// Makes the candidates, in the same order every time.
///
/// # Errors
/// As [`plan_frontier`](crate::plan_frontier()).
pub(super) fn candidates(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Vec<PlanPoint>, Diagnostic> {
    let mut points = Vec::new();
    for (_, point) in plan_attempts(f, options, engine)? {
        points.push(point);
    }
    let prices = if options.effort == Effort::Off { &PRICES[..1] } else { &PRICES };
    let blocks = block_plans(f, options)?;
    let mut bases: Vec<(f64, Plan)> = Vec::new();
    let made = each(prices, |&price| plan_at(f, options, price, &blocks));
    for (&price, plan) in prices.iter().zip(made) {
        let plan = plan?;
        if bases.iter().all(|(_, known)| *known != plan) {
            bases.push((price, plan));
        }
    }
    if options.effort == Effort::Off {
        for (_, plan) in bases {
            points.push(measured(f, plan, options, engine)?.0);
        }
        return Ok(points);
    }
    let most = (MEASURED / prices.len() / f.inst_count().max(1)).clamp(16, 48);
    let wanted = FrontierOptions { points: Some(most), ..FrontierOptions::default() };
    let bases =
        each(&bases, |(price, plan)| BasePlan::of(f, (plan, *price), options, engine, &wanted));
    let bases = bases.into_iter().collect::<Result<Vec<BasePlan<'_>>, Diagnostic>>()?;
    let mut schedules: Vec<(&BasePlan<'_>, &OpSchedule)> = Vec::new();
    for base in &bases {
        schedules.extend(base.schedules.points().iter().map(|point| (base, &point.schedule)));
    }
    let made = each(&schedules, |(base, schedule)| base.scheduled(f, schedule, options));
    let made = made.into_iter().collect::<Result<Vec<Vec<Plan>>, Diagnostic>>()?;
    // Schedules of small functions have most plans in common: each is measured once.
    let mut seen: HashSet<Decided<'_>> = HashSet::new();
    let mut new: Vec<(usize, &Plan)> = Vec::new();
    let of_base = bases
        .iter()
        .enumerate()
        .flat_map(|(k, base)| base.schedules.points().iter().map(move |_| k));
    for (k, plans) in of_base.zip(&made) {
        new.extend(plans.iter().filter(|plan| seen.insert(decided(plan))).map(|plan| (k, plan)));
    }
    let figures = each(&new, |(_, plan)| measured(f, Plan::clone(plan), options, engine));
    let mut figures = new.iter().map(|(k, _)| *k).zip(figures).peekable();
    for (k, base) in bases.iter().enumerate() {
        points.push(base.point.clone());
        while let Some((_, made)) = figures.next_if(|(of, _)| *of == k) {
            // Parts of a group need not be a group; then another plan is there.
            points.extend(made.ok().map(|(point, _)| point));
        }
    }
    Ok(points)
}

/// What the plans of one function differ in.
type Decided<'p> = (&'p [Inst], &'p [Group], &'p [(Value, Storage)]);

fn decided(plan: &Plan) -> Decided<'_> {
    (&plan.inline, &plan.groups, &plan.storage)
}

impl<'f> BasePlan<'f> {
    fn of(
        f: &'f Function,
        (plan, price): (&Plan, f64),
        options: &PlanOptions,
        engine: &dyn EngineModel,
        wanted: &FrontierOptions,
    ) -> Result<BasePlan<'f>, Diagnostic> {
        let (point, program) = measured(f, plan.clone(), options, engine)?;
        let mut facts = Facts::of(f, true)?;
        plan.inline.iter().for_each(|&i| facts.set_free(i));
        let cost = engine.cost(&program, &options.device);
        let graph = GroupGraph::of(&facts, plan, &program, cost).map_err(|e| {
            let at = At { func: Some(f.name.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, e.to_string())
        })?;
        let schedules = frontier(&graph.graph, wanted);
        Ok(BasePlan { plan: plan.clone(), price, point, facts, graph, schedules })
    }

    /// The plan in which groups recur as a schedule says, and the one with its instructions grouped anew; none where
    /// nothing recurs.
    fn scheduled(
        &self,
        f: &Function,
        schedule: &OpSchedule,
        options: &PlanOptions,
    ) -> Result<Vec<Plan>, Diagnostic> {
        let (plan, again) = recurring(&self.facts, &self.plan, &self.graph, schedule);
        if !again.contains(&true) {
            return Ok(Vec::new());
        }
        let joined = regrouped(f, &plan, &again, options, self.price)?;
        Ok([Some(plan), joined].into_iter().flatten().collect())
    }
}
