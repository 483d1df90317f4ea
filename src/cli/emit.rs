//! `emit`: what a function becomes on its way to an engine.

use super::engine::Width;
use super::failure::Failure;
use super::planning::{Planning, Ready};
use super::streams::Streams;
use super::{plan_json, steps};
use crate::backends::cpu::{Executable, Texts, Vectors};
use crate::backends::gpu;
use crate::engine::Cpu;
use crate::fusion::Plan;
use crate::ir::Diagnostic;
use crate::ir::kernel::text;
use crate::ir::text::{Names, parse, print_function};
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
        let mut decided = || ready.decide(streams).map(|decided| decided.plan);
        let printed = match self.stage {
            Stage::Ad => function(&ready)?,
            Stage::Plan => plan(&ready, &decided()?, self.json)?,
            Stage::Kernels => kernels(&ready, &decided()?)?,
            Stage::Program => {
                let verified = ready.program(&decided()?)?;
                let printed = verified.to_string();
                if text::parse(&printed).is_ok_and(|again| again == *verified) {
                    printed
                } else {
                    return Err(ready.broken("program"));
                }
            }
            Stage::Clif => functions(&ready, &decided()?, vectors, |texts| texts.clif)?,
            Stage::Ptx => {
                let program = ready.program(&decided()?)?;
                let text = gpu::text(&program, self.capability(), ready.options.fp);
                text.map_err(|d| ready.source.wrong(d))?
            }
            Stage::Asm => functions(&ready, &decided()?, vectors, |texts| texts.asm)?,
        };
        streams.out.write_all(printed.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The prepared function, once it reads back.
fn function(ready: &Ready) -> Result<String, Failure> {
    let printed = print_function(&ready.function);
    match parse(&printed).is_ok_and(|again| again.to_string() == printed) {
        true => Ok(printed),
        false => Err(ready.broken("function")),
    }
}

/// The plan, once it reads back and has a program.
fn plan(ready: &Ready, plan: &Plan, json: bool) -> Result<String, Failure> {
    ready.program(plan)?;
    let printed = plan.text(&ready.function);
    if !Plan::parse(&printed, &ready.function).is_ok_and(|again| again == *plan) {
        return Err(ready.broken("plan"));
    }
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

/// The steps, each a program that reads back, under the names of what it computes.
fn kernels(ready: &Ready, plan: &Plan) -> Result<String, Failure> {
    let program = ready.program(plan)?;
    let names = Names::of(&ready.function);
    let mut out = String::new();
    for (k, (step, insts)) in program.steps.iter().zip(steps::computed(plan, &program)).enumerate()
    {
        if k > 0 {
            out.push('\n');
        }
        let results = insts.iter().flat_map(|&i| ready.function.inst_results(i));
        let computed: Vec<String> = results.map(|&v| format!("%{}", names.get(v))).collect();
        let computed = if computed.is_empty() { "a literal".into() } else { computed.join(", ") };
        out += &format!("// step {k}: {computed}\n");
        let alone = steps::alone(&program, step);
        if text::parse(&alone).is_err() {
            return Err(ready.broken("step"));
        }
        out += &alone;
    }
    Ok(out)
}

/// The functions of each step, and what happens beside them.
fn functions(
    ready: &Ready,
    plan: &Plan,
    vectors: Vectors,
    text: fn(Texts<'_>) -> &str,
) -> Result<String, Failure> {
    let program = ready.program(plan)?;
    let cpu = Cpu { plan: ready.options.clone(), vectors, ..Cpu::default() };
    let wrong = |d: Diagnostic| ready.source.wrong(d);
    cpu.functions.check(&ready.function).map_err(wrong)?;
    let (_, layout) = cpu.layout(&program).map_err(wrong)?;
    let made = Executable::compile_listed(&program, &layout, cpu.options()).map_err(wrong)?;
    let mut out = String::new();
    for (k, step) in made.steps().iter().enumerate() {
        if k > 0 {
            out.push('\n');
        }
        out += &format!("// step {k}: {} ({})\n", step.name, step.generator);
        for line in &step.beside {
            out += &format!("// beside the functions: {line}\n");
        }
        for sweep in made.sweeps().filter(|s| s.step == k) {
            let Some(texts) = sweep.texts else { continue };
            let (name, bytes) = (sweep.name, sweep.code.len());
            out += &format!("\n// {name}, {bytes} bytes, {}\n", texts.accesses);
            let by = sweep.emitter.name();
            out += &match sweep.emitter.why() {
                Some(why) => format!("// by {by}: {why}\n"),
                None => format!("// by {by}\n"),
            };
            out += match text(texts) {
                "" => "// Cranelift is given nothing\n",
                text => text,
            };
            if !out.ends_with('\n') {
                out.push('\n');
            }
        }
    }
    Ok(out)
}
