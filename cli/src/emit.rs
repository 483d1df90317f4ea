//! `emit`: what a function becomes on its way to an engine.

use super::engine::Width;
use super::failure::Failure;
use super::plan_json;
use super::planning::{Planning, Ready};
use super::streams::Streams;
use adfuse::backends::cpu::{Executable, ListedFunction, Vectors};
use adfuse::backends::gpu;
use adfuse::engine::Cpu;
use adfuse::fusion::Plan;
use adfuse::ir::Diagnostic;
use adfuse::pipeline::text;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Prints what a function becomes on its way to an engine
///
/// Symbolic dimensions need extents.
#[derive(Args)]
pub(super) struct Emit {
    #[command(flatten)]
    planning: Planning,
    #[command(flatten)]
    width: Width,
    /// How far to go
    #[arg(long, value_enum)]
    stage: Stage,
    /// The compute capability of the GPU that `ptx` is for, without its dot; without this, 90
    #[arg(long, value_name = "NN", value_parser = clap::value_parser!(u32).range(10..=999))]
    sm: Option<u32>,
    /// Print JSON; of the stage `plan` alone
    #[arg(long)]
    json: bool,
}

/// How far a function is taken.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Stage {
    /// The function as it is planned: differentiated, calls inlined, simplified
    Ad,
    /// Which instructions share a kernel
    Plan,
    /// Each step of the program as one of its own, with what it computes
    Kernels,
    /// A program of kernels
    Program,
    /// Each step's functions as Cranelift is given them, on the engine `cpu`
    Clif,
    /// Each step's functions as instructions of the host
    Asm,
    /// What the driver of a GPU is given, on the engine `gpu`; none need be there
    Ptx,
}

impl Emit {
    /// The compute capability that is asked for.
    fn capability(&self) -> (u32, u32) {
        let sm = self.sm.unwrap_or(90);
        (sm / 10, sm % 10)
    }

    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if self.json && self.stage != Stage::Plan {
            return Err(Failure::usage("--json needs --stage plan"));
        }
        let vectors = self.width.vectors()?;
        if self.sm.is_some() && self.stage != Stage::Ptx {
            return Err(Failure::usage("--sm is for --stage ptx"));
        }
        let ready = match self.stage {
            Stage::Ptx => self.planning.ready_for("h200")?,
            _ => self.planning.ready()?,
        };
        if self.stage == Stage::Ad && self.planning.is_decided() {
            return Err(Failure::usage("--stage ad comes before plans and budgets"));
        }
        let wrong = |d: Diagnostic| ready.source.wrong(d);
        let mut decided = || ready.decide(streams).map(|decided| decided.plan);
        let printed = match self.stage {
            Stage::Ad => text::function(&ready.function).map_err(wrong)?,
            Stage::Plan => plan(&ready, &decided()?, self.json)?,
            Stage::Kernels => {
                let plan = decided()?;
                text::kernels(&ready.function, &plan, &*ready.program(&plan)?).map_err(wrong)?
            }
            Stage::Program => text::program(&*ready.program(&decided()?)?).map_err(wrong)?,
            Stage::Clif => functions(&ready, &decided()?, vectors, |f| &f.clif)?,
            Stage::Ptx => {
                let program = ready.program(&decided()?)?;
                let text = gpu::text(&program, self.capability(), ready.options.fp);
                text.map_err(|d| ready.source.wrong(d))?
            }
            Stage::Asm => functions(&ready, &decided()?, vectors, |f| &f.asm)?,
        };
        streams.out.write_all(printed.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The plan, once it reads back and has a program.
fn plan(ready: &Ready, plan: &Plan, json: bool) -> Result<String, Failure> {
    ready.program(plan)?;
    let printed = text::plan(&ready.function, plan).map_err(|d| ready.source.wrong(d))?;
    if !json {
        return Ok(printed);
    }
    let value = plan_json::of_text(&printed).map_err(|_| ready.broken("plan"))?;
    let json = format!("{value:#}\n");
    match plan_json::to_text(&json) {
        Ok(again) if again == printed => Ok(json),
        _ => Err(ready.broken("plan")),
    }
}

/// The functions of each step, and what happens beside them.
fn functions(
    ready: &Ready,
    plan: &Plan,
    vectors: Vectors,
    text: fn(&ListedFunction) -> &str,
) -> Result<String, Failure> {
    let program = ready.program(plan)?;
    let cpu = Cpu { plan: ready.options.clone(), vectors, ..Cpu::default() };
    let wrong = |d: Diagnostic| ready.source.wrong(d);
    cpu.functions.check(&ready.function).map_err(wrong)?;
    let (_, layout) = cpu.layout(&program).map_err(wrong)?;
    let made = Executable::compile_listed(&program, &layout, cpu.options()).map_err(wrong)?;
    Ok(text::machine_code(&made.listing(), text))
}
