//! Files of training: parameters, the optimizer's tensors and the number of steps, written whole or not at all.
//!
//! A file is in the safetensors format. Parameters have their paths as names, so that it is a file of weights too; the optimizer's tensors have
//! names that begin with `optimizer.`.

use super::objective::Objective;
use super::state::{TrainState, TrainStep};
use crate::data::safetensors::{self, Metadata};
use crate::device::Device;
use crate::ir::{At, Diagnostic, Kind, TensorType};
use crate::nn::{self, Param};
use crate::trace::Tensor;
use crate::tree::{self, Params};
use std::path::Path;

/// The texts of a file.
const FORMAT: (&str, &str) = ("adfuse.format", "1");
const STEPS: &str = "adfuse.steps";
const SEED: &str = "adfuse.seed";
const OPTIMIZER: &str = "optimizer.";

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> TrainState<M, B, R> {
    /// Writes the state to a file. Training that is loaded from it goes on with the same bits, on any number of ranks, whether they divide
    /// the optimizer's state or not. All ranks call it, and the first writes.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the file cannot be written: what was there stays.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Diagnostic> {
        let path = path.as_ref();
        let suffix = path.extension().map(|suffix| suffix.to_ascii_lowercase());
        if suffix.is_some_and(|s| ["npz", "npy", "csv", "gz"].iter().any(|other| s == *other)) {
            let m = format!("{}: a state is a safetensors file", path.display());
            return Err(Diagnostic::new(At::default(), Kind::Usage, m));
        }
        // All ranks have the same state, or a part of it each: one writes it.
        let writes = self.device().group().rank() == 0;
        if !writes && self.sharding().is_none() {
            return Ok(());
        }
        let mut arrays = tree::named_leaves(&self.params()?);
        for kept in self.kept_tensors() {
            let (kept, array) = kept?;
            if writes {
                arrays.push((format!("{OPTIMIZER}{}", kept.name), array));
            }
        }
        if !writes {
            return Ok(());
        }
        let texts = [
            (FORMAT.0.to_string(), FORMAT.1.to_string()),
            (STEPS.into(), self.steps().to_string()),
            (SEED.into(), self.seed().to_string()),
        ];
        let metadata = Metadata::from(texts);
        let named = arrays.iter().map(|(name, array)| (name.as_str(), array));
        Ok(safetensors::write(path, named, &metadata)?)
    }

    /// Writes the parameters alone ([`nn::save`]).
    ///
    /// # Errors
    /// As there.
    pub fn save_weights(&self, path: impl AsRef<Path>) -> Result<(), Diagnostic> {
        nn::save(&self.params()?, path)
    }
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> TrainStep<M, B, R> {
    /// The state that [`TrainState::save`] wrote. Steps from there have the bits that they would have had.
    ///
    /// # Errors
    /// Those of the file; [`Kind::Usage`] for a file of something else; [`Kind::UnknownName`], [`Kind::Shape`] and [`Kind::DType`] for one of another
    /// model or another optimizer.
    pub fn load(
        &self,
        device: Device,
        path: impl AsRef<Path>,
    ) -> Result<TrainState<M, B, R>, Diagnostic> {
        let path = path.as_ref();
        let (arrays, metadata) = safetensors::read(path)?;
        let wrong = |m: &str| {
            let m = format!("{}: {m}", path.display());
            Diagnostic::new(At::default(), Kind::Usage, m)
        };
        if metadata.get(FORMAT.0).map(String::as_str) != Some(FORMAT.1) {
            let hint = "weights alone are loaded by `adfuse::nn::load`";
            return Err(wrong("it is no state of training").hint(hint));
        }
        let number = |key: &str| metadata.get(key).and_then(|text| text.parse::<u64>().ok());
        let (Some(steps), Some(seed)) = (number(STEPS), number(SEED)) else {
            return Err(wrong("it has no number of steps, or no seed"));
        };
        // A parameter may have a name that begins so too.
        let paths: Vec<String> =
            tree::named_leaves(self.model()).into_iter().map(|(path, _)| path).collect();
        let (own, weights): (Vec<_>, Vec<_>) = arrays
            .into_iter()
            .partition(|(name, _)| name.starts_with(OPTIMIZER) && !paths.contains(name));
        let values = nn::named(self.model(), &weights)?;
        let mut kept = Vec::new();
        for state in self.optimizer_state() {
            let found = own.iter().find(|(name, _)| name[OPTIMIZER.len()..] == state.name);
            let Some((_, array)) = found else {
                let m = format!("the optimizer keeps `{}`, which it does not have", state.name);
                return Err(wrong(&m));
            };
            expect(&state.name, &state.ty, &array.ty()).map_err(|m| wrong(&m))?;
            kept.push(array.clone());
        }
        if own.len() != kept.len() {
            return Err(wrong("it is of another optimizer, which keeps more"));
        }
        self.resumed(device, tree::leaves(&values), kept, (seed, steps))
    }
}

fn expect(name: &str, due: &TensorType, found: &TensorType) -> Result<(), String> {
    match due == found {
        true => Ok(()),
        false => Err(format!("the optimizer's `{name}` is {due}, found {found}")),
    }
}
