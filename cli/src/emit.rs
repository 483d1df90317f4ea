//! `emit`: prints a stage of a function on its way to an engine.

use super::engine::VectorsArg;
use super::failure::Failure;
use super::plan_json;
use super::planning::{ChosenPlan, PlanRequest, PlanningArgs};
use super::streams::Streams;
use super::values::whole;
use adfuse::backends::gpu::has_code_for;
use adfuse::engine::Gpu;
use adfuse::fusion::{Plan, segmented_as};
use adfuse::pipeline::{
    self, CompileUnit, ListingCompiler, Machine, PASSES, Pass, Printed, is_before,
};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::rc::Rc;

/// Prints what a function becomes on its way to an engine
///
/// Symbolic dimensions need extents.
#[derive(Args)]
#[command(mut_arg("file", |a| a.required(false).required_unless_present_any(["stages", "rules"])))]
pub(super) struct EmitCommand {
    #[command(flatten)]
    planning: PlanningArgs,
    #[command(flatten)]
    width: VectorsArg,
    /// How far to go
    #[arg(long, required_unless_present_any = ["stages", "rules"], value_parser = names())]
    stage: Option<String>,
    /// The compute capability of the GPU that `schedule`, `launches` and `ptx` are for, without its dot; without this, 90
    #[arg(long, value_name = "NN", value_parser = whole::<u32>(10..=999))]
    sm: Option<u32>,
    /// List the passes of compilation, and the stages that they print
    #[arg(long, conflicts_with_all = ["rules", "stage", "file"])]
    stages: bool,
    /// List the rewrite rules: table, name, what each keeps, what it does
    #[arg(long, conflicts_with_all = ["stage", "file"])]
    rules: bool,
}

/// The stages, each with its help.
fn names() -> PossibleValuesParser {
    let of = |pass: &'static Pass| {
        let value = move |name: &'static str| PossibleValue::new(name).help(stage_help(pass, name));
        pass.stages().into_iter().map(value)
    };
    PossibleValuesParser::new(PASSES.iter().flat_map(of))
}

/// What the help says of a stage: what its pass does, or what this other text of the pass is.
fn stage_help(pass: &Pass, stage: &str) -> &'static str {
    match stage {
        "ad" => "the differentiated function, prepared for planning; plans name its values",
        "program" => "all kernels of the plan as one program",
        "kernels" => "each step of the plan as a program of its own",
        "asm" => "the instructions of each function of machine code",
        "loops" => "the loop program of each function, which its emitter translates",
        "clif" => "what Cranelift is given, for the functions that it makes",
        "launches" => "the launches of each step: blocks, threads, shared memory and pointers",
        _ => pass.about,
    }
}

/// The pass that makes the plan.
const PLAN: &str = "plan";
/// The passes before it, which ask the engine: what the last leaves is planned. What the first leaves is decided with the plan.
const SEGMENTS: &str = "segments";
const RECOVER: &str = "recover_operands";
const NARROW: &str = "narrow_storage";
const LAST: &str = "loop_residuals";

