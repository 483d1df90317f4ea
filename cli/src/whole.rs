//! Files that a command writes, whole or not at all.

use super::failure::Failure;
use adfuse::whole::replace;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Makes or replaces the file at `path` with what `fill` writes ([`replace`]).
pub(super) fn write(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Failure> {
    // What is written to a device is not a file to be replaced.
    let is_device = fs::metadata(path).is_ok_and(|meta| {
        let kind = meta.file_type();
        !kind.is_file() && !kind.is_dir() && path.starts_with("/dev")
    });
    let written = match is_device {
        true => File::options().write(true).open(path).and_then(|mut file| fill(&mut file)),
        false => replace(path, fill),
    };
    written.map_err(|e| Failure::usage(format!("cannot write `{}`: {e}", path.display())))
}

/// Errs where writing `path` would replace a file that the command reads.
pub(super) fn spares<'a>(
    path: &Path,
    read: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    match read.into_iter().find(|r| same_file(path, r)) {
        None => Ok(()),
        Some(input) => {
            let m = format!(
                "writing `{}` would replace `{}`, which is read",
                path.display(),
                input.display()
            );
            Err(Failure::usage(m).hint(Some("choose another name for the output".into())))
        }
    }
}

/// Whether two paths lead to one file; what cannot be looked at is none.
fn same_file(a: &Path, b: &Path) -> bool {
    let same_path = match (fs::canonicalize(a), fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    };
    same_path || same_inode(a, b)
}

/// Whether two paths lead to one place, at which there may be nothing yet.
pub(super) fn is_same_place(a: &Path, b: &Path) -> bool {
    same_file(a, b) || place(a) == place(b)
}

/// The path without links and detours, as far as its folder is there.
fn place(path: &Path) -> PathBuf {
    let folder = path.parent().map(|p| if p == Path::new("") { Path::new(".") } else { p });
    let folder = folder.and_then(|folder| fs::canonicalize(folder).ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_path_buf(),
    }
}

/// Names that differ in their cases, and hard links, lead to one file by different paths.
#[cfg(unix)]
fn same_inode(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    of(a).is_some_and(|id| of(b) == Some(id))
}

#[cfg(not(unix))]
fn same_inode(_: &Path, _: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_file() {
        let path = std::env::temp_dir().join(format!("adfuse-{}-none/a", std::process::id()));
        let text = write(&path, |_| Ok(())).unwrap_err().render(false);
        assert!(text.contains("cannot write") && text.contains("-none/a"), "{text}");
    }
}
