//! Lowering: functions of the syntax tree become functions of the IR.

mod attributes;
mod bits;
mod complex;
mod constant;
mod context;
mod control;
mod dimension_numbers;
mod elementwise;
mod extents;
mod gather_window;
mod indirect;
mod linalg;
mod number;
mod reduce;
mod rng;
mod shape;
mod short;
mod sort;
mod table;
mod window;

pub use context::Compare;

use crate::emit::refusal::Unlowered;
use crate::report::Coverage;
use crate::text::tree::{FunctionTree, ParamTree};
use adfuse_ir::{Builder, Diagnostic, Function, Shape, Value};
use context::ModuleLowering;
use number::{ImportedNumber, values_of};
use std::collections::{BTreeMap, BTreeSet};

/// A lowered function, with the comparisons of tests at the end of its results: pairs of the value and what it should be.
pub(crate) struct ImportedFunction {
    pub(crate) function: Function,
    /// Whether other functions alone call it.
    pub(crate) private: bool,
    pub(crate) checks: Vec<Compare>,
}

/// The name that a function has in the IR: what its grammar does not allow becomes `_`.
fn ir_name(name: &str, taken: &BTreeSet<String>) -> String {
    let allowed =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') { c } else { '_' };
    let mut plain: String = name.chars().map(allowed).take(200).collect();
    if !plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        plain.insert(0, '_');
    }
    let numbered = (1..).map(|k| format!("{plain}_{k}"));
    std::iter::once(plain.clone()).chain(numbered).find(|n| !taken.contains(n)).unwrap_or(plain)
}

/// The functions of a text, public ones first, and what of it cannot be imported.
pub(crate) fn lower(
    functions: &[FunctionTree<'_>],
    checks: bool,
    extents: &BTreeMap<String, u64>,
) -> Result<(Vec<ImportedFunction>, Coverage), Diagnostic> {
    let (mut names, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for (k, f) in functions.iter().enumerate() {
        let name = ir_name(f.name, &taken);
        taken.insert(name.clone());
        names.entry(f.name).or_insert((k, name));
    }
    let (row, map, complex) = (table::row, elementwise::map, complex::lower);
    let mut cx = ModuleLowering::new(functions, names, row, map, complex, checks);
    cx.extents.clone_from(extents);
    let mut lowered = Vec::new();
    let order = functions.iter().enumerate().filter(|(_, f)| !f.private);
    for (k, f) in order.chain(functions.iter().enumerate().filter(|(_, f)| f.private)) {
        let name = match cx.names.get(f.name) {
            Some((first, name)) if *first == k => name.clone(),
            _ => {
                cx.issue("func.func", format!("a second function @{}", f.name), f.span);
                continue;
            }
        };
        // Its extents are those of the operands: its body stands where it is called.
        if f.private && extents::is_dynamic(f) {
            continue;
        }
        cx.b = Builder::new(name);
        if let Some(made) = function(&mut cx, f)? {
            lowered.push(made);
        }
    }
    let unknown: Vec<String> = extents.keys().filter(|n| !cx.bound.contains(*n)).cloned().collect();
    for name in unknown {
        let span = functions.first().map(|f| f.span).unwrap_or_default();
        cx.issue("func.func", format!("no extent of a parameter is called `{name}`"), span);
    }
    Ok((lowered, Coverage { usage: cx.usage, issues: cx.issues, needed: Vec::new() }))
}

/// One function; `None` where something of it was refused, which has been noted.
fn function<'t>(
    cx: &mut ModuleLowering<'t>,
    f: &'t FunctionTree<'t>,
) -> Result<Option<ImportedFunction>, Diagnostic> {
    cx.forget();
    cx.checks.clear();
    let mut params: Vec<Option<ImportedNumber>> = Vec::new();
    let shapes = extents::parameters(cx, f);
    let named = |p: &'t ParamTree<'t>| Some(p.label.as_deref().unwrap_or(p.name));
    let given = f.body.params.iter().zip(&shapes).map(|(p, shape)| (named(p), &p.ty, shape));
    let none = Shape::new();
    let signature = given.chain(f.results.iter().map(|ty| (None, ty, &none)));
    let mut whole = true;
    for (name, ty, shape) in signature {
        let ty = match name {
            Some(_) => cx.number_type_at(ty, shape),
            None if ty.is_dynamic() => continue,
            None => cx.number_type(ty),
        };
        match (ty, name) {
            (Ok(ty), Some(name)) => params.push(Some(cx.parameter(name, &ty))),
            (Ok(_), None) => {}
            (Err(why), name) => {
                whole = false;
                if let Unlowered::Unsupported(what) = why {
                    cx.issue("func.func", what, f.span);
                }
                if name.is_some() {
                    params.push(None);
                }
            }
        }
    }
    let results = cx.block(&f.body, &params);
    let mut values: Vec<Value> = match results {
        Ok(results) if whole && results.len() == f.results.len() => values_of(&results),
        Ok(_) if whole => {
            cx.issue("func.return", format!("other than {} results", f.results.len()), f.span);
            return Ok(None);
        }
        Err(Unlowered::Unsupported(what)) => {
            cx.issue("func.return", what, f.span);
            return Ok(None);
        }
        _ => return Ok(None),
    };
    let checks = std::mem::take(&mut cx.checks);
    values.extend(checks.iter().flat_map(|(_, got, wanted)| [got.value, wanted.value]));
    cx.b.set_results(&values);
    cx.b.func_mut().symbols = std::mem::take(&mut cx.symbols);
    let made = std::mem::replace(&mut cx.b, Builder::new("")).finish()?;
    Ok(Some(ImportedFunction {
        function: made,
        private: f.private,
        checks: checks.into_iter().map(|c| c.0).collect(),
    }))
}
