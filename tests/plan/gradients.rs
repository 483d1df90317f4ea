//! Gradients as they are planned, and their values on the reference engine.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::fusion::prepare;
use adfuse::ir::{Function, Module};

/// A function's results and gradients with respect to all that has any, prepared.
pub(crate) fn prepared_gradient(module: &Module, f: &Function) -> Result<Function, String> {
    let wrt = differentiable(f, None).map_err(|d| d.to_string())?;
    let g = forward_and_backward(module, f, &wrt).map_err(|d| d.to_string())?;
    prepare(&Module::single(g.clone()), &g).map_err(|d| d.to_string())
}

/// The results on the reference engine.
pub(crate) fn evaluate(f: &Function, args: &[Array]) -> Result<Vec<Array>, String> {
    run(&Module::single(f.clone()), f, args, &mut Silent).map_err(|d| d.to_string())
}
