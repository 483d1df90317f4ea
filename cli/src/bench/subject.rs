//! The subject of a measurement: a plan of the function as machine code, with memory for its results.

use super::spread::SampleStats;
use crate::clock::Clock;
use crate::engine::map_for_profilers;
use crate::failure::Failure;
use crate::planning::PlanRequest;
use crate::streams::Streams;
use adfuse::backends::counters::{CounterError, HardwareCounters};
use adfuse::backends::cpu::{CompiledSweep, Trace, Vectors};
use adfuse::backends::functions::CallSide;
use adfuse::backends::limits::RunLimits;
use adfuse::backends::{Array, RankGroup};
use adfuse::engine::{Compiled, Cpu};
use adfuse::fusion::{Cost, Effort, EngineModel, Plan};
use adfuse::ir::Diagnostic;
use std::time::Instant;

/// A plan as machine code.
pub(super) struct Subject {
    /// How hard the plan was looked for.
    pub(super) effort: &'static str,
    pub(super) made: Compiled,
    pub(super) cost: Cost,
    /// How long the phases took that led to it.
    pub(super) clock: Clock,
    outputs: Vec<Vec<u8>>,
}

/// How it is run.
#[derive(Clone)]
pub(super) struct RunOptions {
    pub(super) threads: usize,
    pub(super) vectors: Vectors,
    pub(super) limits: RunLimits,
    /// The ranks that run it.
    pub(super) ranks: RankGroup,
}

/// A step of the program, measured.
pub(super) struct MeasuredStep {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// What made its code.
    pub(super) generator: String,
    /// Which of its functions the x86 emitter does not support, and why.
    pub(super) not_wide: Vec<String>,
    /// Seconds, the median of several runs.
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) flops: u64,
    /// Of all steps' time.
    pub(super) share: f64,
}

/// How often each step is measured.
const RUNS: usize = 51;

impl Subject {
    /// Lowers a plan and makes machine code of it; what that takes is added to the clock.
    pub(super) fn new(
        ready: &PlanRequest,
        plan: &Plan,
        (effort, name): (Effort, &'static str),
        how: &RunOptions,
        mut clock: Clock,
        streams: &mut Streams<'_>,
    ) -> Result<Subject, Failure> {
        let wrong = |d: Diagnostic| ready.source.wrong(d);
        let program = ready.program(plan)?;
        let plan = adfuse::fusion::PlanOptions { effort, ..ready.options.clone() };
        let RunOptions { threads, vectors, limits, ranks } = how.clone();
        let cpu = Cpu { plan, threads, vectors, limits, ranks, ..Cpu::default() };
        // Here it has a place in the text.
        cpu.functions.check(&ready.function, CallSide::Host).map_err(wrong)?;
        clock.end("plan");
        let made = cpu.of_planned_program(program, ready.groups()).map_err(wrong)?;
        clock.end_both(["memory", "codegen"], made.code_time);
        let cost = cpu.cost(&made.program, &ready.options.device);
        map_for_profilers(&*made.executable, streams);
        Ok(Subject { effort: name, made, cost, clock, outputs: Vec::new() })
    }

    /// Runs it once, and makes room for its results.
    pub(super) fn first(&mut self, args: &[Array]) -> Result<(), Diagnostic> {
        let results = self.made.executable.run(args)?;
        self.outputs = results.iter().map(|a| a.bytes().to_vec()).collect();
        Ok(())
    }

    /// Runs it so often, and gives the seconds of a run.
    pub(super) fn run(&mut self, args: &[Array], times: u32) -> Result<f64, Diagnostic> {
        let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let begin = Instant::now();
        for _ in 0..times {
            self.made.executable.run_into(&inputs, &mut outputs)?;
        }
        Ok(begin.elapsed().as_secs_f64() / f64::from(times.max(1)))
    }

    /// What happens when it runs once.
    pub(super) fn traced(&mut self, args: &[Array]) -> Result<Trace, Diagnostic> {
        let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let mut trace = Trace::default();
        self.made.executable.run_into_traced(&inputs, &mut outputs, &mut trace)?;
        Ok(trace)
    }

    /// Runs it once more while the processor's counters count, in this thread and those that work for it; or why none do.
    pub(super) fn counted(
        &mut self,
        args: &[Array],
    ) -> Result<Vec<(&'static str, u64)>, CounterError> {
        let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let counters = HardwareCounters::open()?;
        counters.count(|| {
            // It has run before, at the same inputs.
            let _ = self.made.executable.run_into(&inputs, &mut outputs);
        })
    }

    /// Measures each step of the program.
    pub(super) fn kernels(&mut self, args: &[Array]) -> Result<Vec<MeasuredStep>, Diagnostic> {
        let count = self.made.program.steps.len();
        let mut samples: Vec<Vec<f64>> = vec![Vec::new(); count];
        for _ in 0..RUNS {
            let mut seconds = vec![0.0; count];
            let trace = self.traced(args)?;
            let steps = self.made.executable.steps();
            for span in trace.spans.iter().filter(|s| s.task.is_none()) {
                let origin = steps.get(span.step).map_or(count, |s| s.origin);
                if let Some(sum) = seconds.get_mut(origin) {
                    *sum += (span.end - span.begin).as_secs_f64();
                }
            }
            samples.iter_mut().zip(seconds).for_each(|(all, s)| all.push(s));
        }
        let medians: Vec<f64> = samples.into_iter().map(|s| SampleStats::of(s).median).collect();
        let total: f64 = medians.iter().sum();
        let made = self.made.executable.steps();
        let row = |(k, seconds): (usize, f64)| {
            let (step, cost) = (&self.made.program.steps[k], &self.cost.steps[k]);
            let mut by: Vec<&str> =
                made.iter().filter(|s| s.origin == k).map(|s| s.generator.as_str()).collect();
            by.dedup();
            let sweeps = self.made.executable.sweeps();
            let sweeps = sweeps.filter(|s| made.get(s.step).is_some_and(|m| m.origin == k));
            let why =
                |s: CompiledSweep<'_>| s.emitter.why().map(|why| format!("{}: {why}", s.name));
            MeasuredStep {
                not_wide: sweeps.filter_map(why).collect(),
                name: step.name().into(),
                kind: step.kind(),
                generator: by.join(", "),
                seconds,
                bytes: cost.reads.saturating_add(cost.writes),
                flops: cost.ops.flops(),
                share: if total > 0.0 { seconds / total } else { 0.0 },
            }
        };
        Ok(medians.into_iter().enumerate().map(row).collect())
    }
}
