//! Schedules of cost graphs under ten budgets, beside dynamic tensor rematerialization and segments of equal length.
//!
//!     cargo run --release -p adfuse-benches --bin remat_table [-- [--effort N] [FOLDER]]
//!     cargo run --release -p adfuse-benches --bin remat_table -- --write FOLDER
//!
//! The second command writes the networks of `nets.rs` as cost graphs, for `benches/peers/lp_rounding.py`. The first
//! prints a table for each network of `nets.rs`, or for each `*.json` of a folder, in the form that
//! `adfuse plan --cost-graph` reads: the extra time, in percent of running everything once, at shares of the peak of
//! saving everything. `bound` is what no schedule is below. Below each table are the budgets, of each percent of the peak, at
//! which a peer costs less. `--effort` is that of [`FrontierOptions`].

#![allow(clippy::print_stdout)] // A table for people to read.

mod dtr;
mod nets;

use adfuse::fusion::remat::schedule::{
    CostGraph, FrontierOptions, OpSchedule, SegmentLength, equal_segments, evaluate, frontier,
    least_time,
};
use clap::Parser;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Prints schedules of cost graphs under ten budgets, beside dynamic tensor rematerialization and equal segments
#[derive(Parser)]
struct TableArgs {
    /// A folder of cost graphs, `*.json`; without this, the networks that the bench has
    folder: Option<PathBuf>,
    /// How much is tried, as of `FrontierOptions`
    #[arg(long, value_name = "N")]
    effort: Option<u64>,
    /// Instead, write the networks that the bench has as cost graphs to this folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["folder", "effort"])]
    write: Option<PathBuf>,
}

/// Budgets in percent of the peak of saving everything.
const SHARES: [u64; 10] = [90, 80, 70, 60, 50, 40, 30, 25, 20, 15];

/// A way to plan: peaks and times of its schedules, for a list of budgets.
struct PlannerRow {
    name: &'static str,
    /// The time within each budget, where something fits.
    times: Vec<Option<u64>>,
    least: Option<u64>,
    /// Peaks and times.
    points: Vec<(u64, u64)>,
}

/// The least time of some points within a budget.
fn within(points: &[(u64, u64)], budget: u64) -> Option<u64> {
    points.iter().filter(|p| p.0 <= budget).map(|p| p.1).min()
}

/// The budgets, of each percent of the peak, at which a planner costs more than the best of others or fits nothing where one
/// of these does; in percent, with the others' time and its own.
fn costlier(own: &PlannerRow, others: &[&PlannerRow], peak: u64) -> Vec<(u128, u64, Option<u64>)> {
    let mut found = Vec::new();
    for percent in 1..=100 {
        let budget = (u128::from(peak) * percent / 100) as u64;
        let best = others.iter().filter_map(|other| within(&other.points, budget)).min();
        let ours = within(&own.points, budget);
        match best {
            Some(best) if ours.is_none_or(|ours| ours > best) => found.push((percent, best, ours)),
            _ => {}
        }
    }
    found
}

/// The row of schedules that do not depend on the budget.
fn of_points(name: &'static str, points: Vec<(u64, u64)>, budgets: &[u64]) -> PlannerRow {
    let times = budgets.iter().map(|b| within(&points, *b)).collect();
    PlannerRow { name, times, least: points.iter().map(|p| p.0).min(), points }
}

/// Budgets in a row, in steps of a percent, that the simulator may fail at before smaller ones are left out.
const FAILURES: usize = 3;

/// The row of the simulator, which runs at each budget in steps of a percent. It may fit a budget and not a larger one.
fn of_simulator(g: &CostGraph, peak: u64, budgets: &[u64]) -> PlannerRow {
    let (mut points, mut failures) = (Vec::new(), 0);
    for percent in (1..=100).rev() {
        let budget = (u128::from(peak) * percent / 100) as u64;
        match dtr::simulate(g, budget) {
            Some(time) => {
                points.push((budget, time));
                failures = 0;
            }
            None => failures += 1,
        }
        if failures == FAILURES {
            break;
        }
    }
    of_points("DTR", points, budgets)
}

