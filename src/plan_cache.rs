//! Plans kept in a folder from one run for the next.
//!
//! To plan for a budget is to make and measure many plans, so the one that was chosen is worth keeping.
//! An entry is a file: what the plan was made for, in full, then its text, then a checksum. Its name is
//! a hash of what it was made for, and the whole of that is compared when it is read, so that no plan
//! is taken for another's. Entries are written whole or not at all, so that any number of processes
//! may share a folder; one that is cut, damaged or foreign is never used, and the next one to be kept
//! takes its place. When a folder holds too much, the oldest entries go.
//!
//! Whatever an entry says is checked again by whoever uses it: a plan is measured before it is followed.

use crate::fusion::{Effort, Options, PLANNER};
use crate::whole;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A folder of plans.
#[derive(Clone, Debug)]
pub struct PlanCache {
    folder: PathBuf,
    most_bytes: u64,
}

/// What a plan was made for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    text: String,
}

/// A plan that was chosen, and what it was chosen from.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The plan's text.
    pub plan: String,
    /// Predicted seconds of the fastest plan there was.
    pub fastest_seconds: f64,
    /// What that one takes at its peak, in bytes.
    pub fastest_peak: u64,
}

/// What a folder has for a key.
#[derive(Clone, PartialEq, Debug)]
pub enum Lookup {
    /// Its entry.
    Found(Entry),
    /// Nothing.
    Absent,
    /// A file that is not used, and why.
    Spoiled(String),
}

/// An entry as a list shows it.
#[derive(Clone, PartialEq, Debug)]
pub struct Listed {
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

/// Characters of a name before that.
const HASH: usize = 32;

/// Bytes that a folder holds at most, where nobody says otherwise.
const MOST_BYTES: u64 = 256 << 20;

/// Bytes of an entry at most: those of a plan's text, and some more.
const MOST_ENTRY: u64 = 65 << 20;

/// Files of writers that are older were left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);

impl Key {
    /// For a function of this hash, options and budget in bytes, where `engine` says what steps need
    /// beside the buffers. The threads that run a plan play no part.
    pub fn new(graph: &str, engine: &str, options: &Options, budget: u64) -> Key {
        let effort = match options.effort {
            Effort::Off => "off",
            Effort::Quick => "quick",
            Effort::Default => "default",
            Effort::Search => "search",
        };
        let mut text = format!(
            "planner {PLANNER}\ngraph {graph}\nengine {engine}\nfp {}\neffort {effort}\nbudget \
             {budget}\n",
            options.fp.name()
        );
        // All its numbers: a name says nothing about a file that was changed.
        for line in options.device.to_toml().lines() {
            text += &format!("device {line}\n");
        }
        Key { text }
    }

