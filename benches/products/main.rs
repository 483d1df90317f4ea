//! Every product of the models, as the engine multiplies it, beside the limit of the host.
//!
//! For each contraction of the programs in [`programs`] and their gradients, a line with its size, where its
//! operands lie, and GFLOP/s of three things: the step of the program, with everything that follows the sums;
//! the engine's product with its sums stored as they are; and tiles whose operands are in the first cache. The last
//! column is the engine's product against those, which are multiplied on as many threads at once as the engine has:
//! cores that share their multipliers are faster one by one. Elements are drawn from a normal distribution, so that no operand of a
//! product alone is subnormal; those of a step are what the program computes.
//!
//! `cargo bench --bench products [-- NAME]`; NAME picks programs that contain it, `types` the table of products in
//! several types of elements. `ADFUSE_THREADS` sets the threads of the engine (1 by default).
#![allow(clippy::print_stdout)]

mod alone;
mod programs;
mod typed;

use adfuse::backends::Array;
#[cfg(target_arch = "x86_64")]
use adfuse::backends::cpu::tile_rate;
use adfuse::backends::cpu::{CpuExecutable, CpuOptions, Trace, scratch};
use adfuse::engine::arena_layout;
use adfuse::fusion::{Effort, Fp, memory_beside};
use adfuse::ir::DType;
use adfuse::ir::kernel::{Member, Program, Step, Verified};
use adfuse::ir::op::Domain;
use adfuse::sample::{rng, sample};
use programs::{PROGRAMS, made};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long each thing is measured, and how often at least.
const LONG: Duration = Duration::from_millis(60);
const RUNS: usize = 5;

/// The sizes of a product: batch, rows, columns, depth.
fn sizes(m: &Member) -> [usize; 4] {
    [&m.batch, &m.rows, &m.cols, &m.depth].map(|e| e.iter().product::<i64>() as usize)
}

/// Floating-point operations of a product.
fn flops(sizes: [usize; 4]) -> f64 {
    2.0 * sizes.iter().map(|&n| n as f64).product::<f64>()
}

/// Seconds of runs in turn, in order: the first is not counted.
fn seconds(mut run: impl FnMut() -> f64) -> Vec<f64> {
    run();
    let (begin, mut all) = (Instant::now(), Vec::new());
    while all.len() < RUNS || begin.elapsed() < LONG {
        all.push(run());
    }
    all.sort_by(f64::total_cmp);
    all
}

fn median(all: &[f64]) -> f64 {
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A program that can be run again and again.
struct Runner {
    executable: CpuExecutable,
    inputs: Vec<Array>,
    outputs: Vec<Vec<u8>>,
}

impl Runner {
    /// `None` where the engine does not take the program.
    fn new(program: &Verified<Program>, threads: usize, fp: Fp) -> Option<Runner> {
        let beside = scratch(program).ok()?;
        let plan = memory_beside(program, Effort::Default, &beside).ok()?;
        let options = CpuOptions { threads, fp, ..CpuOptions::default() };
        let executable = CpuExecutable::compile(program, &arena_layout(&plan), options).ok()?;
        let mut rng = rng(1, 0);
        let types = program.inputs().map(|b| program.buffers[b].ty());
        let inputs: Option<Vec<Array>> =
            types.map(|t| sample(&t?, Domain::Normal, &mut rng).ok()).collect();
        let inputs = inputs?;
        let outputs = executable.run(&inputs).ok()?.iter().map(|a| a.bytes().to_vec()).collect();
        Some(Runner { executable, inputs, outputs })
    }

    /// What multiplies in its first step.
    fn multiplier(&self) -> &str {
        let notes = self.executable.steps().first().and_then(|s| s.notes.last());
        notes.and_then(|note| note.rsplit_once(", by ")).map_or("", |(_, by)| by)
    }

    /// Runs it once, and gives what happened.
    fn run(&mut self) -> Trace {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Array::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let mut trace = Trace::default();
        let ran = self.executable.run_into_traced(&inputs, &mut outputs, &mut trace);
        ran.expect("it ran before");
        trace
    }

    /// The median seconds of each step of the program.
    fn steps(&mut self, count: usize) -> Vec<f64> {
        let mut samples = vec![Vec::new(); count];
        seconds(|| {
            let begin = Instant::now();
            let trace = self.run();
            let took = begin.elapsed().as_secs_f64();
            let mut all = vec![0.0; count];
            for span in trace.spans.iter().filter(|s| s.task.is_none()) {
                if let Some(step) = self.executable.steps().get(span.step) {
                    all[step.origin] += (span.end - span.begin).as_secs_f64();
                }
            }
            samples.iter_mut().zip(all).for_each(|(to, s): (&mut Vec<f64>, f64)| to.push(s));
            took
        });
        samples.iter_mut().for_each(|s| s.sort_by(f64::total_cmp));
        samples.iter().map(|s| median(s)).collect()
    }
}

/// Operations a second of tiles on this many threads at once.
fn limit(dtype: DType, threads: usize) -> f64 {
    #[cfg(target_arch = "x86_64")]
    return std::thread::scope(|scope| {
        let rate = || tile_rate(dtype).unwrap_or(f64::NAN);
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(rate)).collect();
        all.into_iter().map(|t| t.join().unwrap_or(f64::NAN)).sum()
    });
    #[cfg(not(target_arch = "x86_64"))]
    return f64::NAN;
}

