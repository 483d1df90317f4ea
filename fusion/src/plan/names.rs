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
    let at = At { func: Some(f.name.clone()), ..At::default() };
    if is_nested(f, &names, name) {
        let m = format!(
            "%{name} is inside a loop or a branch, and plans decide nothing about the values there"
        );
        let hint = "a loop or a branch is one step of the plan: name one of its results";
        return Err(Diagnostic::new(at, Kind::UnknownName, m).hint(hint));
    }
    let m = format!("@{} has no value %{name} once it is prepared", f.name);
    let near = adfuse_ir::diag::did_you_mean(name, all.iter().map(|(n, _)| n.as_str()));
    Err(Diagnostic::new(at, Kind::UnknownName, m).hint(match near {
        Some(near) => format!("did you mean `%{near}`?"),
        None => "`adfuse emit --stage ad` prints the function whose values plans name".into(),
    }))
}

/// Whether a value inside a loop or a branch has this name.
fn is_nested(f: &Function, names: &Names, name: &str) -> bool {
    let mut found = false;
    f.walk(&mut |f, i| {
        let params = f.inst(i).regions.iter().flat_map(|&r| &f.region(r).params);
        found |= f.inst_results(i).iter().chain(params).any(|&v| names.get(v) == name);
    });
    found
}
