//! `plan`: the cost of a plan, its contents, and explanations.

mod costs;
mod decided;
mod differences;
mod explained;
mod frontier;
mod lists;
mod opportunities;
mod printed;
mod recomputed;
mod recovered;
mod report;
mod table;
mod times;

use super::failure::Failure;
use super::machine::CountedOn;
use super::outputs::OutputFile;
use super::planning::{ChosenPlan, PlanningArgs};
use super::streams::Streams;
use super::values::whole;
use super::whole as files;
use clap::Args;
use printed::{json, lines};
use recovered::ExplainedValue;
use report::PlanReport;
use std::io::Write;
use std::process::ExitCode;
pub(super) use table::{bytes, columns, limit};

/// Shows which instructions share a kernel, and what the plan costs compared with one kernel for each instruction
///
/// Bytes, launches and times are those of the cost model, counted from the structure of the program.
/// Symbolic dimensions need extents. With --cost-graph, it shows instead what to keep and what to compute again, for
/// operations whose costs are given.
#[derive(Args)]
#[command(mut_arg("file", |a| a.required(false).required_unless_present("cost_graph")))]
pub(super) struct Show {
    #[command(flatten)]
    planning: PlanningArgs,
    #[command(flatten)]
    costs: costs::Costs,
    /// Instead, say whether two values are computed in one kernel, and if not, why
    #[arg(long, value_names = ["%A", "%B"], num_args = 2, conflicts_with = "candidates")]
    explain_fusion: Option<Vec<String>>,
    /// Instead, say what becomes of a value that a later pass needs, and what else would cost
    #[arg(long, value_name = "%V", conflicts_with_all = ["candidates", "explain_fusion"])]
    explain: Option<String>,
    /// Instead, list what becomes of every value that a later pass needs
    #[arg(long, conflicts_with_all = ["candidates", "explain_fusion", "explain"])]
    decisions: bool,
    /// Instead, list neighbours that might share a kernel, and whether they do
    #[arg(long)]
    candidates: bool,
    /// Instead, list what there is to choose from with --mem-budget: this many plans at most (10 without N), from
    /// the one that takes the least memory to the fastest
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "10",
        value_parser = whole::<u32>(1..=1000),
        conflicts_with_all = ["plan", "explain_fusion", "explain", "decisions", "candidates", "save"]
    )]
    frontier: Option<u32>,
    #[command(flatten)]
    counted: CountedOn,
    /// Also print the hashes that name the plan and the function, as --json does
    #[arg(long)]
    hashes: bool,
    /// Also write the plan's text to this file, which --plan follows
    #[arg(long, value_name = "PLAN", value_parser = OutputFile::named())]
    save: Option<OutputFile>,
}

impl Show {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let (budget, count) = (self.planning.budget(), self.frontier.map(|n| n as usize));
        if let Some(printed) = self.costs.printed(budget, count.unwrap_or(0), streams.json)? {
            streams.out.write_all(printed.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let budgets = budget.is_some() || self.planning.compile_budget().is_some();
        if budgets && count.is_some() {
            return Err(Failure::usage(
                "--frontier is about every budget, not one of --mem-budget or --compile-budget",
            ));
        }
        let ready = self.planning.ready_counted(self.counted.engine, streams)?;
        let budget = ready.budget;
        let asked = self.explain_fusion.as_deref().map(|names| ready.values(names)).transpose()?;
        let one = self.explain.as_ref().map(|name| ExplainedValue::of(&ready, name)).transpose()?;
        if let Some(count) = count {
            let found = ready.frontier(streams)?;
            let printed = match streams.json {
                true => json(&frontier::json(&ready, &found, count)),
                false => frontier::text(&ready, &found, count),
            };
            streams.out.write_all(printed.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let ChosenPlan { plan, choice } = ready.decide(streams)?;
        let program = ready.program(&plan)?;
        let (f, device) = (&ready.function, &ready.options.device);
        let printed = if let Some(values) = asked {
            let [a, b] = values[..] else { return Err(Failure::usage("two values are explained")) };
            let explanation = adfuse::fusion::explain(f, &plan, device, a, b);
            let explanation = explanation.map_err(|d| ready.source.wrong(d))?;
            let text = explanation.lines(f, &plan, device, &ready.source.source.text);
            match streams.json {
                true => json(&explained::json(f, &explanation, &text)),
                false => lines(&text),
            }
        } else if let Some(v) = one {
            decided::one(&ready, &plan, budget, v, streams.json)?
        } else if self.decisions {
            decided::all(&ready, &plan, budget, streams)?
        } else if self.candidates {
            let found = adfuse::fusion::candidates(f, &plan, device);
            let found = found.map_err(|d| ready.source.wrong(d))?;
            match streams.json {
                true => json(&opportunities::json(f, &found)),
                false => opportunities::text(f, &found),
            }
        } else {
            let report = PlanReport::of(&ready, &plan, &program, choice.as_ref())?;
            if streams.json { json(&report.json()) } else { table::text(&report, self.hashes) }
        };
        if let Some(OutputFile { path, .. }) = &self.save {
            let text = plan.text(f);
            files::write(path, |file| file.write_all(text.as_bytes()))?;
        }
        streams.out.write_all(printed.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}
