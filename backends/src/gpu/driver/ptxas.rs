//! `ptxas`, the assembler of the CUDA toolkit, where it is found. It is a process of its own: text that an assembler does not survive
//! takes nothing else with it, and what it makes can be kept, which the driver's cannot where warps hand registers to others.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names the assembler's file, or says `off`.
const NAMED: &str = "ADFUSE_PTXAS";

/// An assembler that runs.
pub(crate) struct Ptxas {
    path: PathBuf,
    /// What it says of its version, on which the code depends.
    pub(crate) version: String,
}

/// Code, and what the assembler noted, a line each.
pub(crate) struct AssembledText {
    pub(crate) code: Vec<u8>,
    pub(crate) notes: Vec<String>,
}

/// The assembler that the environment names, or else the first one on the path and in the toolkit's folders; looked for once. `None` where
/// there is none, or none is wanted.
///
/// # Errors
/// Where the one that is named does not run.
pub(crate) fn found() -> Result<Option<&'static Ptxas>, String> {
    static FOUND: OnceLock<Result<Option<Ptxas>, String>> = OnceLock::new();
    let look = || {
        if let Some(named) = std::env::var_os(NAMED).filter(|v| !v.is_empty()) {
            if named == "off" {
                return Ok(None);
            }
            let file = PathBuf::from(named);
            let wrong = || format!("{NAMED} names {}, which does not run", file.display());
            return Ptxas::at(&file).map(Some).ok_or_else(wrong);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
        let homes = homes.map(|home| PathBuf::from(home).join("bin"));
        let folders = std::env::split_paths(&path).chain(homes);
        let mut folders = folders.chain(["/usr/local/cuda/bin".into()]);
        Ok(folders.find_map(|folder| Ptxas::at(&folder.join("ptxas"))))
    };
    FOUND.get_or_init(look).as_ref().map(Option::as_ref).map_err(Clone::clone)
}

impl Ptxas {
    /// The assembler in a file; `None` where that does not run.
    pub(crate) fn at(file: &Path) -> Option<Ptxas> {
        if !file.is_file() {
            return None;
        }
        let said = Command::new(file).arg("--version").output().ok()?;
        let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        (said.status.success() && !version.is_empty())
            .then(|| Ptxas { path: file.to_owned(), version })
    }

    /// Assembles a text for the target that it names.
    ///
    /// # Errors
    /// What the assembler says, or why it did not run.
    pub(crate) fn assembled(&self, text: &str) -> Result<AssembledText, String> {
        let target = text.lines().find_map(|line| line.strip_prefix(".target "));
        let target = target.ok_or("the text names no target")?.trim();
        let folder = WorkFolder::new()?;
        let (from, to) = (folder.0.join("text.ptx"), folder.0.join("code.cubin"));
        let failed = |e: std::io::Error| e.to_string();
        std::fs::write(&from, text).map_err(failed)?;
        let mut command = Command::new(&self.path);
        let done = command.args(["-arch", target, "-o"]).arg(&to).arg(&from).output();
        let done = done.map_err(failed)?;
        let log = String::from_utf8_lossy(&done.stderr).into_owned();
        let notes: Vec<String> =
            log.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
        match done.status.success() {
            true => Ok(AssembledText { code: std::fs::read(&to).map_err(failed)?, notes }),
            false => Err(format!("{} ({})", notes.join("; "), done.status)),
        }
    }
}

/// Folders that a process makes one after the other, at most.
const MOST_FOLDERS: usize = 1 << 20;

/// A folder of its own for one run, which goes when it is dropped.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn new() -> Result<WorkFolder, String> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let parent = std::path::absolute(std::env::temp_dir()).map_err(|e| e.to_string())?;
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = parent.join(format!("adfuse-ptxas-{}-{n}", std::process::id()));
            match std::fs::create_dir(&folder) {
                Ok(()) => return Ok(WorkFolder(folder)),
                // Somebody else's, or left by a process that was ended: the next number.
                Err(e) if e.kind() == ErrorKind::AlreadyExists && n < MOST_FOLDERS => {}
                Err(e) => return Err(format!("{}: {e}", folder.display())),
            }
        }
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const TEXT: &str = ".version 7.8\n.target sm_90\n.address_size 64\n\n\
        .visible .entry nothing(\n) {\n  ret;\n}\n";

    #[test]
    fn text_becomes_code_and_wrong_text_what_is_said_of_it() {
        let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/ptxas");
        let Some(ptxas) = Ptxas::at(&fetched) else {
            let _ = writeln!(std::io::stderr(), "skipped: no {}", fetched.display());
            return;
        };
        assert!(ptxas.version.contains("release"), "{}", ptxas.version);
        let made = ptxas.assembled(TEXT).expect("is right");
        assert_eq!(made.code.get(..4), Some(&b"\x7fELF"[..]));
        let wrong = ptxas.assembled(&TEXT.replace("ret;", "return;")).map(|_| ());
        assert!(wrong.expect_err("is wrong").contains("line 7"));
        assert!(ptxas.assembled("").is_err());
    }

    #[test]
    fn a_file_that_does_not_run_is_no_assembler() {
        assert!(Ptxas::at(Path::new("/nowhere/ptxas")).is_none());
        assert!(Ptxas::at(Path::new(file!())).is_none());
        // It runs, and says nothing.
        assert!(Ptxas::at(Path::new("/bin/true")).is_none_or(|p| !p.version.is_empty()));
    }
}
