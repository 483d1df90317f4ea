//! The report of a measurement, as text and as JSON.

use super::measure::Measures;
use super::spread::SampleStats;
use super::subject::{MeasuredStep, Subject};
use crate::plan::{bytes, columns, limit};
use crate::planning::PlanRequest;
use serde_json::{Map, Value, json};

/// What was measured, and of what.
pub(super) struct BenchReport<'a> {
    pub(super) ready: &'a PlanRequest,
    /// What was asked for, then what it is compared with.
    pub(super) subjects: &'a [Subject],
    /// The text of the first one's plan.
    pub(super) plan: String,
    pub(super) measures: Measures,
    pub(super) kernels: Option<Vec<MeasuredStep>>,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

/// Figures of one subject.
struct SubjectFigures<'a> {
    subject: &'a Subject,
    step: SampleStats,
}

impl SubjectFigures<'_> {
    fn gbs(&self) -> f64 {
        rate(self.subject.cost.bytes_moved, self.step.median)
    }

    fn gflops(&self) -> f64 {
        rate(self.subject.cost.flops(), self.step.median)
    }

    /// The entries that every subject has.
    fn put(&self, all: &mut Map<String, Value>) {
        let (made, cost) = (&self.subject.made, &self.subject.cost);
        let memory = made.executable.memory();
        let ms = |seconds: f64| json!(seconds * 1e3);
        let mut put = |key: &str, value: Value| all.insert(key.into(), value);
        put("effort", json!(self.subject.effort));
        put("median_ms", ms(self.step.median));
        put("min_ms", ms(self.step.min));
        put("p10_ms", ms(self.step.p10));
        put("p90_ms", ms(self.step.p90));
        put("compile_ms", ms(self.subject.clock.total().as_secs_f64()));
        let phase = |(name, took): &(&str, std::time::Duration)| {
            (format!("{name}_ms"), json!(took.as_secs_f64() * 1e3))
        };
        put("phases", Value::Object(self.subject.clock.phases.iter().map(phase).collect()));
        put("peak_bytes", json!(memory.peak()));
        put("planned_peak_bytes", json!(made.memory.peak));
        put("per_thread_bytes", json!(memory.per_thread));
        put("code_bytes", json!(memory.code));
        put("functions", json!(memory.functions));
        put("function_uses", json!(memory.function_uses));
        put("launches", json!(cost.launches));
        put("steps", json!(made.program.steps.len()));
        put("bytes", json!(cost.bytes_moved));
        put("gbs", json!(self.gbs()));
        put("gflops", json!(self.gflops()));
    }
}

/// Milliseconds, to four digits at least, and no shorter than a nanosecond.
pub(super) fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms < 0.1 { format!("{ms:.6}") } else { format!("{ms:.4}") }
}

/// In 1e9 a second.
pub(super) fn rate(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1e-12) / 1e9
}

