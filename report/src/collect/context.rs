//! What every part of the collection reads: what a report is made of, and the plan laid out in memory.

use super::measurement_error::MeasurementError;
use super::source_lines::SourceLines;
use crate::data::ValueKind;
use crate::sizes;
use adfuse_fusion::{
    BudgetPoint, CompileCost, Cost, Effort, EngineModel, LoopResiduals, MachineModel, Memory, Plan,
    PlanOptions, compile_cost, lower_with_values, saved_bytes,
};
use adfuse_ir::kernel::{Buffer, Program};
use adfuse_ir::text::Names;
use adfuse_ir::{Diagnostic, Function, Value};
use cranelift_entity::SecondaryMap;

/// What a report is made of.
pub struct ReportSource<'a> {
    /// The prepared function.
    pub function: &'a Function,
    /// Its plan.
    pub plan: &'a Plan,
    /// The plan of a kernel for each instruction, or what else the plan is compared with, and its effort.
    pub unfused: Option<(&'a Plan, Effort)>,
    /// The options of the plan.
    pub options: &'a PlanOptions,
    /// How hard it was looked for, in a word.
    pub effort: &'a str,
    /// The budget of memory.
    pub budget: Option<u64>,
    /// What counts the memory and the time of plans.
    pub engine: &'a dyn EngineModel,
    /// The text that spans of instructions point into; empty where there is none.
    pub text: &'a str,
    /// The name of that text, or what the function was traced of.
    pub origin: &'a str,
    /// What each parameter is; [`ValueKind::Input`] where the list ends.
    pub parameters: &'a [ValueKind],
    /// What each result is; [`ValueKind::Result`] where the list ends.
    pub results: &'a [ValueKind],
    /// The frontier of plans; empty where none was asked for.
    pub frontier: &'a [BudgetPoint],
    /// What ways back read of loops whose residuals are stacked.
    pub stacked: &'a [LoopResiduals],
    /// What `adfuse bench --json` has written of this plan.
    pub bench: Option<&'a str>,
    /// Why there is nothing measured, or no hardware counters.
    pub unmeasured: Vec<String>,
}

/// Why there is no report.
#[derive(Debug)]
pub enum ReportError {
    /// The plan does not fit the function, or the engine does not run it.
    Plan(Diagnostic),
    /// The bench file is not one of this plan.
    Bench(MeasurementError),
}

impl From<Diagnostic> for ReportError {
    fn from(d: Diagnostic) -> ReportError {
        ReportError::Plan(d)
    }
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReportError::Plan(d) => write!(f, "{d}"),
            ReportError::Bench(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for ReportError {}

/// A plan that was lowered, priced and laid out in memory.
pub(crate) struct LaidOutPlan<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) program: Program,
    /// The value that each buffer holds.
    pub(crate) held: SecondaryMap<Buffer, Option<Value>>,
    pub(crate) cost: Cost,
    pub(crate) memory: Memory,
    pub(crate) scratch: Vec<u64>,
    pub(super) compile: CompileCost,
    pub(super) saved: u64,
}

impl<'a> LaidOutPlan<'a> {
    pub(super) fn of(
        source: &ReportSource<'_>,
        (plan, effort): (&'a Plan, Effort),
    ) -> Result<LaidOutPlan<'a>, Diagnostic> {
        let device = &source.options.device;
        let (program, held) = lower_with_values(source.function, plan, device)?;
        let cost = source.engine.cost(&program, device);
        let (memory, scratch) = {
            let sized = source.engine.sized(&program)?;
            let scratch = sized.scratch().to_vec();
            let memory = adfuse_fusion::memory_beside(&program, effort, &scratch)?;
            let peak = sized.peak(&memory)?;
            (Memory { peak, ..memory }, scratch)
        };
        let (compile, saved) =
            (compile_cost(&program, device), saved_bytes(source.function, plan)?);
        Ok(LaidOutPlan { plan, program, held, cost, memory, scratch, compile, saved })
    }

    pub(super) fn registers(&self) -> u32 {
        self.cost.steps.iter().map(|s| s.registers).max().unwrap_or(0)
    }

    pub(super) fn occupancy(&self) -> f64 {
        // Of the time, not of the kernels: a short one matters little.
        let all: f64 = self.cost.steps.iter().map(|s| s.seconds).sum();
        let sum: f64 = self.cost.steps.iter().map(|s| s.seconds * s.occupancy).sum();
        if all > 0.0 { sum / all } else { 1.0 }
    }
}

/// What every part of the collection reads.
pub(crate) struct Collected<'a> {
    pub(crate) source: &'a ReportSource<'a>,
    pub(crate) names: Names,
    pub(crate) laid: LaidOutPlan<'a>,
}

impl Collected<'_> {
    pub(crate) fn name(&self, v: Value) -> String {
        format!("%{}", self.names.get(v))
    }

    /// The lines of the source.
    pub(super) fn lines(&self) -> SourceLines<'_> {
        SourceLines::of(self.source.function, self.source.origin, self.source.text)
    }

    pub(crate) fn device(&self) -> &MachineModel {
        &self.source.options.device
    }
}

/// A ratio in words: `6.6 times fewer`, or `the same`.
pub(crate) fn times(less: f64, more: f64) -> String {
    if less <= 0.0 || more <= 0.0 { "-".into() } else { format!("{:.1}", more / less) }
}

/// Names in a sentence: a few, and how many more there are.
pub(crate) fn listed(names: &[String], most: usize) -> String {
    match names {
        [] => "nothing".into(),
        names if names.len() <= most => names.join(", "),
        names => format!("{} and {} more", names[..most].join(", "), names.len() - most),
    }
}

/// Bytes, for sentences.
pub(crate) fn size(n: u64) -> String {
    sizes::bytes(n)
}
