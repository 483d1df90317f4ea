//! `jvp`: results and their tangents from parameters and theirs.

use crate::forward::{Forward, Pushing, prepare_steps};
use crate::positions;
use adfuse_ir::control::prune;
use adfuse_ir::{Builder, Diagnostic, Function, Module, Value};

/// As [`jvp`](fn@crate::jvp); calls of functions with a rule stay where no tangent flows into them.
pub(crate) fn open(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    let (joint, _) = joint(module, f, wrt, Pushing::Results)?;
    prune(&joint)
}

/// `jvp` without cleaning, and the tangent parameters.
pub(crate) fn joint(
    module: &Module,
    f: &Function,
    wrt: &[usize],
    pushing: Pushing,
) -> Result<(Function, Vec<Value>), Diagnostic> {
    let f = &prepare_steps(module, f)?;
    positions(f, wrt)?;
    let mut b = Builder::new(format!("{}_jvp", f.name));
    b.func_mut().symbols = f.symbols.clone();
    let mut forward = Forward::new(module, f, pushing);
    forward.primal.params(&mut b);
    let mut seeds = Vec::new();
    for &k in wrt {
        let p = f.params()[k];
        let name = f.name_of(p).map_or(format!("t{k}"), |n| format!("{n}_t"));
        let t = b.param(f.ty(p).clone(), Some(&name));
        forward.set_tangent(p, Some(t));
        seeds.push(t);
    }
    forward.body(&mut b)?;
    let mut results: Vec<Value> =
        f.results().iter().map(|&r| forward.primal.get(&mut b, r)).collect();
    for &r in f.results().iter().filter(|r| f.ty(**r).dtype.is_float()) {
        results.push(forward.tangent_or_zero(&mut b, r));
    }
    b.set_results(&results);
    Ok((b.finish()?, seeds))
}