impl BenchReport<'_> {
    fn figures(&self) -> Vec<SubjectFigures<'_>> {
        let each = self.subjects.iter().zip(&self.measures.steps);
        each.map(|(subject, &step)| SubjectFigures { subject, step }).collect()
    }

    /// One object.
    pub(super) fn json(&self) -> Value {
        let mut all = Map::new();
        let options = &self.ready.options;
        all.insert("name".into(), json!(self.ready.function.name));
        all.insert("engine".into(), json!("cpu"));
        all.insert("device".into(), json!(options.device.name));
        all.insert("fp".into(), json!(options.fp.name()));
        all.insert("threads".into(), json!(self.threads));
        all.insert("seed".into(), json!(self.seed));
        all.insert("samples".into(), json!(self.measures.samples));
        if let Some(budget) = self.ready.budget {
            all.insert("mem_budget".into(), json!(budget));
        }
        let figures = self.figures();
        if let Some(chosen) = figures.first() {
            chosen.put(&mut all);
        }
        all.insert("plan".into(), json!(self.plan));
        all.insert("copy_gbs".into(), json!(self.measures.copy.median / 1e9));
        all.insert("copy_bytes".into(), json!(self.measures.copied));
        if let Some(kernels) = &self.kernels {
            let row = |k: &MeasuredStep| {
                json!({
                    "name": k.name, "kind": k.kind, "generator": k.generator,
                    "not_wide": k.not_wide,
                    "median_ms": k.seconds * 1e3, "bytes": k.bytes, "gbs": rate(k.bytes, k.seconds),
                    "flops": k.flops, "gflops": rate(k.flops, k.seconds), "share": k.share,
                })
            };
            all.insert("kernels".into(), kernels.iter().map(row).collect());
        }
        if let (Some(other), Some(ratio)) = (figures.get(1), &self.measures.ratio) {
            let mut compared = Map::new();
            other.put(&mut compared);
            let medians = other.step.median / figures[0].step.median.max(1e-12);
            compared.insert("ratio".into(), json!(medians));
            compared.insert("ratio_p10".into(), json!(ratio.p10));
            compared.insert("ratio_median".into(), json!(ratio.median));
            compared.insert("ratio_p90".into(), json!(ratio.p90));
            all.insert("compare".into(), Value::Object(compared));
        }
        Value::Object(all)
    }

    /// Lines and columns.
    pub(super) fn text(&self) -> String {
        let options = &self.ready.options;
        let s = |n: usize| if n == 1 { "" } else { "s" };
        let mut out = format!(
            "@{} on the engine cpu, {} thread{}, planned for {}, fp {}, {} sample{}\n\n",
            self.ready.function.name,
            self.threads,
            s(self.threads),
            options.device.name,
            options.fp.name(),
            self.measures.samples,
            s(self.measures.samples),
        );
        let figures = self.figures();
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(figures.iter().map(|f| format!("effort {}", f.subject.effort)));
        let mut row = |name: &str, cell: &dyn Fn(&SubjectFigures<'_>) -> String| {
            let mut cells = vec![name.to_string()];
            cells.extend(figures.iter().map(cell));
            rows.push(cells);
        };
        row("median ms", &|f| ms(f.step.median));
        row("min ms", &|f| ms(f.step.min));
        row("10% to 90% ms", &|f| format!("{} to {}", ms(f.step.p10), ms(f.step.p90)));
        row("GB/s", &|f| format!("{:.2}", f.gbs()));
        row("GFLOP/s", &|f| format!("{:.2}", f.gflops()));
        row("bytes moved", &|f| bytes(f.subject.cost.bytes_moved));
        row("launches", &|f| f.subject.cost.launches.to_string());
        row("peak", &|f| limit(f.subject.made.executable.memory().peak()));
        row("planned peak", &|f| limit(f.subject.made.memory.peak));
        row("beside, a thread", &|f| bytes(f.subject.made.executable.memory().per_thread));
        row("code", &|f| bytes(f.subject.made.executable.memory().code));
        row("functions", &|f| {
            let memory = f.subject.made.executable.memory();
            format!("{} for {} loops", memory.functions, memory.function_uses)
        });
        row("compile ms", &|f| ms(f.subject.clock.total().as_secs_f64()));
        for name in ["parse", "ad", "plan", "memory", "codegen"] {
            row(&format!("  {name}"), &|f| {
                let found = f.subject.clock.phases.iter().find(|(n, _)| *n == name);
                found.map_or("-".into(), |(_, took)| ms(took.as_secs_f64()))
            });
        }
        out += &columns(&rows);
        let copy = self.measures.copy;
        out += &format!(
            "\na copy of {} moves {:.2} GB/s (10% to 90%: {:.2} to {:.2})\n",
            bytes(self.measures.copied / 2),
            copy.median / 1e9,
            copy.p10 / 1e9,
            copy.p90 / 1e9
        );
        if let (Some(other), Some(ratio)) = (figures.get(1), &self.measures.ratio) {
            out += &format!(
                "effort {} takes {:.3} times as long (10% to 90% of pairs: {:.3} to {:.3})\n",
                other.subject.effort,
                other.step.median / figures[0].step.median.max(1e-12),
                ratio.p10,
                ratio.p90
            );
        }
        if let Some(kernels) = &self.kernels {
            out.push('\n');
            out += &table(kernels);
        }
        out
    }
}

/// The steps, a line each.
fn table(kernels: &[MeasuredStep]) -> String {
    let head = [
        "",
        "name",
        "kind",
        "ms",
        "bytes",
        "GB/s",
        "flops",
        "GFLOP/s",
        "share",
        "generator",
        "not wide",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(kernels.iter().enumerate().map(|(n, k)| {
        vec![
            n.to_string(),
            k.name.clone(),
            k.kind.into(),
            ms(k.seconds),
            bytes(k.bytes),
            format!("{:.2}", rate(k.bytes, k.seconds)),
            k.flops.to_string(),
            format!("{:.2}", rate(k.flops, k.seconds)),
            format!("{:.1}%", k.share * 100.0),
            k.generator.clone(),
            k.not_wide.join("; "),
        ]
    }));
    columns(&rows)
}
