//! `grad` and `jvp`: the derivative of a function, as a function.

use super::failure::Failure;
use super::source::Program;
use super::streams::Streams;
use super::target::{Target, specialized};
use crate::autodiff::{differentiable, grad, jvp, value_and_grad};
use crate::ir::text::{parse, print_function};
use crate::ir::{At, Diagnostic, Function, Kind, Module, verify};
use clap::Args;
use std::process::ExitCode;

/// Prints the gradient function of a function
///
/// The function printed takes the parameters of the one given, and returns its results, then a
/// gradient for each parameter of --wrt. A single result of a float type that is a scalar is
/// differentiated as it is; for others, a cotangent for each is taken, after the parameters.
#[derive(Args)]
pub(super) struct Grad {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    wrt: Wrt,
    /// Leave the results out, and return gradients alone
    #[arg(long)]
    no_value: bool,
}

/// Prints the forward-mode derivative of a function
///
/// The function printed takes the parameters, then a tangent for each parameter of --wrt, and
/// returns the results, then a tangent for each that is of a float type.
#[derive(Args)]
pub(super) struct Jvp {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    wrt: Wrt,
}

/// The argument that says what to differentiate with respect to.
#[derive(Args)]
pub(super) struct Wrt {
    /// The parameters to differentiate with respect to; without this, all of a float type
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    wrt: Vec<String>,
}

impl Grad {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        let transform = if self.no_value { grad } else { value_and_grad };
        derive(&self.target, &self.wrt, transform, streams)
    }
}

impl Jvp {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        derive(&self.target, &self.wrt, jvp, streams)
    }
}

impl Wrt {
    /// The positions of the parameters in `f`.
    pub(super) fn positions(&self, program: &Program, f: &Function) -> Result<Vec<usize>, Failure> {
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

type Transform = fn(&Module, &Function, &[usize]) -> Result<Function, Diagnostic>;

fn derive(
    target: &Target,
    wrt: &Wrt,
    transform: Transform,
    streams: &mut Streams<'_>,
) -> Result<ExitCode, Failure> {
    let program = target.read()?;
    let f = target.choose(&program)?;
    let f = &specialized(&program, f, &target.extents(f)?)?;
    let wrt = wrt.positions(&program, f)?;
    let made = transform(&program.module, f, &wrt).map_err(|d| program.wrong(d))?;
    let text = print_function(&made);
    reads_back(&text).map_err(|why| {
        let at = At { func: Some(made.name.clone()), ..At::default() };
        program.wrong(Diagnostic::new(at, Kind::Internal, why))
    })?;
    streams.out.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What is printed must be a program itself; finding out here beats finding out in what reads it.
fn reads_back(text: &str) -> Result<(), String> {
    let first =
        |errors: Vec<Diagnostic>| errors.first().map(ToString::to_string).unwrap_or_default();
    let module = parse(text).map_err(|e| format!("the derivative does not parse: {}", first(e)))?;
    verify(&module).map_err(|e| format!("the derivative does not verify: {}", first(e)))?;
    if module.to_string() == text {
        Ok(())
    } else {
        Err("the derivative does not print as it parses".into())
    }
}
