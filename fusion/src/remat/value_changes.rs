//! What a plan decides for the values that cross phases, and the plans that decide one of them otherwise.

use super::alternatives::{self, StorageForms};
use super::crossing::{Crossing, Reading, ValueSource, is_constant};
use super::pruning::PlanEvaluator;
use super::residual_decision::ResidualChoice;
use crate::memory::residuals::{bytes, storage};
use crate::plan::Plan;
use crate::plan::lossy::copied;
use crate::search::parallel::each;
use crate::search::point::PlanPoint;
use adfuse_ir::kernel::Storage;
use adfuse_ir::{Diagnostic, Function, Value, ValueDef};
use std::cmp::Reverse;

/// The plans that differ from a plan in the decision about one value.
pub(super) struct ValueChanges<'a> {
    f: &'a Function,
    plan: &'a Plan,
    pub(super) forms: StorageForms<'a>,
    pub(super) crossing: Crossing,
}

impl<'a> ValueChanges<'a> {
    /// Of a plan of a prepared function.
    ///
    /// # Errors
    /// As [`lower`](crate::lower()).
    pub(super) fn of(f: &'a Function, plan: &'a Plan) -> Result<ValueChanges<'a>, Diagnostic> {
        let (forms, crossing) = (StorageForms::of(f, plan)?, Crossing::of(f, plan)?);
        Ok(ValueChanges { f, plan, forms, crossing })
    }

    /// The groups that need a value for later phases, and how each gets it.
    pub(super) fn readings(&self, v: Value) -> &[Reading] {
        &self.crossing.readings[v]
    }

    /// The values that cross phases with their bytes, those of the most first.
    pub(crate) fn by_size(&self) -> Vec<(Value, u64)> {
        let forms = storage(self.plan);
        let size = |v: Value| bytes(&self.forms.facts, &forms, v).unwrap_or(u64::MAX);
        let mut all: Vec<(Value, u64)> =
            self.crossing.values.iter().map(|&v| (v, size(v))).collect();
        all.sort_by_key(|&(_, bytes)| Reverse(bytes));
        all
    }

    /// What a plan decides for a value.
    pub(super) fn choice(&self, v: Value) -> ResidualChoice {
        let readings = self.readings(v);
        let any = |how: ValueSource| readings.iter().any(|r| r.how == how);
        if is_constant(&self.forms.facts, v) {
            return ResidualChoice::Constant;
        }
        if !matches!(self.f.def(v), ValueDef::Inst(..)) {
            return ResidualChoice::Parameter;
        }
        let (mut inside, mut own) = (Vec::new(), Vec::new());
        for reading in readings {
            match reading.how {
                ValueSource::Written | ValueSource::HereAgain => inside.push(reading.group),
                ValueSource::Again { group } if !own.contains(&group) => own.push(group),
                _ => {}
            }
        }
        let result = self.f.results().contains(&v);
        let again = !inside.is_empty() || !own.is_empty();
        if result && (any(ValueSource::Memory) || !again) {
            return ResidualChoice::Output;
        }
        if any(ValueSource::Memory) {
            if let ValueDef::Inst(i, _) = self.f.def(v)
                && let Some(copy) = copied(self.f, i)
            {
                return ResidualChoice::Lossy(copy);
            }
            return match storage(self.plan)[v] {
                Storage::Plain => ResidualChoice::Save,
                Storage::Packed(bits) => ResidualChoice::Compress { bits },
            };
        }
        match again {
            true => ResidualChoice::Remat { inside, own, from: self.crossing.from[v].clone() },
            false => ResidualChoice::Shared,
        }
    }

    /// What each plan takes that differs in this value alone; `None` for one that a known point beats. Plans that have no
    /// lowering are left out.
    pub(super) fn alternatives(
        &self,
        v: Value,
        evaluator: &PlanEvaluator<'_>,
    ) -> Result<Vec<Option<PlanPoint>>, Diagnostic> {
        let priced = each(&self.plans_otherwise(v)?, |plan| evaluator.measured(plan).ok());
        Ok(priced.into_iter().flatten().collect())
    }

    /// The plans that differ in a value alone, those that have forms of storage.
    pub(super) fn plans_otherwise(&self, v: Value) -> Result<Vec<Plan>, Diagnostic> {
        let plans = self.plans(v, &self.choice(v))?.into_iter();
        Ok(plans.filter_map(|plan| self.forms.given(self.f, plan).ok()).collect())
    }

    /// The plans that differ in a value alone.
    pub(super) fn plans(&self, v: Value, choice: &ResidualChoice) -> Result<Vec<Plan>, Diagnostic> {
        let (f, plan) = (self.f, self.plan);
        Ok(match choice {
            ResidualChoice::Parameter | ResidualChoice::Constant | ResidualChoice::Output => {
                Vec::new()
            }
            ResidualChoice::Save | ResidualChoice::Compress { .. } | ResidualChoice::Lossy(_) => {
                alternatives::rematerialize(f, plan, v, self.readings(v))?
            }
            ResidualChoice::Remat { .. } => alternatives::kept(f, plan, v)?,
            ResidualChoice::Shared => alternatives::split_phases(f, plan, v, self.readings(v))?,
        })
    }
}
