//! The verdict on one file: each of its modules is imported, run and compared.

use crate::compare::difference;
use adfuse::backends::Array;
use adfuse::backends::reference;
use adfuse::engine::Cpu;
use adfuse::ir::{Diagnostic, Module};
use adfuse_import::{Compare, ImportError, Imported, Options, stablehlo};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What runs the programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Cpu,
    Reference,
}

/// What became of a file.
pub(crate) enum Verdict {
    /// All comparisons hold.
    Passed,
    /// One does not.
    Wrong(String),
    /// Something cannot be imported.
    Unsupported(String),
    /// Anything else: a syntax error, an engine's refusal, a panic.
    Other(String),
}

impl Verdict {
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Wrong(_) => "wrong",
            Verdict::Unsupported(_) => "unsupported",
            Verdict::Other(_) => "other",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passed => f.write_str("passed"),
            Verdict::Wrong(what) => write!(f, "wrong: {what}"),
            Verdict::Unsupported(what) => write!(f, "unsupported: {what}"),
            Verdict::Other(what) => write!(f, "other: {what}"),
        }
    }
}

/// All `.mlir` files under a folder, in the order of their paths.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => found.extend(files(&path)),
            false if path.extension().is_some_and(|e| e == "mlir") => found.push(path),
            false => {}
        }
    }
    found
}

/// The verdict on a file, whose modules are separated by lines `// -----`.
pub(crate) fn judge(text: &str, engine: Engine) -> Verdict {
    let mut compared = 0;
    for part in text.split("// -----") {
        let judged = catch_unwind(AssertUnwindSafe(|| module(part, engine)));
        match judged {
            Ok(Ok(n)) => compared += n,
            Ok(Err(verdict)) => return verdict,
            Err(_) => return Verdict::Other("a panic".into()),
        }
    }
    if compared == 0 { Verdict::Other("nothing is compared".into()) } else { Verdict::Passed }
}

/// The number of comparisons of a module, all of which hold.
fn module(text: &str, engine: Engine) -> Result<usize, Verdict> {
    let imported = stablehlo(text, &Options::default().checks(true)).map_err(|e| match &e {
        ImportError::Unsupported(coverage) => match coverage.issues.first() {
            Some(issue) => Verdict::Unsupported(format!("{}: {}", issue.op, issue.what)),
            None => Verdict::Other(e.to_string()),
        },
        e => Verdict::Other(e.to_string()),
    })?;
    let mut compared = 0;
    for (name, checks) in &imported.checks {
        compared += function(&imported, name, checks, engine)?;
    }
    Ok(compared)
}

fn function(
    imported: &Imported,
    name: &str,
    checks: &[Compare],
    engine: Engine,
) -> Result<usize, Verdict> {
    let Some(f) = imported.module.find(name) else {
        return Err(Verdict::Other("no function".into()));
    };
    if !f.params().is_empty() {
        return Err(Verdict::Other(format!("@{name} has parameters")));
    }
    let results = run(&imported.module, name, engine).map_err(|e| Verdict::Other(e.to_string()))?;
    let pairs = results[results.len() - 2 * checks.len()..].chunks(2);
    for (k, (pair, &compare)) in pairs.zip(checks).enumerate() {
        if let Some(found) = difference(&pair[0], &pair[1], compare) {
            return Err(Verdict::Wrong(format!("@{name}, comparison {k}: {found}")));
        }
    }
    Ok(checks.len())
}

fn run(module: &Module, name: &str, engine: Engine) -> Result<Vec<Array>, Diagnostic> {
    let f = module.find(name).expect("it was found before");
    match engine {
        Engine::Reference => reference::run(module, f, &[], &mut reference::Silent),
        Engine::Cpu => Cpu::default().compile(module, f)?.run(&[] as &[Array]),
    }
}
