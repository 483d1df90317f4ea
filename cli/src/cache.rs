//! `cache`: lists and clears cached plans and cached GPU code.

use super::budget::Folder;
use super::failure::Failure;
use super::plan::{bytes, columns};
use super::streams::Streams;
use adfuse::kernel_cache::KernelCache;
use adfuse::plan_cache::{ListedPlan, PlanCache};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
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
    List(ListArgs),
    /// Removes the plans and the code, and no other file
    Clear(Folder),
}

/// What is listed.
#[derive(Args)]
struct ListArgs {
    #[command(flatten)]
    folder: Folder,
    /// Also print the hash of each plan's function, and the plan's file, as --json does
    #[arg(long)]
    hashes: bool,
}

impl Cache {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let (CacheCommand::List(ListArgs { folder, .. }) | CacheCommand::Clear(folder)) =
            &self.what;
        let cache = folder.cache().ok_or_else(|| {
            Failure::usage("there is no folder for kept plans")
                .hint(Some("name one with --cache".into()))
        })?;
        let code = KernelCache::new(cache.folder());
        let place = cache.folder().display().to_string();
        let wrong = |e: io::Error| Failure::usage(format!("cannot use `{place}`: {e}"));
        match self.what {
            CacheCommand::List(ListArgs { hashes, .. }) => {
                let all = cache.list().map_err(wrong)?;
                let (count, size) = code.size().map_err(wrong)?;
                if streams.json {
                    let code = json!({ "programs": count, "bytes": size });
                    let plans: Vec<Value> = all.iter().map(entry).collect();
                    let all = json!({ "folder": place, "plans": plans, "code": code });
                    writeln!(streams.out, "{all:#}")?;
                    return Ok(ExitCode::SUCCESS);
                }
                list(&cache, &all, hashes, streams.out)?;
                if count > 0 {
                    let size = bytes(size);
                    writeln!(streams.out, "{}, {size} in {place}", programs(count))?;
                }
            }
            CacheCommand::Clear(_) => {
                let removed = cache.clear().map_err(wrong)?;
                let code = code.clear().map_err(wrong)?;
                if streams.json {
                    let all = json!({ "folder": place, "plans": removed, "code": code });
                    writeln!(streams.out, "{all:#}")?;
                    return Ok(ExitCode::SUCCESS);
                }
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

/// What is told of each plan; the last is a hash.
const WORDS: [&str; 6] = ["function", "budget", "effort", "fp", "engine", "graph"];

/// A plan as JSON: its key, its size and its file; or why it is not used.
fn entry(plan: &ListedPlan) -> Value {
    let mut all = Map::new();
    match &plan.key {
        Ok(key) => all.extend(key.iter().map(|(word, says)| (word.to_string(), json!(says)))),
        Err(why) => drop(all.insert("unused".into(), json!(why.to_string()))),
    }
    all.insert("bytes".into(), json!(plan.bytes));
    all.insert("file".into(), json!(plan.name));
    Value::Object(all)
}

/// A line a plan, and their sum.
fn list(
    cache: &PlanCache,
    all: &[ListedPlan],
    hashes: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let words = &WORDS[..if hashes { WORDS.len() } else { WORDS.len() - 1 }];
    let mut rows: Vec<Vec<String>> = vec![words.iter().map(|w| w.to_string()).collect()];
    rows[0].extend(["size", "file"].iter().take(1 + usize::from(hashes)).map(|w| w.to_string()));
    let mut spoiled = Vec::new();
    for entry in all {
        match &entry.key {
            Ok(key) => {
                let says = |word: &&str| {
                    let found = key.iter().find(|(w, _)| w == word);
                    found.map_or("-".to_string(), |(_, says)| says.clone())
                };
                let mut row: Vec<String> = words.iter().map(says).collect();
                row.push(bytes(entry.bytes));
                row.extend(hashes.then(|| entry.name.clone()));
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
