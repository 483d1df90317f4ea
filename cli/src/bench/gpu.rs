//! Measurements on a GPU: inputs stay on the device, and times are the device's.

use super::gpu_report::{CompileTime, GpuBenchReport, GpuPlanFigures, MeasuredGpuStep};
use super::measure::goes_on;
use super::spread::SampleStats;
use super::{Bench, events};
use crate::clock::Clock;
use crate::failure::Failure;
use crate::machine::gpu;
use crate::planning::PlanRequest;
use crate::streams::Streams;
use crate::whole;
use adfuse::backends::cpu::Trace;
use adfuse::backends::gpu::{Copy, DeviceArray};
use adfuse::backends::{Array, RankGroup};
use adfuse::engine::{Gpu, OnGpu};
use adfuse::fusion::{Cost, Effort, Plan, PlanOptions, cost};
use adfuse::ir::Diagnostic;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A plan on the GPU, with its inputs there.
struct GpuSubject {
    effort: &'static str,
    made: OnGpu,
    cost: Cost,
    clock: Clock,
    inputs: Vec<DeviceArray>,
    /// Bytes of the device's memory at the most, inputs and results among them.
    peak: u64,
    seconds: Vec<f64>,
    /// Runs of a sample.
    times: u32,
}

/// How long a sample takes at least, unless one run takes longer.
const SAMPLE: f64 = 2e-3;

/// Runs of a sample at most.
const MOST_RUNS: f64 = 1000.0;

/// Fewer samples say nothing about their spread; more are not kept.
const SAMPLES: std::ops::Range<usize> = 5..10_000;

/// How often each step is measured.
const RUNS: u32 = 51;

/// Runs before the first that counts: clocks rise, and caches fill.
const WARM: u32 = 3;

impl GpuSubject {
    /// What was measured, and what the plan takes.
    fn figures(&self) -> GpuPlanFigures<'_> {
        let (made, cost) = (&self.made, &self.cost);
        let memory = made.executable.memory();
        GpuPlanFigures {
            effort: self.effort,
            step: SampleStats::of(self.seconds.clone()),
            compiled: CompileTime { clock: &self.clock, kept: made.executable.was_kept() },
            peak: self.peak,
            planned: memory.peak(),
            code: memory.code,
            launches: made.executable.launches(),
            steps: made.program.steps.len(),
            bytes: cost.bytes_moved,
            flops: cost.flops(),
        }
    }

    fn new(
        ready: &PlanRequest,
        gpu: &Gpu,
        plan: &Plan,
        (effort, name): (Effort, &'static str),
        mut clock: Clock,
        args: &[Array],
    ) -> Result<GpuSubject, Failure> {
        let wrong = |d: Diagnostic| ready.source.wrong(d);
        let program = ready.program(plan)?;
        clock.end("plan");
        let mut gpu = gpu.clone();
        gpu.plan.effort = effort;
        let before = gpu.device().used().map_err(wrong)?;
        gpu.device().forget_most().map_err(wrong)?;
        let cost = cost(&program, &ready.options.device);
        let made = gpu.of_program(program).map_err(wrong)?;
        clock.end_both(["memory", "codegen"], made.code_time);
        let upload = |a: &Array| DeviceArray::upload(gpu.device(), a);
        let inputs = args.iter().map(upload).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        // The first run is no measure: it draws the graph.
        let mut fastest = made.executable.timed(&inputs, 1).map_err(wrong)?;
        for _ in 0..WARM {
            fastest = fastest.min(made.executable.timed(&inputs, 1).map_err(wrong)?);
        }
        let most = gpu.device().most_used().map_err(wrong)?;
        let (peak, seconds) = (most.saturating_sub(before), Vec::new());
        let times = gpu.ranks.of_first(often(fastest).into()).map_err(wrong)? as u32;
        Ok(GpuSubject { effort: name, made, cost, clock, inputs, peak, seconds, times })
    }

    fn sample(&mut self) -> Result<(), Diagnostic> {
        self.seconds.push(self.made.executable.timed(&self.inputs, self.times)?);
        Ok(())
    }

    /// Traces one run; the events as text.
    fn trace_text(&self) -> Result<String, Diagnostic> {
        let traces = self.made.executable.traced(&self.inputs, 1)?;
        let names: Vec<&str> =
            self.made.executable.steps().iter().map(|s| s.name.as_str()).collect();
        Ok(traces.first().map(|t| events::text(t, &names)).unwrap_or_default())
    }

    /// Measures each step of the program.
    fn kernels(&self) -> Result<Vec<MeasuredGpuStep>, Diagnostic> {
        let executable = &self.made.executable;
        let traces = executable.traced(&self.inputs, RUNS)?;
        let count = self.made.program.steps.len();
        let steps = executable.steps();
        let of = |trace: &Trace, k: usize| -> f64 {
            let spans =
                trace.spans.iter().filter(|s| steps.get(s.step).map(|m| m.origin) == Some(k));
            spans.map(|s| s.end.saturating_sub(s.begin).as_secs_f64()).sum()
        };
        let median = |k| SampleStats::of(traces.iter().map(|t| of(t, k)).collect()).median;
        let medians: Vec<f64> = (0..count).map(median).collect();
        let total: f64 = medians.iter().sum();
        let row = |(k, seconds): (usize, f64)| {
            let (step, cost) = (&self.made.program.steps[k], &self.cost.steps[k]);
            let made: Vec<_> = steps.iter().filter(|s| s.origin == k).collect();
            let mut by: Vec<&str> = made.iter().map(|s| s.generator.as_str()).collect();
            by.dedup();
            MeasuredGpuStep {
                name: step.name().into(),
                kind: step.kind(),
                generator: by.join(" + "),
                launches: made.iter().map(|s| s.launches).sum(),
                registers: made.iter().map(|s| s.registers).max().unwrap_or(0),
                local: made.iter().map(|s| s.local).max().unwrap_or(0),
                seconds,
                bytes: cost.reads.saturating_add(cost.writes),
                flops: cost.ops.flops(),
                share: if total > 0.0 { seconds / total } else { 0.0 },
                notes: made.iter().flat_map(|s| s.notes.iter().cloned()).collect(),
            }
        };
        Ok(medians.into_iter().enumerate().map(row).collect())
    }
}

