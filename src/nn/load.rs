//! Values of parameters from arrays by name, such as a file of weights has.

use super::Param;
use crate::backends::Array;
use crate::ir::{At, Diagnostic, Kind, Literal};
use crate::tree::{Params, try_map};
use std::collections::BTreeMap;

/// Names of arrays that models have no parameters for: PyTorch counts the batches that a norm has seen.
const COUNTERS: &str = "num_batches_tracked";

/// What PyTorch appends to the names of a recurrent network's first layer.
const FIRST_LAYER: &str = "_l0";

/// The parameters of a model from arrays by the paths of the parameters, as PyTorch names those of a `state_dict`.
///
/// Floats of another type than the parameter's are converted. Names of a recurrent layer may end with `_l0`; PyTorch's counters of batches
/// (`num_batches_tracked`) are left out.
///
/// ```
/// use adfuse::nn::{self, Linear};
/// use adfuse::prelude::*;
///
/// let weight = Array::from_f32s(&[1, 2], &[1.0, 2.0])?;
/// let arrays = [("weight".to_string(), weight.clone())];
/// let layer = nn::load(&Linear::new(2, 1).no_bias(), arrays)?;
/// assert_eq!(layer.weight, weight);
/// # Ok::<(), Diagnostic>(())
/// ```
///
/// # Errors
/// [`Kind::Usage`] when a parameter has no array or an array no parameter, [`Kind::Shape`] when the extents of one differ and [`Kind::DType`]
/// when its elements cannot be the parameter's; each with the names.
pub fn load<M: Params<Param>>(
    model: &M,
    arrays: impl IntoIterator<Item = (String, Array)>,
) -> Result<M::With<Array>, Diagnostic> {
    let mut arrays: BTreeMap<String, Array> = arrays.into_iter().collect();
    let mut missing = Vec::new();
    let found = try_map(model, |path, param| {
        let path = path.as_str();
        let array = arrays.remove(path).or_else(|| arrays.remove(&format!("{path}{FIRST_LAYER}")));
        let Some(array) = array else {
            missing.push(path.to_string());
            // No model has it: an error follows.
            return Ok(Array::scalar(Literal::from_f64(param.ty.dtype, 0.0)));
        };
        fitted(path, param, array)
    })?;
    arrays.retain(|name, _| name.rsplit('.').next() != Some(COUNTERS));
    let surplus: Vec<String> = arrays.into_keys().collect();
    match (missing.is_empty(), surplus.is_empty()) {
        (true, true) => Ok(found),
        (false, true) => Err(wrong(Kind::Usage, format!("no arrays for {}", listed(&missing)))),
        (true, false) => Err(wrong(Kind::Usage, format!("no parameters for {}", listed(&surplus)))),
        (false, false) => {
            let m = format!("no arrays for {}; no parameters for {}", listed(&missing), listed(&surplus));
            Err(wrong(Kind::Usage, m))
        }
    }
}

/// The array as a value of the parameter.
fn fitted(path: &str, param: &Param, array: Array) -> Result<Array, Diagnostic> {
    let (due, found) = (&param.ty, array.ty());
    if due.shape != found.shape {
        return Err(wrong(Kind::Shape, format!("the parameter `{path}` is {due}, found {found}")));
    }
    if due.dtype == found.dtype {
        return Ok(array);
    }
    if due.dtype.is_float() && found.dtype.is_float() {
        return Ok(array.convert(due.dtype));
    }
    Err(wrong(Kind::DType, format!("the parameter `{path}` is {due}, found {found}")))
}

/// At most five names, and how many more there are.
fn listed(names: &[String]) -> String {
    let first: Vec<String> = names.iter().take(5).map(|n| format!("`{n}`")).collect();
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn wrong(kind: Kind, m: String) -> Diagnostic {
    Diagnostic::new(At::default(), kind, m)
}
