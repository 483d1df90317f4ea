//! The verdict on one file: each of its modules is imported, run and compared.

use crate::compare::difference;
use adfuse::backends::Array;
use adfuse::backends::reference;
use adfuse::engine::Cpu;
use adfuse::ir::{Diagnostic, Module};
use adfuse_import::{Compare, ImportError, ImportOptions, Imported, disassemble, stablehlo};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What runs the programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuiteEngine {
    Cpu,
    Reference,
}

/// What became of a file.
pub(crate) enum SuiteVerdict {
    /// All comparisons hold.
    Passed,
    /// One does not.
    Wrong(String),
    /// Something cannot be imported.
    Unsupported(String),
    /// Anything else: a syntax error, an engine's refusal, a panic.
    Other(String),
}

impl SuiteVerdict {
    pub(crate) fn class(&self) -> &'static str {
        match self {
            SuiteVerdict::Passed => "passed",
            SuiteVerdict::Wrong(_) => "wrong",
            SuiteVerdict::Unsupported(_) => "unsupported",
            SuiteVerdict::Other(_) => "other",
        }
    }
}

impl fmt::Display for SuiteVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuiteVerdict::Passed => f.write_str("passed"),
            SuiteVerdict::Wrong(what) => write!(f, "wrong: {what}"),
            SuiteVerdict::Unsupported(what) => write!(f, "unsupported: {what}"),
            SuiteVerdict::Other(what) => write!(f, "other: {what}"),
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

/// The modules of a file, which lines `// -----` separate, as text: of those that have an artifact in the folder
/// `artifacts`, which `artifacts.py` writes, what it stands for. And how many of them have.
pub(crate) fn modules(
    folder: &Path,
    path: &Path,
    artifacts: Option<&Path>,
) -> std::io::Result<(Vec<String>, usize)> {
    let text = std::fs::read_to_string(path)?;
    let (mut all, mut found) = (Vec::new(), 0);
    for (k, part) in text.split("// -----").enumerate() {
        let name = path.strip_prefix(folder).unwrap_or(path).with_extension(format!("{k}.mlirbc"));
        let bytes = artifacts.and_then(|folder| std::fs::read(folder.join(name)).ok());
        all.push(match &bytes {
            None => part.to_string(),
            Some(bytes) => {
                found += 1;
                disassemble(bytes).unwrap_or_else(|e| format!("{e}"))
            }
        });
    }
    Ok((all, found))
}

/// The verdict on the modules of a file.
pub(crate) fn judge(modules: &[String], engine: SuiteEngine) -> SuiteVerdict {
    let mut compared = 0;
    for part in modules {
        let judged = catch_unwind(AssertUnwindSafe(|| module(part, engine)));
        match judged {
            Ok(Ok(n)) => compared += n,
            Ok(Err(verdict)) => return verdict,
            Err(_) => return SuiteVerdict::Other("a panic".into()),
        }
    }
    if compared == 0 {
        SuiteVerdict::Other("nothing is compared".into())
    } else {
        SuiteVerdict::Passed
    }
}

/// The number of comparisons of a module, all of which hold.
fn module(text: &str, engine: SuiteEngine) -> Result<usize, SuiteVerdict> {
    let imported =
        stablehlo(text, &ImportOptions::default().checks(true)).map_err(|e| match &e {
            ImportError::Unsupported(coverage) => match coverage.issues.first() {
                Some(issue) => SuiteVerdict::Unsupported(format!("{}: {}", issue.op, issue.what)),
                None => SuiteVerdict::Other(e.to_string()),
            },
            e => SuiteVerdict::Other(e.to_string()),
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
    engine: SuiteEngine,
) -> Result<usize, SuiteVerdict> {
    let Some(f) = imported.module.find(name) else {
        return Err(SuiteVerdict::Other("no function".into()));
    };
    if !f.params().is_empty() {
        return Err(SuiteVerdict::Other(format!("@{name} has parameters")));
    }
    let results =
        run(&imported.module, name, engine).map_err(|e| SuiteVerdict::Other(e.to_string()))?;
    let pairs = results[results.len() - 2 * checks.len()..].chunks(2);
    for (k, (pair, &compare)) in pairs.zip(checks).enumerate() {
        if let Some(found) = difference(&pair[0], &pair[1], compare) {
            return Err(SuiteVerdict::Wrong(format!("@{name}, comparison {k}: {found}")));
        }
    }
    Ok(checks.len())
}

fn run(module: &Module, name: &str, engine: SuiteEngine) -> Result<Vec<Array>, Diagnostic> {
    let f = module.find(name).expect("it was found before");
    match engine {
        SuiteEngine::Reference => reference::run(module, f, &[], &mut reference::Silent),
        SuiteEngine::Cpu => Cpu::default().compile(module, f)?.run(&[] as &[Array]),
    }
}
