//! `tune`: fits the numbers of the cost model to this machine, and writes them as a file for `--device`.

use super::engine::Threads;
use super::failure::Failure;
use super::streams::Streams;
use super::whole;
use adfuse::engine::Cpu;
use adfuse::fusion::{EngineModel, MachineModel, PlanOptions};
use adfuse::ir::Diagnostic;
use adfuse::tune::{
    ComparedProgram, Comparison, CpuTimer, MeasuredProgram, PlannedProgram, ProgramTimer, fit,
    fitted_keys, programs,
};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures small programs on the engine `cpu`, fits the numbers of the cost model to them, and says how well they fit
///
/// It takes less than a minute on a machine that does nothing else. Plans use the numbers where `--device FILE` names the
/// file; without it they use those that are built in, so that plans are the same on every machine.
#[derive(Args)]
pub(super) struct Tune {
    /// The engine that runs the programs
    #[arg(long, value_name = "ENGINE", value_parser = ["cpu"], default_value = "cpu")]
    engine: String,
    #[command(flatten)]
    threads: Threads,
    /// The file that the machine's description is written to, whole or not at all; it has to end in .toml. Without it the
    /// description is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The name of the machine, which plans for it say
    #[arg(long, value_name = "NAME", default_value = "tuned")]
    name: String,
    /// Milliseconds for which each program is run
    #[arg(long, value_name = "MS", default_value_t = 100)]
    each: u64,
}

impl Tune {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if let Some(path) = &self.output
            && path.extension().is_none_or(|e| e != "toml")
        {
            let m = format!("`{}` does not end in .toml", path.display());
            return Err(Failure::usage(m).hint(Some("`--device` takes files that do".into())));
        }
        debug_assert_eq!(self.engine, MachineModel::cpu().name);
        let threads = self.threads.count()?;
        let mut base = MachineModel::cpu();
        base.name.clone_from(&self.name);
        base.parallel = i64::try_from(threads).unwrap_or(i64::MAX);
        let mut engine = Cpu { threads, ..Cpu::default() };
        engine.plan.device = base.clone();
        let measured = self.measure(&engine, streams)?;
        let found = fit(&base, &measured);
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
        let keys = fitted_keys().join(", ");
        writeln!(streams.err, "fitted: {keys}; parallel is the number of threads")?;
        match &self.output {
            None => streams.out.write_all(text.as_bytes())?,
            Some(path) => whole::write(path, |file| file.write_all(text.as_bytes()))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn measure(
        &self,
        engine: &Cpu,
        streams: &mut Streams<'_>,
    ) -> Result<Vec<MeasuredProgram>, Failure> {
        let wrong = |name: &str, d: Diagnostic| Failure::usage(format!("cannot run `{name}`: {d}"));
        let options: &PlanOptions = &engine.plan;
        let least = Duration::from_millis(self.each);
        let mut timer = CpuTimer { engine: engine.clone(), least };
        let mut all = Vec::new();
        for one in programs() {
            let program = PlannedProgram::new(&one, options, engine);
            let program = program.map_err(|d| wrong(&one.name, d))?;
            let facts = engine.facts(&program.program, &options.device);
            let seconds = timer.seconds(&program).map_err(|d| wrong(&one.name, d))?;
            all.push(MeasuredProgram { program, facts, seconds });
        }
        streams.note(&format!("{} programs measured", all.len()));
        Ok(all)
    }
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
