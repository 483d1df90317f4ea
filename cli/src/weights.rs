//! Values of parameters that come with a program, or that the command line names a file of.

use super::failure::Failure;
use super::params::{NamedParam, fits};
use super::source::{ProgramWeights, SourceText};
use adfuse::backends::Array;
use adfuse::data::safetensors;
use adfuse::import::onnx_name;
use std::path::Path;

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
