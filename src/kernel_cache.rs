//! A folder that caches GPU code between runs.
//!
//! The driver takes a tenth of a second or more to compile a program's text, so its code is cached. An entry is a file:
//! a hash of what the code was compiled from and for, a checksum, and the code. A truncated, damaged or foreign entry
//! is never given to the driver; it is compiled again and replaced.

use crate::backends::gpu::KeptCode;
use crate::entries::{Entries, hash, named};
use std::io;
use std::path::{Path, PathBuf};

/// A folder of code.
#[derive(Clone, Debug)]
pub struct KernelCache {
    entries: Entries,
}

/// The first line of an entry.
const FORM: &str = "adfuse kernel cache 1";

/// How names of entries end.
const SUFFIX: &str = ".adfuse-kernel";

/// The default bound on the bytes of a folder.
const MOST_BYTES: u64 = 256 << 20;

/// Bytes of an entry at most.
const MOST_ENTRY: u64 = 64 << 20;

impl KernelCache {
    /// The code in a folder, which need not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> KernelCache {
        let (folder, most_bytes) = (folder.into(), MOST_BYTES);
        let entries = Entries { folder, suffix: SUFFIX, most_bytes, most_entry: MOST_ENTRY };
        KernelCache { entries }
    }

    /// The same with another bound on the bytes of all entries.
    pub fn with_most_bytes(self, most_bytes: u64) -> KernelCache {
        KernelCache { entries: Entries { most_bytes, ..self.entries } }
    }

    /// Where entries are kept.
    pub fn folder(&self) -> &Path {
        &self.entries.folder
    }

    /// How many entries there are, and their bytes.
    ///
    /// # Errors
    /// When the folder cannot be read; one that is not there has no entries.
    pub fn size(&self) -> io::Result<(usize, u64)> {
        let files = self.entries.files()?;
        let whole = files.iter().filter(|f| !f.unfinished);
        Ok(whole.fold((0, 0), |(n, bytes), f| (n + 1, f.bytes.saturating_add(bytes))))
    }

    /// Removes all entries, and nothing else that the folder may hold; how many there were.
    ///
    /// # Errors
    /// When the folder cannot be read, or an entry cannot be removed.
    pub fn clear(&self) -> io::Result<usize> {
        self.entries.clear()
    }
}

impl KeptCode for KernelCache {
    fn find(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = self.entries.read(&named(key, SUFFIX)).ok()?.ok()?;
        let head = format!("{FORM}\nkey {key}\nsha256 ");
        let rest = bytes.strip_prefix(head.as_bytes())?;
        let end = rest.iter().position(|&b| b == b'\n')?;
        let (sum, code) = (rest.get(..end)?, rest.get(end + 1..)?);
        (hash(code).as_bytes() == sum).then(|| code.to_vec())
    }

    fn keep(&self, key: &str, code: &[u8]) {
        let mut bytes = format!("{FORM}\nkey {key}\nsha256 {}\n", hash(code)).into_bytes();
        bytes.extend_from_slice(code);
        // A folder that cannot be written to costs time, and nothing else.
        let _ = self.entries.keep(&named(key, SUFFIX), &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_damaged_or_foreign_is_not_found() {
        let folder = std::env::temp_dir().join(format!("adfuse-kernels-{}", std::process::id()));
        let cache = KernelCache::new(&folder);
        let (key, code) = ("ab".repeat(32), vec![7u8, 0, 10, 255]);
        assert_eq!(cache.find(&key), None);
        cache.keep(&key, &code);
        assert_eq!(cache.find(&key), Some(code.clone()));
        assert_eq!(cache.find(&"cd".repeat(32)), None);
        let file = folder.join(named(&key, SUFFIX));
        let whole = fs::read(&file).unwrap();
        for k in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[k] ^= 1;
            fs::write(&file, &damaged).unwrap();
            assert_eq!(cache.find(&key), None, "byte {k}");
            fs::write(&file, &whole[..k]).unwrap();
            assert_eq!(cache.find(&key), None, "cut at {k}");
        }
        // Another's code under this name.
        let other = KernelCache::new(folder.join("other"));
        other.keep(&"cd".repeat(32), &code);
        fs::copy(other.folder().join(named(&"cd".repeat(32), SUFFIX)), &file).unwrap();
        assert_eq!(cache.find(&key), None);
        cache.keep(&key, &code);
        assert_eq!(cache.find(&key), Some(code));
        assert_eq!(cache.size().unwrap().0, 1);
        // Too much for the folder: the one just kept stays.
        let small = cache.clone().with_most_bytes(300);
        small.keep(&"ef".repeat(32), &[1; 80]);
        assert_eq!((small.size().unwrap().0, small.find(&key)), (1, None));
        assert_eq!(cache.clear().unwrap(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
