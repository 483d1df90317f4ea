//! `grad`, `jvp`, `hvp`, `jacobian` and `hessian`: derivatives of a function, as functions.

use super::failure::Failure;
use super::program::LoadedProgram;
use super::streams::Streams;
use super::target::{FunctionArgs, specialized};
use super::values::whole;
use super::weights;
use adfuse::autodiff::{Derived, differentiable};
use adfuse::ir::text::{parse, print_function};
use adfuse::ir::types::MAX_RANK;
use adfuse::ir::{At, Diagnostic, Function, Kind, TensorType, verify};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::process::ExitCode;

/// Prints the gradient function of a function
///
/// The printed function takes the same parameters. It returns the results, then a gradient for each
/// parameter of --wrt.
///
/// If the function has one float result and that is a scalar, the gradient is that of this scalar.
/// Otherwise the printed function takes one more parameter for each float result: the cotangent that the
/// result is weighed with. It is named `<result>_ct`, or ct0, ct1, .. where the result has no name.
///
/// --order 2 prints the gradient function of the gradient function, with respect to the same parameters.
#[derive(Args)]
pub(super) struct Grad {
    #[command(flatten)]
    target: FunctionArgs,
    #[command(flatten)]
    wrt: Wrt,
    /// Leave the results out, and return gradients alone
    #[arg(long)]
    no_value: bool,
    /// How many times to differentiate
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u8>(1..=16))]
    order: u8,
}

/// Prints the forward-mode derivative of a function
///
/// The printed function takes the parameters, then a tangent for each parameter of --wrt. It returns the
/// results, then a tangent for each float result.
#[derive(Args)]
pub(super) struct Jvp {
    #[command(flatten)]
    target: FunctionArgs,
    #[command(flatten)]
    wrt: Wrt,
}

/// Prints the function that multiplies the Hessian with vectors
///
/// The printed function takes the parameters, then a vector for each parameter of --wrt. It returns the
/// products of the Hessian with these vectors, by one pass of forward mode over the gradient. If the result is
/// not a single scalar, cotangents follow the parameters, as in `adfuse grad`.
#[derive(Args)]
pub(super) struct Hvp {
    #[command(flatten)]
    target: FunctionArgs,
    #[command(flatten)]
    wrt: Wrt,
}

/// Prints the function that computes Jacobians
///
/// The printed function takes the parameters. It returns a block for each float result and each parameter of
/// --wrt. A block has the axes of the result, then those of the parameter.
#[derive(Args)]
pub(super) struct Jacobian {
    #[command(flatten)]
    target: FunctionArgs,
    #[command(flatten)]
    wrt: Wrt,
    /// The mode of differentiation; without this, the one that takes fewer passes
    #[arg(long, value_enum)]
    mode: Option<DerivativeMode>,
}

/// A mode of differentiation.
#[derive(Clone, Copy, ValueEnum)]
enum DerivativeMode {
    /// Forward: a pass for each element of a parameter
    #[value(aliases = ["forward", "jvp"])]
    Fwd,
    /// Reverse: a pass for each element of a result
    #[value(aliases = ["reverse", "bwd", "backward", "vjp"])]
    Rev,
}

/// Prints the function that computes Hessians
///
/// The printed function takes the parameters. It returns a block for each float result and each pair of
/// parameters of --wrt. A block has the axes of the result, then those of the first and of the second parameter.
#[derive(Args)]
pub(super) struct Hessian {
    #[command(flatten)]
    target: FunctionArgs,
    #[command(flatten)]
    wrt: Wrt,
}

/// The argument that says what to differentiate with respect to.
#[derive(Args)]
pub(super) struct Wrt {
    /// The parameters to differentiate with respect to; without this, all of a float type
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = name)]
    wrt: Vec<String>,
}

impl Grad {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let transform = |mut f: Derived, wrt: &[usize]| {
            for _ in 1..self.order {
                f = f.backward(wrt)?;
            }
            if self.no_value { f.backward(wrt) } else { f.forward_and_backward(wrt) }
        };
        derive(&self.target, &self.wrt, transform, streams)
    }
}

impl Jvp {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        derive(&self.target, &self.wrt, |f, wrt| f.jvp(wrt), streams)
    }
}

impl Hvp {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        derive(&self.target, &self.wrt, |f, wrt| f.hvp(wrt), streams)
    }
}

