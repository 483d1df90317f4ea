//! Why a plan keeps a value that later phases could recover from an answer that is kept as well, in the modes that let
//! results round. Of a function that is planned in strict mode it says what would keep `reproducible` from it.
//!
//! The plan of the function that recovers this one value more is made and priced, as the planner compares them: both plans
//! are those without a budget.

use crate::analysis::float_range::FloatRanges;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::plan::options::{Effort, PlanOptions};
use crate::prepass::inverse::{inverse_of, ranges_for, recoverable_by, recovering};
use crate::remat::decisions::ALIKE;
use crate::remat::residual_decision::Difference;
use crate::remat::unbudgeted::plan_for;
use crate::search::point::{PlanPoint, plan_point};
use adfuse_ir::{Diagnostic, Fp, Function, Value, ValueDef};
use std::sync::OnceLock;

/// What keeps a plan from recovering a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryBound {
    /// The inverse has no stated error for what is known of its operands.
    Range,
    /// Later phases need the value before they have the answer, or to compute it.
    Order,
    /// Nothing is recovered with effort off.
    Effort,
    /// It takes longer.
    Time,
    /// It raises the peak.
    Peak,
    /// It leaves no fewer bytes to later phases.
    Bytes,
    /// Nothing: the planner did not find it.
    Search,
}

/// The alternative to keeping a value that an answer gives.
#[derive(Clone, PartialEq, Debug)]
pub struct RecoveryAlternative {
    /// The answer.
    pub from: Value,
    /// What the plan that recovers the value takes less that which does not, where there is such a plan.
    pub change: Option<Difference>,
    /// What keeps the planner from it.
    pub bound: RecoveryBound,
}

/// Prices recoveries of a function's values.
pub struct RecoveryPricer<'a> {
    f: &'a Function,
    options: PlanOptions,
    /// Plans that are compared have most groups in common.
    engine: MemoEngine<'a>,
    /// What is known of floats, once something asks.
    ranges: OnceLock<Option<FloatRanges<'a>>>,
    /// The plan that recovers no more than the function does.
    base: OnceLock<PlanPoint>,
}

impl<'a> RecoveryPricer<'a> {
    /// For a [prepared](crate::prepare()) function. Strict mode recovers nothing that rounds: there the question is what
    /// `reproducible` would do.
    pub fn new(
        f: &'a Function,
        options: &PlanOptions,
        engine: &'a dyn EngineModel,
    ) -> RecoveryPricer<'a> {
        // Search changes what is fused, and little of what crosses.
        let effort = options.effort.min(Effort::Default);
        let fp = if options.fp == Fp::Strict { Fp::Reproducible } else { options.fp };
        let options = PlanOptions { effort, fp, ..options.clone() };
        let engine = MemoEngine::new(engine, &options.device);
        RecoveryPricer { f, options, engine, ranges: OnceLock::new(), base: OnceLock::new() }
    }

    /// What becomes of a plan if later phases recover an operand from an answer, by the mode's inverses.
    ///
    /// # Errors
    /// As [`plan_for`](crate::plan_for()), and those of the engine.
    pub fn alternative(&self, v: Value, from: Value) -> Result<RecoveryAlternative, Diagnostic> {
        let (f, fp) = (self.f, self.options.fp);
        let refused = |bound| Ok(RecoveryAlternative { from, change: None, bound });
        let ValueDef::Inst(by, _) = f.def(from) else { return refused(RecoveryBound::Range) };
        let ranges = self.ranges.get_or_init(|| ranges_for(f, fp));
        let places = f.args(by).iter().enumerate().filter(|(_, a)| **a == v);
        let mut stated =
            places.map(|(k, _)| (by, k)).filter(|&at| inverse_of(f, at, fp, ranges).is_some());
        let Some(at) = stated.next() else { return refused(RecoveryBound::Range) };
        let Some(one) = recoverable_by(f, at, fp, ranges) else {
            return refused(RecoveryBound::Order);
        };
        if self.options.effort == Effort::Off {
            return refused(RecoveryBound::Effort);
        }
        let base = match self.base.get() {
            Some(base) => base,
            None => {
                let base = self.point(f)?;
                self.base.get_or_init(|| base)
            }
        };
        let other = self.point(&recovering(f, &[one])?)?;
        let change = Difference::between(other, base);
        let bound = match &change {
            d if d.seconds > ALIKE * base.seconds => RecoveryBound::Time,
            d if d.peak > 0 => RecoveryBound::Peak,
            d if d.saved >= 0 => RecoveryBound::Bytes,
            _ => RecoveryBound::Search,
        };
        Ok(RecoveryAlternative { from, change: Some(change), bound })
    }

    fn point(&self, f: &Function) -> Result<PlanPoint, Diagnostic> {
        let (options, engine) = (&self.options, &self.engine);
        plan_point(f, plan_for(f, options, engine)?, options, engine)
    }
}
