//! The verdict on one case: its model is imported, run at the inputs of the case and compared with its outputs.

use adfuse::backends::{Array, reference};
use adfuse::engine::Cpu;
use adfuse_import::{
    FixedValue, ImportError, ImportedModel, OnnxOptions, Weight, onnx, onnx_params, onnx_tensor,
};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What runs the models.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnnxEngine {
    Cpu,
    Reference,
}

/// What became of a case.
pub(crate) enum OnnxVerdict {
    /// All outputs are within the tolerance; these inputs had to be known when the model was imported.
    Passed(usize),
    /// One is not, but is within the tolerance of the exact output, of which the expected one is not.
    Inexact(String),
    /// One is not.
    Wrong(String),
    /// Something cannot be imported: the op, and what of it.
    Unsupported(String, String),
    /// Anything else: no model, an engine's refusal, a panic.
    Other(String),
}

impl OnnxVerdict {
    pub(crate) fn class(&self) -> &'static str {
        match self {
            OnnxVerdict::Passed(_) => "passed",
            OnnxVerdict::Inexact(_) => "inexact",
            OnnxVerdict::Wrong(_) => "wrong",
            OnnxVerdict::Unsupported(..) => "unsupported",
            OnnxVerdict::Other(_) => "other",
        }
    }
}

impl fmt::Display for OnnxVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnnxVerdict::Passed(0) => f.write_str("passed"),
            OnnxVerdict::Passed(n) => write!(f, "passed, with {n} inputs fixed"),
            OnnxVerdict::Inexact(what) => write!(f, "inexact: {what}"),
            OnnxVerdict::Wrong(what) => write!(f, "wrong: {what}"),
            OnnxVerdict::Unsupported(op, what) => write!(f, "unsupported: {op}: {what}"),
            OnnxVerdict::Other(what) => write!(f, "other: {what}"),
        }
    }
}

/// All folders with a model under a folder, in the order of their paths.
pub(crate) fn cases(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    found.retain(|p| p.join("model.onnx").is_file());
    found.sort();
    found
}

/// The verdict on the case in a folder.
pub(crate) fn judge(folder: &Path, engine: OnnxEngine) -> OnnxVerdict {
    match catch_unwind(AssertUnwindSafe(|| case(folder, engine))) {
        Ok(Ok(fixed)) => OnnxVerdict::Passed(fixed),
        Ok(Err(verdict)) => verdict,
        Err(_) => OnnxVerdict::Other("a panic".into()),
    }
}

fn other(e: impl fmt::Display) -> OnnxVerdict {
    OnnxVerdict::Other(e.to_string())
}

fn array(t: &Weight) -> Result<Array, OnnxVerdict> {
    let dims = t.ty.dims().unwrap_or_default();
    Array::read_le(t.ty.dtype, &dims, &mut &t.bytes[..]).map_err(other)
}

fn tensors(folder: &Path, what: &str) -> Result<Vec<Array>, OnnxVerdict> {
    let mut found = Vec::new();
    while let Ok(bytes) = fs::read(folder.join(format!("{what}_{}.pb", found.len()))) {
        found.push(array(&onnx_tensor(&bytes).map_err(other)?)?);
    }
    Ok(found)
}

/// The number of inputs that had to be fixed.
fn case(folder: &Path, engine: OnnxEngine) -> Result<usize, OnnxVerdict> {
    let bytes = fs::read(folder.join("model.onnx")).map_err(other)?;
    let (inputs, outputs) = (tensors(folder, "input")?, tensors(folder, "output")?);
    let tolerance = fs::read_to_string(folder.join("tolerance")).map_err(other)?;
    let tolerance: Vec<f64> = tolerance.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [relative, absolute] = tolerance[..] else { return Err(other("no tolerance")) };
    let params = onnx_params(&bytes).map_err(other)?;
    let names: Vec<String> = params.into_iter().map(|p| p.0).collect();
    let (model, fixed) = imported(&bytes, folder, (&names, &inputs))?;
    let given = names.iter().zip(&inputs).filter(|(name, _)| !fixed.contains(*name));
    let mut args: Vec<Array> = given.map(|(_, a)| a.clone()).collect();
    for weight in &model.weights {
        args.push(array(weight)?);
    }
    let results = run(&model, &args, engine)?;
    if results.len() < outputs.len() {
        return Err(other(format!("{} results, not {}", results.len(), outputs.len())));
    }
    for (k, (got, wanted)) in results.iter().zip(&outputs).enumerate() {
        if let Some(found) = difference(got, wanted, (relative, absolute)) {
            let of_file = inexact(folder, k, (got, wanted), (relative, absolute))?;
            return Err(match of_file {
                Some(what) => OnnxVerdict::Inexact(format!("output {k}: {what}")),
                None => OnnxVerdict::Wrong(format!("output {k}: {found}")),
            });
        }
    }
    Ok(fixed.len())
}

