//! A plan with its peak, its predicted time and its residuals.

use crate::cost::compile_cost::{CompileCost, step_code, together};
use crate::cost::step_cost_with;
use crate::lower::group_memo::StepOfGroup;
use crate::lower::instances::recomputed_values;
use crate::lower::{Holders, LowerWith, PlacedProgram, belongs, placed};
use crate::memory::engine::EngineModel;
use crate::memory::memory_beside;
use crate::memory::residuals::saved_bytes;
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::PlanOptions;
use adfuse_ir::kernel::{Program, Step};
use adfuse_ir::{Diagnostic, Function, Value};

/// A plan with its cost.
#[derive(Clone, Debug)]
pub struct PlanPoint {
    /// The plan.
    pub plan: Plan,
    /// The most bytes at once: inputs, outputs, constants, and the arena with what steps need.
    pub peak: u64,
    /// Predicted seconds.
    pub seconds: f64,
    /// Bytes that a phase leaves to a later one.
    pub saved: u64,
    /// Recomputed values in the order of the function, with counts.
    pub again: Vec<(Value, u32)>,
    /// What it costs to compile.
    pub compile: CompileCost,
}

/// The cost of a plan of a [prepared](crate::prepare()) function.
///
/// # Errors
/// As [`lower`](crate::lower()), and those of the engine.
pub fn plan_point(
    f: &Function,
    plan: Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanPoint, Diagnostic> {
    belongs(f, &plan)?;
    measured(f, plan, options, engine).map(|(point, _)| point)
}

/// A plan with its cost and its program.
pub(crate) fn measured(
    f: &Function,
    plan: Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<(PlanPoint, Program), Diagnostic> {
    let (point, program, _) = measured_at(f, plan, options, engine)?;
    Ok((point, program))
}

/// As [`measured`], with the buffers that values are in.
pub(crate) fn measured_at(
    f: &Function,
    plan: Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<(PlanPoint, Program, Holders), Diagnostic> {
    let plan = match engine.donated() {
        [] => plan,
        given => plan.donating(given),
    };
    let with = LowerWith { device: &options.device, memo: engine.memo() };
    let placed = placed(f, &plan, with)?;
    let program = &placed.program;
    let seconds = seconds(&placed, &options.device, engine);
    let compile = compile(&placed, &options.device);
    let peak = {
        let sized = engine.sized(program)?;
        sized.peak(&memory_beside(program, options.effort, sized.scratch())?)?
    };
    let saved = match &placed.instances {
        Some(x) => saved_bytes(&x.f, &x.plan)?,
        None => saved_bytes(f, &plan)?,
    };
    let again = recomputed_values(f, &plan);
    let point = PlanPoint { plan, peak, seconds, saved, again, compile };
    Ok((point, placed.program, placed.holders))
}

/// What compiling a program costs, as [`compile_cost`](crate::compile_cost()) counts it: the code of equal groups is
/// counted once.
fn compile(placed: &PlacedProgram, device: &MachineModel) -> CompileCost {
    let program = &placed.program;
    let of = |(step, of_group): (&Step, &Option<StepOfGroup>)| {
        let count = || step_code(program, step, device);
        of_group.as_ref().map_or_else(count, |of_group| of_group.code(count))
    };
    together(program.steps.iter().zip(&placed.of_group).map(of)).on(program.steps.len(), device)
}

/// Predicted seconds of a program, as [`EngineModel::cost`] counts them: those of equal steps once. The engine is asked
/// only for the facts of steps whose seconds are not known.
fn seconds(placed: &PlacedProgram, device: &MachineModel, engine: &dyn EngineModel) -> f64 {
    let program = &placed.program;
    let known = |n: usize| placed.of_group.get(n).and_then(|of| of.as_ref()?.known_seconds());
    let asked: Vec<usize> = (0..program.steps.len()).filter(|&n| known(n).is_none()).collect();
    let steps = asked.iter().map(|&n| program.steps[n].clone()).collect();
    let facts = match asked.is_empty() {
        true => None,
        false => {
            let Program { name, buffers, outputs, .. } = program;
            let (name, buffers, outputs) = (name.clone(), buffers.clone(), outputs.clone());
            engine.facts(&Program { name, buffers, outputs, steps }, device)
        }
    };
    let blocks = |program: &Program| engine.cost(program, device);
    let of = |(n, step): (usize, &Step)| {
        let count = || {
            let facts = asked.binary_search(&n).ok().and_then(|k| facts.as_ref()?.get(k));
            step_cost_with((program, step), device, facts, &blocks).seconds
        };
        let of_group = placed.of_group.get(n).and_then(Option::as_ref);
        of_group.map_or_else(count, |of_group| of_group.seconds(count))
    };
    // In the order of the steps, as everywhere: sums of floats depend on it.
    program.steps.iter().enumerate().map(of).fold(0.0, |sum, seconds| sum + seconds)
}
