//! Planning without a budget: the fastest greedy plan, improved by search if the effort asks for it.

use super::blocks::block_plans;
use super::bundles::fastest_bundled;
use super::fastest::{
    Attempts, UnbudgetedPlan, UnfusedPlan, attempts, fastest_of, greedy_plans, no_plan,
};
use super::large_neighborhood::through_windows;
use super::measure::Predicted;
use super::parallel::each_of;
use super::planned_groups::PlannedGroups;
use super::point::{LinkedPlan, PlanPoint, measured_point, priced};
use super::policy::{Policy, Uniform};
use super::price::{PRICES, PlanPrice};
use super::space::PlanSpace;
use super::unfused::unfused_plan;
use super::walk::{SearchOptions, SearchResult, is_better, walk};
use crate::fuse::greedy::plan_at;
use crate::lower::linked::LinkBase;
use crate::lower::lower;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::{Effort, PlanOptions};
use adfuse_ir::kernel::Program;
use adfuse_ir::{Diagnostic, Function};
use std::sync::Arc;

/// A plan without a budget, and those that it was chosen from.
#[derive(Clone, Debug)]
pub struct PlanWithAttempts {
    /// The plan.
    pub plan: Plan,
    /// Plans of greedy grouping and of single changes, each with the effort that made it, before kernels share launches.
    attempts: Vec<(Effort, Plan)>,
    /// Whether a kernel for each instruction, which is slower, was left out of these.
    is_unfused_left_out: bool,
    /// What was lowered and packed on the way.
    groups: Option<PlannedGroups>,
}