/// How far the expected output is from the exact one, where the case has that, it is what was computed, and it is not what is
/// expected, all by the tolerance of the case.
fn inexact(
    folder: &Path,
    k: usize,
    (got, wanted): (&Array, &Array),
    tolerance: (f64, f64),
) -> Result<Option<String>, OnnxVerdict> {
    let Ok(bytes) = fs::read(folder.join(format!("exact_{k}.pb"))) else { return Ok(None) };
    let exact = array(&onnx_tensor(&bytes).map_err(other)?)?;
    if exact.dims() != got.dims() {
        return Err(other(format!("exact output {}, of {}", exact.ty(), got.ty())));
    }
    let (own, of_file) =
        (apart(got, &exact, tolerance), apart(wanted, &exact, tolerance).map(|d| d.2));
    let most = |a: &Array| {
        let off = a.iter().zip(exact.iter()).map(|(a, b)| (a.to_f64() - b.to_f64()).abs());
        off.fold(0.0, f64::max)
    };
    let (ours, theirs) = (most(got), most(wanted));
    Ok(match (own, of_file) {
        (None, Some(count)) => Some(format!(
            "the expected one is off by up to {theirs:.1e}, beyond the tolerance at {count} of {}; this one by up to {ours:.1e}",
            got.len()
        )),
        _ => None,
    })
}

/// The model, and the inputs that are fixed in it: those whose values a shape depends on.
fn imported(
    bytes: &[u8],
    folder: &Path,
    (names, inputs): (&[String], &[Array]),
) -> Result<(ImportedModel, BTreeSet<String>), OnnxVerdict> {
    let mut options = OnnxOptions::default().folder(folder);
    let mut fixed = BTreeSet::new();
    loop {
        let refused = match onnx(bytes, &options) {
            Ok(model) => return Ok((model, fixed)),
            Err(ImportError::Unsupported(coverage)) => coverage,
            Err(e) => return Err(other(e)),
        };
        let before = fixed.len();
        for (name, a) in names.iter().zip(inputs) {
            if refused.needed.contains(name) && fixed.insert(name.clone()) {
                let (dims, elements) = (a.dims().to_vec(), a.iter().collect());
                options = options.fix(name, FixedValue { dims, elements });
            }
        }
        if fixed.len() == before {
            let issue = refused.issues.first().map(|i| (i.op.clone(), i.what.clone()));
            let (op, what) = issue.unwrap_or_default();
            return Err(OnnxVerdict::Unsupported(op, what));
        }
    }
}

fn run(
    model: &ImportedModel,
    args: &[Array],
    engine: OnnxEngine,
) -> Result<Vec<Array>, OnnxVerdict> {
    let Some(f) = model.module.funcs.values().next() else { return Err(other("no function")) };
    let values = match engine {
        OnnxEngine::Reference => reference::run(&model.module, f, args, &mut reference::Silent),
        OnnxEngine::Cpu => Cpu::default().compile(&model.module, f).and_then(|made| made.run(args)),
    };
    values.map_err(other)
}

/// The first element that differs, if one does.
fn difference(got: &Array, wanted: &Array, tolerance: (f64, f64)) -> Option<String> {
    if got.ty() != wanted.ty() {
        return Some(format!("{}, not {}", got.ty(), wanted.ty()));
    }
    let relative = match got.dtype() {
        adfuse::ir::DType::BF16 => tolerance.0.max(1.0 / 64.0),
        _ => tolerance.0,
    };
    let (at, (a, b), count) = apart(got, wanted, (relative, tolerance.1))?;
    Some(format!("element {at} is {a}, not {b} ({count} of {})", got.len()))
}

/// The first element that differs, both values, and how many do: the rule of the package's own runner.
fn apart(
    got: &Array,
    wanted: &Array,
    (relative, absolute): (f64, f64),
) -> Option<(usize, (f64, f64), usize)> {
    let differs = |a: f64, b: f64| {
        let equal = a == b || a.is_nan() && b.is_nan();
        let near = (a - b).abs() <= absolute + relative * b.abs();
        !equal && !near
    };
    let pairs = || {
        got.iter().zip(wanted.iter()).map(|(a, b)| match a.dtype().is_float() {
            true => (a.to_f64(), b.to_f64(), false),
            // Large integers are no floats.
            false => (a.to_f64(), b.to_f64(), a == b),
        })
    };
    let wrong = |&(a, b, same): &(f64, f64, bool)| !same && differs(a, b);
    let (at, (a, b, _)) = pairs().enumerate().find(|(_, p)| wrong(p))?;
    Some((at, (a, b), pairs().filter(wrong).count()))
}
