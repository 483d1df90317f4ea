//! Runs the cases that `scripts/onnx-suite.py DIR` writes, and prints a verdict a case and counts by op:
//!
//!     cargo run --release -p adfuse-import --example onnx_suite -- DIR [--engine cpu|reference] [--quiet] [--only PART] [--record FILE]
//!
//! `--record` writes the list of verdicts that `tests/onnx_suite.rs` compares.

#![allow(clippy::print_stdout)]

mod verdict;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verdict::{OnnxEngine, OnnxVerdict, cases, judge};

/// What is asked for.
#[derive(Default)]
struct Asked {
    folder: Option<PathBuf>,
    reference: bool,
    quiet: bool,
    only: Option<String>,
    record: Option<String>,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut asked = Asked::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--engine" if args.len() > 0 => match args.next().as_deref() {
                Some("cpu") => asked.reference = false,
                Some("reference") => asked.reference = true,
                _ => return usage(),
            },
            "--quiet" => asked.quiet = true,
            "--only" if args.len() > 0 => asked.only = args.next(),
            "--record" if args.len() > 0 => asked.record = args.next(),
            _ if asked.folder.is_none() && !arg.starts_with('-') => {
                asked.folder = Some(PathBuf::from(arg));
            }
            _ => return usage(),
        }
    }
    let Some(folder) = asked.folder.clone() else { return usage() };
    // Calls are followed by recursion.
    let run = move || scoreboard(&folder, &asked);
    let thread = std::thread::Builder::new().stack_size(256 << 20).spawn(run);
    match thread.map(|t| t.join()) {
        Ok(Ok(code)) => code,
        _ => ExitCode::from(101),
    }
}

fn usage() -> ExitCode {
    println!("onnx_suite DIR [--engine cpu|reference] [--quiet] [--only PART] [--record FILE]");
    ExitCode::from(2)
}

fn scoreboard(folder: &Path, asked: &Asked) -> ExitCode {
    // Panics are verdicts.
    std::panic::set_hook(Box::new(|_| {}));
    let engine = if asked.reference { OnnxEngine::Reference } else { OnnxEngine::Cpu };
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    let (mut reasons, mut ops) = (BTreeMap::new(), BTreeMap::new());
    let (mut list, mut total, mut fixed) = (String::new(), 0usize, 0usize);
    for path in cases(folder) {
        let name = path.file_name().map(|n| n.to_string_lossy().to_string()).unwrap_or_default();
        if asked.only.as_ref().is_some_and(|part| !name.contains(part)) {
            continue;
        }
        let verdict = judge(&path, engine);
        if !asked.quiet {
            println!("{name}: {verdict}");
        }
        total += 1;
        *counts.entry(verdict.class()).or_default() += 1;
        let _ = writeln!(list, "{} {name}", verdict.class());
        match &verdict {
            OnnxVerdict::Passed(n) => fixed += usize::from(*n > 0),
            OnnxVerdict::Unsupported(op, what) => {
                *ops.entry(op.clone()).or_insert(0usize) += 1;
                *reasons.entry(format!("{op}: {what}")).or_insert(0usize) += 1;
            }
            _ => {}
        }
    }
    if total == 0 {
        println!("no cases in `{}`", folder.display());
        return ExitCode::from(2);
    }
    if let Some(Err(e)) = asked.record.as_ref().map(|file| std::fs::write(file, &list)) {
        println!("cannot write the list: {e}");
        return ExitCode::from(2);
    }
    println!();
    tell(reasons);
    println!();
    tell(ops);
    let of = |class| counts.get(class).copied().unwrap_or(0);
    println!(
        "{} of {total} passed ({:.1} %), {fixed} of them with inputs whose values shapes depend on; {} inexact, {} wrong, {} unsupported, {} other",
        of("passed"),
        100.0 * of("passed") as f64 / total as f64,
        of("inexact"),
        of("wrong"),
        of("unsupported"),
        of("other")
    );
    ExitCode::SUCCESS
}

/// Counts, largest first.
fn tell(counts: BTreeMap<String, usize>) {
    let mut all: Vec<(String, usize)> = counts.into_iter().collect();
    all.sort_by_key(|(what, n)| (std::cmp::Reverse(*n), what.clone()));
    for (what, n) in all {
        println!("{n:5}  {what}");
    }
}
