//! How a session plans: what its budget chooses, or what pays without one.

use super::{Session, Settings};
use crate::backends::backend::Backend;
use crate::budget::{BudgetChoice, FastestPlan, choose, fastest};
use crate::fusion::{
    self, EngineModel, MemoEngine, Narrowed, PREPASSES, Plan, PlannedGroups, Rewrites,
    decide_loops, narrow_storage, plan_frontier,
};
use crate::ir::{Diagnostic, Function, Module};
use crate::pipeline::{self, CompileUnit, missing};

/// The chosen plan, with notes.
#[derive(Clone, Debug)]
pub struct PlanDecision {
    /// The plan.
    pub plan: Plan,
    /// What was lowered and packed to find it; `None` where it was found in the cache, or within a budget.
    pub groups: Option<PlannedGroups>,
    /// Problems with the plan cache.
    pub notes: Vec<String>,
}

/// A [prepared](crate::fusion::prepare()) function as it was rewritten to be planned, and the plan of that.
#[derive(Clone, Debug)]
pub struct PreparedPlan {
    /// The function that the plan is of, with what was decided before.
    pub narrowed: Narrowed,
    /// The plan.
    pub plan: Plan,
    /// As [`PlanDecision::groups`].
    pub groups: Option<PlannedGroups>,
    /// Problems with the plan cache.
    pub notes: Vec<String>,
}

/// A function as it was planned, and the plan with its cost.
#[derive(Debug)]
pub(crate) struct PlannedFunction {
    pub(crate) function: Function,
    pub(crate) point: fusion::PlanPoint,
}

impl<B: Backend + ?Sized> Session<B> {
    /// Plans a [prepared](crate::fusion::prepare()) function, which recovers what it may from answers and keeps what it
    /// may with losses, and whose loops are decided: within the budget if there is one, else where that pays.
    ///
    /// # Errors
    /// As [`budget_frontier`](fusion::budget_frontier()), [`recover_operands`](fusion::recover_operands()), [`keep_lossy`](fusion::keep_lossy()) and
    /// [`decide_loops`](fusion::decide_loops()); [`Kind::Limit`](crate::ir::Kind::Limit) where no plan is within the budget.
    pub fn plan_prepared(&self, function: &Function) -> Result<PreparedPlan, Diagnostic> {
        if let Some(choice) = self.chosen(function)? {
            let (narrowed, plan) = (choice.rewritten.narrowed(), choice.point.plan);
            return Ok(PreparedPlan { narrowed, plan, groups: None, notes: choice.notes });
        }
        // Plans with and without a rewrite have most groups in common.
        let engine = MemoEngine::new(self, &self.settings.plan.device);
        let narrowed = self.narrowed(function, &engine)?;
        let PlanDecision { plan, groups, notes } = self.decide_by(&narrowed.function, &engine)?;
        let rewrites = narrowed.rewrites.clone();
        Ok(PreparedPlan { plan: Plan { rewrites, ..plan }, narrowed, groups, notes })
    }

    /// The rewrites and the plan of a prepared function that the budget chooses together; `None` without a budget.
    pub(super) fn chosen(&self, function: &Function) -> Result<Option<BudgetChoice>, Diagnostic> {
        let Settings { plan: options, lossy, cache, .. } = &self.settings;
        let budget = self.settings.budget();
        if budget.is_free() {
            return Ok(None);
        }
        let engine = (self as &dyn fusion::EngineModel, self.backend.name());
        choose(function, lossy, options, budget, engine, cache.as_ref()).map(Some)
    }

    /// A prepared function as it is planned without a budget.
    fn narrowed(
        &self,
        function: &Function,
        engine: &dyn EngineModel,
    ) -> Result<Narrowed, Diagnostic> {
        let Settings { lossy, plan: options, .. } = &self.settings;
        let kept = narrow_storage(function, lossy, options, engine)?;
        let decided = decide_loops(&kept.function, options, engine)?;
        let rewrites = Rewrites { loops: decided.choices, ..kept.rewrites };
        Ok(Narrowed { function: decided.function, rewrites, left: kept.left })
    }

    /// The plan of a [prepared](crate::fusion::prepare()) function as it is, within the budget if there is one. Its
    /// rewrites may have better plans: [`Session::plan_prepared`].
    ///
    /// # Errors
    /// As [`Session::compile`].
    pub fn decide(&self, function: &Function) -> Result<PlanDecision, Diagnostic> {
        self.decide_by(function, self)
    }

    /// As [`Session::decide`], by this engine, which may know what was lowered before.
    pub(super) fn decide_by(
        &self,
        function: &Function,
        engine: &dyn EngineModel,
    ) -> Result<PlanDecision, Diagnostic> {
        let Settings { plan: options, cache, donated, .. } = &self.settings;
        let budget = self.settings.budget();
        if budget.is_free() {
            let engine = (engine, self.backend.name());
            let made = fastest(function, options, engine, cache.as_ref())?;
            let FastestPlan { plan, groups, notes } = made;
            return Ok(PlanDecision { plan: plan.donating(donated), groups, notes });
        }
        let frontier = plan_frontier(function, options, engine)?;
        let plan = frontier.within(&budget)?.plan.clone();
        Ok(PlanDecision { plan, groups: None, notes: Vec::new() })
    }

    /// A function of a verified module as it is planned, and its plan.
    pub(in crate::engine) fn planned(
        &self,
        module: &Module,
        f: &Function,
    ) -> Result<(Function, Plan), Diagnostic> {
        let mut unit = CompileUnit::of(module, f);
        pipeline::run(&self.passes(), &mut unit, PREPASSES[0].name, "plan")?;
        let plan = unit.plan.take().ok_or_else(|| missing("plan"))?;
        Ok((unit.take_function()?, plan))
    }

    /// The plans of a function of a verified module that budgets choose from.
    ///
    /// # Errors
    /// As [`Session::compile`].
    #[cfg(feature = "report")]
    pub(in crate::engine) fn frontier(
        &self,
        module: &Module,
        f: &Function,
    ) -> Result<fusion::PlanFrontier<fusion::BudgetPoint>, Diagnostic> {
        let mut unit = CompileUnit::of(module, f);
        pipeline::run(&self.passes(), &mut unit, PREPASSES[0].name, "price")?;
        fusion::budget_frontier(unit.function()?, &self.settings.lossy, &self.settings.plan, self)
    }

    /// The plan of a function of a verified module, with its cost.
    ///
    /// # Errors
    /// As [`Session::compile`].
    pub(crate) fn planned_function(
        &self,
        module: &Module,
        f: &Function,
    ) -> Result<PlannedFunction, Diagnostic> {
        let (function, plan) = self.planned(module, f)?;
        let point = fusion::plan_point(&function, plan, &self.settings.plan, self)?;
        Ok(PlannedFunction { function, point })
    }
}
