//! The cost model beside the clock: predicted and measured times of one program or more for each family of ops, and of
//! `benches/programs`. `cargo bench -p adfuse-benches --bench cost`; with `ADFUSE_THREADS` threads (2), on the machine of the
//! file `ADFUSE_DEVICE` (the built-in `cpu`).

#![allow(clippy::print_stdout)] // A table for people to read.

use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions};
use adfuse::tune::{CpuTimer, PlannedProgram, ProgramSize, TunedProgram, compare, programs};
use std::path::Path;
use std::time::Duration;

/// The programs of `benches/programs`, by their names.
fn shared() -> Vec<TunedProgram> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let files = std::fs::read_dir(folder).expect("is there");
    let mut paths: Vec<_> = files.map(|f| f.expect("is a file").path()).collect();
    paths.sort();
    let program = |path: &std::path::PathBuf| {
        let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or_default();
        let text = std::fs::read_to_string(path).expect("reads");
        // Rows of a batch, or elements.
        let n = if text.contains("[n]") && !text.contains("[n,") { "1048576" } else { "256" };
        let text = text.replace("[n]", &format!("[{n}]")).replace("[n,", &format!("[{n},"));
        TunedProgram::new("programs", name, &text)
    };
    paths.iter().map(program).collect()
}

fn main() {
    let threads = std::env::var("ADFUSE_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let device = std::env::var("ADFUSE_DEVICE").ok().map_or_else(MachineModel::cpu, |path| {
        let text = std::fs::read_to_string(path).expect("the file of a machine");
        MachineModel::from_toml(&text).unwrap_or_else(|d| panic!("{d}"))
    });
    let plan = PlanOptions { device, effort: Effort::Default, fp: Fp::Strict };
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let wanted = |p: &TunedProgram| {
        only.as_ref().is_none_or(|o| p.family.contains(o.as_str()) || p.name.contains(o.as_str()))
    };
    let all = programs(ProgramSize::Small).into_iter().chain(shared()).filter(wanted);
    let engine = Cpu { plan: plan.clone(), threads, ..Cpu::default() };
    let planned = |p: TunedProgram| {
        PlannedProgram::new(&p, &plan, &engine).unwrap_or_else(|d| panic!("{}: {d}", p.name))
    };
    let planned: Vec<PlannedProgram> = all.map(planned).collect();
    let mut timer = CpuTimer { engine: engine.clone(), least: Duration::from_millis(100) };
    let found = compare(&planned, &plan.device, &engine, &mut timer);
    let found = found.unwrap_or_else(|d| panic!("{d}"));
    print!("{}", found.text());
    for (family, mean, worst) in found.families() {
        println!("{family:14} mean ratio {mean:.2}, worst {worst:.2}");
    }
}
