//! Files that are written whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes or replaces the file at `path` with what `fill` writes: into a new file beside it, which
/// takes its name when it is complete. A symbolic link stays, and what it points to is replaced.
///
/// # Errors
/// What the file system or `fill` says; for a path that is no regular file, such as a device. The file at `path` is as before.
pub fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let (target, permissions) = match fs::metadata(path) {
        // Renaming over a device or a pipe would take it away.
        Ok(meta) if !meta.is_file() => return Err(io::Error::other("not a regular file")),
        Ok(meta) => (fs::canonicalize(path)?, Some(meta.permissions())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_path_buf(), None),
        Err(e) => return Err(e),
    };
    let name = target.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
    remove_abandoned(&target, name);
    let (mut file, temporary) = beside(&target, name)?;
    // The file stays open, and so locked, until it has its name.
    let done = fill(&mut file)
        .and_then(|()| permissions.map_or(Ok(()), |p| file.set_permissions(p)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, &target));
    if done.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// A new file in the same folder, so that renaming moves no data. It is locked: whoever finds it knows that
/// its writer is at work.
fn beside(target: &Path, name: &OsStr) -> io::Result<(File, PathBuf)> {
    // Names do not recur within a process: who found one abandoned may remove it at any later moment.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut attempt = 0u32;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{number}.tmp", std::process::id()));
        let temporary = target.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < MOST_ATTEMPTS => {}
            // Before it was locked it looked abandoned, and may have been removed.
            Ok(file) if taken(&file) || !temporary.exists() => {
                if attempt >= MOST_ATTEMPTS {
                    return Err(io::Error::other("its temporary file is taken by others"));
                }
            }
            other => return other.map(|file| (file, temporary)),
        }
        attempt += 1;
    }
}

/// The most names that are tried for a temporary file.
const MOST_ATTEMPTS: u32 = 100;

/// Whether another process has locked the file; locks it where none has. A folder that knows no locks has
/// no other processes to tell anything.
fn taken(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Removes the temporary files for `target` that nobody writes any more: their writers were interrupted.
/// What cannot be listed, opened or locked stays.
fn remove_abandoned(target: &Path, name: &OsStr) {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let regular = entry.file_type().is_ok_and(|t| t.is_file());
        if regular
            && is_temporary(&entry.file_name(), name)
            && let Ok(file) = OpenOptions::new().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            // Another process may have been faster.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether `found` is a name that [`beside`] gives a temporary file for `name`.
fn is_temporary(found: &OsStr, name: &OsStr) -> bool {
    let of_name = || {
        let rest = found.as_encoded_bytes().strip_prefix(b".")?;
        let rest = rest.strip_prefix(name.as_encoded_bytes())?.strip_prefix(b".")?;
        let rest = std::str::from_utf8(rest.strip_suffix(b".tmp")?).ok()?;
        let (process, attempt) = rest.split_once('-')?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (number(process) && number(attempt)).then_some(())
    };
    of_name().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A new folder, and the names in it.
    fn folder(name: &str) -> (PathBuf, impl Fn() -> Vec<String>) {
        let path = std::env::temp_dir().join(format!("adfuse-whole-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let here = path.clone();
        let names = move || {
            let entries = fs::read_dir(&here).unwrap();
            let mut names: Vec<String> =
                entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        (path, names)
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let (dir, names) = folder("failed");
        let path = dir.join("a");
        replace(&path, |file| file.write_all(b"old")).unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("no room"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no room");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(), ["a"]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_interrupted_writers_left_is_removed_and_nothing_else() {
        let (dir, names) = folder("abandoned");
        let others = [".a.1-x.tmp", ".a.tmp", ".b.1-0.tmp", "a.1-0.tmp"];
        for name in others.iter().chain(&[".a.4000000000-0.tmp", ".a.1-7.tmp"]) {
            fs::write(dir.join(name), "half").unwrap();
        }
        // One that a writer is at work on, whichever process that is.
        let busy = File::create(dir.join(".a.1-8.tmp")).unwrap();
        busy.lock().unwrap();
        replace(&dir.join("a"), |file| file.write_all(b"new")).unwrap();
        assert_eq!(names(), [".a.1-8.tmp", ".a.1-x.tmp", ".a.tmp", ".b.1-0.tmp", "a", "a.1-0.tmp"]);
        drop(busy);
        // Its own file is not taken for an abandoned one by another writer of the same name.
        replace(&dir.join("a"), |file| {
            replace(&dir.join("a"), |inner| inner.write_all(b"inner"))?;
            file.write_all(b"outer")
        })
        .unwrap();
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"outer");
        assert_eq!(names(), [".a.1-x.tmp", ".a.tmp", ".b.1-0.tmp", "a", "a.1-0.tmp"]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn links_stay_and_permissions_too() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let (dir, names) = folder("links");
        let (path, link) = (dir.join("a"), dir.join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("a", &link).unwrap();
        replace(&link, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(), ["a", "link"]);
        fs::remove_dir_all(dir).unwrap();
    }
}
