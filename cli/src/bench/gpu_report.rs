//! The report of a measurement on a GPU, as text and as JSON.

use super::report::{ms, rate};
use super::spread::SampleStats;
use crate::clock::Clock;
use crate::plan::{bytes, columns, limit};
use crate::planning::PlanRequest;
use crate::render::visible;
use adfuse::backends::gpu::{Facts, library};
use serde_json::{Map, Value, json};

/// What was measured, and of what.
pub(super) struct GpuBenchReport<'a> {
    pub(super) ready: &'a PlanRequest,
    pub(super) device: &'a Facts,
    /// The text of the first one's plan.
    pub(super) plan: String,
    /// Of what was asked for, then of what it is compared with.
    pub(super) figures: Vec<GpuPlanFigures<'a>>,
    /// How much longer the second takes than the first, by pairs of samples.
    pub(super) pairs: Option<SampleStats>,
    pub(super) samples: usize,
    /// Bytes a second of the copy, and what it reads and writes.
    pub(super) copy: SampleStats,
    pub(super) copied: u64,
    pub(super) kernels: Option<Vec<MeasuredGpuStep>>,
    pub(super) seed: u64,
}

/// Figures of one plan.
pub(super) struct GpuPlanFigures<'a> {
    pub(super) effort: &'static str,
    /// Seconds of a run, by the device's clock.
    pub(super) step: SampleStats,
    pub(super) compiled: CompileTime<'a>,
    /// Bytes of the device's memory at the most, measured and planned.
    pub(super) peak: u64,
    pub(super) planned: u64,
    pub(super) code: u64,
    pub(super) launches: u32,
    pub(super) steps: usize,
    pub(super) bytes: u64,
    pub(super) flops: u64,
}

/// How long it took to make, and whether code was kept from before.
pub(super) struct CompileTime<'a> {
    pub(super) clock: &'a Clock,
    pub(super) kept: bool,
}

/// A step of the program, measured.
pub(super) struct MeasuredGpuStep {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// What made it.
    pub(super) generator: String,
    pub(super) launches: u32,
    /// Registers of a thread, and bytes that it has in memory instead.
    pub(super) registers: u32,
    pub(super) local: u32,
    /// Seconds, the median of several runs.
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) flops: u64,
    /// Of all steps' time.
    pub(super) share: f64,
    /// What assemblers noted of its code, and what else is to be known of it.
    pub(super) notes: Vec<String>,
}

impl GpuPlanFigures<'_> {
    fn gbs(&self) -> f64 {
        rate(self.bytes, self.step.median)
    }

    fn gflops(&self) -> f64 {
        rate(self.flops, self.step.median)
    }

    fn put(&self, all: &mut Map<String, Value>, copy: f64) {
        let ms = |seconds: f64| json!(seconds * 1e3);
        let mut put = |key: &str, value: Value| all.insert(key.into(), value);
        put("effort", json!(self.effort));
        put("median_ms", ms(self.step.median));
        put("min_ms", ms(self.step.min));
        put("p10_ms", ms(self.step.p10));
        put("p90_ms", ms(self.step.p90));
        put("compile_ms", ms(self.compiled.clock.total().as_secs_f64()));
        let phase = |(name, took): &(&str, std::time::Duration)| {
            (format!("{name}_ms"), json!(took.as_secs_f64() * 1e3))
        };
        put("phases", Value::Object(self.compiled.clock.phases.iter().map(phase).collect()));
        put("code_kept", json!(self.compiled.kept));
        put("peak_bytes", json!(self.peak));
        put("planned_peak_bytes", json!(self.planned));
        put("code_bytes", json!(self.code));
        put("launches", json!(self.launches));
        put("steps", json!(self.steps));
        put("bytes", json!(self.bytes));
        put("gbs", json!(self.gbs()));
        put("copy_share", json!(self.gbs() * 1e9 / copy.max(1e-12)));
        put("gflops", json!(self.gflops()));
    }
}

