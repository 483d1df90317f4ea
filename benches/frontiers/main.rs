//! Frontiers of the gradients of programs: `frontiers FOLDER [NAME ..]` prints, as a table, how much slower than the fastest plan
//! those are that fit fractions of its peak, and the least peak. Beside it is the least peak that one checkpoint a block
//! gives, as users write it, with what that costs; and, of all numbers of blocks, how much slower than theirs the plan within
//! the peak of theirs is at most (negative where it is faster). Parameters whose names begin with `w`, `g` or `b` are differentiated with
//! respect to; in a program that has none, all of a float type.

#![allow(clippy::print_stdout)] // A table for people to read.

mod checkpoints;

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    Effort, Fp, MachineModel, PlanOptions, plan_for, plan_frontier, plan_point, prepare,
};
use adfuse::ir::text::{Names, parse};
use adfuse::ir::{Function, Module};
use clap::Parser;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Prints plans of gradients within parts of the peak, beside checkpoints in blocks
#[derive(Parser)]
struct FrontiersArgs {
    /// The folder of the programs, `*.ir`
    folder: PathBuf,
    /// Only the programs of these names, without `.ir`
    names: Vec<String>,
}

/// Budgets, as parts of the peak of the fastest plan.
const PARTS: [f64; 7] = [0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.25];

fn main() -> Result<(), Box<dyn Error>> {
    let FrontiersArgs { folder, names: wanted } = FrontiersArgs::parse();
    let unread = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(unread)? {
        files.push(entry?.path());
    }
    files.retain(|f| f.extension().is_some_and(|e| e == "ir"));
    files.sort();
    let known: Vec<String> = files.iter().map(|file| stem(file)).collect();
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(
            format!("no program is called `{unknown}`: there are {}", known.join(", ")).into()
        );
    }
    let parts: Vec<String> = PARTS.iter().map(|part| format!("{part:.2}")).collect();
    println!(
        "| program | instructions | peak, MiB | {} | least | slower by | a checkpoint a block | slower by | ours beside all of these | s |",
        parts.join(" | ")
    );
    println!("|{}", "---|".repeat(PARTS.len() + 9));
    for file in files {
        let name = stem(&file);
        if wanted.is_empty() || wanted.contains(&name) {
            println!("{}", row(&name, &file).map_err(|e| format!("{name}: {e}"))?);
        }
    }
    Ok(())
}

/// The name of a program.
fn stem(file: &Path) -> String {
    file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The row of a program.
fn row(name: &str, file: &Path) -> Result<String, Box<dyn Error>> {
    let module = parse(&std::fs::read_to_string(file)?).map_err(|all| all[0].to_string())?;
    let f = module.funcs.values().last().ok_or("it has no function")?;
    let checkpoints = checkpoints::in_blocks(f)?;
    let f = gradients(&module, f)?;
    let plan = PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
    let engine = Cpu { plan: plan.clone(), threads: 1, ..Cpu::default() };
    let began = Instant::now();
    let frontier = plan_frontier(&f, &plan, &engine)?;
    let took = began.elapsed().as_secs_f64();
    let (least, fastest) = (&frontier.points()[0], frontier.fastest().ok_or("it has no plan")?);
    let slower = |seconds: f64| format!("{:.1} %", (seconds / fastest.seconds - 1.0) * 100.0);
    let peak = fastest.peak as f64;
    let at = |part: &f64| match frontier.at((peak * part) as u64) {
        Ok(point) => slower(point.seconds),
        Err(_) => "-".into(),
    };
    let parts: Vec<String> = PARTS.iter().map(at).collect();
    let (insts, mib, parts) = (f.inst_count(), peak / f64::from(1 << 20), parts.join(" | "));
    let mut blocks: Option<(u64, f64)> = None;
    let mut beside = f64::NEG_INFINITY;
    for module in &checkpoints {
        let f = module.funcs.values().next().ok_or("it has no function")?;
        let f = gradients(module, f)?;
        let point = plan_point(&f, plan_for(&f, &plan, &engine)?, &plan, &engine)?;
        if blocks.is_none_or(|(least, _)| point.peak < least) {
            blocks = Some((point.peak, point.seconds));
        }
        let ours = frontier.at(point.peak).map_or(f64::INFINITY, |found| found.seconds);
        beside = beside.max(ours / point.seconds - 1.0);
    }
    let blocks = match blocks {
        Some((least, seconds)) => {
            let part = least as f64 / peak;
            format!("{part:.2} | {} | {:.1} %", slower(seconds), beside * 100.0)
        }
        None => "- | - | -".into(),
    };
    let (part, slower) = (least.peak as f64 / peak, slower(least.seconds));
    Ok(format!(
        "| {name} | {insts} | {mib:.1} | {parts} | {part:.2} | {slower} | {blocks} | {took:.1} |"
    ))
}

/// The loss and the gradients of a function with respect to its weights, prepared.
fn gradients(module: &Module, f: &Function) -> Result<Function, Box<dyn Error>> {
    let g = forward_and_backward(module, f, &weights(f)?)?;
    Ok(prepare(&Module::single(g.clone()), &g)?)
}

/// The positions of the weights.
fn weights(f: &Function) -> Result<Vec<usize>, Box<dyn Error>> {
    let all = differentiable(f, None)?;
    let names = Names::of(f);
    let weight = |k: &usize| names.get(f.params()[*k]).starts_with(['w', 'g', 'b']);
    let found: Vec<usize> = all.iter().copied().filter(weight).collect();
    Ok(if found.is_empty() { all } else { found })
}
