//! Collection of a report from a plan and what is known of it.

pub(crate) mod answers;
mod budget;
mod fusion;
mod layers;
mod loops;
mod measured;
pub(crate) mod memory;
mod residuals;
mod steps;

pub use measured::MeasurementError;

use crate::data::{Basis, ComparedFigure, Report, Roof, Unit, ValueKind};
use crate::units;
use adfuse_fusion::{
    CompileCost, Cost, Effort, EngineModel, LoopFrontierPoint, LoopResiduals, MachineModel, Memory,
    Plan, PlanOptions, compile_cost, lower_with_values, recomputed_values, saved_bytes,
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
    pub frontier: &'a [LoopFrontierPoint],
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
    compile: CompileCost,
    saved: u64,
}

impl<'a> LaidOutPlan<'a> {
    fn of(
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

    fn registers(&self) -> u32 {
        self.cost.steps.iter().map(|s| s.registers).max().unwrap_or(0)
    }

    fn occupancy(&self) -> f64 {
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

    pub(crate) fn device(&self) -> &MachineModel {
        &self.source.options.device
    }
}

impl Report {
    /// Collects the report of a plan of a prepared function.
    ///
    /// # Errors
    /// [`ReportError::Plan`] where the plan does not fit the function, and for what the engine does not run;
    /// [`ReportError::Bench`] where the bench file is not one of this plan.
    pub fn of(source: &ReportSource<'_>) -> Result<Report, ReportError> {
        let f = source.function;
        let laid = LaidOutPlan::of(source, (source.plan, source.options.effort))?;
        let unfused = source.unfused.map(|other| LaidOutPlan::of(source, other)).transpose()?;
        let c = Collected { source, names: Names::of(f), laid };
        let measurement = source.bench.map(|text| measured::read(&c, text)).transpose();
        let (measurement, kernels) = match measurement.map_err(ReportError::Bench)? {
            Some((measurement, kernels)) => (Some(measurement), kernels),
            None => (None, Vec::new()),
        };
        let mut steps = steps::steps(&c)?;
        steps.iter_mut().zip(kernels).for_each(|(step, kernel)| step.measured = Some(kernel));
        let residuals = residuals::residuals(&c, &steps)?;
        let memory = memory::timeline(&c, &steps, &residuals);
        let layers = layers::layers(&c, &steps);
        let (candidates, candidate_count) = fusion::candidates(&c)?;
        let figures = figures(&c.laid, unfused.as_ref(), measurement.as_ref(), c.device());
        let again = recomputed_values(f, source.plan);
        let mut report = Report {
            function: f.name.clone(),
            origin: source.origin.into(),
            device: c.device().name.clone(),
            fp: source.options.fp.name().into(),
            effort: source.effort.into(),
            plan: source.plan.hash(f),
            graph: source.plan.graph.clone(),
            sentence: String::new(),
            figures,
            memory,
            steps,
            layers,
            residuals,
            recomputed: budget::recomputed(&|v| c.name(v), &again),
            roofs: roofs(c.device()),
            budget: budget::rows(&c),
            candidates,
            candidate_count,
            loops: loops::loops(&c),
            measured: measurement,
            unmeasured: source.unmeasured.clone(),
            answers: Vec::new(),
        };
        report.sentence = answers::sentence(&report);
        report.answers = answers::answers(&report);
        Ok(report)
    }

    /// A figure by its key.
    pub fn figure(&self, key: &str) -> Option<&ComparedFigure> {
        self.figures.iter().find(|f| f.key == key)
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Those of the serializer; there is nothing in a report that it refuses.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

/// The plan beside the unfused one.
fn figures(
    laid: &LaidOutPlan<'_>,
    unfused: Option<&LaidOutPlan<'_>>,
    measured: Option<&crate::data::Measurement>,
    device: &MachineModel,
) -> Vec<ComparedFigure> {
    let mut all = Vec::new();
    let mut predicted = |key, name, unit, of: &dyn Fn(&LaidOutPlan<'_>) -> f64| {
        let (fused, unfused) = (of(laid), unfused.map(of));
        all.push(ComparedFigure { key, name, unit, fused, unfused, basis: Basis::Predicted });
    };
    predicted("launches", "Launches", Unit::Count, &|p| f64::from(p.cost.launches));
    predicted("bytes", "Bytes moved", Unit::Bytes, &|p| p.cost.bytes_moved as f64);
    predicted("seconds", "Time of a step", Unit::Seconds, &|p| p.cost.seconds);
    predicted("peak", "Peak memory", Unit::Bytes, &|p| p.memory.peak as f64);
    predicted("saved", "Saved for later phases", Unit::Bytes, &|p| p.saved as f64);
    predicted("compile", "Time to compile", Unit::Seconds, &|p| p.compile.seconds);
    predicted("registers", "Registers, the most of a kernel", Unit::Count, &|p| {
        f64::from(p.registers())
    });
    if device.is_gpu() {
        predicted("occupancy", "Occupancy, by time", Unit::Share, &|p| p.occupancy());
    }
    if let Some(m) = measured {
        let mut found = |key, name, unit, fused: Option<f64>, unfused: Option<f64>| {
            let basis = Basis::Measured;
            all.extend(fused.map(|fused| ComparedFigure {
                key,
                name,
                unit,
                fused,
                unfused,
                basis,
            }));
        };
        let other = m.unfused;
        found(
            "measured_seconds",
            "Time of a step",
            Unit::Seconds,
            Some(m.seconds[1]),
            other.map(|(s, _)| s),
        );
        let peak = other.and_then(|(_, peak)| peak).map(|b| b as f64);
        found("measured_peak", "Peak memory", Unit::Bytes, m.peak.map(|b| b as f64), peak);
        let launches = m.launches.map(|n| n as f64);
        found("measured_launches", "Launches", Unit::Count, launches, None);
    }
    all
}

fn roofs(device: &MachineModel) -> Vec<Roof> {
    let roof = |name, per_second, is_memory| Roof { name, per_second, is_memory };
    vec![
        roof("memory", device.memory_bytes_per_s, true),
        roof("last cache", device.cache_bytes_per_s, true),
        roof("element operations, f32", device.ops_per_s, false),
        // A multiply-add is two operations.
        roof("products, f32", 2.0 * device.contract_f32_per_s, false),
        roof("products, 16 bits", 2.0 * device.contract_f16_per_s, false),
        roof("products, f64", 2.0 * device.contract_f64_per_s, false),
    ]
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
    units::bytes(n as f64)
}
