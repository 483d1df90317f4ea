//! Folders of cached files, with a bound on their total size.
//!
//! Each file is named by a hash of its key, and is written whole or not at all, so any number of processes may share a
//! folder. When the files of one kind exceed the bound, the oldest are removed.

use crate::whole;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The files of one kind in a folder, which need not be there yet and may hold others.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    pub(crate) folder: PathBuf,
    /// How their names end.
    pub(crate) suffix: &'static str,
    /// Bytes that all may have together.
    pub(crate) most_bytes: u64,
    /// Bytes that one may have.
    pub(crate) most_entry: u64,
}

/// A file.
pub(crate) struct FoundFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    changed: SystemTime,
    /// Whether some process is, or was, just writing it.
    pub(crate) unfinished: bool,
}

/// Characters of a name before its ending.
const HASH: usize = 32;

/// Files of writers that are older were left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);

/// The SHA-256 of bytes, in hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The name of the file for a key.
pub(crate) fn named(key: &str, suffix: &str) -> String {
    format!("{}{suffix}", &hash(key.as_bytes())[..HASH])
}

impl Entries {
    /// What a file holds, or why it is not used.
    pub(crate) fn read(&self, name: &str) -> io::Result<Result<Vec<u8>, String>> {
        let file = File::open(self.folder.join(name))?;
        if !file.metadata()?.is_file() {
            return Ok(Err("it is no regular file".into()));
        }
        let mut bytes = Vec::new();
        file.take(self.most_entry + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > self.most_entry {
            return Ok(Err("it is too large".into()));
        }
        Ok(Ok(bytes))
    }

    /// Keeps a file, whatever was there, and lets the oldest go where there are too many. One that is
    /// larger than all may be together is not kept.
    pub(crate) fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > self.most_bytes.min(self.most_entry) {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(name);
        whole::replace(&path, |file| file.write_all(bytes))?;
        self.evict(&path)
    }

    /// Removes all of them, and nothing else that the folder may hold; how many there were.
    pub(crate) fn clear(&self) -> io::Result<usize> {
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
        let old = |f: &FoundFile| now.duration_since(f.changed).is_ok_and(|age| age > LEFT_BEHIND);
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

    /// The files, by name.
    pub(crate) fn files(&self) -> io::Result<Vec<FoundFile>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Some(unfinished) = ours(&name, self.suffix) else { continue };
            match entry.metadata() {
                Ok(meta) if meta.is_file() => {
                    let (bytes, changed) = (meta.len(), meta.modified()?);
                    files.push(FoundFile { name, bytes, changed, unfinished });
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

/// Whether a name is one of a file of this kind (`false`) or of one that is being written (`true`).
fn ours(name: &str, suffix: &str) -> Option<bool> {
    let (hidden, rest) = match name.strip_prefix('.') {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let (hash, rest) = rest.split_at_checked(HASH)?;
    let tail = rest.strip_prefix(suffix)?;
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
