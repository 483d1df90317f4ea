//! Programs of other frameworks as adfuse IR: StableHLO text, as JAX and others write it, and ONNX models.
//!
//! ```
//! let text = r#"
//! func.func public @main(%arg0: tensor<3xf32>) -> tensor<f32> {
//!   %cst = stablehlo.constant dense<0.0> : tensor<f32>
//!   %0 = stablehlo.sine %arg0 : tensor<3xf32>
//!   %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
//!   return %1 : tensor<f32>
//! }"#;
//! let imported = adfuse_import::stablehlo(text, &Default::default()).unwrap();
//! assert!(imported.module.to_string().contains("reduce_sum"));
//! ```

mod bytecode;
mod counted;
mod emit;
mod known;
mod lower;
mod onnx;
mod raise;
mod raise_qr;
mod report;
mod text;

pub use lower::Compare;
pub use onnx::{
    FixedValue, ImportedModel, OnnxOptions, Weight, is_onnx, onnx, onnx_coverage, onnx_name,
    onnx_params, onnx_tensor,
};
pub use report::{Coverage, Issue, Usage};

use adfuse_ir::{Diagnostic, Function, Module, verify};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How a text is imported.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    checks: bool,
    extents: BTreeMap<String, u64>,
}

impl ImportOptions {
    /// Comparisons that tests make (`check.expect_eq` and its like) are kept as results of their functions; without
    /// it they are refused.
    pub fn checks(mut self, keep: bool) -> ImportOptions {
        self.checks = keep;
        self
    }

    /// The extent of a symbol: of an axis `?` of a parameter, which has the name that JAX gives to it, or `d0`, `d1`, ...
    pub fn extent(mut self, name: &str, extent: u64) -> ImportOptions {
        self.extents.insert(name.to_string(), extent);
        self
    }
}

/// An imported text.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The functions, public ones first; instructions have their places in the text.
    pub module: Module,
    /// Comparisons of tests, by function: for each, the last results of the function have the value and what it
    /// should be.
    pub checks: Vec<(String, Vec<Compare>)>,
    /// What the text uses.
    pub coverage: Coverage,
}

/// Why a text is not imported.
#[derive(Clone, PartialEq, Eq)]
pub enum ImportError {
    /// It is no StableHLO text.
    Syntax(Diagnostic),
    /// Not all of it can be imported: all of what cannot.
    Unsupported(Coverage),
    /// It is no valid program: a function calls itself, a region gives other types than it must.
    Invalid(Vec<Diagnostic>),
    /// What was made of it is no valid program.
    Internal(Vec<Diagnostic>),
}

impl ImportError {
    /// The errors, each with its place in the text; what is refused several times for one reason is there once.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        match self {
            ImportError::Syntax(error) => vec![error.clone()],
            ImportError::Unsupported(coverage) => report::diagnostics(&coverage.issues),
            ImportError::Invalid(errors) | ImportError::Internal(errors) => errors.clone(),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, error) in self.diagnostics().iter().enumerate() {
            write!(f, "{}{error}", if k > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ImportError {}

/// Imports StableHLO text.
///
/// # Errors
/// Where the text has a syntax error, where something of it cannot be imported (then all of that is listed), and where
/// it is no valid program.
pub fn stablehlo(source: &str, options: &ImportOptions) -> Result<Imported, ImportError> {
    let trees = text::parse(source).map_err(ImportError::Syntax)?;
    let (lowered, coverage) = lower::lower(&trees, options.checks, &options.extents)
        .map_err(|e| ImportError::Internal(vec![e]))?;
    if !coverage.is_complete() {
        return Err(ImportError::Unsupported(coverage));
    }
    let mut module = Module::default();
    let (mut checks, mut private) = (Vec::new(), BTreeSet::new());
    for made in lowered {
        if made.private {
            private.insert(made.function.name.clone());
        }
        if !made.checks.is_empty() {
            checks.push((made.function.name.clone(), made.checks));
        }
        module.funcs.push(made.function);
    }
    verify(&module).map_err(ImportError::Invalid)?;
    // Functions whose bodies stand where they were called are called no longer.
    let public = || module.funcs.values().filter(|f| !private.contains(&f.name));
    let called: BTreeSet<String> = public().flat_map(|f| module.reached_names(f)).collect();
    let none = public().next().is_none();
    let stays = |f: &&Function| none || !private.contains(&f.name) || called.contains(&f.name);
    let mut raised = Module::default();
    for f in module.funcs.values().filter(stays) {
        let loops = raise::raise(f).and_then(|f| raise_qr::raise_qr(&f));
        raised.funcs.push(loops.map_err(|e| ImportError::Internal(vec![e]))?);
    }
    verify(&raised).map_err(ImportError::Internal)?;
    Ok(Imported { module: raised, checks, coverage })
}

/// What a text uses, and what of it cannot be imported.
///
/// # Errors
/// Where the text has a syntax error.
pub fn coverage(source: &str, options: &ImportOptions) -> Result<Coverage, ImportError> {
    let trees = text::parse(source).map_err(ImportError::Syntax)?;
    let lowered = lower::lower(&trees, options.checks, &options.extents)
        .map_err(|e| ImportError::Internal(vec![e]))?;
    Ok(lowered.1)
}

/// Whether these bytes are StableHLO bytecode rather than text: a portable artifact, or what `jax.export` serializes.
pub fn is_bytecode(bytes: &[u8]) -> bool {
    bytecode::is_bytecode(bytes)
}

/// StableHLO bytecode as the text that it stands for, in the generic form.
///
/// # Errors
/// Where it is no such bytecode, is newer than what is known here, or has ops of other dialects.
pub fn disassemble(bytes: &[u8]) -> Result<String, ImportError> {
    bytecode::to_text(bytes).map_err(ImportError::Syntax)
}

/// Whether a text is StableHLO rather than the IR's own: whether its first word is one that a module of MLIR begins with.
pub fn is_stablehlo(source: &str) -> bool {
    let begins = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let first = source.lines().find(begins).unwrap_or("").trim_start();
    // `#` begins the name of an attribute, and no comment.
    let is_alias = first.strip_prefix('#').is_some_and(|rest| {
        let word = |c: char| c.is_alphanumeric() || "_.$-".contains(c);
        rest.starts_with(word) && rest.trim_start_matches(word).trim_start().starts_with('=')
    });
    is_alias
        || ["module", "builtin.module", "func.func", "\"builtin.module\""].iter().any(|w| {
            let rest = first.strip_prefix(w);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
}

/// The page of the package, whose example runs with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ImportReadmePage;
