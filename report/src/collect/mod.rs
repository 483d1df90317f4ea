//! Collection of a report from a plan and what is known of it.

pub(crate) mod answers;
mod budget;
mod context;
mod fusion;
mod layers;
mod loops;
mod measured;
mod measurement_error;
pub(crate) mod memory;
pub(crate) mod residuals;
mod source_lines;
mod step_classes;
mod steps;
mod value_classes;

pub use context::{ReportError, ReportSource};
pub use measurement_error::MeasurementError;

use crate::data::{Basis, ComparedFigure, FigureUnit, Report, Roof};
use adfuse_fusion::{Effort, MachineModel, recomputed_values};
use adfuse_ir::text::Names;
use context::{Collected, LaidOutPlan};

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
        let layers = layers::layers(&c, &steps);
        let residuals = residuals::residuals(&c, &steps)?;
        let memory = memory::timeline(&c, &steps, &residuals);
        let (candidates, candidate_count) = fusion::candidates(&c)?;
        let figures = figures(&c.laid, unfused.as_ref(), measurement.as_ref(), c.device());
        let again = recomputed_values(f, source.plan);
        let mut report = Report {
            function: f.name.clone(),
            origin: source.origin.into(),
            device: c.device().name.clone(),
            fp: source.options.fp.name().into(),
            effort: source.effort.into(),
            layout: source.plan.layout.name().into(),
            compared_effort: source.unfused.map_or(Effort::Off, |(_, effort)| effort).name().into(),
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

    /// Whether it is compared with the plan that fuses nothing.
    pub(crate) fn is_compared_with_unfused(&self) -> bool {
        self.compared_effort == Effort::Off.name()
    }

    /// The plan that it is compared with, in words.
    pub(crate) fn compared_with(&self) -> String {
        match self.is_compared_with_unfused() {
            true => "one kernel for each operation".into(),
            false => format!("the plan of effort {}", self.compared_effort),
        }
    }

    /// What stands at figures of that plan.
    pub(crate) fn compared_label(&self) -> String {
        match self.is_compared_with_unfused() {
            true => "unfused".into(),
            false => format!("with effort {}", self.compared_effort),
        }
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
    predicted("launches", "Launches", FigureUnit::Count, &|p| f64::from(p.cost.launches));
    predicted("bytes", "Bytes moved", FigureUnit::Bytes, &|p| p.cost.bytes_moved as f64);
    predicted("seconds", "Time of a step", FigureUnit::Seconds, &|p| p.cost.seconds);
    predicted("peak", "Peak memory", FigureUnit::Limit, &|p| p.memory.peak as f64);
    predicted("saved", "Saved for later phases", FigureUnit::Bytes, &|p| p.saved as f64);
    predicted("compile", "Time to compile", FigureUnit::Seconds, &|p| p.compile.seconds);
    predicted("registers", "Registers, the most of a kernel", FigureUnit::Count, &|p| {
        f64::from(p.registers())
    });
    if device.is_gpu() {
        predicted("occupancy", "Occupancy, by time", FigureUnit::Share, &|p| p.occupancy());
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
            FigureUnit::Seconds,
            Some(m.seconds[1]),
            other.map(|(s, _)| s),
        );
        let peak = other.and_then(|(_, peak)| peak).map(|b| b as f64);
        found("measured_peak", "Peak memory", FigureUnit::Limit, m.peak.map(|b| b as f64), peak);
        let launches = m.launches.map(|n| n as f64);
        found("measured_launches", "Launches", FigureUnit::Count, launches, None);
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
