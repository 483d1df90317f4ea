//! `tune`: fits the numbers of the cost model to this machine, and writes them as a file for `--device`.

use super::engine::Threads;
use super::failure::Failure;
use super::machine::{MeasuredOn, gpu};
use super::planning::PlanningArgs;
use super::streams::Streams;
use super::tune_products;
use super::values::whole;
use adfuse::engine::{Cpu, Gpu};
use adfuse::fusion::{Effort, EngineModel, Fp, MachineModel, PlanOptions};
use adfuse::ir::Diagnostic;
use adfuse::ir::kernel::ProductTimes;
use adfuse::tune::{
    ComparedProgram, Comparison, CpuTimer, GpuTimer, MeasuredProgram, PlannedProgram, ProgramSize,
    ProgramTimer, fit, fitted_keys, programs,
};
use clap::{Arg, Args};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Measures programs on an engine, fits the numbers of the cost model to them, and says how well they fit
///
/// It takes less than a minute on a CPU that does nothing else, and little more on a GPU. Plans use the numbers where `--device FILE` names the
/// file; without it they use those that are built in, so that plans are the same on every machine.
///
/// With a program it measures the products of the program's plan on a GPU instead, in each way in which the engine can multiply them:
/// by cuBLASLt with its kernels before and after, and as one kernel with each of its tiles. What was measured comes to what the
/// machine of `--device` has of products already; its other numbers stay. Without a program, a GPU's file has the times of a list of plain products.
#[derive(Args)]
#[command(mut_args(needs_program))]
pub(super) struct Tune {
    #[command(flatten)]
    planning: PlanningArgs,
    #[command(flatten)]
    measured: MeasuredOn,
    #[command(flatten)]
    threads: Threads,
    /// The name of the machine, which plans for it say
    #[arg(long, value_name = "NAME", default_value = "tuned")]
    name: String,
    /// Milliseconds for which each program is run
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = whole::<u64>(0..=u64::MAX))]
    each: u64,
}

/// What does not concern the fit: flags that say what of a program is planned, and how.
fn needs_program(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "file" => arg.required(false),
        "engine" | "threads" | "name" | "each" => arg,
        _ => arg.requires("file"),
    }
}

/// What is measured: programs planned for a machine, what an engine makes of them, and its clock.
struct TuneSubject<'e> {
    base: MachineModel,
    fp: Fp,
    size: ProgramSize,
    /// Products that were measured.
    products: ProductTimes,
    engine: &'e dyn EngineModel,
    timer: &'e mut dyn ProgramTimer,
}

