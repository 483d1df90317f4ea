//! `report`: a page with pictures of a plan.

use super::failure::Failure;
use super::freedom::EffortArg;
use super::machine::{CountedOn, TripLimit};
use super::opened::{is_no_folder, unreadable};
use super::outputs::{OutputFile, OutputFolder};
use super::planning::{ChosenPlan, PlanRequest, PlanningArgs};
use super::streams::Streams;
use super::whole;
use adfuse::fusion::Plan;
use adfuse::report::{Report, ReportError, ReportSource, ValueKind, page, svgs};
use clap::Args;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Writes one page about a plan: memory over time, the kernels, and what other plans would cost
///
/// --output names the page. With --json the result is the data of the page instead, and --page names the page.
/// The page needs nothing else: no network, no other file. Figures are predicted, unless --bench measures the plan here or
/// --bench-file names what `bench --kernels --json` has written of it.
#[derive(Args)]
pub(super) struct ReportCommand {
    #[command(flatten)]
    planning: PlanningArgs,
    #[command(flatten)]
    counted: CountedOn,
    /// The plan to compare with
    #[arg(long, value_enum, value_name = "EFFORT", default_value = "off")]
    compare: EffortArg,
    /// Measure the plan and what it is compared with on this host
    #[arg(long, conflicts_with = "bench_file")]
    bench: bool,
    /// What `bench --kernels --json` has written of the same program, on this machine or another one; the page is of its
    /// plan, unless another is asked for
    #[arg(long, value_name = "BENCH.json")]
    bench_file: Option<PathBuf>,
    /// Leave out the plans for other budgets, which take time to find
    #[arg(long)]
    no_frontier: bool,
    /// Also write the page to this file; for --json, which makes the data the result
    #[arg(long, value_name = "PAGE.html", value_parser = OutputFile::named())]
    page: Option<OutputFile>,
    /// A folder for the pictures, an SVG file each; it is made where it is not there
    #[arg(long, value_name = "DIR", value_parser = OutputFolder::of("svg"))]
    svg: Option<OutputFolder>,
    #[command(flatten)]
    trips: TripLimit,
}

/// A measurement that was read.
struct BenchFile {
    text: String,
    /// The budget that its plan was made for.
    budget: Option<u64>,
}

impl ReportCommand {
    /// Runs the command.
    pub(super) fn execute(mut self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        // With --json the data are the result, which goes where results go.
        let out = if streams.json { None } else { streams.output.take() };
        let made = out.is_some() || self.page.is_some() || self.svg.is_some();
        if !made && !streams.json {
            let m = "report needs --output PAGE.html, --svg DIR or --json";
            return Err(Failure::usage(m));
        }
        let bench = self.bench_text()?;
        let ready = self.planning.ready_counted(self.counted.engine, streams)?;
        let ChosenPlan { plan, .. } = ready.decide(streams)?;
        let report = self.report(&ready, &plan, bench, streams)?;
        if let Some(folder) = &self.svg {
            pictures(&report, &folder.path)?;
        }
        for OutputFile { path, .. } in out.iter().chain(&self.page) {
            let page = page(&report);
            whole::write(path, |file| file.write_all(page.as_bytes()))?;
        }
        let printed = match streams.json {
            true => report.json().map_err(|e| Failure::usage(e.to_string()))?,
            false => report.sentence,
        };
        writeln!(streams.out, "{printed}")?;
        Ok(ExitCode::SUCCESS)
    }

    fn report(
        &self,
        ready: &PlanRequest,
        plan: &Plan,
        bench: Option<BenchFile>,
        streams: &mut Streams<'_>,
    ) -> Result<Report, Failure> {
        let unfused = ready.plan_with(self.compare.effort())?;
        let frontier = match self.no_frontier {
            true => Vec::new(),
            false => ready.frontier(streams)?,
        };
        let stacked = ready.stacked().map_err(|d| ready.source.wrong(d))?;
        let (parameters, results) = kinds(ready);
        let budget = ready.budget.or(bench.as_ref().and_then(|b| b.budget));
        let (bench, unmeasured) = self.measured(ready, plan, bench, streams)?;
        let source = ReportSource {
            function: &ready.function,
            plan,
            unfused: Some((&unfused, self.compare.effort())),
            options: &ready.options,
            effort: ready.effort(),
            budget,
            engine: ready.counting(),
            text: &ready.source.source.text,
            origin: &ready.source.source.name,
            parameters: &parameters,
            results: &results,
            frontier: &frontier,
            stacked: &stacked,
            bench: bench.as_deref(),
            unmeasured,
        };
        Report::of(&source).map_err(|e| match e {
            ReportError::Plan(d) => ready.wrong(d),
            ReportError::Bench(e) => {
                let name = self.bench_file.as_deref().map(Path::display);
                let name = name.map_or_else(|| "the measurement".into(), |n| format!("`{n}`"));
                Failure::usage(format!("{name} cannot be used: {e}"))
            }
        })
    }

    /// Reads the measurement that is named, and follows its plan.
    fn bench_text(&mut self) -> Result<Option<BenchFile>, Failure> {
        let Some(path) = &self.bench_file else { return Ok(None) };
        is_no_folder(path)?;
        let text = fs::read_to_string(path).map_err(|e| unreadable(path, &e))?;
        // What is wrong with it is told when it is compared with the plan.
        let found: Value = serde_json::from_str(&text).unwrap_or_default();
        let followed = found.get("plan").and_then(Value::as_str);
        if let Some(plan) = followed {
            self.planning.follow_measured(path.display().to_string(), plan.into());
        }
        let budget = followed.and_then(|_| found.get("mem_budget")?.as_u64());
        Ok(Some(BenchFile { text, budget }))
    }

    /// The measurement as `bench` writes it, and why there is none, or no counters.
    fn measured(
        &self,
        ready: &PlanRequest,
        plan: &Plan,
        bench: Option<BenchFile>,
        streams: &mut Streams<'_>,
    ) -> Result<(Option<String>, Vec<String>), Failure> {
        if let Some(bench) = bench {
            return Ok((Some(bench.text), Vec::new()));
        }
        if !self.bench {
            let why = "Nothing is measured: --bench measures on this host, --bench-file reads what was measured elsewhere.";
            return Ok((None, vec![why.into()]));
        }
        let request = (self.compare.effort(), Duration::from_millis(500), self.trips.limits());
        let (measured, why) = super::bench::here(ready, plan, request, streams)?;
        Ok((Some(measured.to_string()), why))
    }
}

/// What parameters and results are: what is differentiated, what the caller gives beside that, and the gradients.
fn kinds(ready: &PlanRequest) -> (Vec<ValueKind>, Vec<ValueKind>) {
    let wrt = ready.selection.wrt.as_deref().unwrap_or_default();
    let of = |k: usize| if wrt.contains(&k) { ValueKind::Parameter } else { ValueKind::Input };
    let parameters = (0..ready.function.params().len()).map(of).collect();
    let all = ready.function.results().len();
    let first = all.saturating_sub(wrt.len());
    let of = |k: usize| if k < first { ValueKind::Result } else { ValueKind::Gradient };
    (parameters, (0..all).map(of).collect())
}

/// Writes the pictures into a folder.
fn pictures(report: &Report, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)
        .map_err(|e| Failure::usage(format!("cannot make `{}`: {e}", folder.display())))?;
    for (name, text) in svgs(report) {
        let path = folder.join(format!("{name}.svg"));
        whole::write(&path, |file| file.write_all(text.as_bytes()))?;
    }
    Ok(())
}
