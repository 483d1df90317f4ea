//! Chooses the values that later phases recover from an answer instead of reading them.

use crate::analysis::facts::Facts;
use crate::lower::linked::LinkBase;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::memory::residuals::stored;
use crate::plan::inverse::InverseChoice;
use crate::plan::options::{Effort, PlanOptions};
use crate::prepass::inverse::{Recoverable, recoverable, recovering};
use crate::remat::decisions::ALIKE;
use crate::search::planner::{fastest_among, greedy_point};
use crate::search::point::{PlanPoint, measured_point};
use adfuse_ir::text::Names;
use adfuse_ir::{Diagnostic, Fp, Function, Value};
use cranelift_entity::EntitySet;

/// A function whose later phases recover values.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The function. Plans are plans of this one.
    pub function: Function,
    /// What is recovered, those that are computed last first.
    pub choices: Vec<InverseChoice>,
}

/// The most inverses that are tried one by one.
const MOST_TRIED: usize = 16;

/// Has later phases of a [prepared](crate::prepare()) function recover values from answers that are in memory anyway, by
/// inverses that the mode of `options` allows: exact ones in every mode, those with a stated bound in `reproducible` and
/// `fast`. It is done where fewer bytes are left to later phases, the peak is no higher and the predicted time no longer.
///
/// # Errors
/// As [`plan`](crate::plan()), and those of the engine.
pub fn recover_operands(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Recovered, Diagnostic> {
    // Plans with and without an inverse have most groups in common.
    let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
    let Some(planner) = InversePlanner::of(f, options, engine) else { return Ok(unchanged(f)) };
    planner.chosen_in_time(f)
}

/// A function with the operands recovered that leave fewer bytes to later phases: those that also cost no time, and those that
/// may. None where nothing is recovered.
///
/// # Errors
/// As [`recover_operands`].
pub(super) fn recoveries(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Vec<Recovered>, Diagnostic> {
    let mut all: Vec<Recovered> = Vec::new();
    let Some(planner) = InversePlanner::of(f, options, engine) else { return Ok(all) };
    let paid = InversePlanner { timed: false, ..planner.clone() };
    // What has no plan is for the planner to refuse.
    let taken = paid.chosen(f).unwrap_or_default();
    for recovered in [planner.chosen_in_time(f)?, paid.recovered(f, &taken)?] {
        let is_new = all.iter().all(|known| known.choices != recovered.choices);
        if is_new && !recovered.choices.is_empty() {
            all.push(recovered);
        }
    }
    Ok(all)
}

/// A function of which nothing is recovered.
pub(super) fn unchanged(f: &Function) -> Recovered {
    Recovered { function: f.clone(), choices: Vec::new() }
}

/// What plans are made by, to see what pays.
#[derive(Clone)]
struct InversePlanner<'a> {
    options: PlanOptions,
    engine: &'a dyn EngineModel,
    /// Whether what takes longer does not pay.
    timed: bool,
}

impl<'a> InversePlanner<'a> {
    /// `None` where no answer that is an inverse's might be in memory.
    fn of(
        f: &Function,
        options: &PlanOptions,
        engine: &'a dyn EngineModel,
    ) -> Option<InversePlanner<'a>> {
        let strict = options.fp == Fp::Strict;
        let likely = |v: Value| !strict || f.results().contains(&v);
        if options.effort == Effort::Off || recoverable(f, options.fp, &likely).is_empty() {
            return None;
        }
        // Search changes what is fused, and little of what crosses.
        let effort = options.effort.min(Effort::Default);
        let options = PlanOptions { effort, ..options.clone() };
        Some(InversePlanner { options, engine, timed: true })
    }

    /// The function with what is recovered at no cost in time.
    fn chosen_in_time(&self, f: &Function) -> Result<Recovered, Diagnostic> {
        // What has no plan, or none before its loops are decided, is for the planner to refuse.
        let taken = self.chosen(f).unwrap_or_default();
        if taken.is_empty() {
            return Ok(unchanged(f));
        }
        let recovered = self.recovered(f, &taken)?;
        // Greedy plans find what pays; single changes of the plan without an inverse may do better.
        let pays = self.pays(&self.default_point(&recovered.function)?, &self.default_point(f)?);
        Ok(if pays { recovered } else { unchanged(f) })
    }

    fn recovered(&self, f: &Function, taken: &[Recoverable]) -> Result<Recovered, Diagnostic> {
        let names = Names::of(f);
        let choices = taken.iter().map(|one| one.choice(f, &names)).collect();
        Ok(Recovered { function: recovering(f, taken)?, choices })
    }

    fn chosen(&self, f: &Function) -> Result<Vec<Recoverable>, Diagnostic> {
        let before = self.point(f)?;
        let there = self.kept(f, &before)?;
        let all = recoverable(f, self.options.fp, &|v| there.contains(v));
        self.worthwhile(f, before, all)
    }

    fn point(&self, f: &Function) -> Result<PlanPoint, Diagnostic> {
        greedy_point(f, &self.options, self.engine)
    }

    /// The plan that is made without a budget, before decisions are taken that cost nothing: these would compute the operand
    /// again in place of recovering it.
    fn default_point(&self, f: &Function) -> Result<PlanPoint, Diagnostic> {
        let plan = fastest_among(f, &self.options, self.engine)?.plan;
        let base = LinkBase::of(f)?;
        measured_point(base.as_ref(), (f, &plan), &self.options, self.engine)
    }

    /// What is in memory for later phases, results among them.
    fn kept(&self, f: &Function, point: &PlanPoint) -> Result<EntitySet<Value>, Diagnostic> {
        let mut facts = Facts::of(f, true)?;
        point.plan.inline.iter().for_each(|&i| facts.set_free(i));
        let mut there = EntitySet::new();
        there.extend(stored(&facts, &point.plan).into_iter().filter(|s| s.later).map(|s| s.value));
        there.extend(f.results().iter().copied());
        Ok(there)
    }

    /// Whether a plan leaves fewer bytes to later phases than another, and costs nothing.
    fn pays(&self, new: &PlanPoint, old: &PlanPoint) -> bool {
        let slower = new.seconds > old.seconds * (1.0 + ALIKE);
        new.saved < old.saved && new.peak <= old.peak && !(self.timed && slower)
    }

    /// The inverses that pay: all together, without those that nothing is lost without, or one after the other.
    fn worthwhile(
        &self,
        f: &Function,
        before: PlanPoint,
        all: Vec<Recoverable>,
    ) -> Result<Vec<Recoverable>, Diagnostic> {
        if all.is_empty() {
            return Ok(all);
        }
        let mut best = self.point(&recovering(f, &all)?)?;
        if self.pays(&best, &before) {
            let mut taken = all;
            let last = taken.len().saturating_sub(MOST_TRIED);
            for k in (last..taken.len()).rev() {
                let mut fewer = taken.clone();
                fewer.remove(k);
                let point = self.point(&recovering(f, &fewer)?)?;
                let as_good = point.saved <= best.saved && point.peak <= best.peak;
                if as_good && (!self.timed || point.seconds <= best.seconds * (1.0 + ALIKE)) {
                    (taken, best) = (fewer, point);
                }
            }
            return Ok(taken);
        }
        let (mut taken, mut best): (Vec<Recoverable>, PlanPoint) = (Vec::new(), before);
        for one in all.into_iter().take(MOST_TRIED) {
            taken.push(one);
            let point = self.point(&recovering(f, &taken)?)?;
            match self.pays(&point, &best) {
                true => best = point,
                false => {
                    taken.pop();
                }
            }
        }
        Ok(taken)
    }
}
