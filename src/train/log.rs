//! Logs of training: a CSV file with a line for each epoch.

use super::metrics::Metrics;
use crate::ir::{At, Diagnostic, Kind};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file to which lines are added.
#[derive(Debug)]
pub(super) struct EpochLog {
    path: PathBuf,
}

impl EpochLog {
    pub(super) fn new(path: &Path) -> EpochLog {
        EpochLog { path: path.to_path_buf() }
    }

    /// Adds the line of an epoch, after a line of names where the file is new or empty.
    pub(super) fn add(
        &mut self,
        epoch: u64,
        steps: u64,
        metrics: &Metrics,
    ) -> Result<(), Diagnostic> {
        let names = metrics.iter().map(|(name, _)| field(name));
        let header = ["epoch".into(), "steps".into()].into_iter().chain(names);
        let values = metrics.iter().map(|(_, value)| value.to_string());
        let line = [epoch.to_string(), steps.to_string()].into_iter().chain(values);
        let header: Vec<String> = header.collect();
        let line: Vec<String> = line.collect();
        let text = format!("{}\n", line.join(","));
        append(&self.path, &header.join(","), &text).map_err(|e| {
            let m = format!("{}: {e}", self.path.display());
            Diagnostic::new(At::default(), Kind::Usage, m)
        })
    }
}

/// Writes a whole line at once, so that an interrupted program leaves whole lines.
fn append(path: &Path, header: &str, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let text = match file.metadata()?.len() {
        0 => format!("{header}\n{line}"),
        _ => line.to_string(),
    };
    file.write_all(text.as_bytes())
}

/// A name as a field: quoted where it has a comma, a quotation mark or a line break.
fn field(name: &str) -> String {
    match name.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_string(),
    }
}
