//! `plan --cost-graph`: rematerialization of a graph of operations within a budget.

use super::super::budget::MemBudget;
use super::super::failure::Failure;
use super::super::source::SourceText;
use super::super::values::counted;
use super::printed;
use super::table::{bytes, columns, limit};
use adfuse::fusion::remat::schedule::{
    CostGraph, Frontier, FrontierOptions, FrontierPoint, OpId, OpSchedule, evaluate, frontier,
    least_time,
};
use adfuse::ir::{At, Diagnostic, Kind};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Costs in place of a program.
#[derive(Args)]
pub(super) struct Costs {
    /// Operations with times and bytes, as JSON, in place of a program; `-` for standard input
    #[arg(long, value_name = "GRAPH.json", conflicts_with_all = OTHERS)]
    cost_graph: Option<PathBuf>,
}

/// What is said about programs alone.
const OTHERS: [&str; 18] = [
    "file",
    "func",
    "dims",
    "grad",
    "wrt",
    "device",
    "fp",
    "effort",
    "plan",
    "explain_fusion",
    "explain",
    "decisions",
    "candidates",
    "save",
    "cache",
    "no_cache",
    "hashes",
    "compile_budget",
];

impl Costs {
    /// What is printed about a graph, if one is given: within a budget, with this many points.
    pub(super) fn printed(
        &self,
        budget: Option<MemBudget>,
        points: usize,
        as_json: bool,
    ) -> Result<Option<String>, Failure> {
        let Some(path) = &self.cost_graph else { return Ok(None) };
        let source = SourceText::read(path)?;
        // The graph stands in place of a program, and its faults are those of a program.
        let wrong = |kind, m: String| source.wrong([Diagnostic::new(At::default(), kind, m)]);
        let g = CostGraph::from_json(&source.text)
            .map_err(|e| wrong(Kind::Syntax, format!("`{}` is no cost graph: {e}", source.name)))?;
        let found = frontier(&g, &FrontierOptions::default());
        let budget = budget.map(|b| b.of(found.fastest().peak));
        let chosen = match budget {
            Some(budget) => found.at(budget).map_err(|e| wrong(Kind::Limit, e.to_string()))?,
            None => found.fastest(),
        };
        let report = FrontierReport { g: &g, found: &found, chosen, budget };
        Ok(Some(match as_json {
            true => printed::json(&report.json(points)?),
            false => report.text(points)?,
        }))
    }
}

struct FrontierReport<'a> {
    g: &'a CostGraph,
    found: &'a Frontier,
    chosen: &'a FrontierPoint,
    budget: Option<u64>,
}

impl FrontierReport<'_> {
    fn text(&self, points: usize) -> Result<String, Failure> {
        let (g, found, p) = (self.g, self.found, self.chosen);
        let (peak, _) = self.save_all()?;
        let mut rows = vec![["", "peak", "time", "overhead", "saved"].map(String::from).to_vec()];
        let mut row = |name: &str, p: &FrontierPoint, peak: u64| {
            let over = format!("{:.2} %", self.overhead(p.time));
            rows.push(vec![name.into(), limit(peak), p.time.to_string(), over, bytes(p.saved)]);
        };
        row("save all", found.fastest(), peak);
        row("least", found.least(), found.least().peak);
        row("chosen", p, p.peak);
        let mut out = counted(operations(g) as u64, "operation");
        if let Some(budget) = self.budget {
            out += &format!(", within {}", limit(budget));
        }
        out += &format!("\n\n{}\n", columns(&rows));
        out += &format!("no schedule {} is faster than ", self.within());
        out += &format!("{}: the gap is at most {:.2} %\n", self.bound(), self.gap());
        let again = self.recomputed();
        let one = |name: &str, times: usize| match times {
            1 => name.to_owned(),
            times => format!("{name} ({times} times)"),
        };
        if !again.is_empty() {
            let list: Vec<String> =
                again.iter().map(|(op, n)| one(&g.ops()[*op].name, *n)).collect();
            out += &format!("computed again: {}\n", list.join(", "));
        }
        if points > 0 {
            let mut rows = vec![["peak", "time", "overhead", "saved"].map(String::from).to_vec()];
            rows.extend(found.spread(points).into_iter().map(|p| {
                let over = format!("{:.2} %", self.overhead(p.time));
                vec![limit(p.peak), p.time.to_string(), over, bytes(p.saved)]
            }));
            out += &format!("\n{}", columns(&rows));
        }
        Ok(out)
    }

    fn json(&self, points: usize) -> Result<Value, Failure> {
        let (found, p) = (self.found, self.chosen);
        let (peak, time) = self.save_all()?;
        let name = |op: &OpId| self.g.ops()[*op].name.as_str();
        let again: Vec<Value> = (self.recomputed().iter())
            .map(|(op, n)| json!({"name": name(op), "times": n}))
            .collect();
        let schedule: Vec<&str> = p.schedule.steps.values().map(name).collect();
        let mut report = json!({
            "operations": operations(self.g),
            "mem_budget": self.budget,
            "save_all": {"peak_bytes": peak, "time": time},
            "least": point(found.least()),
            "chosen": point(p),
            "overhead_percent": self.overhead(p.time),
            "least_time": self.bound(),
            "gap_percent": self.gap(),
            "recomputed": again,
            "schedule": schedule,
        });
        if points > 0 {
            report["frontier"] = found.spread(points).into_iter().map(point).collect();
        }
        Ok(report)
    }

    /// Peak and time of running everything once.
    fn save_all(&self) -> Result<(u64, u64), Failure> {
        let e = evaluate(self.g, &OpSchedule::save_all(self.g));
        e.map(|e| (e.peak, e.time)).map_err(|e| Failure::usage(e.to_string()))
    }

    fn within(&self) -> String {
        format!("within {}", limit(self.budget.unwrap_or(self.chosen.peak)))
    }

    /// The time that no schedule within the budget is below.
    fn bound(&self) -> u64 {
        let budget = self.budget.unwrap_or(self.chosen.peak);
        self.found.least_time(budget).max(least_time(self.g, budget))
    }

    fn gap(&self) -> f64 {
        percent(self.chosen.time, self.bound())
    }

    fn overhead(&self, time: u64) -> f64 {
        percent(time, self.g.time())
    }

    /// What runs more than once, in order, and how often it runs again.
    fn recomputed(&self) -> Vec<(OpId, usize)> {
        let mut runs: BTreeMap<OpId, usize> = BTreeMap::new();
        for &op in self.chosen.schedule.steps.values() {
            *runs.entry(op).or_default() += 1;
        }
        runs.into_iter().filter(|(_, n)| *n > 1).map(|(op, n)| (op, n - 1)).collect()
    }
}

/// How many operations run; one with several results is one.
fn operations(g: &CostGraph) -> usize {
    g.runs().filter(|&o| g.ops()[o].result_of.is_none()).count()
}

fn point(p: &FrontierPoint) -> Value {
    json!({"peak_bytes": p.peak, "time": p.time, "saved_bytes": p.saved})
}

/// By how much the one is above the other, in percent.
fn percent(time: u64, least: u64) -> f64 {
    (time as f64 - least as f64) * 100.0 / least.max(1) as f64
}
