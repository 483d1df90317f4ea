//! Files that a command writes, whole or not at all.

use super::failure::Failure;
use crate::whole::replace;
use std::fs::File;
use std::io;
use std::path::Path;

/// Makes or replaces the file at `path` with what `fill` writes ([`replace`]).
pub(super) fn write(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Failure> {
    replace(path, fill)
        .map_err(|e| Failure::usage(format!("cannot write `{}`: {e}", path.display())))
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
