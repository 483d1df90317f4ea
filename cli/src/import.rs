//! `import`: programs of other frameworks as `.ir` text.

use super::failure::Failure;
use super::source::{SourceText, is_stdin};
use super::streams::Streams;
use super::whole;
use adfuse::import::{ImportError, ImportOptions, coverage, stablehlo};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints a program of StableHLO text as `.ir` text
///
/// What cannot be imported is listed whole. Each reason is listed once for each op, at its first place, with a count.
/// Every other command imports such a text by itself.
#[derive(Args)]
pub(super) struct Import {
    /// The program, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the program to this file
    #[arg(long, short, value_name = "FILE", conflicts_with = "coverage")]
    output: Option<PathBuf>,
    /// Print a table of the ops that the text uses, how often, and which cannot be imported, and succeed
    #[arg(long)]
    coverage: bool,
}

impl Import {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let source = SourceText::read(&self.file)?;
        let wrong = |e: ImportError| source.wrong(e.diagnostics());
        if self.coverage {
            let table = coverage(&source.text).map_err(wrong)?;
            write!(streams.out, "{table}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let imported = stablehlo(&source.text, &ImportOptions::default()).map_err(wrong)?;
        let text = imported.module.to_string();
        match &self.output {
            None => streams.out.write_all(text.as_bytes())?,
            Some(path) => {
                if !is_stdin(&self.file) {
                    whole::spares(path, [self.file.as_path()])?;
                }
                whole::write(path, |file| file.write_all(text.as_bytes()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