/// What is known of a product.
struct Line {
    places: Vec<String>,
    step: f64,
    alone: Option<[f64; 3]>,
    limit: f64,
}

fn main() {
    let threads = std::env::var("ADFUSE_THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    if wanted == "types" {
        return typed::table(threads);
    }
    let limits = [DType::F32, DType::F64].map(|dtype| (dtype, limit(dtype, threads) / 1e9));
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    let mut order = Vec::new();
    for given in PROGRAMS.iter().filter(|p| p.name.contains(&wanted)) {
        let program = match made(given) {
            Ok(program) => program,
            Err(why) => {
                println!("{}: {why}", given.name);
                continue;
            }
        };
        let Some(mut runner) = Runner::new(&program, threads, Fp::Strict) else {
            println!("{}: the engine does not take it", given.name);
            continue;
        };
        let took = runner.steps(program.steps.len());
        let total: f64 = took.iter().sum();
        println!("{}: {:.3} ms in steps, {threads} threads", given.name, total * 1e3);
        for (n, step) in program.steps.iter().enumerate() {
            let Step::Contract(c) = step else { continue };
            let all: f64 = c.members.iter().map(|m| flops(sizes(m))).sum();
            for m in &c.members {
                let [lhs, rhs] = alone::lies(&program, m);
                let size = sizes(m);
                let [b, rows, cols, depth] = size;
                let key = format!(
                    "{:4} {b:3} x {rows:4} x {cols:4} x {depth:4}  {lhs:>12} {rhs:>12}",
                    m.sum
                );
                let place = format!("{} {n}", given.name);
                if let Some(line) = lines.get_mut(&key) {
                    line.places.push(place);
                    continue;
                }
                let alone = alone::product(&program, m)
                    .and_then(|p| Runner::new(&p, threads, Fp::Strict))
                    .map(|mut r| {
                        let s = seconds(|| {
                            r.run()
                                .spans
                                .iter()
                                .filter(|s| s.task.is_none())
                                .map(|s| (s.end - s.begin).as_secs_f64())
                                .sum()
                        });
                        [s.len() / 10, s.len() / 2, s.len() * 9 / 10]
                            .map(|k| flops(size) / s[k] / 1e9)
                    });
                let limit = limits.iter().find(|(d, _)| *d == m.sum).map_or(f64::NAN, |(_, x)| *x);
                let line = Line { places: vec![place], step: all / took[n] / 1e9, alone, limit };
                order.push(key.clone());
                lines.insert(key, line);
            }
        }
    }
    println!(
        "type batch x rows x columns x depth    left (free, depth) right   step  alone (10% to 90%)  limit  of it  where"
    );
    for key in order {
        let Some(line) = lines.get(&key) else { continue };
        let limit = line.limit;
        let [high, middle, low] = line.alone.unwrap_or([f64::NAN; 3]);
        println!(
            "{key} {:6.1} {middle:6.1} ({low:5.1}-{high:5.1}) {limit:6.1} {:4.0}%  {}",
            line.step,
            middle / limit * 100.0,
            line.places.join(", ")
        );
    }
}
