//! Single ops beside a copy: `ops [--only NAME,..] [--threads N] [--over 16]`.
//!
//! Each program of the survey is one op on about 2^20 elements. It runs in turns with a copy that reads and writes as many bytes as the program's
//! parameters and results have. What takes more than `--over` times as long is marked, and listed at the end, slowest first.

use adfuse::fusion::Effort;
use adfuse::ir::{Diagnostic, TensorType};
use adfuse_benches::ops::{OP_FAMILIES, SurveyedOp, copy_of};
use adfuse_benches::table::ReportTable;
use adfuse_benches::{Contender, Contest, MeasureArgs};
use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;

/// Measures single ops beside a copy
#[derive(Parser)]
struct OpsArgs {
    #[command(flatten)]
    measure: MeasureArgs,
    /// Threads of the engine cpu
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How many times as long as a copy an op takes that is marked
    #[arg(long, default_value_t = 16.0)]
    over: f64,
    /// Each program once: whether everything runs
    #[arg(long)]
    quick: bool,
}

/// Columns, with their widths.
const COLUMNS: &[(&str, usize)] = &[
    ("op", 48),
    ("ns an element", 13),
    ("of a copy", 9),
    ("times a copy", 12),
    ("GB/s", 6),
    ("GFLOP/s", 7),
    ("slow", 4),
];

/// The figures of a program, of least times.
struct OpReport {
    name: String,
    /// Nanoseconds an element of the largest parameter or result.
    op: f64,
    /// The same of the copy.
    copy: f64,
    /// Bytes of parameters and results, and operations on floats, a nanosecond.
    rates: [f64; 2],
}

fn main() -> ExitCode {
    report(&OpsArgs::parse())
}

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn report(args: &OpsArgs) -> ExitCode {
    let all: Vec<SurveyedOp> = OP_FAMILIES.iter().flat_map(|family| family.programs()).collect();
    if let Err(m) = args.measure.all_known(all.iter().map(|op| op.name.as_str())) {
        eprintln!("error: {m}");
        return ExitCode::from(2);
    }
    let (table, head) = ReportTable::new(COLUMNS);
    println!("threads: {}, mode: {}\n\n{head}", args.threads, args.measure.fp().name());
    let (mut slow, mut failed) = (Vec::new(), 0);
    for op in all.iter().filter(|op| args.measure.wants(&op.name)) {
        match measured(op, args) {
            Ok(report) => {
                let is_slow = report.times() > args.over;
                println!("{}", table.row(&report.cells(is_slow)));
                slow.extend(is_slow.then_some(report));
            }
            Err(d) => {
                failed += 1;
                eprintln!("{}: {d}", op.name);
            }
        }
    }
    slow.sort_by(|a, b| b.times().total_cmp(&a.times()));
    println!("\n{} take more than {} times as long as a copy", slow.len(), args.over);
    for report in &slow {
        println!("{:48} {:7.1} times, {:.2} ns", report.name, report.times(), report.op);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measured(op: &SurveyedOp, args: &OpsArgs) -> Result<OpReport, Diagnostic> {
    let program = op.program()?;
    let function = program.prepared(args.measure.is_gpu(), args.measure.fp())?;
    let tensors = [function.param_types(), function.result_types()].concat();
    let elements = tensors.iter().filter_map(TensorType::elements).max().unwrap_or(1).max(1);
    let bytes: u64 = tensors.iter().filter_map(TensorType::bytes).sum();
    let host = args.measure.host(args.threads)?;
    let mut contest = Contest::new(&program, &host, &[Effort::Default])?;
    contest
        .contenders
        .extend(Contest::new(&copy_of(bytes)?, &host, &[Effort::Default])?.contenders);
    let (length, rounds) = args.measure.length();
    match args.quick {
        true => contest.run(Duration::ZERO, 1)?,
        false => contest.run(length, rounds)?,
    }
    let ns = |c: &Contender| c.spread().least * 1e9;
    let [first, copy] = contest.contenders.as_slice() else { unreachable!("one plan an effort") };
    let rate = |count: u64| count as f64 / ns(first).max(1e-3);
    Ok(OpReport {
        name: op.name.clone(),
        op: ns(first) / elements as f64,
        copy: ns(copy) / elements as f64,
        rates: [rate(bytes), rate(first.flops)],
    })
}

impl OpReport {
    /// How many times as long as the copy it takes.
    fn times(&self) -> f64 {
        self.op / self.copy.max(1e-9)
    }

    fn cells(&self, is_slow: bool) -> Vec<String> {
        vec![
            self.name.clone(),
            format!("{:.3}", self.op),
            format!("{:.3}", self.copy),
            format!("{:.1}", self.times()),
            format!("{:.1}", self.rates[0]),
            format!("{:.1}", self.rates[1]),
            if is_slow { "slow" } else { "" }.into(),
        ]
    }
}
