//! The plan without a budget: by the cost model the fastest of all plans that are made; of equally fast plans, the one
//! with the lowest peak.
//!
//! Grouping is greedy, and more fusion is not always faster: a fused kernel may recompute values at many points, or
//! read them against their order in memory. So the plans of lower efforts are made too, among them the one with a
//! kernel for each instruction.

use super::descent::descended;
use super::layouts::chosen_layout;
use super::parallel::{beside, each_of};
use super::point::{PlanPoint, linked_seconds, measured};
use super::unfused::{is_slower_unfused, least_unfused, unfused_plan};
use crate::analysis::facts::Facts;
use crate::fuse::greedy::{plan_and_quick, plan_at, quick_plan};
use crate::lower::group_memo::GreedyPlans;
use crate::lower::linked::LinkBase;
use crate::memory::engine::{AnyEngine, EngineModel};
use crate::plan::options::{Effort, PlanOptions};
use crate::plan::{Plan, graph_hash};
use adfuse_ir::{At, Diagnostic, Function, Kind};

/// A plan that was made without a budget.
pub(crate) struct UnbudgetedPlan {
    /// The highest of the efforts that make it.
    pub(super) effort: Effort,
    /// Whether effort quick does.
    pub(super) is_quick: bool,
    pub(super) plan: Plan,
    /// Predicted seconds.
    seconds: f64,
}

/// What is wanted of the plan that has a kernel for each instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnfusedPlan {
    /// It is one of the plans, unless it is slower than another by a simple bound.
    Wanted,
    /// It need not be one of them either where it can be shown that it is slower.
    IfFastest,
}

/// The plans of an effort and the lesser ones.
pub(crate) struct Attempts {
    /// Equal ones once.
    pub(super) plans: Vec<UnbudgetedPlan>,
    /// Whether a kernel for each instruction would be one of them, and was not made since it is slower than another.
    pub(super) is_unfused_left_out: bool,
}

