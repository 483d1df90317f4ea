//! A folder that caches plans between runs.
//!
//! Planning takes longer than compiling, and for a budget many plans are made and measured, so the chosen one is cached. An entry is a file: its key in
//! full, the text of the plan, and a checksum. The file's name is a hash of the key, and the whole key is compared when
//! the entry is read. Entries are written whole or not at all, so any number of processes may share a folder. A
//! truncated, damaged or foreign entry is never used, and is replaced. When a folder exceeds its bound, the oldest
//! entries are removed.
//!
//! An entry is only a suggestion: a cached plan is measured before it is followed.

use crate::entries::{Entries, hash, named};
use crate::fusion::{Effort, PLANNER, PlanBudget, PlanOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A folder of plans.
#[derive(Clone, Debug)]
pub struct PlanCache {
    entries: Entries,
}

/// The key of a cached plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanKey {
    text: String,
}

/// A chosen plan, with figures of the fastest one.
#[derive(Clone, PartialEq, Debug)]
pub struct CachedPlan {
    /// The plan's text.
    pub plan: String,
    /// Predicted seconds of the fastest plan.
    pub fastest_seconds: f64,
    /// Its peak in bytes.
    pub fastest_peak: u64,
}

/// The result of a look-up.
#[derive(Clone, PartialEq, Debug)]
pub enum Lookup {
    /// Its entry.
    Found(CachedPlan),
    /// Nothing.
    Absent,
    /// A file that is not used, and why.
    Spoiled(String),
}

/// An entry in a listing.
#[derive(Clone, PartialEq, Debug)]
pub struct ListedPlan {
    /// The name of its file.
    pub name: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// What the plan was made for, a word and what it says; or why the file is not used.
    pub key: Result<Vec<(String, String)>, String>,
}

/// The first line of an entry.
const FORM: &str = "adfuse plan cache 1";

/// How names of entries end.
const SUFFIX: &str = ".adfuse-plan";

/// The default bound on the bytes of a folder.
const MOST_BYTES: u64 = 256 << 20;

/// Bytes of an entry at most: those of a plan's text, and some more.
const MOST_ENTRY: u64 = 65 << 20;

impl PlanKey {
    /// For a function of this hash, options and budget, where `engine` says what steps need
    /// in addition to the buffers. The threads that run a plan play no part.
    pub fn new(
        graph: &str,
        engine: &str,
        options: &PlanOptions,
        budget: impl Into<PlanBudget>,
    ) -> PlanKey {
        let effort = match options.effort {
            Effort::Off => "off",
            Effort::Quick => "quick",
            Effort::Default => "default",
            Effort::Search => "search",
        };
        let PlanBudget { memory, compile_seconds } = budget.into();
        let budget = memory.map_or_else(|| "any".to_owned(), |bytes| bytes.to_string());
        let mut text = format!(
            "planner {PLANNER}\ngraph {graph}\nengine {engine}\nfp {}\neffort {effort}\nbudget \
             {budget}\n",
            options.fp.name()
        );
        if let Some(seconds) = compile_seconds {
            text += &format!("compile {seconds}\n");
        }
        // All its numbers: a name says nothing about a file that was changed.
        for line in options.device.to_toml().lines() {
            text += &format!("device {line}\n");
        }
        PlanKey { text }
    }

    fn file(&self) -> String {
        named(&self.text, SUFFIX)
    }
}

impl CachedPlan {
    fn text(&self, key: &PlanKey) -> String {
        let (seconds, peak) = (self.fastest_seconds.to_bits(), self.fastest_peak);
        let mut text =
            format!("{FORM}\n{}fastest {seconds:016x} {peak}\n\n{}", key.text, self.plan);
        text += &format!("sha256 {}\n", hash(text.as_bytes()));
        text
    }

