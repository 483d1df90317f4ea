//! The plans that a frontier is chosen from: greedy ones, and for each of them plans in which groups recur as schedules
//! say. Threads make them, each plan by itself.

use super::divide::divided;
use super::group_graph::GroupGraph;
use super::instantiate::{recurring, regrouped, without_dead};
use super::pruning::PlanEvaluator;
use super::schedule::frontier::{Frontier, FrontierOptions, frontier};
use super::schedule::steps::OpSchedule;
use super::schedule_choice::chosen;
use crate::analysis::facts::Facts;
use crate::fuse::greedy::plan_at;
use crate::memory::engine::EngineModel;
use crate::plan::layout::Layout;
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::{Group, Plan};
use crate::search::blocks::block_plans;
use crate::search::parallel::each;
use crate::search::planner::measured_attempts;
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
    /// The facts of the function, and those that the plan rests on.
    known: Facts<'f>,
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
    evaluator: &PlanEvaluator<'_>,
) -> Result<Vec<PlanPoint>, Diagnostic> {
    let mut points = Vec::new();
    // Without a price, the plan of the wanted effort, improved by single changes.
    let mut improved = None;
    let blocks = block_plans(f, options, engine)?;
    for (effort, point) in measured_attempts(f, options, &blocks, engine)? {
        if effort >= Effort::Default {
            improved = Some((PRICES[0], point.plan.clone()));
        }
        points.push(point);
    }
    let prices = if options.effort == Effort::Off { &PRICES[..1] } else { &PRICES };
    let mut bases: Vec<(f64, Plan)> = Vec::from_iter(improved);
    let layout = bases.first().map_or_else(Layout::default, |(_, plan)| plan.layout);
    let made = each(&prices[bases.len()..], |&price| (price, plan_at(f, options, price, &blocks)));
    for (price, plan) in made {
        let plan = Plan { layout, ..plan? };
        if bases.iter().all(|(_, known)| *known != plan) {
            bases.push((price, plan));
        }
    }
    if options.effort == Effort::Off {
        for (_, plan) in bases {
            points.push(measured(f, plan, options, engine)?.point);
        }
        return Ok(points);
    }
    let most = (MEASURED / prices.len() / f.inst_count().max(1)).clamp(16, 48);
    let bases = each(&bases, |(price, plan)| BasePlan::of(f, (plan, *price), options, engine));
    let bases = bases.into_iter().collect::<Result<Vec<BasePlan<'_>>, Diagnostic>>()?;
    let frontiers: Vec<&Frontier> = bases.iter().map(|base| &base.schedules).collect();
    let chosen = chosen(&frontiers, most);
    let schedules: Vec<(&BasePlan<'_>, &OpSchedule)> =
        chosen.iter().map(|(k, point)| (&bases[*k], &point.schedule)).collect();
    let of_base = chosen.iter().map(|(k, _)| *k);
    let made = each(&schedules, |(base, schedule)| base.scheduled(schedule, options));
    let made = made.into_iter().collect::<Result<Vec<Vec<Plan>>, Diagnostic>>()?;
    // Schedules of small functions have most plans in common: each is measured once.
    let mut seen: HashSet<Decided<'_>> = HashSet::new();
    let mut new: Vec<(usize, &Plan)> = Vec::new();
    for (k, plans) in of_base.zip(&made) {
        new.extend(plans.iter().filter(|plan| seen.insert(decided(plan))).map(|plan| (k, plan)));
    }
    let all = points.iter().chain(bases.iter().map(|base| &base.point));
    all.for_each(|point| evaluator.add(point));
    let plans: Vec<&Plan> = new.iter().map(|(_, plan)| *plan).collect();
    // Where the groups of a plan are not all ones that kernels compute, they are divided.
    let figures = evaluator.measured_all(&plans, |plan| divided(f, plan, &options.device));
    let mut figures = new.iter().map(|(k, _)| *k).zip(figures).peekable();
    for (k, base) in bases.iter().enumerate() {
        points.push(base.point.clone());
        while let Some((_, made)) = figures.next_if(|(of, _)| *of == k) {
            points.extend(made);
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
    ) -> Result<BasePlan<'f>, Diagnostic> {
        let made = measured(f, plan.clone(), options, engine)?;
        let known = Facts::of(f, true)?;
        let mut facts = known.clone();
        plan.inline.iter().for_each(|&i| facts.set_free(i));
        let graph = GroupGraph::of(&facts, plan, &made.program, &made.seconds).map_err(|e| {
            let at = At { func: Some(f.name.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Limit, e.to_string())
        })?;
        let schedules = frontier(&graph.graph, &FrontierOptions::default());
        let (plan, point) = (plan.clone(), made.point);
        Ok(BasePlan { plan, price, point, known, facts, graph, schedules })
    }

    /// The plan in which groups recur as a schedule says, and the one with its instructions grouped anew; none where
    /// nothing recurs.
    fn scheduled(
        &self,
        schedule: &OpSchedule,
        options: &PlanOptions,
    ) -> Result<Vec<Plan>, Diagnostic> {
        let (plan, again) = recurring(&self.facts, &self.plan, &self.graph, schedule);
        if !again.contains(&true) {
            return Ok(Vec::new());
        }
        let joined = regrouped(&self.known, (&plan, &again), options, self.price)?;
        let plan = without_dead(&self.facts, plan);
        let joined = joined.filter(|joined| *joined != plan);
        Ok([Some(plan), joined].into_iter().flatten().collect())
    }
}
