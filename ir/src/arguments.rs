//! Arguments against parameters: errors that name the parameter, for all engines.

use crate::diag::{At, Diagnostic, Kind, listed};
use crate::types::TensorType;

/// Whether arguments of these types are what a function's parameters take.
///
/// # Errors
/// [`Kind::Usage`] with the first parameter whose argument has another type, or all where their number is another.
pub fn check_arguments(
    func: &str,
    params: &[(String, TensorType)],
    found: &[TensorType],
) -> Result<(), Diagnostic> {
    if params.len() != found.len() {
        return Err(miscounted(func, params, found.len()));
    }
    match params.iter().zip(found).find(|((_, due), found)| due != *found) {
        None => Ok(()),
        Some(((name, due), found)) => Err(misfit(func, (name, due), found, params)),
    }
}

/// The error of an argument of another type than its parameter's. `params` are all parameters, of which another may
/// take it.
pub(crate) fn misfit(
    func: &str,
    (name, due): (&str, &TensorType),
    found: &TensorType,
    params: &[(String, TensorType)],
) -> Diagnostic {
    let d = error(func, format!("argument %{name} is {due}, found {found}"));
    if let Some((other, _)) = params.iter().find(|(_, ty)| ty == found) {
        let order: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
        let order = listed(&order, "%");
        return d.hint(format!("%{other} takes that; the order is {order}"));
    }
    if due.dtype != found.dtype && due.shape == found.shape {
        return d.hint(format!("`convert(DType::{:?})` makes one", due.dtype));
    }
    let mut axes = due.shape.iter().zip(&found.shape).enumerate();
    match axes.find(|(_, (due, found))| due.known().is_some() && due != found) {
        Some((axis, (n, _))) if due.rank() == found.rank() => d.hint(format!("axis {axis} is {n}")),
        _ => d,
    }
}

/// The error of another number of arguments than there are parameters.
pub(crate) fn miscounted(func: &str, params: &[(String, TensorType)], found: usize) -> Diagnostic {
    let n = match params.len() {
        1 => "1 argument is".into(),
        n => format!("{n} arguments are"),
    };
    let d = error(func, format!("{n} due, found {found}"));
    let all: Vec<String> = params.iter().map(|(name, ty)| format!("%{name}: {ty}")).collect();
    match all.is_empty() {
        true => d,
        false => d.hint(listed(&all, "")),
    }
}

fn error(func: &str, message: String) -> Diagnostic {
    Diagnostic::new(At { func: Some(func.into()), ..At::default() }, Kind::Usage, message)
}
