//! The names of values in plans.

use adfuse_ir::text::Names;
use adfuse_ir::{At, Diagnostic, Function, Kind, Value};

/// The value of a prepared function that has this name, with or without `%`.
///
/// # Errors
/// If there is none; a near name is the hint.
pub fn value_named(f: &Function, name: &str) -> Result<Value, Diagnostic> {
    let name = name.trim().trim_start_matches('%');
    let names = Names::of(f);
    let insts = f.body_insts().iter().flat_map(|&i| f.inst_results(i));
    let all: Vec<(String, Value)> =
        f.params().iter().chain(insts).map(|&v| (names.get(v), v)).collect();
    if let Some((_, v)) = all.iter().find(|(n, _)| n == name) {
        return Ok(*v);
    }
    let m = format!("@{} has no value %{name} once it is prepared", f.name);
    let at = At { func: Some(f.name.clone()), ..At::default() };
    let near = adfuse_ir::diag::did_you_mean(name, all.iter().map(|(n, _)| n.as_str()));
    Err(Diagnostic::new(at, Kind::UnknownName, m).hint(match near {
        Some(near) => format!("did you mean `%{near}`?"),
        None => "`adfuse emit --stage ad` prints the function whose values plans name".into(),
    }))
}
