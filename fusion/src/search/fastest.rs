//! The plan without a budget: by the cost model the fastest of all plans that are made; of equally fast plans, the one
//! with the lowest peak.
//!
//! Grouping is greedy, and more fusion is not always faster: a fused kernel may recompute values at many points, or
//! read them against their order in memory. So the plans of lower efforts are made too, among them the one with a
//! kernel for each instruction.

use super::descent::descended;
use super::layouts::chosen_layout;
use super::parallel::each_of;
use super::point::{PlanPoint, linked_seconds, measured};
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::fuse::greedy::{plan_and_quick, plan_at};
use crate::lower::linked::LinkBase;
use crate::memory::engine::{AnyEngine, EngineModel};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::{Effort, PlanOptions};
use adfuse_ir::{At, Diagnostic, Function, Kind};

/// A plan that was made without a budget.
pub(super) struct UnbudgetedPlan {
    pub(super) effort: Effort,
    pub(super) plan: Plan,
    /// Predicted seconds.
    seconds: f64,
}

/// The plans of an effort and the lesser ones, equal ones once, which are linked where there is a base for that. A kernel for each
/// instruction is left out where it is certain to be slower than another.
pub(super) fn attempts(
    f: &Function,
    options: &PlanOptions,
    blocks: &[Plan],
    (base, engine): (Option<&LinkBase<'_>>, &dyn EngineModel),
) -> Result<Vec<UnbudgetedPlan>, Diagnostic> {
    let device = &options.device;
    let layout = chosen_layout(f, options, blocks, engine)?;
    // The efforts whose plans are compared, before that of a kernel for each instruction: the wanted one, then the lesser ones.
    let greedy: Vec<(Effort, Plan)> = match options.effort {
        Effort::Off => Vec::new(),
        Effort::Quick => vec![(Effort::Quick, plan_at(f, options, 0.0, blocks)?)],
        Effort::Default | Effort::Search => {
            let [plan, quick] = plan_and_quick(f, options, blocks)?;
            vec![(Effort::Default, plan), (Effort::Quick, quick)]
        }
    };
    // A kernel for each instruction is what all plans are compared with: it is row-major.
    let least = least_unfused(f, device)?;
    let unfused = || -> Result<UnbudgetedPlan, Diagnostic> {
        let effort = Effort::Off;
        let plan = plan_at(f, &PlanOptions { effort, ..options.clone() }, 0.0, blocks)?;
        let seconds = linked_seconds(base, (f, &plan), device, engine)?;
        Ok(UnbudgetedPlan { effort, plan, seconds })
    };
    // The plan of an effort, and what single changes make of it.
    let made = |(effort, plan): &(Effort, Plan)| -> Result<Vec<UnbudgetedPlan>, Diagnostic> {
        let (effort, plan) = (*effort, Plan { layout, ..plan.clone() });
        let seconds = linked_seconds(base, (f, &plan), device, engine)?;
        // What is improved is the plan of the wanted effort.
        let better = match effort >= Effort::Default {
            true => descended(f, &plan, options, engine)?,
            false => None,
        };
        let mut made = vec![UnbudgetedPlan { effort, plan, seconds }];
        // While others are improved: it may be left out then.
        if effort == Effort::Quick && least <= seconds {
            made.push(unfused()?);
        }
        if let Some(plan) = better {
            let seconds = linked_seconds(base, (f, &plan), device, engine);
            debug_assert!(seconds.is_ok(), "a change made no plan: {seconds:?}");
            // Whatever is wrong with it, there is the greedy plan.
            if let Ok(seconds) = seconds {
                made.push(UnbudgetedPlan { effort, plan, seconds });
            }
        }
        Ok(made)
    };
    let all = each_of(f, &greedy, made);
    let mut found: Vec<UnbudgetedPlan> = Vec::new();
    for made in all {
        for made in made? {
            if found.iter().all(|known| known.plan != made.plan) {
                found.push(made);
            }
        }
    }
    if options.effort == Effort::Off {
        return Ok(vec![unfused()?]);
    }
    let fused = found.iter().filter(|a| a.effort > Effort::Off);
    let fastest = fused.map(|a| a.seconds).fold(f64::INFINITY, f64::min);
    found.retain(|a| a.effort > Effort::Off || least <= fastest);
    Ok(found)
}

/// Seconds that a kernel for each instruction takes at the least: to be begun, and to write its result.
fn least_unfused(f: &Function, device: &MachineModel) -> Result<f64, Diagnostic> {
    let facts = Facts::of(f, true)?;
    let bandwidth = device.memory_bytes_per_s.max(device.cache_bytes_per_s);
    let kernel = |&i: &_| {
        let v = f.inst_results(i)[0];
        let bits = facts.elements[v].saturating_mul(f.ty(v).dtype.bits() as i64);
        device.launch_s + bits as f64 / 8.0 / bandwidth
    };
    let made = f.body_insts().iter().filter(|&&i| facts.class[i] != InstClass::Constant);
    Ok(made.map(kernel).sum())
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
        _ => fastest_of(f, options, &attempts(f, options, blocks, (base, engine))?),
    }
}

