//! The plans in which groups recur as schedules say.
//!
//! To make all would take too long. So schedules become plans that are spread over the frontiers of schedules first. The
//! frontier of what these plans take has gaps, where schedules did not give what they promised; those that promise most
//! there, by what their neighbours gave, become plans next. Last, where a plan is near the frontier, its instructions are
//! grouped anew, so that what is computed again joins its readers.

use super::base_plan::BasePlan;
use super::divide::divided;
use super::plan_gains::{Taken, kept, nearest};
use super::pruning::PlanEvaluator;
use super::schedule::frontier::Frontier;
use super::schedule_choice::{LOWEST, ScheduleNumber, chosen};
use super::schedule_promises::SchedulePromises;
use crate::plan::options::PlanOptions;
use crate::plan::{Group, Plan};
use crate::search::parallel::each;
use crate::search::point::PlanPoint;
use adfuse_ir::kernel::Storage;
use adfuse_ir::{Diagnostic, Inst, Value};
use hashbrown::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Rounds in which schedules become plans where they promise most.
const ROUNDS: usize = 2;

/// What grouping a plan anew may gain, as parts of its peak and of its time: those near the frontier come first.
const REGROUPED: [f64; 4] = [1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 1.0 / 4.0];

/// Instructions of the plans that are grouped anew, about, and the most of these plans. Of large functions a sixth of the plans
/// of schedules are.
const REGROUPED_INSTS: usize = 60_000;
const MOST_REGROUPED: usize = 144;

/// The same of planning its memory with the wanted effort.
const SEARCHED: f64 = 1.0 / 32.0;

/// Instructions of the plans in which groups recur that a frontier is chosen from, about, and how many of these plans there are
/// at the least and at most. More of a large function would be a few thousandths of their times apart.
const KEPT_INSTS: usize = 120_000;
const KEPT: (usize, usize) = (48, 144);

/// Makes the plans of schedules of some plans.
pub(super) struct RecurringPlans<'a, 'f, 'e> {
    bases: &'a [BasePlan<'f>],
    options: &'a PlanOptions,
    evaluator: &'a PlanEvaluator<'e>,
    /// Plans that were made, with what they take at the least. Schedules of small functions have most plans in common: each
    /// is measured once.
    made: HashMap<DecidedPlan, Option<Taken>>,
    /// Those that no known one beats.
    found: Vec<PlanPoint>,
}