/// The plans of an effort and the lesser ones, which are linked where there is a base for that. A kernel for each
/// instruction is left out where it is certain to be slower than another.
pub(crate) fn attempts(
    f: &Function,
    options: &PlanOptions,
    blocks: &[Plan],
    (base, engine): (Option<&LinkBase<'_>>, &dyn EngineModel),
    wanted: UnfusedPlan,
) -> Result<Attempts, Diagnostic> {
    let device = &options.device;
    let layout = chosen_layout(f, options, blocks, engine)?;
    let own;
    let apart = match base {
        Some(base) => &base.facts,
        None => {
            own = Facts::of(f, true)?;
            &own
        }
    };
    let greedy = greedy_plans(apart, options, blocks, engine)?;
    let least = least_unfused(apart, device);
    let unfused = || -> Result<UnbudgetedPlan, Diagnostic> {
        let plan = unfused_plan(f, options, blocks)?;
        let seconds = linked_seconds(base, (f, &plan), device, engine)?;
        Ok(UnbudgetedPlan { effort: Effort::Off, is_quick: false, plan, seconds })
    };
    let is_slower = |seconds: f64| {
        let limit = seconds * (1.0 + ALIKE);
        wanted == UnfusedPlan::IfFastest && is_slower_unfused(apart, options, engine, limit)
    };
    // The plan of an effort, and what single changes make of it.
    let made = |(effort, plan): &(Effort, Plan)| -> Result<Attempts, Diagnostic> {
        let (effort, plan) = (*effort, Plan { layout, ..plan.clone() });
        let mut is_unfused_left_out = false;
        let seconds = linked_seconds(base, (f, &plan), device, engine)?;
        // What is improved is the plan of the wanted effort.
        let better = match effort >= Effort::Default {
            true => descended(apart, &plan, options, engine)?,
            false => None,
        };
        let is_quick = effort == Effort::Quick;
        let mut plans = vec![UnbudgetedPlan { effort, is_quick, plan, seconds }];
        // While others are improved: it may be left out then.
        if effort == Effort::Quick && least <= seconds {
            is_unfused_left_out = is_slower(seconds);
            if !is_unfused_left_out {
                plans.push(unfused()?);
            }
        }
        if let Some(plan) = better {
            let seconds = linked_seconds(base, (f, &plan), device, engine);
            debug_assert!(seconds.is_ok(), "a change made no plan: {seconds:?}");
            // Whatever is wrong with it, there is the greedy plan.
            if let Ok(seconds) = seconds {
                plans.push(UnbudgetedPlan { effort, is_quick: false, plan, seconds });
            }
        }
        Ok(Attempts { plans, is_unfused_left_out })
    };
    if options.effort == Effort::Off {
        return Ok(Attempts { plans: vec![unfused()?], is_unfused_left_out: false });
    }
    let mut found = Attempts { plans: Vec::new(), is_unfused_left_out: false };
    for made in each_of(f, &greedy, made) {
        let made = made?;
        found.is_unfused_left_out |= made.is_unfused_left_out;
        for made in made.plans {
            match found.plans.iter_mut().find(|known| known.plan == made.plan) {
                Some(known) => known.is_quick |= made.is_quick,
                None => found.plans.push(made),
            }
        }
    }
    let fused = found.plans.iter().filter(|a| a.effort > Effort::Off);
    let fastest = fused.map(|a| a.seconds).fold(f64::INFINITY, f64::min);
    found.plans.retain(|a| a.effort > Effort::Off || least <= fastest);
    found.is_unfused_left_out &= least <= fastest;
    Ok(found)
}

/// The plans of the efforts that are compared, before that of a kernel for each instruction: the wanted one, then the lesser ones.
/// What the engine's memo has is not made again.
///
/// # Errors
/// As [`plan`](crate::plan()).
pub(super) fn greedy_plans(
    facts: &Facts<'_>,
    options: &PlanOptions,
    blocks: &[Plan],
    engine: &dyn EngineModel,
) -> Result<GreedyPlans, Diagnostic> {
    let f = facts.f;
    let memo = engine.memo().filter(|memo| memo.is_for(&options.device));
    if let Some(known) = memo.and_then(|memo| memo.greedy(f, options)) {
        return Ok(known);
    }
    let grouped = || -> Result<GreedyPlans, Diagnostic> {
        if options.effort == Effort::Quick {
            return Ok(vec![(Effort::Quick, quick_plan(facts, options, blocks)?)]);
        }
        let [plan, quick] = plan_and_quick(facts, options, blocks)?;
        Ok(vec![(Effort::Default, plan), (Effort::Quick, quick)])
    };
    if options.effort == Effort::Off {
        return Ok(Vec::new());
    }
    // To print a function takes a quarter of the time that it takes to group it.
    let (graph, plans) = beside(f, || graph_hash(f), grouped);
    let (graph, mut plans) = (graph.unwrap_or_else(|| graph_hash(f)), plans?);
    plans.iter_mut().for_each(|(_, plan)| plan.graph.clone_from(&graph));
    if let Some(memo) = memo {
        memo.keep_greedy(f, options, &plans);
    }
    Ok(plans)
}

/// The plan of a [prepared](crate::prepare()) function without a budget, with these plans of its blocks.
pub(crate) fn fastest(
    f: &Function,
    options: &PlanOptions,
    blocks: &[Plan],
    (base, engine): (Option<&LinkBase<'_>>, &dyn EngineModel),
) -> Result<Plan, Diagnostic> {
    match options.effort {
        Effort::Off => plan_at(f, options, 0.0, blocks),
        _ => {
            let made = attempts(f, options, blocks, (base, engine), UnfusedPlan::IfFastest)?;
            fastest_of(f, options, &made.plans)
        }
    }
}

/// Plans are equally fast whose times differ by at most this part: by no model are they told apart, and one may take three
/// times the memory of the other.
const ALIKE: f64 = 1e-3;

/// Whether two plans are equally fast.
pub(crate) fn are_alike(a: f64, b: f64) -> bool {
    a.max(b) <= a.min(b) * (1.0 + ALIKE)
}

/// The fastest of some plans; of equally fast ones, the one with the lowest peak, and of those the fastest.
pub(super) fn fastest_of(
    f: &Function,
    options: &PlanOptions,
    attempts: &[UnbudgetedPlan],
) -> Result<Plan, Diagnostic> {
    let least = attempts.iter().map(|a| a.seconds).fold(f64::INFINITY, f64::min);
    let is_fastest = |a: &&UnbudgetedPlan| are_alike(least, a.seconds);
    let fastest: Vec<&UnbudgetedPlan> = attempts.iter().filter(is_fastest).collect();
    if let [only] = fastest[..] {
        return Ok(only.plan.clone());
    }
    let mut leanest: Option<(PlanPoint, f64)> = None;
    for attempt in fastest {
        let point = measured(f, attempt.plan.clone(), options, &AnyEngine)?.point;
        let is_leaner = |(other, seconds): &(PlanPoint, f64)| {
            let peaks = (point.peak, point.saved).cmp(&(other.peak, other.saved));
            peaks.then(attempt.seconds.total_cmp(seconds)).is_lt()
        };
        if leanest.as_ref().is_none_or(is_leaner) {
            leanest = Some((point, attempt.seconds));
        }
    }
    leanest.map(|(point, _)| point.plan).ok_or_else(|| no_plan(f))
}

pub(super) fn no_plan(f: &Function) -> Diagnostic {
    let at = At { func: Some(f.name.clone()), ..At::default() };
    Diagnostic::new(at, Kind::Internal, "no effort made a plan")
}