/// Plans are equally fast whose times differ by at most this part: by no model are they told apart, and one may take three
/// times the memory of the other.
const ALIKE: f64 = 1e-3;

/// Whether two plans are equally fast.
pub(crate) fn are_alike(a: f64, b: f64) -> bool {
    a.max(b) <= a.min(b) * (1.0 + ALIKE)
}

/// What another plan must gain over that of effort quick, as a part of its time, if it takes as much memory or more. Prices tell
/// plans that differ by less no better than chance does.
const LEAST_GAIN: f64 = 1e-2;

/// The fastest of some plans; of equally fast ones, the one with the lowest peak, and of those the fastest. The plan of effort
/// quick is taken in place of one that gains little over it and is no leaner.
pub(super) fn fastest_of(
    f: &Function,
    options: &PlanOptions,
    attempts: &[UnbudgetedPlan],
) -> Result<Plan, Diagnostic> {
    let fastest = leanest_of_fastest(f, options, attempts)?;
    let close = |a: &&UnbudgetedPlan| {
        a.effort == Effort::Quick && a.seconds <= fastest.seconds * (1.0 + LEAST_GAIN)
    };
    let Some(quick) = attempts.iter().find(close).filter(|a| a.plan != fastest.plan) else {
        return Ok(fastest.plan.clone());
    };
    let [ours, theirs] = [quick, fastest].map(|a| measured(f, a.plan.clone(), options, &AnyEngine));
    let is_leaner = theirs?.point.peak < ours?.point.peak;
    Ok(if is_leaner { fastest.plan.clone() } else { quick.plan.clone() })
}

fn leanest_of_fastest<'a>(
    f: &Function,
    options: &PlanOptions,
    attempts: &'a [UnbudgetedPlan],
) -> Result<&'a UnbudgetedPlan, Diagnostic> {
    let least = attempts.iter().map(|a| a.seconds).fold(f64::INFINITY, f64::min);
    let is_fastest = |a: &&UnbudgetedPlan| are_alike(least, a.seconds);
    let fastest: Vec<&UnbudgetedPlan> = attempts.iter().filter(is_fastest).collect();
    if let [only] = fastest[..] {
        return Ok(only);
    }
    let mut leanest: Option<(PlanPoint, &UnbudgetedPlan)> = None;
    for attempt in fastest {
        let point = measured(f, attempt.plan.clone(), options, &AnyEngine)?.point;
        let is_leaner = |(other, known): &(PlanPoint, &UnbudgetedPlan)| {
            let peaks = (point.peak, point.saved).cmp(&(other.peak, other.saved));
            peaks.then(attempt.seconds.total_cmp(&known.seconds)).is_lt()
        };
        if leanest.as_ref().is_none_or(is_leaner) {
            leanest = Some((point, attempt));
        }
    }
    leanest.map(|(_, attempt)| attempt).ok_or_else(|| no_plan(f))
}

fn no_plan(f: &Function) -> Diagnostic {
    let at = At { func: Some(f.name.clone()), ..At::default() };
    Diagnostic::new(at, Kind::Internal, "no effort made a plan")
}