/// How many runs of what takes so long make a sample.
fn often(seconds: f64) -> u32 {
    (SAMPLE / seconds.max(1e-9)).ceil().clamp(1.0, MOST_RUNS) as u32
}

/// Takes samples of all and of the copy in turns, as many on each rank; the seconds of the copies.
fn measured(
    subjects: &mut [GpuSubject],
    copy: &Copy,
    (least, ranks): (Duration, &RankGroup),
) -> Result<Vec<f64>, Diagnostic> {
    copy.timed(1)?;
    let copies = often(copy.timed(1)?);
    let mut seconds = Vec::new();
    let begin = Instant::now();
    while seconds.len() < SAMPLES.start
        || seconds.len() < SAMPLES.end && goes_on(ranks, begin.elapsed() < least)?
    {
        for k in 0..subjects.len() {
            // Each goes first as often as the other.
            let k = (k + seconds.len()) % subjects.len();
            subjects[k].sample()?;
        }
        seconds.push(copy.timed(copies)?);
    }
    Ok(seconds)
}

impl Bench {
    /// Runs the command on a GPU.
    pub(super) fn on_gpu(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let mut clock = Clock::new();
        let named = self.measured.engine;
        let mut opened = None;
        let open = |options: &PlanOptions| {
            let (code, compile_budget) = (self.planning.code(), self.planning.compile_budget());
            let (plan, limits) = (options.clone(), self.trips.limits());
            let gpu = Gpu { plan, code, compile_budget, limits, ..gpu(named.number_of_rank())? };
            Ok(Some(opened.insert(gpu).clone().into()))
        };
        let ready = self.planning.ready_by(named.row.machine, Some((named, open)), &mut clock)?;
        let opened = opened.ok_or_else(|| Failure::usage("bench measures an engine"))?;
        let gpu = Gpu { mem_budget: ready.budget, ..opened };
        let read = clock.without("plan");
        if !ready.donated.is_empty() {
            let m = "bench runs at the same inputs again and again, which are not donated";
            return Err(Failure::usage(m));
        }
        let wrong = |d| ready.source.wrong(d);
        let ranks = self.ranks(&ready)?;
        let gpu = gpu.among(ranks.clone()).map_err(wrong)?;
        let args = self.arguments(&ready)?;
        clock.begin();
        let plan = ready.decide(streams)?.plan;
        let effort = (ready.options.effort, ready.effort());
        let mut subjects = vec![GpuSubject::new(&ready, &gpu, &plan, effort, clock, &args)?];
        if let Some(look) = self.compare {
            let (effort, mut clock) = (look.effort(), read);
            clock.begin();
            let plan = ready.plan_with(effort)?;
            let effort = (effort, effort.name());
            subjects.push(GpuSubject::new(&ready, &gpu, &plan, effort, clock, &args)?);
        }
        let working_set = subjects[0].made.executable.memory().peak();
        let copy = Copy::new(gpu.device(), working_set).map_err(wrong)?;
        let least = (self.min_seconds, &ranks);
        let copies = measured(&mut subjects, &copy, least).map_err(wrong)?;
        let kernels = match self.kernels {
            true => Some(subjects[0].kernels().map_err(wrong)?),
            false => None,
        };
        if let Some(path) = &self.trace {
            let text = subjects[0].trace_text().map_err(wrong)?;
            whole::write(&path.path, |file| file.write_all(text.as_bytes()))?;
        }
        let pairs = subjects.get(1).map(|other| {
            let pairs = subjects[0].seconds.iter().zip(&other.seconds);
            SampleStats::of(pairs.map(|(a, b)| b / a.max(1e-12)).collect())
        });
        let report = GpuBenchReport {
            ready: &ready,
            device: gpu.device().facts(),
            plan: plan.text(&ready.function),
            figures: subjects.iter().map(GpuSubject::figures).collect(),
            pairs,
            samples: copies.len(),
            copied: copy.bytes(),
            copy: SampleStats::of(
                copies.iter().map(|s| copy.bytes() as f64 / s.max(1e-12)).collect(),
            ),
            kernels,
            seed: self.seed.seed,
        };
        let printed = match streams.json {
            true => format!("{:#}\n", report.json()),
            false => report.text(),
        };
        if ranks.rank() == 0 {
            streams.out.write_all(printed.as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
