//! Transformations by themselves that are chains of one link: their rules for calls need what only a chain holds.

use crate::closed::closed;
use crate::derived::Derived;
use crate::forward::Pushing;
use crate::linearize::{Linearized, open};
use crate::root::{explained, with_root_rules};
use crate::vmap::Batching;
use adfuse_ir::{Diagnostic, Function, Module};

/// The function `(x.., t..) -> (y.., ty..)`: a tangent for each parameter at a position in `wrt`
/// (as [`differentiable`](crate::differentiable) gives them), and for each result of a float type.
///
/// # Errors
/// Where an instruction has no derivative rule, with its place.
pub fn jvp(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    Derived::new(module, f).jvp(wrt)?.finish()
}

/// Splits the `jvp` of `f` with respect to the parameters at `wrt`.
///
/// Residuals are the values of the primal part that the linear part reads, in the order of their
/// definition, each once.
///
/// # Errors
/// As [`jvp`](crate::jvp).
pub fn linearize(module: &Module, f: &Function, wrt: &[usize]) -> Result<Linearized, Diagnostic> {
    let module = &with_root_rules(module.reached(f));
    let split = open(module, f, wrt, Pushing::Linear, usize::MAX);
    let split = split.map_err(|d| explained(module, d))?;
    Ok(Linearized { primal: closed(module, split.primal)?, ..split })
}

/// The function `(x.., ct..) -> (y.., x_ct..)`: a cotangent for each result of a float type, a
/// gradient for each parameter at a position in `wrt`.
///
/// # Errors
/// Where an instruction has no derivative rule, with its place.
pub fn vjp(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    Derived::new(module, f).vjp(wrt)?.finish()
}

/// The results, then the gradient of the result with respect to each parameter at `wrt`. Exactly one result is of a
/// float type, and is a scalar; others are handed through.
///
/// # Errors
/// As [`vjp`], and [`Kind::Usage`](adfuse_ir::Kind::Usage) for a function with other results of a float type.
pub fn value_and_grad(
    module: &Module,
    f: &Function,
    wrt: &[usize],
) -> Result<Function, Diagnostic> {
    Derived::new(module, f).value_and_grad(wrt)?.finish()
}

/// As [`value_and_grad`], without the results.
///
/// # Errors
/// As [`value_and_grad`].
pub fn grad(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    Derived::new(module, f).grad(wrt)?.finish()
}

/// The results, then the gradient of the first of them with respect to each parameter at `wrt`. The first result is
/// a scalar of a float type; all others are auxiliary: they are handed through, whatever their types, and no
/// derivative flows from them.
///
/// # Errors
/// As [`vjp`], and [`Kind::Usage`](adfuse_ir::Kind::Usage) where the first result is no scalar of a float type.
pub fn value_and_grad_has_aux(
    module: &Module,
    f: &Function,
    wrt: &[usize],
) -> Result<Function, Diagnostic> {
    Derived::new(module, f).value_and_grad_has_aux(wrt)?.finish()
}

/// The step that both passes make: [`value_and_grad`] of a function with one scalar result of a float type, and
/// [`vjp`] of any other, which takes a cotangent for each result of a float type after its own parameters. It is
/// for tools that are given any function; a program that knows its function calls one of those.
///
/// # Errors
/// As [`vjp`].
pub fn forward_and_backward(
    module: &Module,
    f: &Function,
    wrt: &[usize],
) -> Result<Function, Diagnostic> {
    Derived::new(module, f).forward_and_backward(wrt)?.finish()
}

/// As [`forward_and_backward`], without the results.
///
/// # Errors
/// As [`vjp`].
pub fn backward(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    Derived::new(module, f).backward(wrt)?.finish()
}

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
