//! Models of other frameworks as programs.

use super::failure::Failure;
use super::inputs::{GivenValue, Inputs};
use super::opened::{opened, unreadable};
use super::params::NamedParam;
use super::source::{ProgramWeights, SourceText, is_stdin};
use super::spec::InputArg;
use super::weights;
use super::whole;
use adfuse::backends::Array;
use adfuse::import::{
    FixedValue, ImportError, ImportedModel, OnnxOptions, Weight, is_onnx, onnx, onnx_params,
};
use adfuse::ir::{Dim, Symbol, TensorType};
use std::fmt::Display;
use std::io::Read;
use std::path::Path;

/// The bytes of a file, if they are a model.
pub(super) fn bytes(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    if is_stdin(path) {
        return Ok(None);
    }
    let unreadable = |e: std::io::Error| unreadable(path, &e);
    let mut file = opened(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(4096).read_to_end(&mut bytes).map_err(unreadable)?;
    // The fields of a model begin with bytes that no text has.
    let control = |b: &u8| *b < b'\t' || (0x0e..0x20).contains(b);
    if !bytes.iter().any(control) {
        return Ok(None);
    }
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(is_onnx(&bytes).then_some(bytes))
}

/// What the command line says of a program that is imported.
#[derive(Clone, Debug, Default)]
pub(super) struct ImportGiven {
    /// Extents of symbols.
    pub(super) extents: Vec<(Symbol, u64)>,
    /// Values of inputs on which shapes depend.
    pub(super) fixed: Vec<InputArg>,
}

impl ImportGiven {
    /// The options that a model is imported with: inputs that are fixed, and no extents.
    pub(super) fn options(&self, path: &Path, bytes: &[u8]) -> Result<OnnxOptions, Failure> {
        let mut options = options(path);
        let inputs = Inputs::new(self.fixed.clone(), 0)?;
        let known = onnx_params(bytes).map_err(|e| refused(path, &e))?;
        let params: Vec<NamedParam> =
            known.into_iter().map(|(name, ty)| NamedParam { name, ty }).collect();
        inputs.all_known(&params, "main")?;
        for param in &params {
            let Some(GivenValue::Array(a)) = inputs.read(param)? else { continue };
            let value = FixedValue { dims: a.dims().to_vec(), elements: a.iter().collect() };
            options = options.fix(&param.name, value);
        }
        Ok(options)
    }

    /// The same, with the extents.
    pub(super) fn options_at_extents(&self, options: OnnxOptions) -> OnnxOptions {
        self.extents.iter().fold(options, |options, (s, n)| options.extent(s.as_str(), *n))
    }
}

/// Errs where a symbol is in none of the types of a program's parameters.
pub(super) fn symbols_known<'t>(
    name: impl Display,
    types: impl Iterator<Item = &'t TensorType> + Clone,
    given: &[(Symbol, u64)],
) -> Result<(), Failure> {
    let has = |s: &Symbol| types.clone().any(|ty| ty.shape.contains(&Dim::Sym(*s)));
    match given.iter().find(|(s, _)| !has(s)) {
        None => Ok(()),
        Some((s, _)) => {
            Err(Failure::usage(format!("`{name}` has no symbolic dimension `{}`", s.as_str())))
        }
    }
}

/// The options that a model in a file is imported with.
pub(super) fn options(path: &Path) -> OnnxOptions {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    OnnxOptions::default().folder(folder.unwrap_or(Path::new(".")))
}

/// The failure that an import error is.
pub(super) fn refused(path: &Path, error: &ImportError) -> Failure {
    let name = path.display().to_string();
    let source =
        SourceText { name, text: "".into(), weights: ProgramWeights::None, bound: [].into() };
    let mut errors = error.diagnostics();
    if let (ImportError::Unsupported(coverage), Some(last)) = (error, errors.last_mut()) {
        let needed = coverage.needed.join(" and of ");
        let why = "give extents with --dim, values with --fix";
        if !needed.is_empty() {
            last.hint = Some(format!("the values of {needed} are needed: {why}"));
        }
    }
    source.wrong(errors)
}

/// A model as a program. Where symbols do not express its extents, it is imported at those that are given.
pub(super) fn imported(
    path: &Path,
    bytes: &[u8],
    given: &ImportGiven,
) -> Result<SourceText, Failure> {
    let options = given.options(path, bytes)?;
    let (made, bound) = match onnx(bytes, &options) {
        Err(ImportError::Unsupported(_)) if !given.extents.is_empty() => {
            let params = onnx_params(bytes).map_err(|e| refused(path, &e))?;
            symbols_known(path.display(), params.iter().map(|(_, ty)| ty), &given.extents)?;
            (onnx(bytes, &given.options_at_extents(options)), given.extents.clone())
        }
        made => (made, Vec::new()),
    };
    let ImportedModel { module, weights, .. } = made.map_err(|e| refused(path, &e))?;
    let weights = arrays(&weights)?;
    Ok(SourceText {
        name: path.display().to_string(),
        text: module.to_string().into(),
        weights: ProgramWeights::Model(weights.into()),
        bound: bound.into(),
    })
}

/// The values of weights, by name.
fn arrays(weights: &[Weight]) -> Result<Vec<(String, Array)>, Failure> {
    let array = |w: &Weight| {
        let dims = w.ty.dims().unwrap_or_default();
        match Array::read_le(w.ty.dtype, &dims, &mut &w.bytes[..]) {
            Ok(a) => Ok((w.name.clone(), a)),
            Err(e) => Err(Failure::usage(format!("the weight `{}`: {e}", w.name))),
        }
    };
    weights.iter().map(array).collect()
}

/// Writes a program, and its weights beside it.
pub(super) fn write_program(path: &Path, model: &ImportedModel) -> Result<(), Failure> {
    if !model.weights.is_empty() {
        let Some(file) = weights::beside(path) else {
            let m =
                format!("`{}` has weights, which are kept beside a file NAME.ir", path.display());
            return Err(Failure::usage(m));
        };
        let arrays = arrays(&model.weights)?;
        let named = arrays.iter().map(|(name, a)| (name.as_str(), a));
        weights::write_beside(&file, &named.collect::<Vec<_>>())?;
    }
    let text = model.module.to_string();
    whole::write(path, |file| std::io::Write::write_all(file, text.as_bytes()))?;
    Ok(())
}
