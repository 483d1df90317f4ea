//! Transformations by themselves that are chains of one link: their rules for calls need what only a chain holds.

use crate::derived::Derived;
use crate::vmap::Batching;
use adfuse_ir::{Diagnostic, Function, Module};

/// The function `x.. -> blocks..`: for each result of a float type, and for it for each parameter at
/// `wrt`, the derivative of every element of the result by every element of the parameter; the axes of
/// a block are the result's, then the parameter's. By forward mode: one pass an element of a parameter.
///
/// # Errors
/// Where an instruction has no derivative rule or no batched form, with its place, and for parameters
/// of several axes that are not all known.
pub fn jacfwd(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    Derived::new(module, f).jacfwd(wrt)?.finish()
}

/// As [`jacfwd`], by reverse mode: one pass an element of a result.
///
/// # Errors
/// As [`jacfwd`], of results instead of parameters.
pub fn jacrev(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    Derived::new(module, f).jacrev(wrt)?.finish()
}

/// Second derivatives, forward over reverse: for each result of a float type, and for it for each pair
/// of parameters at `wrt`, a block with the axes of the result, of the first and of the second.
///
/// # Errors
/// As [`jacfwd`].
pub fn hessian(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    Derived::new(module, f).hessian(wrt)?.finish()
}

/// The function `(x.., ct.., v..) -> hv..`: the products of the Hessian of the result with `v`, a
/// tangent for each parameter at `wrt`, in one pass of forward mode over the gradient. A single scalar
/// result takes no cotangent; of others, it is the Hessian of their products with the cotangents.
///
/// # Errors
/// As [`vjp`](crate::vjp).
pub fn hvp(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    Derived::new(module, f).hvp(wrt)?.finish()
}

/// The function over a batch: parameters and results as `f`'s, those that are mapped with an axis more.
///
/// # Errors
/// For a batching that does not fit the function, for effects, for random bits that all elements would
/// share (unless [`Random::Same`](crate::Random::Same) is asked for), and for an instruction that has no batched form, with
/// its place.
pub fn vmap(module: &Module, f: &Function, batching: &Batching) -> Result<Function, Diagnostic> {
    Derived::new(module, f).vmap(batching)?.finish()
}

/// The function `(x.., ct..) -> ct of the parameters at wrt..` of an `f` that is linear in them
/// together: the other parameters, in order, then a cotangent for each result.
///
/// # Errors
/// Where an instruction is not linear in what it reads of the parameters at `wrt`, with its place, and
/// for a result that is not.
pub fn linear_transpose(
    module: &Module,
    f: &Function,
    wrt: &[usize],
) -> Result<Function, Diagnostic> {
    Derived::new(module, f).linear_transpose(wrt)?.finish()
}
