//! Reports about what a session plans.

use super::Session;
use crate::backends::backend::Backend;
use crate::fusion::{BudgetPoint, Effort, PlanOptions, plan_for};
use crate::ir::{At, Diagnostic, Function, Kind, Module};
use crate::report::{Report, ReportError, ReportSource, ValueKind};

/// What a report about a function is told beside the function.
#[derive(Clone, Debug, Default)]
pub struct ReportRequest {
    /// What the function was traced of, or the file that it came from.
    pub origin: String,
    /// The text that it was read from, of which lines are told; empty where there is none.
    pub text: String,
    /// What each parameter is; [`ValueKind::Input`] where the list ends.
    pub parameters: Vec<ValueKind>,
    /// What each result is; [`ValueKind::Result`] where the list ends.
    pub results: Vec<ValueKind>,
    /// Whether to leave out the plans for other budgets, which take time to find.
    pub no_frontier: bool,
}

impl<B: Backend + ?Sized> Session<B> {
    /// Plans a function of a verified module, and reports about the plan, beside a kernel for each operation.
    ///
    /// # Errors
    /// As [`Session::compile`].
    pub fn report(
        &self,
        module: &Module,
        f: &Function,
        request: &ReportRequest,
    ) -> Result<Report, Diagnostic> {
        let (function, plan) = self.planned(module, f)?;
        let options = &self.settings.plan;
        let off = PlanOptions { effort: Effort::Off, ..options.clone() };
        let unfused = plan_for(&function, &off, self)?.donating(&self.settings.donated);
        let frontier: Vec<BudgetPoint> = match request.no_frontier {
            true => Vec::new(),
            false => self.frontier(module, f)?.points().to_vec(),
        };
        let source = ReportSource {
            function: &function,
            plan: &plan,
            unfused: Some((&unfused, Effort::Off)),
            options,
            effort: options.effort.name(),
            budget: self.settings.mem_budget,
            engine: self,
            text: &request.text,
            origin: &request.origin,
            parameters: &request.parameters,
            results: &request.results,
            frontier: &frontier,
            stacked: &[],
            bench: None,
            unmeasured: vec!["Nothing is measured.".into()],
        };
        Report::of(&source).map_err(|e| match e {
            ReportError::Plan(d) => d,
            ReportError::Bench(e) => Diagnostic::new(At::default(), Kind::Usage, e.to_string()),
        })
    }
}