    /// The key, and the entry.
    fn parse(text: &str) -> Result<(PlanKey, CachedPlan), String> {
        let whole = text.strip_suffix('\n').ok_or("it is cut off")?;
        let end = whole.rfind('\n').map_or(0, |at| at + 1);
        let sum = whole[end..].strip_prefix("sha256 ").ok_or("it is cut off")?;
        if hash(&text.as_bytes()[..end]) != sum {
            return Err("its checksum is wrong".into());
        }
        let body = text[..end].strip_prefix(FORM).and_then(|t| t.strip_prefix('\n'));
        let body = body.ok_or("it is of another form")?;
        let (head, plan) = body.split_once("\n\n").ok_or("it has no plan")?;
        let (made_for, fastest) = head.rsplit_once('\n').ok_or("it says not what it is for")?;
        let figures = fastest.strip_prefix("fastest ").and_then(|f| f.split_once(' '));
        let figures = figures.and_then(|(seconds, peak)| {
            let seconds = f64::from_bits(u64::from_str_radix(seconds, 16).ok()?);
            Some((seconds, peak.parse().ok()?)).filter(|_| seconds.is_finite())
        });
        let (fastest_seconds, fastest_peak) = figures.ok_or("it has no figures")?;
        let key = PlanKey { text: format!("{made_for}\n") };
        Ok((key, CachedPlan { plan: plan.into(), fastest_seconds, fastest_peak }))
    }
}

impl PlanCache {
    /// The plans in a folder, which need not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> PlanCache {
        let (folder, most_bytes) = (folder.into(), MOST_BYTES);
        let entries = Entries { folder, suffix: SUFFIX, most_bytes, most_entry: MOST_ENTRY };
        PlanCache { entries }
    }

    /// The same with another bound on the bytes of all entries.
    pub fn with_most_bytes(self, most_bytes: u64) -> PlanCache {
        PlanCache { entries: Entries { most_bytes, ..self.entries } }
    }

    /// Where entries are kept.
    pub fn folder(&self) -> &Path {
        &self.entries.folder
    }

    /// The entry for a key.
    pub fn find(&self, key: &PlanKey) -> Lookup {
        let name = key.file();
        let spoiled = |why: String| Lookup::Spoiled(format!("{name}: {why}"));
        match self.entry(&name) {
            Ok(Ok((found, entry))) if found == *key => Lookup::Found(entry),
            Ok(Ok(_)) => spoiled("it is for something else".into()),
            Ok(Err(why)) => spoiled(why),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Lookup::Absent,
            Err(e) => spoiled(format!("it cannot be read: {e}")),
        }
    }

    /// Keeps an entry, whatever was there, and lets the oldest go where there are too many. One that
    /// is larger than all may be together is not kept.
    ///
    /// # Errors
    /// When the folder cannot be made or written to.
    pub fn keep(&self, key: &PlanKey, entry: &CachedPlan) -> io::Result<()> {
        let text = entry.text(key);
        self.entries.keep(&key.file(), text.as_bytes())
    }

    /// The entries, by name.
    ///
    /// # Errors
    /// When the folder cannot be read; one that is not there has no entries.
    pub fn list(&self) -> io::Result<Vec<ListedPlan>> {
        let mut all = Vec::new();
        for file in self.entries.files()?.into_iter().filter(|f| !f.unfinished) {
            let key = match self.entry(&file.name) {
                Ok(Ok((key, entry))) => Ok(said(&key, &entry)),
                Ok(Err(why)) => Err(why),
                // Another process may have taken it away.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => Err(format!("it cannot be read: {e}")),
            };
            all.push(ListedPlan { name: file.name, bytes: file.bytes, key });
        }
        Ok(all)
    }

    /// Removes all entries, and nothing else that the folder may hold; how many there were.
    ///
    /// # Errors
    /// When the folder cannot be read, or an entry cannot be removed.
    pub fn clear(&self) -> io::Result<usize> {
        self.entries.clear()
    }

    /// What a file holds, or why that is no entry.
    fn entry(&self, name: &str) -> io::Result<Result<(PlanKey, CachedPlan), String>> {
        Ok(self.entries.read(name)?.and_then(|bytes| {
            let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_string())?;
            CachedPlan::parse(&text)
        }))
    }
}

/// What an entry is for, a word and what it says, the function first.
fn said(key: &PlanKey, entry: &CachedPlan) -> Vec<(String, String)> {
    let of = entry.plan.lines().next().unwrap_or_default();
    let func = of.trim_start_matches("plan ").trim_end_matches('{').trim();
    let lines = key.text.lines().filter_map(|l| l.split_once(' '));
    let pair = |(word, says): (&str, &str)| (word.to_string(), says.to_string());
    std::iter::once(("function", func)).chain(lines).map(pair).collect()
}
