//! Files that are read: why one cannot be, folders among them.

use super::failure::Failure;
use std::fs::File;
use std::io;
use std::path::Path;

/// The file, to be read.
pub(super) fn opened(path: &Path) -> Result<File, Failure> {
    is_no_folder(path)?;
    File::open(path).map_err(|e| unreadable(path, &e))
}

/// Errs for a folder, which opens like a file and fails when it is read.
pub(super) fn is_no_folder(path: &Path) -> Result<(), Failure> {
    match path.is_dir() {
        true => Err(Failure::usage(format!("cannot read `{}`: it is a folder", path.display()))),
        false => Ok(()),
    }
}

/// The failure that a file cannot be read.
pub(super) fn unreadable(path: &Path, e: &io::Error) -> Failure {
    Failure::usage(format!("cannot read `{}`: {e}", path.display()))
}
