//! The plans that a frontier is chosen from: greedy ones, and for each of them [plans in which groups recur](RecurringPlans)
//! as schedules say. Threads make them, each plan by itself.

use super::base_plan::BasePlan;
use super::pruning::PlanEvaluator;
use super::recurring_plans::RecurringPlans;
use crate::fuse::greedy::plan_at;
use crate::memory::engine::EngineModel;
use crate::plan::Plan;
use crate::plan::layout::Layout;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::fastest::{Attempts, are_alike};
use crate::search::parallel::each;
use crate::search::planner::measured_attempts;
use crate::search::point::{PlanPoint, measured};
use crate::search::price::PRICES;
use adfuse_ir::{Diagnostic, Function};

/// Instructions of all candidates together that are lowered and measured, about.
const MEASURED: usize = 40_000;

/// Instructions of a function up to which greedy plans of two efforts are what plans for budgets are made of.
const SMALL: usize = 1000;

/// Instructions of a function up to which schedules of single instructions are found, and checkpoint segments.
const MOST_APART: usize = 4000;

/// Plans that may be on a frontier.
pub(super) struct CandidatePoints {
    pub(super) points: Vec<PlanPoint>,
    /// As [`FoundPlans::is_coarse`](super::frontier::FoundPlans), of a function that is not too large.
    pub(super) is_coarse: bool,
    /// How many of them, the first ones, are those among which the plan without a budget is chosen.
    unbudgeted: usize,
}

impl CandidatePoints {
    /// Those of them that may be the fastest once their kernels share launches, one of which is the plan without a budget.
    pub(super) fn fastest_unbudgeted(&self, saved: impl Fn(&PlanPoint) -> f64) -> Vec<PlanPoint> {
        let all = &self.points[..self.unbudgeted];
        let least = all.iter().map(|p| p.seconds).fold(f64::INFINITY, f64::min);
        let may_be = |p: &&PlanPoint| are_alike(least, p.seconds) || p.seconds - saved(p) <= least;
        all.iter().filter(may_be).cloned().collect()
    }
}

/// Makes the candidates, in the same order every time, beside attempts without a budget.
///
/// # Errors
/// As [`plan_frontier`](crate::plan_frontier()).
pub(super) fn candidates(
    (f, attempts): (&Function, &Attempts),
    options: &PlanOptions,
    (blocks, engine): (&[Plan], &dyn EngineModel),
    evaluator: &PlanEvaluator<'_>,
) -> Result<CandidatePoints, Diagnostic> {
    let mut points = Vec::new();
    // Without a price, the plan of the wanted effort, improved by single changes.
    let mut improved = None;
    for (effort, point) in measured_attempts((f, attempts), options, (evaluator.base(), engine))? {
        if effort >= Effort::Default {
            improved = Some((PRICES[0], point.plan.clone()));
        }
        points.push(point);
    }
    let unbudgeted = points.len();
    let prices = if options.effort == Effort::Off { &PRICES[..1] } else { &PRICES };
    let mut bases: Vec<(f64, Plan)> = Vec::from_iter(improved);
    let layout = bases.first().map_or_else(Layout::default, |(_, plan)| plan.layout);
    // Greedy plans of a lesser effort inline less, which suits lower budgets. In small functions those of both efforts are tried,
    // at all prices; in others that of the lesser one without a price.
    let quick = PlanOptions { effort: options.effort.min(Effort::Quick), ..options.clone() };
    let both = f.inst_count() <= SMALL && options.effort > quick.effort;
    let tried = if both || bases.is_empty() { prices } else { &prices[..1] };
    let greedy = tried.iter().map(|&price| (price, &quick));
    let others = prices.iter().map(|&price| (price, options)).filter(|_| both);
    let greedy: Vec<(f64, &PlanOptions)> = greedy.chain(others).collect();
    let made = each(&greedy, |&(price, options)| (price, plan_at(f, options, price, blocks)));
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
        return Ok(CandidatePoints { points, is_coarse: false, unbudgeted });
    }
    let with = (evaluator.base(), engine);
    let bases = each(&bases, |(price, plan)| BasePlan::of(f, (plan, *price), false, options, with));
    let bases = bases.into_iter().collect::<Result<Vec<BasePlan<'_>>, Diagnostic>>()?;
    points.extend(bases.iter().map(|base| base.point.clone()));
    points.iter().for_each(|point| evaluator.add(point));
    let most = (MEASURED / bases.len() / f.inst_count().max(1)).clamp(16, 48);
    let first = bases.first().filter(|first| f.inst_count() <= MOST_APART && first.is_coarse());
    let apart = match first {
        Some(first) => {
            let plan = (&first.separated(options), PRICES[0]);
            Some(BasePlan::of(f, plan, true, options, with)?)
        }
        None => None,
    };
    let is_coarse = apart.is_some();
    let recurring = RecurringPlans::new(&bases, options, evaluator);
    points.extend(recurring.of_schedules(most, apart.as_ref(), &points)?);
    Ok(CandidatePoints { points, is_coarse, unbudgeted })
}
