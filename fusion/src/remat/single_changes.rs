//! Plans that differ from the fastest plan in one decision. The planner is greedy and does not try all of them; some
//! are better.

use super::decisions::{ALIKE, Decider, LEAST_GAIN};
use super::pruning::PlanEvaluator;
use crate::lower::linked::LinkBase;
use crate::memory::engine::EngineModel;
use crate::memory::residuals::saved_with;
use crate::plan::Plan;
use crate::plan::lossy::lossy_copies;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::parallel::each;
use crate::search::point::{LinkedPlan, PlanPoint};
use adfuse_ir::{Diagnostic, Function, Phase, Value};

/// Instructions, about, of all plans together that are tried so.
const TRIED: usize = 20_000;

/// The most of them.
const MOST: usize = 320;

/// What is found from a plan by deciding otherwise about one value after the other, the largest first, and
/// going on from whatever is faster, until no value's other choices are or enough have been tried. What
/// takes less memory is told, too, unless it is no faster and leaves more to later phases: a mask of bits
/// is not to give way to what it is made of because of a few bytes at one moment.
pub(crate) fn decided_otherwise(
    f: &Function,
    start: &PlanPoint,
    options: &PlanOptions,
    (engine, evaluator): (&dyn EngineModel, &PlanEvaluator<'_>),
) -> Result<Vec<PlanPoint>, Diagnostic> {
    let mut left = (TRIED / f.inst_count().max(1)).clamp(1, MOST);
    let mut found: Vec<PlanPoint> = Vec::new();
    let mut here = start.clone();
    // Values that were looked at since the plan was last replaced.
    let mut settled: Vec<Value> = Vec::new();
    loop {
        let plan = here.plan.clone();
        let decider = Decider::of(f, &plan, options, None, engine)?;
        let mut next = None;
        for (v, _) in decider.by_size() {
            if left == 0 {
                return Ok(found);
            }
            if settled.contains(&v) {
                continue;
            }
            settled.push(v);
            let tried = decider.alternatives(v, evaluator)?;
            left = left.saturating_sub(tried.len());
            // A plan that is beaten is no faster than where this began, which is the fastest.
            let points: Vec<PlanPoint> = tried.into_iter().flatten().collect();
            let best = points.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let faster = best.filter(|b| b.seconds < here.seconds * (1.0 - ALIKE)).cloned();
            let told =
                |p: &PlanPoint| p.saved <= here.saved || p.seconds < here.seconds * (1.0 - ALIKE);
            let from = found.len();
            found.extend(points.into_iter().filter(told));
            found[from..].iter().for_each(|point| evaluator.add(point));
            if faster.is_some() {
                next = faster;
                break;
            }
        }
        let Some(better) = next else { return Ok(found) };
        (here, settled) = (better, Vec::new());
    }
}

/// Instructions, about, of all plans together that are tried where there is no budget.
const TRIED_UNBUDGETED: usize = 10_000;

/// The part of a plan's time that moving a value takes, or of its peak that the value takes, from which on it is decided
/// otherwise where there is no budget.
const WORTH: f64 = 2e-3;

/// What a plan takes whose memory is packed quickly.
#[derive(Clone, Copy)]
struct QuickCost {
    seconds: f64,
    /// Whether that rests on facts that the engine has stated.
    stated: bool,
    peak: u64,
    saved: u64,
}

/// What becomes of a plan without a budget where one value after the other, the largest first, is decided otherwise if that takes
/// less time and no more memory, or as little time and less memory: of residuals where the peaks are the same. `None` where
/// nothing is. A gain of less than [`LEAST_GAIN`] of the plan's time is none. More bytes are left to later phases only where
/// the engine states facts, and not beside lossy copies, which are there to save bytes.
///
/// # Errors
/// As [`decisions`](crate::decisions()).
pub(super) fn taken_for_nothing(
    f: &Function,
    start: &Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Option<Plan>, Diagnostic> {
    let first = Phase::default();
    if f.body_insts().iter().all(|&i| f.inst(i).phase == first) {
        return Ok(None);
    }
    // Plans that are not linked are lowered each by itself, which takes as long as planning.
    let Some(base) = LinkBase::of(f)? else { return Ok(None) };
    let device = &options.device;
    let quick = &PlanOptions { effort: Effort::Quick, ..options.clone() };
    // Memory is packed only of what may be better.
    let cost = |plan: &Plan, most: f64| -> Option<QuickCost> {
        let linked = LinkedPlan::of(&base, plan, quick, engine)?;
        if linked.seconds > most {
            return None;
        }
        let LinkedPlan { seconds, stated, .. } = linked;
        let peak = linked.peak(quick.effort, engine).ok()?;
        Some(QuickCost { seconds, stated, peak, saved: saved_with(&base.facts, plan).ok()? })
    };
    let saves_bytes = !lossy_copies(f).is_empty();
    let Some(mut here) = cost(start, f64::INFINITY) else { return Ok(None) };
    let mut left = (TRIED_UNBUDGETED / f.inst_count().max(1)).clamp(1, MOST);
    let mut found: Option<Plan> = None;
    let mut settled: Vec<Value> = Vec::new();
    loop {
        let plan = found.as_ref().unwrap_or(start);
        let decider = Decider::of(f, plan, quick, None, engine)?;
        let is_worth_it = |bytes: u64| {
            let moved = 2.0 * bytes as f64 / device.bytes_per_s(here.peak) + device.launch_s;
            moved >= WORTH * here.seconds || bytes as f64 >= WORTH * here.peak as f64
        };
        let mut next = None;
        for (v, _) in decider.by_size().into_iter().take_while(|&(_, bytes)| is_worth_it(bytes)) {
            if left == 0 {
                return Ok(found);
            }
            if settled.contains(&v) {
                continue;
            }
            settled.push(v);
            let plans = decider.plans_otherwise(v)?;
            left = left.saturating_sub(plans.len());
            let alike = here.seconds * (1.0 + ALIKE);
            let costs = each(&plans, |plan| cost(plan, alike));
            let pays = |c: &QuickCost| {
                let gains = c.seconds < here.seconds * (1.0 - LEAST_GAIN) && c.peak <= here.peak;
                let may_leave = c.saved <= here.saved || c.stated && !saves_bytes;
                gains && may_leave || (c.peak, c.saved) < (here.peak, here.saved)
            };
            let better = plans.into_iter().zip(costs).filter_map(|(plan, c)| Some((plan, c?)));
            next = better
                .filter(|(_, c)| pays(c))
                .min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
            if next.is_some() {
                break;
            }
        }
        let Some((plan, cost)) = next else { return Ok(found) };
        (found, here, settled) = (Some(plan), cost, Vec::new());
    }
}
