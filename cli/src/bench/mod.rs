//! `bench`: the time, traffic and memory of a step, compared with a copy measured at the same time.

mod copy;
pub(super) mod events;
mod gpu;
mod gpu_report;
mod measure;
mod report;
mod spread;
mod subject;

use super::clock::Clock;
use super::engine::{Threads, VectorsArg, ranks_of};
use super::failure::Failure;
use super::freedom::EffortArg;
use super::inputs::{InputArgs, Inputs, measured_arguments};
use super::machine::{MeasuredOn, SeedArg, TripLimit};
use super::outputs::OutputFile;
use super::planning::{PlanRequest, PlanningArgs};
use super::streams::Streams;
use super::whole;
use adfuse::backends::cpu::Vectors;
use adfuse::backends::limits::RunLimits;
use adfuse::backends::{Array, RankGroup, Silent, with_effects};
use adfuse::engine::{Cpu, Gpu};
use adfuse::fusion::{Effort, Plan};
use adfuse::ir::Module;
use clap::Args;
use measure::measured;
use report::BenchReport;
use serde_json::Value;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use subject::{RunOptions, Subject};

/// Measures a step of a function on the engine `cpu` or `gpu`
///
/// Inputs that are not given are random, as those of `run`. A sample is as many steps as take a fifth of a millisecond, or one step
/// if that takes longer. Samples of the step, of what --compare names and of a copy take turns, so that other load
/// on the machine affects all of them alike. Bytes and operations are those of the cost model. On a GPU inputs stay there,
/// a sample takes two milliseconds, and times are the device's. Under `launch` all ranks take as many samples, and rank 0 prints
/// its own.
#[derive(Args)]
pub(super) struct Bench {
    #[command(flatten)]
    planning: PlanningArgs,
    #[command(flatten)]
    measured: MeasuredOn,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    width: VectorsArg,
    #[command(flatten)]
    trips: TripLimit,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    seed: SeedArg,
    /// How many seconds to take samples for, from 0 to 3600; at least five samples are taken
    #[arg(long, value_name = "T", default_value = "1", value_parser = seconds)]
    min_seconds: Duration,
    /// Measure each step of the program too
    #[arg(long)]
    kernels: bool,
    /// Measure the same function at this effort beside it
    #[arg(long, value_enum, value_name = "EFFORT")]
    compare: Option<EffortArg>,
    /// Where to write one run's steps and tasks, as the trace viewers of browsers read them
    #[arg(long, value_name = "OUT.json", value_parser = OutputFile::named())]
    trace: Option<OutputFile>,
}