impl Jacobian {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let transform = |f: Derived, wrt: &[usize]| match self
            .mode
            .unwrap_or_else(|| cheaper(f.function(), wrt))
        {
            DerivativeMode::Fwd => f.jacfwd(wrt),
            DerivativeMode::Rev => f.jacrev(wrt),
        };
        derive(&self.target, &self.wrt, transform, streams)
    }
}

/// A parameter's name as people write it: with blanks around it, or its sigil before it.
fn name(text: &str) -> Result<String, String> {
    match text.trim().trim_start_matches('%') {
        "" => Err("expected names with commas between".into()),
        name => Ok(name.to_owned()),
    }
}

/// The mode with fewer passes, reverse where that is not known. A mode whose passes need an axis more
/// than a tensor can have is not one to choose.
fn cheaper(f: &Function, wrt: &[usize]) -> DerivativeMode {
    let params: Vec<TensorType> = wrt.iter().map(|&k| f.ty(f.params()[k]).clone()).collect();
    let mut results = f.result_types();
    results.retain(|t| t.dtype.is_float());
    let full = |types: &[TensorType]| types.iter().any(|t| t.rank() == MAX_RANK);
    if full(&params) != full(&results) {
        return if full(&params) { DerivativeMode::Rev } else { DerivativeMode::Fwd };
    }
    let count = |types: &[TensorType]| {
        types.iter().try_fold(0u64, |sum, t| Some(sum.saturating_add(t.elements()?)))
    };
    match (count(&params), count(&results)) {
        (Some(params), Some(results)) if params < results => DerivativeMode::Fwd,
        _ => DerivativeMode::Rev,
    }
}

impl Hessian {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        derive(&self.target, &self.wrt, |f, wrt| f.hessian(wrt), streams)
    }
}

impl Wrt {
    /// The positions of the parameters in `f`.
    pub(super) fn positions(
        &self,
        program: &LoadedProgram,
        f: &Function,
    ) -> Result<Vec<usize>, Failure> {
        let names = (!self.wrt.is_empty()).then_some(self.wrt.as_slice());
        differentiable(f, names).map_err(|d| match names {
            Some(_) => Failure::Usage(d),
            None => program.wrong(d),
        })
    }

    /// Whether parameters were named.
    pub(super) fn is_given(&self) -> bool {
        !self.wrt.is_empty()
    }
}

fn derive(
    target: &FunctionArgs,
    wrt: &Wrt,
    transform: impl FnOnce(Derived, &[usize]) -> Result<Derived, Diagnostic>,
    streams: &mut Streams<'_>,
) -> Result<ExitCode, Failure> {
    let program = target.read()?;
    let f = target.choose(&program)?;
    let f = &specialized(&program, f, &target.extents(&program, f)?)?;
    let wrt = wrt.positions(&program, f)?;
    let made = transform(Derived::new(&program.module, f), &wrt).and_then(Derived::finish);
    print(&program, made, streams)
}

/// Prints what was made of a function of the program.
pub(super) fn print(
    program: &LoadedProgram,
    made: Result<Function, Diagnostic>,
    streams: &mut Streams<'_>,
) -> Result<ExitCode, Failure> {
    let made = made.map_err(|d| program.wrong(d))?;
    let text = print_function(&made);
    reads_back(&text).map_err(|why| {
        let at = At { func: Some(made.name.clone()), ..At::default() };
        program.wrong(Diagnostic::new(at, Kind::Internal, why))
    })?;
    weights::carry(&program.source, &made, streams)?;
    let name = &made.name;
    streams.print(|| text.clone(), || json!({ "function": name, "text": text }))?;
    Ok(ExitCode::SUCCESS)
}

/// What is printed must be a program itself; finding out here beats finding out in what reads it.
fn reads_back(text: &str) -> Result<(), String> {
    let first =
        |errors: Vec<Diagnostic>| errors.first().map(ToString::to_string).unwrap_or_default();
    let module = parse(text).map_err(|e| format!("what was made does not parse: {}", first(e)))?;
    verify(&module).map_err(|e| format!("what was made does not verify: {}", first(e)))?;
    if module.to_string() == text {
        Ok(())
    } else {
        Err("what was made does not print as it parses".into())
    }
}
