//! Chooses the values that later phases recover from an answer instead of reading them.

use crate::analysis::facts::Facts;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::memory::residuals::stored;
use crate::plan::inverse::InverseChoice;
use crate::plan::options::{Effort, PlanOptions};
use crate::prepass::inverse::{Recoverable, recoverable, recovering};
use crate::remat::decisions::ALIKE;
use crate::remat::plan_frontier;
use crate::search::planner::{greedy_point, plan_among};
use crate::search::point::{PlanPoint, measured};
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
/// `fast`. Without a budget this is done where fewer bytes are left to later phases, the peak is no higher and the
/// predicted time no longer; with one, where the fastest plan within the budget is faster for it, or is within it at all.
///
/// # Errors
/// As [`plan`](crate::plan()), and those of the engine.
pub fn recover_operands(
    f: &Function,
    options: &PlanOptions,
    budget: Option<u64>,
    engine: &dyn EngineModel,
) -> Result<Recovered, Diagnostic> {
    let unchanged = || Ok(Recovered { function: f.clone(), choices: Vec::new() });
    // Nothing is planned where no answer that is an inverse's might be in memory.
    let strict = options.fp == Fp::Strict;
    let likely = |v: Value| !strict || f.results().contains(&v);
    if options.effort == Effort::Off || recoverable(f, options.fp, &likely).is_empty() {
        return unchanged();
    }
    // Plans with and without an inverse have most groups in common.
    let engine: &dyn EngineModel = &MemoEngine::new(engine, &options.device);
    let planner = InversePlanner {
        // Search changes what is fused, and little of what crosses.
        options: PlanOptions { effort: options.effort.min(Effort::Default), ..options.clone() },
        engine,
        timed: budget.is_none(),
    };
    // What has no plan, or none before its loops are decided, is for the planner to refuse.
    let Ok(taken) = planner.chosen(f) else { return unchanged() };
    if taken.is_empty() {
        return unchanged();
    }
    let function = recovering(f, &taken)?;
    // Greedy plans find what pays; single changes of the plan without an inverse may do better.
    if budget.is_none()
        && !planner.pays(&planner.default_point(&function)?, &planner.default_point(f)?)
    {
        return unchanged();
    }
    if let Some(budget) = budget {
        let at = |f: &Function| -> Result<Option<f64>, Diagnostic> {
            let frontier = plan_frontier(f, options, engine)?;
            Ok(frontier.at(budget).ok().map(|point| point.seconds))
        };
        let better = match (at(f)?, at(&function)?) {
            (Some(plain), Some(inverted)) => inverted < plain * (1.0 - ALIKE),
            (plain, _) => plain.is_none(),
        };
        if !better {
            return unchanged();
        }
    }
    let names = Names::of(f);
    Ok(Recovered { function, choices: taken.iter().map(|one| one.choice(f, &names)).collect() })
}

/// What plans are made by, to see what pays.
struct InversePlanner<'a> {
    options: PlanOptions,
    engine: &'a dyn EngineModel,
    /// Whether what takes longer does not pay.
    timed: bool,
}

impl InversePlanner<'_> {
    fn chosen(&self, f: &Function) -> Result<Vec<Recoverable>, Diagnostic> {
        let before = self.point(f)?;
        let there = self.kept(f, &before)?;
        let all = recoverable(f, self.options.fp, &|v| there.contains(v));
        self.worthwhile(f, before, all)
    }

    fn point(&self, f: &Function) -> Result<PlanPoint, Diagnostic> {
        greedy_point(f, &self.options, self.engine)
    }

    /// The plan that is made without a budget.
    fn default_point(&self, f: &Function) -> Result<PlanPoint, Diagnostic> {
        let plan = plan_among(f, &self.options, self.engine)?.plan;
        Ok(measured(f, plan, &self.options, self.engine)?.point)
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
