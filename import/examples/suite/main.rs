//! Runs a folder of StableHLO tests, files with inputs, expected outputs and comparisons, and prints a verdict a file
//! and counts by op:
//!
//!     cargo run --release -p adfuse-import --example suite -- DIR [--engine cpu|reference] [--quiet] [--record FILE] [--bytecode OUT]
//!
//! `--record` writes the list of verdicts that `tests/suite.rs` compares. `--bytecode` reads the artifacts that `artifacts.py` wrote
//! in place of the text.

#![allow(clippy::print_stdout)]

mod compare;
mod verdict;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verdict::{SuiteEngine, SuiteVerdict, files, judge, modules};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut folder, mut quiet, mut engine) = (None, false, SuiteEngine::Cpu);
    let (mut record, mut artifacts) = (None, None);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--engine" if args.len() > 0 => match args.next().as_deref() {
                Some("cpu") => engine = SuiteEngine::Cpu,
                Some("reference") => engine = SuiteEngine::Reference,
                _ => return usage(),
            },
            "--quiet" => quiet = true,
            "--record" if args.len() > 0 => record = args.next(),
            "--bytecode" if args.len() > 0 => artifacts = args.next().map(PathBuf::from),
            _ if folder.is_none() && !arg.starts_with('-') => folder = Some(PathBuf::from(arg)),
            _ => return usage(),
        }
    }
    let Some(folder) = folder else { return usage() };
    // Calls are followed by recursion.
    let run =
        move || scoreboard((&folder, artifacts.as_deref()), engine, (quiet, record.as_deref()));
    let thread = std::thread::Builder::new().stack_size(256 << 20).spawn(run);
    match thread.map(|t| t.join()) {
        Ok(Ok(code)) => code,
        _ => ExitCode::from(101),
    }
}

fn usage() -> ExitCode {
    println!("suite DIR [--engine cpu|reference] [--quiet] [--record FILE] [--bytecode OUT]");
    ExitCode::from(2)
}

/// What a text has that is not imported by decision: the goal is told without such files.
fn outside(text: &str) -> bool {
    let words = [
        "complex<",
        "xf8",
        "tensor<f8",
        "!quant",
        "x?",
        "<?",
        "xi4",
        "xui4",
        "xi2",
        "xui2",
        "<i4",
        "<ui4",
        "<i2",
        "<ui2",
    ];
    let collectives = [
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_",
        "partition_id",
        "replica_id",
        "reduce_scatter",
        "run_parallel",
        "infeed",
        "outfeed",
        "stablehlo.send",
        "stablehlo.recv",
    ];
    words.iter().chain(&collectives).any(|w| text.contains(w))
}

#[derive(Default)]
struct Counts {
    all: BTreeMap<&'static str, usize>,
    goal: BTreeMap<&'static str, usize>,
    reasons: BTreeMap<String, usize>,
}

fn scoreboard(
    (folder, artifacts): (&Path, Option<&Path>),
    engine: SuiteEngine,
    (quiet, record): (bool, Option<&str>),
) -> ExitCode {
    // Panics are verdicts.
    std::panic::set_hook(Box::new(|_| {}));
    let (found, mut counts) = (files(folder), Counts::default());
    if found.is_empty() {
        println!("no `.mlir` files in `{}`", folder.display());
        return ExitCode::from(2);
    }
    let (mut list, mut from_bytecode) = (String::new(), 0);
    for path in &found {
        let Ok((parts, read)) = modules(folder, path, artifacts) else { continue };
        from_bytecode += read;
        let verdict = judge(&parts, engine);
        let name = path.strip_prefix(folder).unwrap_or(path).display();
        if !quiet {
            println!("{name}: {verdict}");
        }
        let class = verdict.class();
        let _ = writeln!(list, "{class} {name}");
        *counts.all.entry(class).or_insert(0) += 1;
        if !parts.iter().any(|text| outside(text)) {
            *counts.goal.entry(class).or_insert(0) += 1;
            if let SuiteVerdict::Unsupported(why) = &verdict {
                *counts.reasons.entry(why.clone()).or_insert(0) += 1;
            }
        }
    }
    if let Some(Err(e)) = record.map(|file| std::fs::write(file, &list)) {
        println!("cannot write the list: {e}");
        return ExitCode::from(2);
    }
    println!();
    let mut reasons: Vec<(&String, &usize)> = counts.reasons.iter().collect();
    reasons.sort_by_key(|(why, n)| (std::cmp::Reverse(**n), (*why).clone()));
    for (why, n) in reasons {
        println!("{n:5}  {why}");
    }
    if artifacts.is_some() {
        println!("{from_bytecode} modules were read from bytecode");
    }
    tell("all files", &counts.all);
    tell(
        "without complex, f8, i2, i4, unknown extents, quantized types, collectives",
        &counts.goal,
    );
    ExitCode::SUCCESS
}

fn tell(what: &str, counts: &BTreeMap<&'static str, usize>) {
    let total: usize = counts.values().sum();
    let of = |class| counts.get(class).copied().unwrap_or(0);
    println!(
        "{what}: {} of {total} passed ({:.1} %), {} wrong, {} unsupported, {} other",
        of("passed"),
        100.0 * of("passed") as f64 / total.max(1) as f64,
        of("wrong"),
        of("unsupported"),
        of("other")
    );
}