    fn file(&self) -> String {
        format!("{}{SUFFIX}", &hash(self.text.as_bytes())[..HASH])
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

impl Entry {
    fn text(&self, key: &Key) -> String {
        let (seconds, peak) = (self.fastest_seconds.to_bits(), self.fastest_peak);
        let mut text =
            format!("{FORM}\n{}fastest {seconds:016x} {peak}\n\n{}", key.text, self.plan);
        text += &format!("sha256 {}\n", hash(text.as_bytes()));
        text
    }

    /// What it was made for, and the entry.
    fn parse(text: &str) -> Result<(Key, Entry), String> {
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
        let key = Key { text: format!("{made_for}\n") };
        Ok((key, Entry { plan: plan.into(), fastest_seconds, fastest_peak }))
    }
}

impl PlanCache {
    /// The plans in a folder, which need not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> PlanCache {
        PlanCache { folder: folder.into(), most_bytes: MOST_BYTES }
    }

    /// The same with another bound on the bytes of all entries.
    pub fn with_most_bytes(self, most_bytes: u64) -> PlanCache {
        PlanCache { most_bytes, ..self }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The entry for a key.
    pub fn find(&self, key: &Key) -> Lookup {
        let name = key.file();
        let spoiled = |why: String| Lookup::Spoiled(format!("{name}: {why}"));
        match read(&self.folder.join(&name)) {
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
    pub fn keep(&self, key: &Key, entry: &Entry) -> io::Result<()> {
        let text = entry.text(key);
        let size = text.len() as u64;
        if size > self.most_bytes.min(MOST_ENTRY) {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(key.file());
        whole::replace(&path, |file| file.write_all(text.as_bytes()))?;
        self.evict(&path)
    }

    /// The entries, by name.
    ///
    /// # Errors
    /// When the folder cannot be read; one that is not there has no entries.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let mut all = Vec::new();
        for file in self.files()?.into_iter().filter(|f| !f.unfinished) {
            let key = match read(&self.folder.join(&file.name)) {
                Ok(Ok((key, entry))) => Ok(said(&key, &entry)),
                Ok(Err(why)) => Err(why),
                // Another process may have taken it away.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => Err(format!("it cannot be read: {e}")),
            };
            all.push(Listed { name: file.name, bytes: file.bytes, key });
        }
        Ok(all)
    }

    /// Removes all entries, and nothing else that the folder may hold; how many there were.
    ///
    /// # Errors
    /// When the folder cannot be read, or an entry cannot be removed.
    pub fn clear(&self) -> io::Result<usize> {
        let mut removed = 0;
        for file in self.files()? {
            remove(&self.folder.join(&file.name))?;
            removed += usize::from(!file.unfinished);
        }
        Ok(removed)
    }

    /// Removes the oldest entries until the others are few enough, but never the one just kept, and what
    /// writers left behind that did not end well.
    fn evict(&self, kept: &Path) -> io::Result<()> {
        let mut files = self.files()?;
        let now = SystemTime::now();
        let old = |f: &Found| now.duration_since(f.changed).is_ok_and(|age| age > LEFT_BEHIND);
        for file in files.iter().filter(|f| f.unfinished && old(f)) {
            remove(&self.folder.join(&file.name))?;
        }
        files.retain(|f| !f.unfinished);
        files.sort_by(|a, b| a.changed.cmp(&b.changed).then_with(|| a.name.cmp(&b.name)));
        let mut total = files.iter().fold(0, |sum: u64, f| sum.saturating_add(f.bytes));
        for file in files {
            let path = self.folder.join(&file.name);
            if total > self.most_bytes && path != kept {
                remove(&path)?;
                total -= file.bytes;
            }
        }
        Ok(())
    }

    /// The files of this cache, by name: a folder may hold others.
    fn files(&self) -> io::Result<Vec<Found>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Some(unfinished) = ours(&name) else { continue };
            match entry.metadata() {
                Ok(meta) if meta.is_file() => {
                    let (bytes, changed) = (meta.len(), meta.modified()?);
                    files.push(Found { name, bytes, changed, unfinished });
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }
}

/// A file of the cache.
struct Found {
    name: String,
    bytes: u64,
    changed: SystemTime,
    /// Whether some process is, or was, just writing it.
    unfinished: bool,
}

/// Whether a name is one of an entry (`false`) or of one that is being written (`true`).
fn ours(name: &str) -> Option<bool> {
    let (hidden, rest) = match name.strip_prefix('.') {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let (hash, rest) = rest.split_at_checked(HASH)?;
    let tail = rest.strip_prefix(SUFFIX)?;
    let fits = if hidden { tail.ends_with(".tmp") } else { tail.is_empty() };
    (fits && hash.bytes().all(|b| b.is_ascii_hexdigit())).then_some(hidden)
}

/// Removes a file that another process may have removed.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What a file holds, or why that is no entry.
fn read(path: &Path) -> io::Result<Result<(Key, Entry), String>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(Err("it is no regular file".into()));
    }
    let mut bytes = Vec::new();
    file.take(MOST_ENTRY + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_ENTRY {
        return Ok(Err("it is too large".into()));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => return Ok(Err("it is no text".into())),
    };
    Ok(Entry::parse(&text))
}

/// What an entry is for, a word and what it says, the function first.
fn said(key: &Key, entry: &Entry) -> Vec<(String, String)> {
    let of = entry.plan.lines().next().unwrap_or_default();
    let func = of.trim_start_matches("plan ").trim_end_matches('{').trim();
    let lines = key.text.lines().filter_map(|l| l.split_once(' '));
    let pair = |(word, says): (&str, &str)| (word.to_string(), says.to_string());
    std::iter::once(("function", func)).chain(lines).map(pair).collect()
}
