//! `emit`: what a function becomes on its way to an engine.

use super::derivative::Wrt;
use super::failure::Failure;
use super::source::Program;
use super::streams::Streams;
use super::target::{Target, specialized};
use crate::autodiff::value_and_grad;
use crate::fusion::lower;
use crate::ir::kernel::{text, verify};
use crate::ir::{At, Diagnostic, Function, Kind, Module};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Prints what a function becomes on its way to an engine
///
/// The stage `program` is a program of kernels, one for each instruction. Symbolic dimensions need
/// extents.
#[derive(Args)]
pub(super) struct Emit {
    #[command(flatten)]
    target: Target,
    /// How far to go
    #[arg(long, value_enum)]
    stage: Stage,
    /// Differentiate first: the results, then a gradient for each parameter of --wrt
    #[arg(long)]
    grad: bool,
    #[command(flatten)]
    wrt: Wrt,
}

/// How far a function is taken.
#[derive(Clone, Copy, ValueEnum)]
enum Stage {
    /// A program of kernels
    Program,
}

impl Emit {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if self.wrt.is_given() && !self.grad {
            return Err(Failure::usage("--wrt needs --grad"));
        }
        let source = self.target.read()?;
        let f = self.target.choose(&source)?;
        let f = &specialized(&source, f, &self.target.extents(f)?)?;
        let printed = match (self.stage, self.grad) {
            (Stage::Program, false) => program(&source, &source.module, f)?,
            (Stage::Program, true) => {
                let wrt = self.wrt.positions(&source, f)?;
                let made = value_and_grad(&source.module, f, &wrt).map_err(|d| source.wrong(d))?;
                program(&source, &Module::single(made.clone()), &made)?
            }
        };
        streams.out.write_all(printed.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The text of a function's program, once the verifier has accepted it and it reads back.
fn program(source: &Program, module: &Module, f: &Function) -> Result<String, Failure> {
    let lowered = lower(module, f).map_err(|d| source.wrong(d))?;
    let verified = verify(lowered).map_err(|errors| source.source.wrong(errors))?;
    let printed = verified.to_string();
    if text::parse(&printed).is_ok_and(|again| again == *verified) {
        return Ok(printed);
    }
    let at = At { func: Some(f.name.clone()), ..At::default() };
    let m = "the program does not print as it parses";
    Err(source.wrong(Diagnostic::new(at, Kind::Internal, m)))
}
