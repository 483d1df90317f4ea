//! Checks derivatives against the function itself, in `f64`.
//!
//! Forward mode is compared with central differences along a random direction of each differentiable input. Reverse
//! mode is compared with forward mode by `<ct, J t> = <Jᵀ ct, t>`. If they disagree, each instruction is checked alone
//! at its operands, so that the faulty op is named. A function with a `custom_vjp` has no forward mode: its rule is
//! compared with the derivative of the function itself.

mod blame;
mod case;
mod options;
mod outcome;

pub use options::CheckOptions;
pub use outcome::{CheckRow, CheckedMode, Outcome};

use crate::autodiff::differentiable;
use crate::backends::{Array, Silent, with_effects};
use crate::engine::{Engine, Reference};
use crate::ir::op::Domain;
use crate::ir::rewrite::{specialize, widen};
use crate::ir::{DType, Diagnostic, Function, Module, Symbol};
use crate::sample::{rng, sample};
use case::{Case, CaseContext, freeze};
use std::collections::BTreeMap;

/// Checks the functions of a verified module that the options ask for.
///
/// # Errors
/// When a function cannot be evaluated at all (memory, symbols that nothing binds).
pub fn check(module: &Module, options: &CheckOptions) -> Result<Vec<CheckRow>, Diagnostic> {
    check_on(module, options, &Reference::default())
}

/// Checks the functions of a verified module that the options ask for, values and derivatives by this engine.
///
/// # Errors
/// As [`check`], and where the engine does not run a function.
pub fn check_on(
    module: &Module,
    options: &CheckOptions,
    engine: &dyn Engine,
) -> Result<Vec<CheckRow>, Diagnostic> {
    let wide = widen(module)?;
    let mut rows = Vec::new();
    let asked = |f: &Function| options.only.as_ref().is_none_or(|name| *name == f.name);
    let all = wide.funcs.values().zip(module.funcs.values());
    for (f, written) in all.filter(|(_, written)| asked(written)) {
        let f = with_extents(f, options)?;
        let setting = CaseContext { module: &wide, written, options, engine };
        rows.extend(check_one(&setting, &f)?);
    }
    Ok(rows)
}

/// Checks one `f64` function without symbols.
///
/// # Errors
/// As [`check`].
pub fn check_function(
    module: &Module,
    f: &Function,
    options: &CheckOptions,
) -> Result<Vec<CheckRow>, Diagnostic> {
    check_one(&CaseContext { module, written: f, options, engine: &Reference::default() }, f)
}

/// Functions are run many times: what they print says nothing.
fn check_one(setting: &CaseContext<'_>, f: &Function) -> Result<Vec<CheckRow>, Diagnostic> {
    with_effects(&mut Silent, || compared(setting, f))
}

fn compared(setting: &CaseContext<'_>, f: &Function) -> Result<Vec<CheckRow>, Diagnostic> {
    let row = |input: &str, mode, outcome| CheckRow {
        func: f.name.clone(),
        input: input.to_string(),
        mode,
        outcome,
    };
    let has_float_result = f.result_types().iter().any(|t| t.dtype.is_float());
    let Ok(wrt) = differentiable(f, None) else {
        return Ok(vec![row("", CheckedMode::Forward, Outcome::Nothing)]);
    };
    if !has_float_result {
        return Ok(vec![row("", CheckedMode::Forward, Outcome::Nothing)]);
    }
    let point = match finite_point(setting, f)? {
        Ok(point) => point,
        Err(result) => return Ok(vec![row("", CheckedMode::Forward, Outcome::NotFinite(result))]),
    };
    let fixed = freeze(setting, f, &point)?;
    let mut rows = Vec::new();
    for &k in &wrt {
        let name = f.name_of(f.params()[k]).map_or(format!("{k}"), str::to_string);
        let case = Case { setting, f, fixed: fixed.as_ref(), point: &point, wrt: k };
        let (forward, reverse) = case.compare()?;
        let blame = |outcome| match outcome {
            Outcome::Fail(by, message) => {
                let at = blame::culprit(setting, f, &point);
                Outcome::Fail(by, blame::joined(at, message))
            }
            other => other,
        };
        rows.push(row(&name, CheckedMode::Forward, blame(forward)));
        rows.push(row(&name, CheckedMode::Reverse, blame(reverse)));
    }
    Ok(rows)
}

fn with_extents(f: &Function, options: &CheckOptions) -> Result<Function, Diagnostic> {
    let extents: BTreeMap<Symbol, u64> = f
        .symbols
        .iter()
        .zip(3u64..)
        .map(|(&s, default)| (s, options.extents.get(&s).copied().unwrap_or(default)))
        .collect();
    if extents.is_empty() {
        return Ok(f.clone());
    }
    specialize(f, &extents).map_err(|mut errors| errors.swap_remove(0))
}

/// A point where all float results are finite, or a result that never was.
fn finite_point(
    setting: &CaseContext<'_>,
    f: &Function,
) -> Result<Result<Vec<Array>, String>, Diagnostic> {
    let run = setting.ready(f)?;
    // Moderate numbers first: far out, bounded functions are flat and say little.
    let floats = [
        Domain::Uniform(-0.9, 0.9),
        Domain::Uniform(0.1, 0.9),
        Domain::Uniform(1.1, 3.0),
        Domain::Normal,
    ];
    // Integers are often positions or counts: where the usual ones lead nowhere, smaller ones may.
    let types = f.param_types();
    let ints: &[Option<Domain>] = match types.iter().any(|t| t.dtype.is_int()) {
        true => &[None, Some(Domain::Ints(0, 2)), Some(Domain::Ints(0, 1))],
        false => &[None],
    };
    let domains = ints.iter().flat_map(|&int| floats.map(|float| (float, int)));
    let mut infinite = String::new();
    for (attempt, (float, int)) in domains.enumerate() {
        let mut rng = rng(setting.options.seed, attempt as u64);
        let mut point = Vec::new();
        for ty in types.iter().filter(|t| t.dtype != DType::Token) {
            let domain = int.filter(|_| ty.dtype.is_int()).unwrap_or(float);
            point.push(sample(ty, domain, &mut rng)?);
        }
        let results = run(&point)?;
        let wrong = |a: &Array| a.dtype().is_float() && a.iter().any(|l| !l.to_f64().is_finite());
        match results.iter().position(wrong) {
            None => return Ok(Ok(point)),
            Some(k) => infinite = result_name(f, k),
        }
    }
    Ok(Err(infinite))
}

/// Result `k` of those that are no tokens, as messages call it.
fn result_name(f: &Function, k: usize) -> String {
    let mut results = f.results().iter().filter(|&&r| f.ty(r).dtype != DType::Token);
    match results.nth(k).and_then(|&r| f.name_of(r)) {
        Some(name) => format!("result {k}, %{name},"),
        None => format!("result {k}"),
    }
}
