//! The reference engine: evaluates a verified function, one instruction at a time, in the declared element types and in
//! the order that strict mode defines. Its results define the meaning of a program.

pub(crate) mod contract;
mod control;
mod eval;
pub(crate) mod evaluator;
pub(crate) mod indirect;
pub mod kernel;
pub(crate) mod map;
pub mod order;
pub(crate) mod reduce;
mod tensor;
pub(crate) mod view;

pub use crate::runtime::effects::{Effects, Silent};
pub use evaluator::{Evaluated, Evaluator};

use crate::runtime::array::Array;
use crate::runtime::functions::Registry;
use crate::runtime::limits::RunLimits;
use adfuse_ir::rewrite::BoundExtents;
use adfuse_ir::{DType, Diagnostic, Function, Module, TensorType};
use eval::call;
use std::borrow::Cow;
use std::rc::Rc;
pub(crate) use tensor::{EvalTensor, reserve};

/// Runs function `f` of a verified module. Symbolic extents are bound by the arguments; a parameter
/// that is a token takes no argument, and a result that is one gives none.
///
/// # Errors
/// When the arguments do not have the parameters' types, and when memory is not enough.
pub fn run(
    module: &Module,
    f: &Function,
    args: &[Array],
    effects: &mut dyn Effects,
) -> Result<Vec<Array>, Diagnostic> {
    run_with(module, f, args, effects, &Registry::new())
}

/// Runs a function that calls nothing.
pub(crate) fn evaluate(
    f: &Function,
    args: Vec<EvalTensor>,
) -> Result<Vec<Rc<EvalTensor>>, Diagnostic> {
    let args: Vec<Rc<EvalTensor>> = args.into_iter().map(Rc::new).collect();
    let known = (&Module::default(), &Registry::new(), RunLimits::default());
    call(known, f, &args, &mut Silent)
}

/// As [`run`], with functions for the program to call by name.
///
/// # Errors
/// As [`run`]; and when a function is unknown, does not take its operands, or fails.
pub fn run_with(
    module: &Module,
    f: &Function,
    args: &[Array],
    effects: &mut dyn Effects,
    functions: &Registry,
) -> Result<Vec<Array>, Diagnostic> {
    run_within(module, f, args, effects, (functions, RunLimits::default()))
}

/// As [`run_with`], within these limits.
///
/// # Errors
/// As [`run_with`]; and when a loop takes more steps than it may.
pub fn run_within(
    module: &Module,
    f: &Function,
    args: &[Array],
    effects: &mut dyn Effects,
    (functions, limits): (&Registry, RunLimits),
) -> Result<Vec<Array>, Diagnostic> {
    let f = &*specialized_to(f, args)?;
    let mut tensors = Vec::new();
    let mut given = args.iter();
    for &p in f.params() {
        let t = match f.ty(p).dtype {
            DType::Token => EvalTensor::token(),
            _ => EvalTensor::from_array(given.next().expect("bound above"))?,
        };
        tensors.push(Rc::new(t));
    }
    let results = call((module, functions, limits), f, &tensors, effects)?;
    let arrays = results.iter().filter(|t| t.dtype != DType::Token);
    arrays.map(|t| t.to_array()).collect()
}

/// The function at the extents that the arguments bind its symbols to.
///
/// # Errors
/// When the arguments do not have the parameters' types, or a symbol is in none of those.
pub fn specialized_to<'f>(
    f: &'f Function,
    args: &[Array],
) -> Result<Cow<'f, Function>, Diagnostic> {
    let types: Vec<TensorType> = args.iter().map(Array::ty).collect();
    let bound = BoundExtents::default().with(f, &types)?;
    if f.symbols.is_empty() {
        return Ok(Cow::Borrowed(f));
    }
    bound.all(f)?;
    bound.specialize(f).map(Cow::Owned)
}