impl EmitCommand {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if self.rules || self.stages {
            streams.out.write_all(self.listed(streams.json).as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let name = self.stage.as_deref().unwrap_or_default();
        let Some((pass, stage)) = pipeline::stage(name) else {
            return Err(Failure::usage(format!("no stage `{name}`")));
        };
        let vectors = self.width.vectors()?;
        let on_gpu = pass.engine == Some(Gpu::NAME);
        if self.sm.is_some() && !on_gpu {
            return Err(Failure::usage("--sm is for the stages of the engine gpu"));
        }
        let sm = self.sm.unwrap_or(90);
        if on_gpu && !has_code_for((sm / 10, sm % 10)) {
            let m =
                format!("no code is made for GPUs of compute capability {}.{}", sm / 10, sm % 10);
            return Err(Failure::usage(m));
        }
        let is_decided = self.planning.is_decided();
        if is_decided && (is_before(pass.name, SEGMENTS) || pass.name == RECOVER) {
            return Err(Failure::usage(format!("--stage {name} comes before plans and budgets")));
        }
        let ready = match on_gpu {
            true => self.planning.ready_for("h200")?,
            false => self.planning.ready()?,
        };
        // What comes before plans is made for the device, though a GPU's own stages are not asked for.
        let for_gpu = on_gpu || is_before(pass.name, NARROW) && ready.options.device.is_gpu();
        let machine = if for_gpu { Machine::Gpu(sm / 10, sm % 10) } else { Machine::Host(vectors) };
        let compiler = ListingCompiler { options: ready.options.clone(), machine };
        let printed = match pass.name {
            SEGMENTS if is_decided => divided(&ready, stage, streams)?,
            before if is_before(before, NARROW) => {
                // A text that is imported at extents is read as the program that it became.
                let source = &ready.source.source;
                let text: Rc<str> = match source.bound.is_empty() {
                    true => source.text.clone(),
                    false => ready.source.module.to_string().into(),
                };
                let mut unit = CompileUnit::of_text(&text, ready.selection.clone());
                stop_at(&ready, &compiler, &mut unit, (PASSES[0].name, pass, stage))?
            }
            NARROW | LAST => {
                let narrowed = ready.kept.as_ref().filter(|_| pass.name == NARROW);
                let function = narrowed.map_or(&ready.function, |(_, kept)| &kept.function);
                let unit =
                    CompileUnit { function: Some(function.clone()), ..CompileUnit::default() };
                pipeline::print(stage, &unit).map_err(|d| ready.source.wrong(d))?
            }
            _ => {
                let plan = ready.decide(streams)?.plan;
                let mut unit = CompileUnit::planned(&ready.function, &plan);
                match pass.name {
                    PLAN => planned(&ready, &plan, streams.json)?,
                    _ => stop_at(&ready, &compiler, &mut unit, ("lower", pass, stage))?,
                }
            }
        };
        if let Some(made) = on_gpu.then(|| chip(&printed)).flatten().filter(|made| *made != sm) {
            streams.note(format!(
                "no code is made for sm_{sm} alone: this is for sm_{made}, which sm_{sm} runs too"
            ));
        }
        let printed = match streams.json && pass.name != PLAN {
            true => json_of(json!({ "stage": name, "text": printed })),
            false => printed,
        };
        streams.out.write_all(printed.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }

    /// The rules, or the passes.
    fn listed(&self, as_json: bool) -> String {
        match (self.rules, as_json) {
            (true, true) => json_of(listed::rules()),
            (true, false) => pipeline::rules::text(),
            (false, true) => json_of(listed::stages()),
            (false, false) => PASSES.iter().map(|pass| format!("{pass}\n")).collect(),
        }
    }
}

/// The function in the checkpoint segments of its plan.
fn divided(
    ready: &PlanRequest,
    stage: Printed,
    streams: &mut Streams<'_>,
) -> Result<String, Failure> {
    let ChosenPlan { plan, choice } = ready.decide(streams)?;
    let function = match choice {
        Some(choice) => choice.rewritten.segmented.function.clone(),
        None => {
            let text = plan.text(&ready.function);
            segmented_as(&ready.prepared, &text).map_err(Failure::Usage)?.function
        }
    };
    let unit = CompileUnit { function: Some(function), ..CompileUnit::default() };
    pipeline::print(stage, &unit).map_err(|d| ready.source.wrong(d))
}

/// The plan, once it reads back and has a program.
fn planned(ready: &PlanRequest, plan: &Plan, as_json: bool) -> Result<String, Failure> {
    ready.program(plan)?;
    let printed = pipeline::text::plan(&ready.function, plan);
    let printed = printed.map_err(|d| ready.source.wrong(d))?;
    if !as_json {
        return Ok(printed);
    }
    let value = plan_json::of_text(&printed).map_err(|_| ready.broken("plan"))?;
    let json = json_of(value);
    match plan_json::to_text(&json) {
        Ok(again) if again == printed => Ok(json),
        _ => Err(ready.broken("plan")),
    }
}

fn json_of(value: Value) -> String {
    format!("{value:#}\n")
}

/// The capability of the chip that a text says it is for, without the dot.
fn chip(text: &str) -> Option<u32> {
    let (_, rest) = text.lines().find_map(|l| l.split_once("target sm_"))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The lists of the pipeline as JSON.
mod listed {
    use super::*;
    use adfuse::ir::rewrite::RuleTable;

    pub(super) fn stages() -> Value {
        let of = |pass: &Pass| {
            json!({
                "name": pass.name, "takes": pass.takes.name(), "gives": pass.gives.name(),
                "verifier": pass.verifier.name(), "about": pass.about, "engine": pass.engine,
                "stages": pass.stages(),
            })
        };
        PASSES.iter().map(of).collect()
    }

    pub(super) fn rules() -> Value {
        let of = |table: &RuleTable| {
            let rules: Vec<Value> = table
                .rules
                .iter()
                .map(
                    |r| json!({ "name": r.name, "keeps": r.exactness.to_string(), "about": r.doc }),
                )
                .collect();
            json!({ "table": table.name, "about": table.doc, "rules": rules })
        };
        pipeline::rules::tables().map(of).collect()
    }
}

/// Runs the passes from one on up to another, and prints a stage.
fn stop_at(
    ready: &PlanRequest,
    compiler: &ListingCompiler,
    unit: &mut CompileUnit<'_>,
    (from, to, stage): (&str, &Pass, Printed),
) -> Result<String, Failure> {
    let printed = pipeline::run(compiler, unit, from, to.name);
    let printed = printed.and_then(|()| pipeline::print(stage, unit));
    printed.map_err(|d| ready.wrong(d))
}