impl GpuBenchReport<'_> {
    fn library(&self) -> Option<String> {
        library().map(|v| format!("cublaslt {v}"))
    }

    /// One object.
    pub(super) fn json(&self) -> Value {
        let mut all = Map::new();
        let options = &self.ready.options;
        let mut put = |key: &str, value: Value| all.insert(key.into(), value);
        put("name", json!(self.ready.function.name));
        put("engine", json!(format!("gpu:{}", self.device.number)));
        put("gpu", json!(self.device.name));
        put("driver", json!(self.device.driver));
        put("library", json!(self.library()));
        put("device", json!(options.device.name));
        put("fp", json!(options.fp.name()));
        put("seed", json!(self.seed));
        put("plan", json!(self.plan));
        put("samples", json!(self.samples));
        if let Some(budget) = self.ready.budget {
            put("mem_budget", json!(budget));
        }
        if let Some(chosen) = self.figures.first() {
            chosen.put(&mut all, self.copy.median);
        }
        all.insert("copy_gbs".into(), json!(self.copy.median / 1e9));
        all.insert("copy_bytes".into(), json!(self.copied));
        if let Some(kernels) = &self.kernels {
            let row = |k: &MeasuredGpuStep| {
                json!({
                    "name": k.name, "kind": k.kind, "generator": k.generator,
                    "launches": k.launches, "registers": k.registers, "local_bytes": k.local,
                    "median_ms": k.seconds * 1e3, "bytes": k.bytes, "gbs": rate(k.bytes, k.seconds),
                    "copy_share": rate(k.bytes, k.seconds) * 1e9 / self.copy.median.max(1e-12),
                    "flops": k.flops, "gflops": rate(k.flops, k.seconds), "share": k.share,
                    "notes": k.notes,
                })
            };
            all.insert("kernels".into(), kernels.iter().map(row).collect());
        }
        if let (Some(other), Some(ratio)) = (self.figures.get(1), &self.pairs) {
            let mut compared = Map::new();
            other.put(&mut compared, self.copy.median);
            compared.insert("ratio".into(), json!(self.ratio()));
            compared.insert("ratio_p10".into(), json!(ratio.p10));
            compared.insert("ratio_median".into(), json!(ratio.median));
            compared.insert("ratio_p90".into(), json!(ratio.p90));
            all.insert("compare".into(), Value::Object(compared));
        }
        Value::Object(all)
    }

    /// How many times as long the second takes as the first.
    fn ratio(&self) -> f64 {
        let median = |k: usize| self.figures.get(k).map_or(0.0, |f| f.step.median);
        median(1) / median(0).max(1e-12)
    }

    /// Lines and columns.
    pub(super) fn text(&self) -> String {
        let options = &self.ready.options;
        let s = if self.samples == 1 { "" } else { "s" };
        let mut out = format!(
            "@{} on the engine gpu:{}, {}, {}, planned for {}, fp {}, {} sample{s}\n\n",
            self.ready.function.name,
            self.device.number,
            self.device.name,
            self.library().unwrap_or_else(|| "no library of matrices".into()),
            options.device.name,
            options.fp.name(),
            self.samples,
        );
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(self.figures.iter().map(|f| format!("effort {}", f.effort)));
        let mut row = |name: &str, cell: &dyn Fn(&GpuPlanFigures<'_>) -> String| {
            let mut cells = vec![name.to_string()];
            cells.extend(self.figures.iter().map(cell));
            rows.push(cells);
        };
        row("median ms", &|f| ms(f.step.median));
        row("min ms", &|f| ms(f.step.min));
        row("10% to 90% ms", &|f| format!("{} to {}", ms(f.step.p10), ms(f.step.p90)));
        row("GB/s", &|f| format!("{:.2}", f.gbs()));
        row("of the copy", &|f| format!("{:.1}%", f.gbs() * 1e11 / self.copy.median.max(1e-12)));
        row("GFLOP/s", &|f| format!("{:.2}", f.gflops()));
        row("bytes moved", &|f| bytes(f.bytes));
        row("launches", &|f| f.launches.to_string());
        row("peak", &|f| limit(f.peak));
        row("planned peak", &|f| limit(f.planned));
        row("code", &|f| bytes(f.code));
        row("compile ms", &|f| ms(f.compiled.clock.total().as_secs_f64()));
        for name in ["parse", "ad", "plan", "memory", "codegen"] {
            row(&format!("  {name}"), &|f| {
                let found = f.compiled.clock.phases.iter().find(|(n, _)| *n == name);
                let kept = if name == "codegen" && f.compiled.kept { ", kept" } else { "" };
                found.map_or("-".into(), |(_, took)| format!("{}{kept}", ms(took.as_secs_f64())))
            });
        }
        out += &columns(&rows);
        out += &format!(
            "\na copy of {} on the device moves {:.2} GB/s (10% to 90%: {:.2} to {:.2})\n",
            bytes(self.copied / 2),
            self.copy.median / 1e9,
            self.copy.p10 / 1e9,
            self.copy.p90 / 1e9
        );
        if let (Some(other), Some(ratio)) = (self.figures.get(1), &self.pairs) {
            out += &format!(
                "effort {} takes {:.3} times as long (10% to 90% of pairs: {:.3} to {:.3})\n",
                other.effort,
                self.ratio(),
                ratio.p10,
                ratio.p90
            );
        }
        if let Some(kernels) = &self.kernels {
            out.push('\n');
            out += &self.table(kernels);
            for (n, k) in kernels.iter().enumerate() {
                k.notes.iter().for_each(|note| out += &format!("step {n}: {}\n", visible(note)));
            }
        }
        out
    }

    /// The steps, a line each.
    fn table(&self, kernels: &[MeasuredGpuStep]) -> String {
        let head = [
            "",
            "name",
            "kind",
            "ms",
            "bytes",
            "GB/s",
            "of the copy",
            "GFLOP/s",
            "share",
            "launches",
            "registers",
            "local",
            "by",
        ];
        let mut rows = vec![head.map(String::from).to_vec()];
        rows.extend(kernels.iter().enumerate().map(|(n, k)| {
            let gbs = rate(k.bytes, k.seconds);
            vec![
                n.to_string(),
                k.name.clone(),
                k.kind.into(),
                ms(k.seconds),
                bytes(k.bytes),
                format!("{gbs:.2}"),
                format!("{:.1}%", gbs * 1e11 / self.copy.median.max(1e-12)),
                format!("{:.2}", rate(k.flops, k.seconds)),
                format!("{:.1}%", k.share * 100.0),
                k.launches.to_string(),
                k.registers.to_string(),
                bytes(u64::from(k.local)),
                k.generator.clone(),
            ]
        }));
        columns(&rows)
    }
}
