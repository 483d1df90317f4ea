//! `cache`: plans that are kept from one run for the next.

use super::budget::Folder;
use super::failure::Failure;
use super::plan::{bytes, columns};
use super::streams::Streams;
use crate::plan_cache::{Listed, PlanCache};
use clap::{Args, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// Shows or removes the plans that are kept for --mem-budget
#[derive(Args)]
pub(super) struct Cache {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Lists the plans, and what each is for
    List(Folder),
    /// Removes the plans, and no other file
    Clear(Folder),
}

impl Cache {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let (What::List(folder) | What::Clear(folder)) = &self.what;
        let cache = folder.cache().ok_or_else(|| {
            Failure::usage("there is no folder for kept plans")
                .hint(Some("name one with --cache".into()))
        })?;
        let place = cache.folder().display().to_string();
        let wrong = |e: io::Error| Failure::usage(format!("cannot use `{place}`: {e}"));
        match self.what {
            What::List(_) => list(&cache, &cache.list().map_err(wrong)?, streams.out)?,
            What::Clear(_) => {
                let removed = cache.clear().map_err(wrong)?;
                writeln!(streams.out, "{} removed from {place}", plans(removed))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn plans(count: usize) -> String {
    if count == 1 { "1 plan".into() } else { format!("{count} plans") }
}

/// A line a plan, and their sum.
fn list(cache: &PlanCache, all: &[Listed], out: &mut dyn Write) -> io::Result<()> {
    const WORDS: [&str; 6] = ["function", "budget", "effort", "fp", "engine", "graph"];
    let mut rows = vec![WORDS.iter().chain(&["size", "file"]).map(|w| w.to_string()).collect()];
    let mut spoiled = Vec::new();
    for entry in all {
        match &entry.key {
            Ok(key) => {
                let says = |word: &&str| {
                    let found = key.iter().find(|(w, _)| w == word);
                    found.map_or("-".to_string(), |(_, says)| says.clone())
                };
                let mut row: Vec<String> = WORDS.iter().map(says).collect();
                row.extend([bytes(entry.bytes), entry.name.clone()]);
                rows.push(row);
            }
            Err(why) => spoiled.push(format!("{}: not used, {why}\n", entry.name)),
        }
    }
    if rows.len() > 1 {
        write!(out, "{}", columns(&rows))?;
    }
    for line in spoiled {
        write!(out, "{line}")?;
    }
    let total = all.iter().fold(0, |sum: u64, e| sum.saturating_add(e.bytes));
    writeln!(out, "{}, {} in {}", plans(all.len()), bytes(total), cache.folder().display())
}
