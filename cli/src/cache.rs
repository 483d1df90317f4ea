//! `cache`: lists and clears cached plans and cached GPU code.

use super::budget::Folder;
use super::failure::Failure;
use super::plan::{bytes, columns};
use super::streams::Streams;
use adfuse::kernel_cache::KernelCache;
use adfuse::plan_cache::{ListedPlan, PlanCache};
use clap::{Args, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// Shows or removes the plans that are kept for --mem-budget, and the code of GPUs
#[derive(Args)]
pub(super) struct Cache {
    #[command(subcommand)]
    what: CacheCommand,
}

#[derive(Subcommand)]
enum CacheCommand {
    /// Lists the plans, and what each is for
    List(Folder),
    /// Removes the plans and the code, and no other file
    Clear(Folder),
}

impl Cache {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let (CacheCommand::List(folder) | CacheCommand::Clear(folder)) = &self.what;
        let cache = folder.cache().ok_or_else(|| {
            Failure::usage("there is no folder for kept plans")
                .hint(Some("name one with --cache".into()))
        })?;
        let code = KernelCache::new(cache.folder());
        let place = cache.folder().display().to_string();
        let wrong = |e: io::Error| Failure::usage(format!("cannot use `{place}`: {e}"));
        match self.what {
            CacheCommand::List(_) => {
                list(&cache, &cache.list().map_err(wrong)?, streams.out)?;
                let (count, size) = code.size().map_err(wrong)?;
                if count > 0 {
                    let size = bytes(size);
                    writeln!(streams.out, "{}, {size} in {place}", programs(count))?;
                }
            }
            CacheCommand::Clear(_) => {
                let removed = cache.clear().map_err(wrong)?;
                let code = code.clear().map_err(wrong)?;
                writeln!(streams.out, "{} removed from {place}", plans(removed))?;
                if code > 0 {
                    writeln!(streams.out, "{} removed from {place}", programs(code))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn plans(count: usize) -> String {
    if count == 1 { "1 plan".into() } else { format!("{count} plans") }
}

/// Programs whose code is kept.
fn programs(count: usize) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("code of {count} program{s} for GPUs")
}

/// A line a plan, and their sum.
fn list(cache: &PlanCache, all: &[ListedPlan], out: &mut dyn Write) -> io::Result<()> {
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
