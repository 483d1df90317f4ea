//! Values of parameters that come with a program, or that the command line names a file of.

use super::failure::Failure;
use super::opened::is_no_folder;
use super::params::{NamedParam, fits};
use super::source::{ProgramWeights, SourceText, is_stdin};
use super::streams::Streams;
use adfuse::backends::Array;
use adfuse::data::safetensors;
use adfuse::import::onnx_name;
use adfuse::ir::Function;
use std::path::{Path, PathBuf};

/// Values of parameters by their names.
#[derive(Debug, Default)]
pub(super) struct Weights {
    named: Vec<(String, Array)>,
    /// Where they come from, as messages say it.
    origin: String,
    /// Whether the user named the file.
    named_by_user: bool,
}

impl Weights {
    /// Those of a file that is named, or those that come with the program.
    pub(super) fn of(named: Option<&Path>, program: &SourceText) -> Result<Weights, Failure> {
        let file = match (named, &program.weights) {
            (Some(file), _) => file.to_path_buf(),
            (None, ProgramWeights::Beside(file)) => file.clone(),
            (None, ProgramWeights::None) => return Ok(Weights::default()),
            (None, ProgramWeights::Model(all)) => {
                let origin = program.name.clone();
                return Ok(Weights { named: all.to_vec(), origin, named_by_user: false });
            }
        };
        is_no_folder(&file)?;
        let (all, _) = safetensors::read(&file).map_err(|e| Failure::usage(e.to_string()))?;
        let plain = all.into_iter().map(|(name, a)| (onnx_name(&name), a));
        let (origin, named_by_user) = (file.display().to_string(), named.is_some());
        Ok(Weights { named: plain.collect(), origin, named_by_user })
    }

    /// Whether there is a value with the name of a parameter.
    pub(super) fn has(&self, param: &NamedParam) -> bool {
        self.named.iter().any(|(name, _)| *name == param.name)
    }

    /// The value of a parameter, which must have its type.
    pub(super) fn value(&self, param: &NamedParam) -> Result<Option<Array>, Failure> {
        let Some((_, a)) = self.named.iter().find(|(name, _)| *name == param.name) else {
            return Ok(None);
        };
        let what = format!("the one in `{}`", self.origin);
        fits(param, a.dims(), &what)?;
        if a.dtype() != param.ty.dtype {
            let NamedParam { name, ty } = param;
            return Err(Failure::usage(format!(
                "input {name}: %{name} is {ty}, {what} is {}",
                a.ty()
            )));
        }
        Ok(Some(a.clone()))
    }

    /// Errs when the user named a file, and none of its tensors is of one of these parameters: it is another program's.
    pub(super) fn some_known(&self, params: &[NamedParam], func: &str) -> Result<(), Failure> {
        let known = |name: &String| params.iter().any(|p| p.name == *name);
        if !self.named_by_user || self.named.iter().any(|(name, _)| known(name)) {
            return Ok(());
        }
        let m = format!("no tensor in `{}` has the name of an input of @{func}", self.origin);
        Err(Failure::usage(m))
    }
}

/// The file in which the weights of a program of this name are.
pub(super) fn beside(path: &Path) -> Option<PathBuf> {
    let is_program = path.extension().is_some_and(|e| e == "ir");
    (is_program && !is_stdin(path)).then(|| path.with_extension("safetensors"))
}

/// Writes weights to the file that belongs to a program. A file that is there is replaced where it has weights of these
/// names: it was written for such a program.
pub(super) fn write_beside(path: &Path, weights: &[(&str, &Array)]) -> Result<(), Failure> {
    let is_own = |name: &str| weights.iter().any(|(own, _)| *own == onnx_name(name));
    if path.exists()
        && !safetensors::read(path).is_ok_and(|(all, _)| all.iter().any(|(name, _)| is_own(name)))
    {
        let m = format!(
            "the weights would replace `{}`, which has none of this program",
            path.display()
        );
        return Err(Failure::usage(m).hint(Some("choose another name for the output".into())));
    }
    let named = weights.iter().copied();
    safetensors::write(path, named, &safetensors::Metadata::new())
        .map_err(|e| Failure::usage(e.to_string()))
}

/// Has the weights of a program go with a function that was made of it: beside the file that it is written to. Where the
/// function is printed, they are lost, which is told.
pub(super) fn carry(
    program: &SourceText,
    made: &Function,
    streams: &mut Streams<'_>,
) -> Result<(), Failure> {
    if matches!(program.weights, ProgramWeights::None) {
        return Ok(());
    }
    let weights = Weights::of(None, program)?;
    let is_input = |(name, a): &&(String, Array)| {
        let mut params = made.params().iter();
        params.any(|&p| made.name_of(p) == Some(name) && *made.ty(p) == a.ty())
    };
    let kept: Vec<(&str, &Array)> =
        weights.named.iter().filter(is_input).map(|(name, a)| (name.as_str(), a)).collect();
    if kept.is_empty() {
        return Ok(());
    }
    match streams.output.as_ref().and_then(|file| beside(&file.path)) {
        Some(file) => write_beside(&file, &kept),
        None => {
            streams.note(left_out(kept.len()));
            Ok(())
        }
    }
}

/// What is told where weights are not written.
pub(super) fn left_out(count: usize) -> String {
    let weights = if count == 1 { "1 weight is" } else { &format!("{count} weights are") };
    format!("{weights} not in this text: `--output NAME.ir` keeps weights beside it")
}
