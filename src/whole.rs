//! Files that are written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Makes or replaces the file at `path` with what `fill` writes: into a new file beside it, which
/// takes its name when it is complete. A symbolic link stays, and what it points to is replaced.
pub(crate) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (target, permissions) = match fs::metadata(path) {
        // Renaming over a device or a pipe would take it away.
        Ok(meta) if !meta.is_file() => return Err(io::Error::other("not a regular file")),
        Ok(meta) => (fs::canonicalize(path)?, Some(meta.permissions())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_path_buf(), None),
        Err(e) => return Err(e),
    };
    let (mut file, temporary) = beside(&target)?;
    let filled = fill(&mut file)
        .and_then(|()| permissions.map_or(Ok(()), |p| file.set_permissions(p)))
        .and_then(|()| file.sync_all());
    drop(file);
    let done = filled.and_then(|()| fs::rename(&temporary, &target));
    if done.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// A new file in the same folder, so that renaming moves no data.
fn beside(target: &Path) -> io::Result<(File, PathBuf)> {
    let name = target.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
    let mut attempt = 0u32;
    loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{attempt}.tmp", std::process::id()));
        let temporary = target.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => attempt += 1,
            other => return other.map(|file| (file, temporary)),
        }
    }
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