/// The fastest plan of a [prepared](crate::prepare()) function by grouping, single changes and shared launches, with the plans that
/// it was chosen from.
///
/// # Errors
/// As [`plan`](crate::plan()).
pub(crate) fn fastest_among(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanWithAttempts, Diagnostic> {
    // Plans that are compared have most groups in common.
    let with_memo = MemoEngine::new(engine, &options.device);
    let engine: &dyn EngineModel = &with_memo;
    let base = match options.effort {
        Effort::Off => None,
        _ => LinkBase::of(f)?,
    };
    let base = base.as_ref();
    let none = || Attempts { plans: Vec::new(), is_unfused_left_out: false };
    let attempts = match options.effort {
        Effort::Off => none(),
        _ => {
            let blocks = block_plans(f, options, engine)?;
            attempts(f, options, &blocks, (base, engine), UnfusedPlan::IfFastest)?
        }
    };
    let plan = fastest_of_attempts((f, &attempts), options, (base, engine))?;
    let Attempts { plans: attempts, is_unfused_left_out } = attempts;
    let attempts = attempts.into_iter().map(|a| (a.effort, a.plan)).collect();
    let groups = with_memo
        .memo()
        .map(|memo| PlannedGroups::new(&plan.graph, Arc::clone(memo), with_memo.own_packings()));
    Ok(PlanWithAttempts { plan, attempts, is_unfused_left_out, groups })
}

/// The plan of [`fastest_among`], where the plans are known that it is chosen from.
///
/// # Errors
/// As there.
pub(crate) fn fastest_of_attempts(
    (f, attempts): (&Function, &Attempts),
    options: &PlanOptions,
    (base, engine): (Option<&LinkBase<'_>>, &dyn EngineModel),
) -> Result<Plan, Diagnostic> {
    let attempts = &attempts.plans;
    let plan = match options.effort {
        Effort::Off => plan_at(f, options, 0.0, &block_plans(f, options, engine)?)?,
        Effort::Search => searched(f, options, engine, attempts)?,
        _ => fastest_of(f, options, attempts)?,
    };
    let others: Vec<(bool, &Plan)> = attempts.iter().map(|a| (a.is_quick, &a.plan)).collect();
    Ok(fastest_bundled(base, (f, plan), &others, options, engine))
}

impl PlanWithAttempts {
    /// The program of a plan of the function: as [`lower`](crate::lower()), from what was lowered on the way.
    ///
    /// # Errors
    /// As there.
    pub fn lower(
        &self,
        f: &Function,
        plan: &Plan,
        device: &MachineModel,
    ) -> Result<Program, Diagnostic> {
        match &self.groups {
            Some(groups) => groups.lower(f, plan, device),
            None => lower(f, plan, device),
        }
    }

    /// What was lowered and packed on the way.
    pub fn groups(&self) -> Option<&PlannedGroups> {
        self.groups.as_ref()
    }

    /// Of the plans that this one was chosen from, the one of the least peak where memory is planned quickly, if its peak is
    /// below a number of bytes. Only that one has its memory planned with the wanted effort: this takes longer than planning.
    ///
    /// # Errors
    /// As [`plan`](crate::plan()), and those of the engine.
    pub fn leanest_below(
        &self,
        f: &Function,
        options: &PlanOptions,
        engine: &dyn EngineModel,
        below: u64,
    ) -> Result<Option<(Effort, PlanPoint)>, Diagnostic> {
        let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
        let base = LinkBase::of(f)?;
        let mut best: Option<(u64, Effort, &Plan)> = None;
        let unfused = match self.is_unfused_left_out {
            true => Some((Effort::Off, unfused_plan(f, options, &self.plan.blocks)?)),
            false => None,
        };
        let attempts = self.attempts.iter().chain(&unfused);
        for (effort, plan) in attempts.filter(|(_, plan)| *plan != self.plan) {
            let most = best.map_or(below, |(peak, ..)| peak);
            let linked = base.as_ref().and_then(|b| LinkedPlan::of(b, plan, options, engine));
            let quick = options.effort.min(Effort::Quick);
            let peak = match linked {
                Some(linked) if linked.least_peak() < most => linked.peak(quick, engine)?,
                Some(_) => continue,
                None => {
                    let priced = priced(f, plan.clone(), options, engine)?;
                    if priced.least_peak() >= most {
                        continue;
                    }
                    priced.quick_peak(options, engine)?
                }
            };
            if peak < most {
                best = Some((peak, *effort, plan));
            }
        }
        let Some((_, effort, plan)) = best else { return Ok(None) };
        let point = measured_point(base.as_ref(), (f, plan), options, engine)?;
        Ok((point.peak < below).then_some((effort, point)))
    }
}

/// Instructions up to which a function is searched as a whole.
const MOST_WHOLE: usize = 250;

/// Looks for a better plan than one of the function, by moves that the policy chooses: a faster one, or
/// one as fast that takes less. Where times are measured, what was found is timed anew against the plan
/// to begin with, and that one stays if it is faster.
///
/// `None` where the plan to begin with has no program, or takes more than the budget.
pub fn search(
    space: &PlanSpace<'_>,
    start: &Plan,
    wanted: &SearchOptions,
    policy: &mut dyn Policy,
) -> Option<SearchResult> {
    let price = space.price_at(start, space.options.effort)?;
    if wanted.budget.is_some_and(|most| price.peak > most) {
        return None;
    }
    let mut found = SearchResult { plan: start.clone(), price, began: price, steps: 0 };
    if space.facts.f.body_insts().len() > MOST_WHOLE {
        through_windows(space, &mut found, wanted, policy);
    } else {
        walk(space, &mut found, wanted, policy);
    }
    // Of many times that were measured the least is too good: what won by that does not win again.
    if found.plan != *start && !space.confirms(start, &found.plan) {
        (found.plan, found.price) = (start.clone(), price);
    }
    Some(found)
}

/// The plan of a function that a search finds from the best of the planner's own: those that were made without a search,
/// and greedy ones at each price.
///
/// # Errors
/// As [`plan`](crate::plan()).
fn searched(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
    attempts: &[UnbudgetedPlan],
) -> Result<Plan, Diagnostic> {
    let fastest = fastest_of(f, options, attempts)?;
    let layout = fastest.layout;
    let space = PlanSpace::new(f, options, engine, &Predicted)?.laid_out(layout);
    let mut best: Option<(PlanPrice, Plan)> = None;
    let mut first = None;
    let blocks = &space.head.blocks;
    let plans = std::iter::once(Ok(fastest))
        .chain(PRICES.into_iter().map(|price| plan_at(f, options, price, blocks)));
    for plan in plans {
        let plan = Plan { layout, ..plan? };
        first.get_or_insert_with(|| plan.clone());
        if let Some(price) = space.price_at(&plan, options.effort)
            && best.as_ref().is_none_or(|(least, _)| is_better(&price, least))
        {
            best = Some((price, plan));
        }
    }
    let begun = best.map(|(_, plan)| plan).or(first);
    let Some(plan) = begun else { return plan_at(f, options, 0.0, blocks) };
    let wanted = SearchOptions::default();
    let found = search(&space, &plan, &wanted, &mut Uniform::new(wanted.seed));
    // What has no program is refused when it is lowered, with the reason.
    Ok(found.map_or(plan, |found| found.plan))
}

/// The plans that [`plan`](crate::plan()) chooses from, each with the effort that made it and what it takes with an
/// engine, in the order in which they are made. Effort [`Search`](Effort::Search) has those it begins with.
///
/// # Errors
/// As [`plan`](crate::plan()), and those of the engine.
pub fn plan_attempts(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Vec<(Effort, PlanPoint)>, Diagnostic> {
    let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
    let (blocks, base) = (block_plans(f, options, engine)?, LinkBase::of(f)?);
    let with = (base.as_ref(), engine);
    let made = attempts(f, options, &blocks, with, UnfusedPlan::Wanted)?;
    measured_attempts((f, &made), options, with)
}

/// The greedy plan of a function, with what it takes.
///
/// # Errors
/// As [`plan`](crate::plan()), and those of the engine.
pub(crate) fn greedy_point(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanPoint, Diagnostic> {
    let (blocks, base) = (block_plans(f, options, engine)?, LinkBase::of(f)?);
    let plans = match &base {
        Some(base) if options.effort > Effort::Off => {
            greedy_plans(&base.facts, options, &blocks, engine)?
        }
        _ => vec![(options.effort, plan_at(f, options, 0.0, &blocks)?)],
    };
    let [(_, plan), ..] = plans.as_slice() else { return Err(no_plan(f)) };
    measured_point(base.as_ref(), (f, plan), options, engine)
}

/// As [`plan_attempts`], of plans that were made.
pub(crate) fn measured_attempts(
    (f, made): (&Function, &Attempts),
    options: &PlanOptions,
    (base, engine): (Option<&LinkBase<'_>>, &dyn EngineModel),
) -> Result<Vec<(Effort, PlanPoint)>, Diagnostic> {
    let point = |plan: &Plan| measured_point(base, (f, plan), options, engine);
    let made = each_of(f, &made.plans, |a| Ok((a.effort, point(&a.plan)?)));
    made.into_iter().collect()
}
