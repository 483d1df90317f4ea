//! `pack`: offsets for buffers with given lifetimes and sizes, in the CSV form that MiniMalloc made
//! common.

use super::failure::Failure;
use super::opened::opened;
use super::source::SourceText;
use super::streams::Streams;
use super::values::{counted, whole};
use adfuse::device::bytes;
use adfuse::ir::{At, Diagnostic, Kind};
use adfuse::memplan::{PackOptions, PlanError, check, csv, plan};
use clap::Args;
use serde_json::json;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Packs buffers into one arena
///
/// Reads `id,lower,upper,size` (the range of time is half open; columns `alignment`, `gaps` and `offset` are
/// understood too) and writes the same with an `offset` column. Greedy orders come first, then an exact
/// search within the effort. Without a capacity the least peak is sought. The exit status is 1 if the
/// buffers do not fit.
#[derive(Args)]
pub(super) struct Pack {
    /// The buffers, or `-` for standard input
    file: PathBuf,
    /// The bytes of the arena, such as 1048576 or 1MiB: any packing within them will do
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    capacity: Option<u64>,
    /// The most steps of the search; without this, 1000000, or with --time-limit as many as there is time for
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    effort: Option<u64>,
    /// Seconds after which the best packing so far is taken, whatever effort is left
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time_limit: Option<Duration>,
}

impl Pack {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        // Reading counts too.
        let deadline = self.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut table = self.read()?;
        table.problem.capacity = self.capacity;
        let unsaid = if deadline.is_some() { u64::MAX } else { PackOptions::DEFAULT_EFFORT };
        let threads = available_parallelism().map_or(1, usize::from);
        let options = PackOptions { effort: self.effort.unwrap_or(unsaid), deadline, threads };
        let packing = match plan(&table.problem, &options) {
            Ok(packing) => packing,
            Err(e @ PlanError::DoesNotFit { .. }) => {
                return Err(self.wrong(Kind::Limit, e.to_string()));
            }
            Err(e) => {
                let why = e.with_names(|buffer| table.name(buffer));
                return Err(self.wrong(Kind::Bounds, format!("`{}`: {why}", self.file.display())));
            }
        };
        check(&table.problem, &packing)
            .map_err(|e| Failure::usage(format!("internal: the packing is not sound: {e}")))?;
        if streams.json {
            let (peak, least) = (packing.peak, packing.lower_bound);
            let all = json!({
                "peak": peak, "at_least": least, "optimal": packing.is_optimal(),
                "method": packing.method.to_string(), "steps": packing.steps, "offsets": packing.offsets.values().map(|o| json!(o.0)).collect::<Vec<_>>(),
            });
            writeln!(streams.out, "{all:#}")?;
            return Ok(ExitCode::SUCCESS);
        }
        csv::write(&mut *streams.out, &table, Some(&packing.offsets))?;
        let optimal = if packing.is_optimal() { ", the least possible" } else { "" };
        streams.note(format_args!(
            "peak {}{optimal} (at least {}), by {}, {}",
            counted(packing.peak, "byte"),
            packing.lower_bound,
            packing.method,
            counted(packing.steps, "search step")
        ));
        Ok(ExitCode::SUCCESS)
    }

    fn read(&self) -> Result<csv::CsvTable, Failure> {
        let input: Box<dyn Read> = if self.file == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(BufReader::new(opened(&self.file)?))
        };
        csv::read(input)
            .map_err(|e| self.wrong(Kind::Syntax, format!("`{}`: {e}", self.file.display())))
    }

    /// The buffers are to `pack` what a program is to other commands.
    fn wrong(&self, kind: Kind, m: String) -> Failure {
        let source = SourceText::named(&self.file.display().to_string());
        source.wrong([Diagnostic::new(At::default(), kind, m)])
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let such = "expected a number of seconds, 0 or more";
    let x: f64 = text.parse().map_err(|_| such)?;
    Duration::try_from_secs_f64(x).map_err(|_| such.into())
}