impl Tune {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if let Some(file) = &streams.output
            && !streams.json
            && !file.has_extension(&["toml"])
        {
            let m = format!("`{}` does not end in .toml", file.path.display());
            return Err(Failure::usage(m).hint(Some("`--device` takes files that do".into())));
        }
        // A name that no file may have is refused before anything is measured. No machine that is built in has these numbers.
        let named = MachineModel { name: self.name.clone(), launch_s: 1.0, ..MachineModel::cpu() };
        MachineModel::from_toml(&named.to_toml())
            .map_err(|d| Failure::usage(format!("the machine cannot be described: {d}")))?;
        let least = Duration::from_millis(self.each);
        if self.planning.has_program() {
            let named = self.measured.engine;
            return tune_products::execute((self.planning, named), (self.name, least), streams);
        }
        if self.measured.engine.row.name == Gpu::NAME {
            let engine = gpu(self.measured.engine.number_of_rank())?;
            let base = MachineModel { name: self.name.clone(), ..Gpu::planned_for() };
            let mut engine = Gpu {
                plan: PlanOptions {
                    device: base.clone(),
                    fp: Fp::Reproducible,
                    ..engine.plan.clone()
                },
                ..engine
            };
            engine.code = None;
            let mut timer = GpuTimer { engine: engine.clone(), least };
            let session = engine.session();
            let (fp, size) = (Fp::Reproducible, ProgramSize::Large);
            let products = tune_products::of_ladder(&engine, least, streams)?;
            let subject =
                TuneSubject { base, fp, size, products, engine: &session, timer: &mut timer };
            return self.report(subject, streams);
        }
        if self.measured.engine.row.name != Cpu::NAME {
            let m = format!(
                "no machine is described for the engine `{}`",
                self.measured.engine.row.name
            );
            return Err(Failure::usage(m).hint(Some("`cpu`, `gpu` or `gpu:N`".into())));
        }
        let threads = self.threads.count();
        let parallel = i64::try_from(threads).unwrap_or(i64::MAX);
        let base = MachineModel { name: self.name.clone(), parallel, ..MachineModel::cpu() };
        let mut engine = Cpu { threads, ..Cpu::default() };
        engine.plan.device = base.clone();
        let mut timer = CpuTimer { engine: engine.clone(), least };
        let (fp, size) = (engine.plan.fp, ProgramSize::Small);
        let products = ProductTimes::default();
        let subject = TuneSubject { base, fp, size, products, engine: &engine, timer: &mut timer };
        self.report(subject, streams)
    }

    /// Measures, fits and says how well that fits.
    fn report(
        self,
        mut subject: TuneSubject<'_>,
        streams: &mut Streams<'_>,
    ) -> Result<ExitCode, Failure> {
        let measured = subject.measure(streams)?;
        let base = subject.base;
        let found = MachineModel { products: subject.products, ..fit(&base, &measured) };
        // A name that is taken, or is none, is refused as it is where the file is read.
        let text = found.to_toml();
        let found = MachineModel::from_toml(&text)
            .map_err(|d| Failure::usage(format!("the machine cannot be described: {d}")))?;
        let report = compared(&measured, &found);
        write!(streams.err, "{}", report.text())?;
        for (family, mean, worst) in report.families() {
            writeln!(streams.err, "{family:14} mean ratio {mean:.2}, worst {worst:.2}")?;
        }
        let before = compared(&measured, &base).summary();
        writeln!(streams.err, "before the fit: {before}")?;
        writeln!(streams.err, "after the fit:  {}", report.summary())?;
        let keys = fitted_keys(&base).join(", ");
        writeln!(streams.err, "fitted: {keys}")?;
        streams.out.write_all(printed(&text, &report, streams.json).as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl TuneSubject<'_> {
    fn measure(&mut self, streams: &mut Streams<'_>) -> Result<Vec<MeasuredProgram>, Failure> {
        let wrong = |name: &str, d: Diagnostic| Failure::usage(format!("cannot run `{name}`: {d}"));
        let device = self.base.clone();
        let options = PlanOptions { device, effort: Effort::Default, fp: self.fp };
        let mut all = Vec::new();
        for one in programs(self.size) {
            let program = PlannedProgram::new(&one, &options, self.engine);
            let program = program.map_err(|d| wrong(&one.name, d))?;
            let facts = self.engine.facts(&program.program, &options.device);
            let seconds = self.timer.seconds(&program).map_err(|d| wrong(&one.name, d))?;
            all.push(MeasuredProgram { program, facts, seconds });
        }
        streams.note(&format!("{} programs measured", all.len()));
        Ok(all)
    }
}

/// The description, or, as JSON, that with the programs that it was fitted to.
fn printed(description: &str, report: &Comparison, as_json: bool) -> String {
    if !as_json {
        return description.to_owned();
    }
    let row = |r: &ComparedProgram| {
        json!({
            "family": r.family, "name": r.name,
            "predicted_ms": r.predicted * 1e3, "measured_ms": r.measured * 1e3,
        })
    };
    let programs: Vec<Value> = report.rows.iter().map(row).collect();
    format!("{:#}\n", json!({ "description": description, "programs": programs }))
}

/// Predicted beside measured times.
fn compared(measured: &[MeasuredProgram], device: &MachineModel) -> Comparison {
    let row = |m: &MeasuredProgram| ComparedProgram {
        family: m.program.family.clone(),
        name: m.program.name.clone(),
        predicted: m.predicted(device),
        measured: m.seconds,
    };
    Comparison { rows: measured.iter().map(row).collect() }
}