impl Bench {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        // Runs are repeated for the time that they take.
        with_effects(&mut Silent, || match self.measured.engine.row.name {
            Cpu::NAME => self.on_cpu(streams),
            Gpu::NAME => self.on_gpu(streams),
            _ => Err(Failure::usage("bench measures the engines cpu and gpu")),
        })
    }

    fn on_cpu(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let threads = self.threads.count();
        let mut clock = Clock::new();
        let ready = self.planning.ready_on(self.measured.engine, &mut clock)?;
        let read = clock.without("plan");
        let ranks = self.ranks(&ready)?;
        let (vectors, limits) = (self.width.vectors()?, self.trips.limits());
        let how = RunOptions { threads, vectors, limits, ranks: ranks.clone() };
        if !ready.donated.is_empty() {
            let m = "bench runs at the same inputs again and again, which are not donated";
            return Err(Failure::usage(m));
        }
        let plan = ready.decide(streams)?.plan;
        let effort = ready.effort();
        let chosen =
            Subject::new(&ready, &plan, (ready.options.effort, effort), &how, clock, streams)?;
        let mut subjects = vec![chosen];
        if let Some(look) = self.compare {
            let effort = look.effort();
            let mut clock = read;
            clock.begin();
            let plan = ready.plan_with(effort)?;
            let name = effort.name();
            subjects.push(Subject::new(&ready, &plan, (effort, name), &how, clock, streams)?);
        }
        let args = self.arguments(&ready)?;
        let wrong = |d| ready.source.wrong(d);
        let least = (self.min_seconds, &ranks);
        let measures = measured(&mut subjects, &args, threads, least).map_err(wrong)?;
        let kernels = match self.kernels {
            true => Some(subjects[0].kernels(&args).map_err(wrong)?),
            false => None,
        };
        if let Some(path) = &self.trace {
            let trace = subjects[0].traced(&args).map_err(wrong)?;
            let steps = subjects[0].made.executable.steps();
            let names: Vec<&str> = steps.iter().map(|s| s.name.as_str()).collect();
            let text = events::text(&trace, &names);
            whole::write(&path.path, |file| file.write_all(text.as_bytes()))?;
        }
        let (subjects, seed) = (subjects.as_slice(), self.seed.seed);
        let plan = plan.text(&ready.function);
        let report =
            BenchReport { ready: &ready, subjects, plan, measures, kernels, threads, seed };
        let printed = match streams.json {
            true => format!("{:#}\n", report.json()),
            false => report.text(),
        };
        if ranks.rank() == 0 {
            streams.out.write_all(printed.as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The inputs that the function is measured at.
    fn arguments(&self, ready: &PlanRequest) -> Result<Vec<Array>, Failure> {
        let inputs = Inputs::new(self.inputs.inputs.clone(), self.seed.seed)?;
        measured_arguments(&ready.source.source, (&ready.function, ready.arguments), &inputs)
    }

    /// The ranks that run the function with this process, where it exchanges with others.
    fn ranks(&self, ready: &PlanRequest) -> Result<RankGroup, Failure> {
        let module = Module::single(ready.function.clone());
        let ranks = ranks_of(&module, &ready.function, |d| ready.source.wrong(d))?;
        ranks.admit(&ready.function).map_err(|d| ready.source.wrong(d))?;
        self.trace.iter().try_for_each(|file| file.is_of_one_rank(ranks.ranks()))?;
        Ok(ranks)
    }
}

/// Measures a plan and one of another effort on this host, on all threads, with the time of each step: what `bench --kernels
/// --json` prints. Beside it stands what could not be measured, and why.
pub(super) fn here(
    ready: &PlanRequest,
    plan: &Plan,
    (compare, least, limits): (Effort, Duration, RunLimits),
    streams: &mut Streams<'_>,
) -> Result<(Value, Vec<String>), Failure> {
    if ready.options.device.is_gpu() {
        let m = "--bench measures on this host's processor, and the plan is for a GPU";
        return Err(Failure::usage(m).hint(Some(
            "`bench --engine gpu --kernels --json` measures there, and --bench-file reads that"
                .into(),
        )));
    }
    if !ready.donated.is_empty() {
        let m = "--bench runs at the same inputs again and again, which are not donated";
        return Err(Failure::usage(m));
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let ranks = RankGroup::alone();
    ranks.admit(&ready.function).map_err(|d| ready.source.wrong(d))?;
    let how = RunOptions { threads, vectors: Vectors::host(), limits, ranks: ranks.clone() };
    let other = ready.plan_with(compare)?;
    let mut subjects = Vec::new();
    for (plan, effort, name) in
        [(plan, ready.options.effort, ready.effort()), (&other, compare, compare.name())]
    {
        let made = (effort, name);
        subjects.push(Subject::new(ready, plan, made, &how, Clock::new(), streams)?);
    }
    let inputs = Inputs::new(Vec::new(), 0)?;
    let function = (&ready.function, ready.arguments);
    let args = measured_arguments(&ready.source.source, function, &inputs)?;
    let wrong = |d| ready.source.wrong(d);
    let measure = || {
        let measures = measured(&mut subjects, &args, threads, (least, &ranks))?;
        let kernels = Some(subjects[0].kernels(&args)?);
        Ok((measures, kernels, subjects[0].counted(&args)))
    };
    let (measures, kernels, counted) = with_effects(&mut Silent, measure).map_err(wrong)?;
    let (subjects, plan) = (subjects.as_slice(), plan.text(&ready.function));
    let report = BenchReport { ready, subjects, plan, measures, kernels, threads, seed: 0 };
    let mut json = report.json();
    let why = match counted {
        Ok(counters) => {
            json["counters"] =
                counters.into_iter().map(|(name, n)| (name.to_string(), n)).collect();
            Vec::new()
        }
        Err(why) => vec![format!("Hardware counters are not read: {why}.")],
    };
    Ok((json, why))
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(x) if (0.0..=3600.0).contains(&x) => Ok(Duration::from_secs_f64(x)),
        _ => Err("expected a number of seconds from 0 to 3600".into()),
    }
}