/// Peaks and times for all numbers of segments of equal length that make a difference.
fn of_segments(g: &CostGraph) -> Vec<(u64, u64)> {
    let most = g.runs().filter(|&o| g.ops()[o].phase.0 == 0).count();
    let counts = std::iter::successors(Some(1), |&count| Some(count + 1 + count / 8));
    let counts = counts.take_while(|&count| count <= most);
    let all = counts.flat_map(|count| SegmentLength::ALL.map(|by| equal_segments(g, count, by)));
    all.filter_map(|schedule| evaluate(g, &schedule).ok()).map(|e| (e.peak, e.time)).collect()
}

fn table(name: &str, g: &CostGraph, options: &FrontierOptions) -> Result<(), Box<dyn Error>> {
    let all = evaluate(g, &OpSchedule::save_all(g))?;
    let budgets: Vec<u64> =
        SHARES.iter().map(|s| (u128::from(all.peak) * u128::from(*s) / 100) as u64).collect();
    let began = Instant::now();
    let found = frontier(g, options);
    let took = began.elapsed().as_millis();
    let points: Vec<(u64, u64)> = found.points().iter().map(|p| (p.peak, p.time)).collect();
    // Where nothing fits, the cut has a weight beyond any time.
    let fits = |t: &u64| *t / g.time().max(1) < 1_000_000;
    let bound = |&b: &u64| Some(found.least_time(b).max(least_time(g, b))).filter(fits);
    let bound = budgets.iter().map(bound).collect();
    let rows = [
        of_points("adfuse", points, &budgets),
        PlannerRow { name: "bound", times: bound, least: None, points: Vec::new() },
        of_simulator(g, all.peak, &budgets),
        of_points("segments", of_segments(g), &budgets),
    ];
    let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
    println!(
        "\n{name}: {} operations, {} MiB, frontier in {took} ms\n",
        g.runs().count(),
        mib(all.peak)
    );
    let shares: String = SHARES.iter().map(|s| format!(" {s} % |")).collect();
    println!("| |{shares} fits no lower than, MiB |\n|---|{}---|", "---|".repeat(SHARES.len()));
    let once = g.time().max(1) as f64;
    for row in &rows {
        let cell = |t: &Option<u64>| {
            t.map_or(" - |".into(), |t| format!(" {:.1} |", (t as f64 / once - 1.0) * 100.0))
        };
        let cells: String = row.times.iter().map(cell).collect();
        println!("| {} |{cells} {} |", row.name, row.least.map_or(String::new(), mib));
    }
    let extra = |t: u64| format!("{:.2}", (t as f64 / once - 1.0) * 100.0);
    let costlier = costlier(&rows[0], &[&rows[2], &rows[3]], all.peak);
    let at = |(percent, best, ours): &(u128, u64, Option<u64>)| {
        format!("{percent} % ({} beside {})", ours.map_or("-".into(), extra), extra(*best))
    };
    let told: Vec<String> = costlier.iter().map(at).collect();
    let told = if told.is_empty() { "none".into() } else { told.join(", ") };
    println!(
        "\nBudgets of each percent at which adfuse costs more than the best of DTR and segments: {told}"
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = TableArgs::parse();
    if let Some(folder) = &args.write {
        return write(folder);
    }
    let mut options = FrontierOptions::default();
    options.effort = args.effort.unwrap_or(options.effort);
    let Some(folder) = args.folder else {
        for (name, g) in nets::all()? {
            table(name, &g, &options)?;
        }
        return Ok(());
    };
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        let g = CostGraph::from_json(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let name = path.file_stem().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        table(&name, &g, &options)?;
    }
    Ok(())
}

/// Writes the networks as cost graphs.
fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    for (name, g) in nets::all()? {
        let name = name.split(',').next().unwrap_or(name);
        std::fs::write(folder.join(format!("{name}.json")), g.to_json().to_string())?;
    }
    Ok(())
}
