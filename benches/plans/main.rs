//! Plans of all efforts for the collection of programs, predicted and measured: `plans [--engine cpu|gpu] [--only NAME,..] [--check]`.
//!
//! The efforts run in turns; those that find the same plan share a time. A program fails where the plan of effort `default` is more than 3 % slower than
//! the fastest of the others, by the median of the ratios of all rounds and by the least times too, so that noise of one kind alone is no failure.

use adfuse::fusion::Effort;
use adfuse::ir::Diagnostic;
use adfuse_benches::collection::{COLLECTION, CollectedProgram};
use adfuse_benches::table::{ReportTable, ms};
use adfuse_benches::{Contest, MeasureArgs, ratio};
use clap::Parser;
use std::process::ExitCode;

/// Compares plans of all efforts on forty programs
#[derive(Parser)]
struct PlansArgs {
    #[command(flatten)]
    measure: MeasureArgs,
    /// Threads of the engine cpu; several numbers give a table each
    #[arg(long, value_delimiter = ',', default_value = "1")]
    threads: Vec<usize>,
    /// Without effort search, which takes seconds for large programs
    #[arg(long)]
    no_search: bool,
    /// Write the programs, with their gradients, as `.ir` to this folder, and measure nothing
    #[arg(long)]
    save: Option<std::path::PathBuf>,
    /// Exit with status 1 where effort default is more than 3 % slower than another
    #[arg(long)]
    check: bool,
}

/// How much slower than the fastest effort `default` may be.
const MARGIN: f64 = 1.03;

const EFFORTS: [(Effort, &str); 4] = [
    (Effort::Off, "off"),
    (Effort::Quick, "quick"),
    (Effort::Default, "default"),
    (Effort::Search, "search"),
];

/// Columns, with their widths.
const COLUMNS: &[(&str, usize)] = &[
    ("program", 20),
    ("instructions", 12),
    ("predicted ms: off, quick, default, search", 42),
    ("measured ms: off, quick, default, search", 42),
    ("off / default (10-90 %)", 23),
    ("default / fastest (10-90 %)", 27),
    ("slower than", 11),
];

fn main() -> ExitCode {
    // Differentiation follows chains of calls by recursion.
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    match thread.spawn(|| report(&PlansArgs::parse())).map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        _ => ExitCode::from(101),
    }
}

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn report(args: &PlansArgs) -> ExitCode {
    if let Err(m) = args.measure.all_known(COLLECTION.iter().map(|p| p.name)) {
        eprintln!("error: {m}");
        return ExitCode::from(2);
    }
    if let Some(folder) = &args.save {
        return match save(folder, args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(m) => {
                eprintln!("{m}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut slower, mut failed) = (0, 0);
    for &threads in &args.threads {
        let (table, head) = ReportTable::new(COLUMNS);
        println!("threads: {threads}, mode: {}\n\n{head}", args.measure.fp().name());
        for program in COLLECTION.iter().filter(|p| args.measure.wants(p.name)) {
            match compared(program, threads, args) {
                Ok((cells, is_slower)) => {
                    println!("{}", table.row(&cells));
                    slower += u32::from(is_slower);
                }
                Err(d) => {
                    failed += 1;
                    eprintln!("{}: {d}", program.name);
                }
            }
        }
        println!();
    }
    println!("effort default is more than 3 % slower than another {slower} times");
    if failed > 0 || args.check && slower > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Writes the text of each program to a folder.
fn save(folder: &std::path::Path, args: &PlansArgs) -> Result<(), String> {
    for program in COLLECTION.iter().filter(|p| args.measure.wants(p.name)) {
        let f =
            program.program().and_then(|p| p.prepared(args.measure.is_gpu(), args.measure.fp()));
        let f = f.map_err(|d| format!("{}: {d}", program.name))?;
        let path = folder.join(format!("{}.ir", program.name));
        std::fs::write(&path, f.to_string()).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// The cells of a program's row, and whether effort `default` is too slow.
fn compared(
    collected: &CollectedProgram,
    threads: usize,
    args: &PlansArgs,
) -> Result<(Vec<String>, bool), Diagnostic> {
    let efforts: Vec<(Effort, &str)> =
        EFFORTS.into_iter().filter(|(e, _)| *e != Effort::Search || !args.no_search).collect();
    let asked: Vec<Effort> = efforts.iter().map(|(e, _)| *e).collect();
    let host = args.measure.host(threads)?;
    let mut contest = Contest::new(&collected.program()?, &host, &asked)?;
    let (length, rounds) = args.measure.length();
    contest.run(length, rounds)?;
    let of = |effort| contest.of_effort(effort).unwrap_or(&contest.contenders[0]);
    let (default, off) = (of(Effort::Default), of(Effort::Off));
    let listed = |seconds: &dyn Fn(Effort) -> f64| {
        efforts.iter().map(|(e, _)| ms(seconds(*e))).collect::<Vec<_>>().join(", ")
    };
    let others = efforts.iter().filter(|(e, _)| !default.efforts.contains(e));
    let fastest = others
        .map(|(e, name)| (ratio(default, of(*e)), of(*e), *name))
        .max_by(|a, b| a.0.median.total_cmp(&b.0.median));
    let least = |c: &adfuse_benches::Contender| c.spread().least;
    let saving = ratio(off, default);
    let mut cells = vec![
        collected.name.into(),
        contest.instructions.to_string(),
        listed(&|e| of(e).predicted),
        listed(&|e| of(e).spread().median),
        format!("{:.2} ({:.2}-{:.2})", saving.median, saving.p10, saving.p90),
    ];
    let Some((lag, other, name)) = fastest else {
        cells.extend(["1.00".into(), String::new()]);
        return Ok((cells, false));
    };
    let is_slower = lag.median > MARGIN && least(default) > MARGIN * least(other);
    cells.push(match lag.median > 1.0 {
        true => format!("{:.2} ({:.2}-{:.2})", lag.median, lag.p10, lag.p90),
        false => "1.00".into(),
    });
    cells.push(if is_slower { name.into() } else { String::new() });
    Ok((cells, is_slower))
}
