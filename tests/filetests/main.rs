//! Runs the `.ir` and `.program` files of this folder: each is a program, of instructions or of kernels,
//! with directives in comments that say what must come of it. `docs/testing.md` describes the directives.
//!
//! With `ADFUSE_BLESS=1` the expectations are rewritten in place to what the compiler gives.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod engine;
mod file;
mod program;
mod stage;
mod value;

use file::TestFile;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Says that expectations are to be rewritten.
const BLESS: &str = "ADFUSE_BLESS";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let bless = std::env::var_os(BLESS).is_some_and(|v| v != "0");
    if bless {
        // Tests of one file must not write it at the same time.
        arguments.test_threads = Some(1);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let mut trials = Vec::new();
    for path in programs(&root) {
        let name = name_of(&root, &path);
        match read(&path) {
            Ok(file) => trials.extend(trials_of(&name, &path, &file, bless)),
            Err(e) => trials.push(Trial::test(name, move || Err(e.into()))),
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// All `.ir` and `.program` files below a folder, in the order of their names.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|e| e.path()) {
        if path.is_dir() {
            found.extend(programs(&path));
        } else if path.extension().is_some_and(|e| e == "ir" || e == "program") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn name_of(root: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(root).unwrap_or(path);
    relative.to_string_lossy().replace('\\', "/")
}

fn read(path: &Path) -> Result<TestFile, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    TestFile::parse(&text)
}

/// One trial a directive: the first has the file's name, others add their number.
fn trials_of(name: &str, path: &Path, file: &TestFile, bless: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (k, case) in file.cases.iter().enumerate() {
        let name = if k == 0 { name.to_string() } else { format!("{name}#{}", k + 1) };
        let (path, mut kind) = (path.to_path_buf(), case.directive.name.clone());
        let is_here = stage::is_here(&kind);
        if !is_here {
            kind += ": only where machine code has wide vectors, x86-64 with Linux";
        }
        let trial = Trial::test(name, move || run(&path, k, bless));
        trials.push(trial.with_kind(kind).with_ignored_flag(!is_here));
    }
    trials
}

fn run(path: &Path, k: usize, bless: bool) -> Result<(), Failed> {
    let mut file = read(path)?;
    let test = if path.extension().is_some_and(|e| e == "ir") { case::run } else { program::run };
    let got = test(&file, k)?;
    let mut verdict = compare::compare(&file, k, &got);
    // A line more or less in the directives moves the places of errors: once more, then.
    for _ in 0..2 {
        if verdict.is_ok() || !bless {
            break;
        }
        let text = file.blessed(k, &test(&file, k)?)?;
        std::fs::write(path, &text).map_err(|e| e.to_string())?;
        file = TestFile::parse(&text)?;
        verdict = compare::compare(&file, k, &test(&file, k)?);
    }
    verdict.map_err(Failed::from)
}
