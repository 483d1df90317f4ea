//! Decisions about single values that cost nothing: without a budget they are taken. Single changes know no groups that run
//! twice, and do not look at memory.

use super::decisions::{ALIKE, LEAST_GAIN};
use super::value_changes::ValueChanges;
use crate::lower::linked::LinkBase;
use crate::memory::engine::EngineModel;
use crate::memory::residuals::{saved_bytes, saved_with};
use crate::plan::Plan;
use crate::plan::lossy::lossy_copies;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::parallel::each;
use crate::search::point::{LinkedPlan, priced};
use adfuse_ir::kernel::Program;
use adfuse_ir::{Diagnostic, Function, Phase, Value};

/// Instructions, about, of all plans together that are tried. A plan that is not linked counts as often as it takes longer.
const TRIED: usize = 5_000;
const LOWERED: usize = 4;

/// The most plans that are tried.
const MOST: usize = 320;

/// The part of a plan's time that moving a value takes, or of its peak that the value takes, from which on it is decided
/// otherwise.
const WORTH: f64 = 1e-2;

/// What a plan takes.
#[derive(Clone, Copy)]
struct DecisionCost {
    seconds: f64,
    /// Whether that rests on facts that the engine has stated.
    stated: bool,
    /// Bytes at the peak, where memory is packed quickly.
    peak: u64,
    /// Bytes that are left to later phases.
    saved: u64,
}

/// What becomes of a plan where one value after the other, the largest first, is decided otherwise if that takes less time and no
/// more memory, or no more time and less memory: of residuals where the peaks are the same. `None` where nothing is.
///
/// A gain of less than [`LEAST_GAIN`] of the plan's time is none. More bytes are left to later phases only where an engine
/// states facts, and if they save at least the time that moving them takes; and not beside lossy copies, which are there
/// to save bytes.
///
/// # Errors
/// As [`decisions`](crate::decisions()).
pub(super) fn taken_for_nothing<'f>(
    (f, start): (&'f Function, &Plan),
    options: &PlanOptions,
    (base, engine): (Option<&LinkBase<'f>>, &dyn EngineModel),
) -> Result<Option<Plan>, Diagnostic> {
    if f.body_insts().iter().all(|&i| f.inst(i).phase == Phase::default()) {
        return Ok(None);
    }
    let own = match base {
        None => LinkBase::of(f)?,
        Some(_) => None,
    };
    let pricer = DecisionPricer::of(f, options, (base.or(own.as_ref()), engine));
    let Some(mut here) = pricer.cost(start, f64::INFINITY) else { return Ok(None) };
    let saves_bytes = !lossy_copies(f).is_empty();
    let mut left = pricer.allowance();
    let mut found: Option<Plan> = None;
    // Values that were looked at in this round, and whether one was decided otherwise in it.
    let (mut settled, mut gained): (Vec<Value>, bool) = (Vec::new(), false);
    while left > 0 {
        let changes = ValueChanges::of(f, found.as_ref().unwrap_or(start))?;
        let bandwidth = options.device.bytes_per_s(here.peak);
        let is_worth_it = |bytes: u64| {
            let moved = 2.0 * bytes as f64 / bandwidth + options.device.launch_s;
            moved >= WORTH * here.seconds || bytes as f64 >= WORTH * here.peak as f64
        };
        let pays = |c: &DecisionCost| {
            let more = c.saved.saturating_sub(here.saved) as f64;
            let is_paid = c.stated && !saves_bytes && here.seconds - c.seconds >= more / bandwidth;
            let gains = c.seconds < here.seconds * (1.0 - LEAST_GAIN) && c.peak <= here.peak;
            (more == 0.0 || is_paid) && (gains || (c.peak, c.saved) < (here.peak, here.saved))
        };
        let mut next = None;
        for (v, _) in changes.by_size().into_iter().take_while(|&(_, bytes)| is_worth_it(bytes)) {
            if left == 0 || next.is_some() {
                break;
            }
            if settled.contains(&v) {
                continue;
            }
            settled.push(v);
            let plans = changes.plans_otherwise(v)?;
            left = left.saturating_sub(plans.len());
            let alike = here.seconds * (1.0 + ALIKE);
            let costs = each(&plans, |plan| pricer.cost(plan, alike));
            let better = plans.into_iter().zip(costs).filter_map(|(plan, c)| Some((plan, c?)));
            next = better
                .filter(|(_, c)| pays(c))
                .min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
        }
        match next {
            Some((plan, cost)) => (found, here, gained) = (Some(plan), cost, true),
            None if gained => (settled, gained) = (Vec::new(), false),
            None => break,
        }
    }
    Ok(found)
}

/// Prices plans of a function.
struct DecisionPricer<'a, 'f> {
    f: &'a Function,
    /// `None` where plans of the function are not linked.
    base: Option<&'a LinkBase<'f>>,
    /// Of effort quick: memory is packed quickly.
    quick: PlanOptions,
    engine: &'a dyn EngineModel,
    /// Whether the engine states facts at all.
    stated: bool,
}

impl<'a, 'f> DecisionPricer<'a, 'f> {
    fn of(
        f: &'a Function,
        options: &'a PlanOptions,
        (base, engine): (Option<&'a LinkBase<'f>>, &'a dyn EngineModel),
    ) -> DecisionPricer<'a, 'f> {
        let stated = engine.facts(&Program::default(), &options.device).is_some();
        let quick = PlanOptions { effort: Effort::Quick, ..options.clone() };
        DecisionPricer { f, base, quick, engine, stated }
    }

    /// How many plans are tried.
    fn allowance(&self) -> usize {
        let each = self.f.inst_count().max(1) * if self.base.is_some() { 1 } else { LOWERED };
        (TRIED / each).clamp(1, MOST)
    }

    /// What a plan takes; `None` for one that takes longer than some seconds: its memory is not packed.
    fn cost(&self, plan: &Plan, most: f64) -> Option<DecisionCost> {
        let DecisionPricer { f, base, quick, engine, .. } = self;
        if let Some(base) = base
            && let Some(linked) = LinkedPlan::of(base, plan, quick, *engine)
        {
            let LinkedPlan { seconds, stated, .. } = linked;
            let peak = (seconds <= most).then(|| linked.peak(quick.effort, *engine).ok())??;
            return Some(DecisionCost {
                seconds,
                stated,
                peak,
                saved: saved_with(&base.facts, plan).ok()?,
            });
        }
        let priced = priced(f, plan.clone(), quick, *engine).ok()?;
        let (seconds, stated) = (priced.seconds, self.stated);
        let peak = (seconds <= most).then(|| priced.quick_peak(quick, *engine).ok())??;
        Some(DecisionCost { seconds, stated, peak, saved: saved_bytes(f, plan).ok()? })
    }
}
