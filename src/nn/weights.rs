//! Values of a model by the names of its parameters: what files of weights hold.

use super::Param;
use crate::backends::Array;
use crate::ir::diag::instead;
use crate::ir::{At, Diagnostic, Kind};
use crate::tree::{self, Params};

/// How many names an error lists.
const LISTED: usize = 5;

/// What PyTorch counts in norms of batches beside their statistics; nothing here reads it.
const COUNTED: &str = "num_batches_tracked";

/// The values of a model's parameters, found by their paths among named arrays. Elements of other float types are converted.
///
/// ```
/// use adfuse::nn::{self, Linear};
/// use adfuse::prelude::*;
///
/// let arrays = [("weight".to_string(), Array::from_vec(vec![1f64, 2.0], [1, 2])?)];
/// let layer = nn::named(&Linear::new(2, 1).no_bias(), &arrays)?;
/// assert_eq!(layer.weight.as_slice::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), Diagnostic>(())
/// ```
///
/// # Errors
/// [`Kind::UnknownName`] for parameters without an array and for arrays without a parameter; [`Kind::Shape`] and [`Kind::DType`] for
/// an array that does not fit.
pub fn named<M: Params<Param>>(
    model: &M,
    arrays: &[(String, Array)],
) -> Result<M::With<Array>, Diagnostic> {
    named_by(model, arrays, |path| path.to_string())
}

/// As [`named`], for arrays with other names: the function gives the name of an array for the path of a parameter.
///
/// ```
/// use adfuse::nn::{self, Lstm};
/// use adfuse::prelude::*;
///
/// // PyTorch numbers the layers of a recurrent network.
/// let lstm = Lstm::new(3, 4);
/// let named = adfuse::tree::named_leaves(&nn::init(&lstm, 0)?);
/// let arrays: Vec<_> = named.into_iter().map(|(name, a)| (name + "_l0", a)).collect();
/// assert!(nn::named(&lstm, &arrays).is_err());
/// nn::named_by(&lstm, &arrays, |path| format!("{path}_l0"))?;
/// # Ok::<(), Diagnostic>(())
/// ```
///
/// # Errors
/// As there.
pub fn named_by<M: Params<Param>>(
    model: &M,
    arrays: &[(String, Array)],
    name: impl Fn(&str) -> String,
) -> Result<M::With<Array>, Diagnostic> {
    let all = tree::named_leaves(model);
    let due: Vec<String> = all.iter().map(|(path, _)| name(path)).collect();
    let found: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
    let missing: Vec<&str> =
        due.iter().map(String::as_str).filter(|n| !found.contains(n)).collect();
    if let Some(first) = missing.first() {
        let mut d = unknown(format!("there are no weights for {}", listed(&missing)));
        d.hint = instead(first, &found, "");
        return Err(d);
    }
    let surplus = found.iter().filter(|n| !due.iter().any(|d| d == *n) && !n.ends_with(COUNTED));
    let surplus: Vec<&str> = surplus.copied().collect();
    if let Some(first) = surplus.first() {
        let mut d = unknown(format!("the model has no parameters {}", listed(&surplus)));
        d.hint = instead(first, &due.iter().map(String::as_str).collect::<Vec<_>>(), "");
        return Err(d);
    }
    tree::try_map(model, |path, param| {
        let own = name(path.as_str());
        let found = arrays.iter().find(|(name, _)| *name == own);
        let (_, array) =
            found.ok_or_else(|| unknown(format!("there are no weights for `{own}`")))?;
        fitted(path.as_str(), param, array)
    })
}

/// An array as the value of a parameter.
fn fitted(path: &str, param: &Param, array: &Array) -> Result<Array, Diagnostic> {
    let (due, found) = (&param.ty, array.ty());
    if due.shape != found.shape {
        let m = format!("the parameter `{path}` is {due}, its weights are {found}");
        return Err(Diagnostic::new(At::default(), Kind::Shape, m));
    }
    if due.dtype != found.dtype && !(due.dtype.is_float() && found.dtype.is_float()) {
        let m = format!("the parameter `{path}` is {due}, its weights are {found}");
        return Err(Diagnostic::new(At::default(), Kind::DType, m));
    }
    Ok(array.convert(due.dtype))
}

fn unknown(m: String) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::UnknownName, m)
}

fn listed(names: &[&str]) -> String {
    let some: Vec<String> = names.iter().take(LISTED).map(|n| format!("`{n}`")).collect();
    match names.len().saturating_sub(LISTED) {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

/// The values of a model's parameters from a file that [`read_arrays`](crate::data::read_arrays) reads, such as the weights that PyTorch
/// wrote, or a saved state of training.
///
/// # Errors
/// As [`named`], and those of the file.
#[cfg(feature = "data")]
pub fn load<M: Params<Param>>(
    model: &M,
    path: impl AsRef<std::path::Path>,
) -> Result<M::With<Array>, Diagnostic> {
    let mut arrays = crate::data::read_arrays(path)?;
    let paths: Vec<String> = tree::named_leaves(model).into_iter().map(|(path, _)| path).collect();
    // What the optimizer of a saved state keeps is no weight.
    arrays.retain(|(name, _)| paths.contains(name) || !name.starts_with("optimizer."));
    named(model, &arrays)
}

/// Writes values of parameters to a file by their paths, whole or not at all. The format is that of the name's suffix, such as `.safetensors`.
///
/// ```
/// use adfuse::nn::{self, Linear};
/// use adfuse::prelude::*;
///
/// let model = Linear::new(3, 2);
/// let values = nn::init(&model, 0)?;
/// let path = std::env::temp_dir().join(format!("adfuse-doc-{}.safetensors", std::process::id()));
/// nn::save(&values, &path)?;
/// assert_eq!(nn::load(&model, &path)?.weight, values.weight);
/// # let _ = std::fs::remove_file(path);
/// # Ok::<(), Diagnostic>(())
/// ```
///
/// # Errors
/// Those of the file.
#[cfg(feature = "data")]
pub fn save<V: Params<Array>>(
    values: &V,
    path: impl AsRef<std::path::Path>,
) -> Result<(), Diagnostic> {
    let all = tree::named_leaves(values);
    let named = all.iter().map(|(name, array)| (name.as_str(), array));
    Ok(crate::data::write_arrays(path, named)?)
}
