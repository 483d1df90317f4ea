//! Fused against a kernel an instruction, for the marks of the fusion literature: `marks [--engine cpu|gpu] [--only NAME,..]`.
//!
//! Effort `default` and effort `off` run in turns. For each program the table has speedups (predicted by the cost model, measured, of the least times),
//! times, what fusion saves of launches, bytes and peak memory, and whether the mark is met.

use adfuse::fusion::Effort;
use adfuse::ir::Diagnostic;
use adfuse_benches::marks::{MARKS, MarkRow, SAVED, Scale};
use adfuse_benches::table::{ReportTable, mib, ms};
use adfuse_benches::{Contest, MeasureArgs, TimeSpread, ratio};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs fused programs against a kernel an instruction, for the marks of the fusion literature
#[derive(Parser)]
struct MarkArgs {
    #[command(flatten)]
    measure: MeasureArgs,
    /// Threads of the engine cpu
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Small sizes, each run a few times: whether everything runs
    #[arg(long)]
    quick: bool,
    /// Write the programs to NAME.ir in this folder, for `adfuse` to plan, and run nothing
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
}

/// Columns, with their widths.
const COLUMNS: &[(&str, usize)] = &[
    ("program", 26),
    ("predicted", 9),
    ("measured (10-90 %)", 18),
    ("of least", 8),
    ("fused ms (least)", 16),
    ("off ms (least)", 16),
    ("launches", 20),
    ("MiB moved", 22),
    ("peak MiB", 22),
    ("mark", 6),
    ("met", 3),
];

/// The figures of a program.
struct MarkReport {
    predicted: f64,
    measured: TimeSpread,
    /// Of the least times.
    least: f64,
    fused: TimeSpread,
    off: TimeSpread,
    /// Launches, bytes moved and peak bytes; fused, then off.
    counts: [[u64; 2]; 3],
}

fn main() -> ExitCode {
    // Differentiation follows chains of calls by recursion.
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    match thread.spawn(|| report(&MarkArgs::parse())).map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        _ => ExitCode::from(101),
    }
}

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn report(args: &MarkArgs) -> ExitCode {
    if let Err(m) = args.measure.all_known(MARKS.iter().map(|row| row.name)) {
        eprintln!("error: {m}");
        return ExitCode::from(2);
    }
    let scale = match (args.quick, args.measure.is_gpu()) {
        (true, _) => Scale::Quick,
        (false, true) => Scale::Gpu,
        (false, false) => Scale::Cpu,
    };
    let asked: Vec<&MarkRow> = MARKS.iter().filter(|row| args.measure.wants(row.name)).collect();
    if let Some(folder) = &args.save {
        return match asked.iter().try_for_each(|row| save(row, scale, folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(m) => {
                eprintln!("error: {m}");
                ExitCode::FAILURE
            }
        };
    }
    let (table, head) = ReportTable::new(COLUMNS);
    println!("{head}");
    let (mut met, mut failed, mut saved) = (0, 0, [0; 3]);
    for row in &asked {
        match measured(row, scale, args) {
            Ok(report) => {
                println!("{}", table.row(&report.cells(row)));
                met += u32::from(report.measured.median >= row.least);
                for (count, (part, least)) in saved.iter_mut().zip(report.saved().zip(SAVED)) {
                    *count += u32::from(part >= least);
                }
            }
            Err(d) => {
                failed += 1;
                eprintln!("{}: {d}", row.name);
            }
        }
    }
    let [launches, bytes, peak] = saved;
    println!(
        "\n{met} of {} marks are met; half of the launches and more are saved by {launches}, 30 % of the bytes by {bytes}, 20 % of the peak by {peak}; \
         mode {}",
        asked.len(),
        args.measure.fp().name(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes the text of a program. Its parameters that begin with `in.` are data, in which nothing is differentiated.
fn save(row: &MarkRow, scale: Scale, folder: &Path) -> Result<(), String> {
    let program = (row.program)(scale).map_err(|d| format!("{}: {d}", row.name))?;
    let file = folder.join(row.name).with_extension("ir");
    std::fs::write(&file, program.text()).map_err(|e| format!("{}: {e}", file.display()))
}

fn measured(row: &MarkRow, scale: Scale, args: &MarkArgs) -> Result<MarkReport, Diagnostic> {
    let program = (row.program)(scale)?;
    let host = args.measure.host(args.threads)?;
    let mut contest = Contest::new(&program, &host, &[Effort::Off, Effort::Default])?;
    let (length, rounds) = args.measure.length();
    match args.quick {
        true => contest.run(std::time::Duration::ZERO, 2)?,
        false => contest.run(length, rounds)?,
    }
    // Where both efforts have the same plan, both are the first.
    let off = &contest.contenders[0];
    let fused = contest.of_effort(Effort::Default).unwrap_or(off);
    Ok(MarkReport {
        predicted: off.predicted / fused.predicted.max(1e-12),
        measured: ratio(off, fused),
        least: off.spread().least / fused.spread().least.max(1e-12),
        fused: fused.spread(),
        off: off.spread(),
        counts: [
            [fused.launches.into(), off.launches.into()],
            [fused.bytes, off.bytes],
            [fused.peak, off.peak],
        ],
    })
}

impl MarkReport {
    /// The parts of launches, bytes and peak that fusion saves.
    fn saved(&self) -> impl Iterator<Item = f64> + '_ {
        self.counts.iter().map(|[fused, off]| 1.0 - *fused as f64 / (*off).max(1) as f64)
    }

    fn cells(&self, row: &MarkRow) -> Vec<String> {
        let saved: Vec<String> = self.saved().map(|s| format!("{:+.0} %", -100.0 * s)).collect();
        let [launches, bytes, peak] = self.counts;
        let m = &self.measured;
        vec![
            row.name.into(),
            format!("{:.2}", self.predicted),
            format!("{:.2} ({:.2}-{:.2})", m.median, m.p10, m.p90),
            format!("{:.2}", self.least),
            format!("{} ({})", ms(self.fused.median), ms(self.fused.least)),
            format!("{} ({})", ms(self.off.median), ms(self.off.least)),
            format!("{} to {}, {}", launches[1], launches[0], saved[0]),
            format!("{} to {}, {}", mib(bytes[1]), mib(bytes[0]), saved[1]),
            format!("{} to {}, {}", mib(peak[1]), mib(peak[0]), saved[2]),
            row.said.into(),
            if m.median >= row.least { "yes" } else { "no" }.into(),
        ]
    }
}