impl<'a, 'f, 'e> RecurringPlans<'a, 'f, 'e> {
    pub(super) fn new(
        bases: &'a [BasePlan<'f>],
        options: &'a PlanOptions,
        evaluator: &'a PlanEvaluator<'e>,
    ) -> RecurringPlans<'a, 'f, 'e> {
        RecurringPlans { bases, options, evaluator, made: HashMap::new(), found: Vec::new() }
    }

    /// Those beside known plans that may be on the frontier, of about three times as many schedules for each base plan.
    /// Schedules of a plan with a group for each instruction become plans once their instructions are grouped.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) fn of_schedules(
        mut self,
        most: usize,
        apart: Option<&BasePlan<'f>>,
        known: &'a [PlanPoint],
    ) -> Result<Vec<PlanPoint>, Diagnostic> {
        let frontiers: Vec<&Frontier> = self.bases.iter().map(|base| &base.schedules).collect();
        let fastest: Vec<Taken> = self.bases.iter().map(|base| Taken::of(&base.point)).collect();
        let mut next = chosen(&frontiers, 2 * most);
        let mut promises = SchedulePromises::of(frontiers, &fastest);
        let mut near: Vec<(ScheduleNumber, Taken)> = Vec::new();
        for round in 0..=ROUNDS {
            for (number, taken) in next.iter().zip(self.as_scheduled(&next)) {
                promises.note(*number, taken);
                near.extend(taken.map(|taken| (*number, taken)));
            }
            if round < ROUNDS {
                next = promises.best(self.known(known), most * self.bases.len() / ROUNDS);
            }
        }
        let insts = self.insts();
        let most = (most * self.bases.len() / 2).max(REGROUPED_INSTS / insts);
        let numbers = self.worth_regrouping(known, &near, most.min(MOST_REGROUPED));
        self.regrouped(&numbers)?;
        if let Some(apart) = apart {
            let numbers = chosen(&[&apart.schedules], most);
            let plans = each(&numbers, |&(_, at)| apart.regrouped(at, self.options));
            let plans = plans.into_iter().collect::<Result<Vec<Option<Plan>>, Diagnostic>>()?;
            self.measured(plans);
        }
        self.thinned(known);
        Ok(self.found)
    }

    fn known(&self, known: &'a [PlanPoint]) -> impl Iterator<Item = Taken> {
        known.iter().chain(&self.found).map(Taken::of)
    }

    /// Instructions of the function.
    fn insts(&self) -> usize {
        self.bases.first().map_or(1, |base| base.known.f.inst_count().max(1))
    }

    /// Measures the plans of schedules, and tells what they take at the least; `None` for one that has none.
    fn as_scheduled(&mut self, numbers: &[ScheduleNumber]) -> Vec<Option<Taken>> {
        let bases = self.bases;
        let plans = each(numbers, |&(k, at)| bases[k].as_scheduled(at));
        self.measured(plans)
    }

    /// The schedules whose plans are nearest the frontier, and the lowest ones: which of them has the lowest plan when it is
    /// grouped anew is not known before.
    fn worth_regrouping(
        &self,
        known: &'a [PlanPoint],
        plans: &[(ScheduleNumber, Taken)],
        most: usize,
    ) -> Vec<ScheduleNumber> {
        let known: Vec<Taken> = self.known(known).collect();
        let taken: Vec<Taken> = plans.iter().map(|(_, taken)| *taken).collect();
        let near = nearest(&known, &taken, most, &REGROUPED);
        let mut numbers: Vec<ScheduleNumber> = near.into_iter().map(|k| plans[k].0).collect();
        let mut add = |number: &ScheduleNumber| {
            if !numbers.contains(number) {
                numbers.push(*number);
            }
        };
        let mut by_peak: Vec<&(ScheduleNumber, Taken)> = plans.iter().collect();
        by_peak.sort_by_key(|(number, taken)| (taken.peak, *number));
        by_peak.iter().take(LOWEST).for_each(|(number, _)| add(number));
        by_peak.sort_by_key(|(number, _)| *number);
        for of_base in by_peak.chunk_by(|a, b| a.0.0 == b.0.0) {
            of_base.iter().take(LOWEST).for_each(|(number, _)| add(number));
        }
        numbers
    }

    /// Leaves those that are on the frontier, or may be once their memory is planned with the wanted effort.
    fn thinned(&mut self, known: &'a [PlanPoint]) {
        let most = (KEPT_INSTS / self.insts()).clamp(KEPT.0, KEPT.1);
        let known: Vec<Taken> = known.iter().map(Taken::of).collect();
        let found: Vec<Taken> = self.found.iter().map(Taken::of).collect();
        let kept = kept(&known, &found, most, SEARCHED);
        let mut kept = kept.into_iter();
        self.found.retain(|_| kept.next() == Some(true));
    }

    fn regrouped(&mut self, numbers: &[ScheduleNumber]) -> Result<(), Diagnostic> {
        let (bases, options) = (self.bases, self.options);
        let plans = each(numbers, |&(k, at)| bases[k].regrouped(at, options));
        let plans = plans.into_iter().collect::<Result<Vec<Option<Plan>>, Diagnostic>>()?;
        self.measured(plans);
        Ok(())
    }

    /// What plans take at the least, each measured once.
    fn measured(&mut self, plans: Vec<Option<Plan>>) -> Vec<Option<Taken>> {
        let plans: Vec<Option<DecidedPlan>> =
            plans.into_iter().map(|plan| Some(DecidedPlan(Arc::new(plan?)))).collect();
        let is_new = |plan: &&DecidedPlan| self.made.insert((*plan).clone(), None).is_none();
        let new: Vec<&DecidedPlan> = plans.iter().flatten().filter(is_new).collect();
        let (options, bases) = (self.options, self.bases);
        // Where the groups of a plan are not all ones that kernels compute, they are divided.
        let divided = |plan: &Plan| divided(bases[0].known.f, plan, &options.device);
        let costed = self
            .evaluator
            .measured_all(&new.iter().map(|plan| &*plan.0).collect::<Vec<_>>(), divided);
        for (plan, costed) in new.into_iter().zip(costed) {
            let Some(costed) = costed else { continue };
            let taken = Taken { peak: costed.peak, seconds: costed.seconds };
            self.made.insert(plan.clone(), Some(taken));
            self.found.extend(costed.point);
        }
        let of = |plan: &Option<DecidedPlan>| *self.made.get(plan.as_ref()?)?;
        plans.iter().map(of).collect()
    }
}

/// A plan, told from others of one function by what these differ in.
#[derive(Clone)]
struct DecidedPlan(Arc<Plan>);

impl DecidedPlan {
    fn decisions(&self) -> (&[Inst], &[Group], &[(Value, Storage)]) {
        (&self.0.inline, &self.0.groups, &self.0.storage)
    }
}

impl PartialEq for DecidedPlan {
    fn eq(&self, other: &DecidedPlan) -> bool {
        self.decisions() == other.decisions()
    }
}

impl Eq for DecidedPlan {}

impl Hash for DecidedPlan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.decisions().hash(state);
    }
}
