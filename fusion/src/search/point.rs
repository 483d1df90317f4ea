//! A plan with its peak, its predicted time and its residuals.

use crate::cost::compile_cost::{CompileCost, step_code, together};
use crate::cost::step_cost::StepCost;
use crate::cost::step_cost_with;
use crate::lower::divided_program::DividedProgram;
use crate::lower::group_memo::{BufferUses, DividedSteps, GroupPrice, LoweredGroup, StepOfGroup};
use crate::lower::instances::recomputed_values;
use crate::lower::linked::{LinkBase, LinkedProgram, linked};
use crate::lower::{Holders, LowerWith, PlacedProgram, belongs, placed};
use crate::memory::engine::{EngineModel, StepSizes};
use crate::memory::least_peak::{least_linked_peak, least_peak};
use crate::memory::residuals::{saved_bytes, saved_with};
use crate::memory::{linked_memory, memory_beside};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::{Effort, PlanOptions};
use crate::search::parallel::each;
use adfuse_ir::kernel::facts::KernelFacts;
use adfuse_ir::kernel::{Buffer, Program, Step, verify_steps};
use adfuse_ir::{Diagnostic, Function, Value};
use std::sync::Arc;

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
    /// Whether the peak is that of the wanted effort; otherwise memory was planned quickly, and it may be a little lower.
    pub(crate) is_packed: bool,
}

impl AsRef<PlanPoint> for PlanPoint {
    fn as_ref(&self) -> &PlanPoint {
        self
    }
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
    Ok(measured(f, plan, options, engine)?.point)
}

/// A plan that was lowered and priced, before its memory is planned.
pub(crate) struct PricedPlan {
    plan: Plan,
    placed: PlacedProgram,
    /// Predicted seconds of each step.
    pub(crate) of_steps: Vec<f64>,
    pub(crate) seconds: f64,
    pub(crate) compile: CompileCost,
}

/// A plan with its cost, and what it was lowered to.
pub(crate) struct MeasuredPlan {
    pub(crate) point: PlanPoint,
    pub(crate) program: Program,
    /// The buffers that values are in.
    pub(crate) holders: Holders,
    /// Predicted seconds of each step.
    pub(crate) seconds: Vec<f64>,
}

/// Lowers and prices a plan.
///
/// # Errors
/// As [`lower`](crate::lower()).
pub(crate) fn priced(
    f: &Function,
    plan: Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PricedPlan, Diagnostic> {
    let plan = match engine.donated() {
        [] => plan,
        given => plan.donating(given),
    };
    let device = &options.device;
    let placed = placed(f, &plan, LowerWith::measured(device, engine.memo().map(Arc::as_ref)))?;
    let of_steps = seconds_of_steps(&placed, device, engine);
    let (seconds, compile) = (total(&of_steps), compile(&placed, device));
    Ok(PricedPlan { plan, placed, of_steps, seconds, compile })
}

impl PricedPlan {
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn program(&self) -> &Program {
        &self.placed.program
    }

    /// Its steps with their seconds, and the program that they are in.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (&Program, &Step, f64)> {
        let program = self.program();
        program
            .steps
            .iter()
            .zip(&self.of_steps)
            .map(move |(step, &seconds)| (program, step, seconds))
    }

    /// Bytes that the plan takes at the least, however its memory is planned.
    pub(crate) fn least_peak(&self) -> u64 {
        least_peak(&self.placed.program)
    }

    /// Bytes at the peak where memory is planned quickly.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn quick_peak(
        &self,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<u64, Diagnostic> {
        self.peak(options.effort.min(Effort::Quick), engine)
    }

    /// Bytes at the peak where memory is planned with an effort.
    fn peak(&self, effort: Effort, engine: &dyn EngineModel) -> Result<u64, Diagnostic> {
        let sized = engine.sized(&self.placed.program)?;
        if let Some(peak) = sized.divided_peak()? {
            return Ok(peak);
        }
        sized.peak(&memory_beside(&self.placed.program, effort, sized.scratch())?)
    }

    /// The plan with its cost, whose memory has been planned quickly, to this peak.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn quick_point(self, f: &Function, peak: u64) -> Result<PlanPoint, Diagnostic> {
        Ok(PlanPoint { is_packed: false, ..self.with_peak(f, peak)?.point })
    }

    /// The plan with its memory planned.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn measured(
        self,
        f: &Function,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<MeasuredPlan, Diagnostic> {
        let peak = self.peak(options.effort, engine)?;
        self.with_peak(f, peak)
    }

    /// As [`PricedPlan::measured`], with the peak of the plan linked where that is possible.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn measured_beside(
        self,
        f: &Function,
        base: Option<&LinkBase<'_>>,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<MeasuredPlan, Diagnostic> {
        let linked = base.and_then(|base| LinkedPlan::of(base, &self.plan, options, engine));
        match linked {
            Some(linked) => {
                let peak = linked.peak(options.effort, engine)?;
                self.with_peak(f, peak)
            }
            None => self.measured(f, options, engine),
        }
    }

    fn with_peak(self, f: &Function, peak: u64) -> Result<MeasuredPlan, Diagnostic> {
        let PricedPlan { plan, placed, of_steps, seconds, compile } = self;
        let saved = match &placed.instances {
            Some(x) => saved_bytes(&x.f, &x.plan)?,
            None => saved_bytes(f, &plan)?,
        };
        let again = recomputed_values(f, &plan);
        let is_packed = true;
        let point = PlanPoint { plan, peak, seconds, saved, again, compile, is_packed };
        let PlacedProgram { program, holders, .. } = placed;
        Ok(MeasuredPlan { point, program, holders, seconds: of_steps })
    }
}

/// A plan that was linked and priced, before its memory is planned: as [`PricedPlan`], without a program.
pub(crate) struct LinkedPlan {
    plan: Plan,
    program: LinkedProgram,
    /// Bytes of scratch memory of each step, where the engine runs these.
    scratch: Vec<u64>,
    /// The effort with which an engine plans memory that divides them.
    divides: Option<Effort>,
    /// Predicted seconds of each step, and of all.
    of_steps: Vec<f64>,
    pub(crate) seconds: f64,
    pub(crate) compile: CompileCost,
    /// Whether the engine has stated facts of all steps.
    pub(crate) stated: bool,
}

impl LinkedPlan {
    /// Links and prices a plan. `None` where it is not linked, or its engine sizes programs as wholes: then it is lowered.
    pub(crate) fn of(
        base: &LinkBase<'_>,
        plan: &Plan,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Option<LinkedPlan> {
        let plan = match engine.donated() {
            [] => plan.clone(),
            given => plan.clone().donating(given),
        };
        let device = &options.device;
        let memo = engine.memo().filter(|memo| memo.is_for(device))?;
        let sizes = engine.step_sizes()?;
        let program = linked(base, &plan, (device, memo))?;
        let scratch_of = |program: &Program| {
            verify_steps(program).ok()?;
            sizes.scratch(program).ok()
        };
        let divided_of = |program: &Program| divided_by(&*sizes, program);
        let divides = sizes.divides();
        each_new_group(&program, &|group| {
            group_price(group, engine, device);
            if divides.is_some()
                && let Some(sizes) = engine.step_sizes()
            {
                group.divided(|program| divided_by(&*sizes, program));
            }
        });
        let (mut of_steps, mut scratch, mut stated) = (Vec::new(), Vec::new(), true);
        for StepOfGroup { group, step } in program.steps.iter().map(|step| &step.of) {
            let price = group_price(group, engine, device);
            of_steps.push(price.steps[*step]);
            stated &= price.stated;
            if divides.is_none() {
                scratch.push(group.scratch(scratch_of)?[*step]);
            } else if group.divided(divided_of).is_none() {
                return None;
            }
        }
        let count = |program: &Program, step: &Step| step_code(program, step, device);
        let code = program.steps.iter().map(|step| step.of.code(count));
        let compile = together(code).on(program.steps.len(), device);
        let seconds = total(&of_steps);
        Some(LinkedPlan { plan, program, scratch, divides, of_steps, seconds, compile, stated })
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its steps with their seconds, each in the program of its group.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (&Program, &Step, f64)> {
        self.program.steps.iter().zip(&self.of_steps).map(|(step, &seconds)| {
            let (program, at) = step.of.program();
            (program, &program.steps[at], seconds)
        })
    }

    /// The buffers and results of its program.
    pub(crate) fn frame(&self) -> &Program {
        &self.program.frame
    }

    /// The buffers of the program that each of its steps reads and writes.
    pub(crate) fn uses(&self) -> impl Iterator<Item = BufferUses> {
        self.program.steps.iter().map(|step| {
            let uses = step.of.uses();
            let own = |all: &[Buffer]| all.iter().filter_map(|&b| step.buffer(b)).collect();
            BufferUses { reads: own(&uses.reads), writes: own(&uses.writes) }
        })
    }

    /// As [`PricedPlan::least_peak`].
    pub(crate) fn least_peak(&self) -> u64 {
        least_linked_peak(&self.program)
    }

    /// Bytes at the peak where its memory is planned with an effort.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn peak(&self, effort: Effort, engine: &dyn EngineModel) -> Result<u64, Diagnostic> {
        let divided = match self.divides {
            Some(effort) => Some((effort, DividedProgram::of(&self.program)?)),
            None => None,
        };
        let (program, effort, sizes) = match &divided {
            Some((effort, of)) => (&of.program, *effort, (&of.scratch[..], &of.reads_again[..])),
            None => (&self.program, effort, (&self.scratch[..], &[][..])),
        };
        let known = engine.packings().map(Arc::as_ref);
        let memory = linked_memory(program, effort, sizes, known)?;
        match engine.step_sizes() {
            Some(sizes) => sizes.peak(&program.frame, &memory),
            None => Ok(memory.peak),
        }
    }

    /// The plan with its memory planned with the wanted effort.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn measured(
        self,
        base: &LinkBase<'_>,
        options: &PlanOptions,
        engine: &dyn EngineModel,
    ) -> Result<PlanPoint, Diagnostic> {
        let peak = self.peak(options.effort, engine)?;
        Ok(PlanPoint { is_packed: true, ..self.point(base, peak)? })
    }

    /// The plan with its cost, where the peak of its memory, planned quickly, is known.
    ///
    /// # Errors
    /// As [`saved_bytes`].
    pub(crate) fn point(self, base: &LinkBase<'_>, peak: u64) -> Result<PlanPoint, Diagnostic> {
        let LinkedPlan { plan, seconds, compile, divides, .. } = self;
        let saved = saved_with(&base.facts, &plan)?;
        let again = recomputed_values(base.facts.f, &plan);
        // Memory of divided steps is planned with one effort alone.
        let is_packed = divides.is_some();
        Ok(PlanPoint { plan, peak, seconds, saved, again, compile, is_packed })
    }
}

/// What an engine divides the steps of a group into.
fn divided_by(sizes: &dyn StepSizes, program: &Program) -> Option<DividedSteps> {
    verify_steps(program).ok()?;
    sizes.divided(program).ok()?
}

/// Groups without a price from which on threads share them.
const MANY: usize = 8;

/// Has something found for each group of a program that has no price yet. To examine a step takes engines that print its code
/// as long as grouping a hundred instructions.
fn each_new_group(program: &LinkedProgram, find: &(dyn Fn(&LoweredGroup) + Sync)) {
    let mut new: Vec<&Arc<LoweredGroup>> = Vec::new();
    for step in program.steps.iter().filter(|step| step.of.step == 0) {
        let group = &step.of.group;
        if !group.has_price() && !new.iter().any(|known| Arc::ptr_eq(known, group)) {
            new.push(group);
        }
    }
    if new.len() >= MANY {
        each(&new, |group| find(group));
    }
}

/// The point of a plan, which is linked where that is possible.
///
/// # Errors
/// As [`lower`](crate::lower()), and those of the engine.
pub(crate) fn measured_point(
    base: Option<&LinkBase<'_>>,
    (f, plan): (&Function, &Plan),
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<PlanPoint, Diagnostic> {
    let linked = base.and_then(|base| LinkedPlan::of(base, plan, options, engine));
    match (base, linked) {
        (Some(base), Some(linked)) => linked.measured(base, options, engine),
        _ => Ok(measured(f, plan.clone(), options, engine)?.point),
    }
}

/// A plan with its cost and its program.
pub(crate) fn measured(
    f: &Function,
    plan: Plan,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<MeasuredPlan, Diagnostic> {
    priced(f, plan, options, engine)?.measured(f, options, engine)
}

/// The predicted seconds of a plan.
///
/// # Errors
/// As [`lower`](crate::lower()).
pub(crate) fn plan_seconds(
    f: &Function,
    plan: &Plan,
    device: &MachineModel,
    engine: &dyn EngineModel,
) -> Result<f64, Diagnostic> {
    let placed = placed(f, plan, LowerWith::measured(device, engine.memo().map(Arc::as_ref)))?;
    Ok(total(&seconds_of_steps(&placed, device, engine)))
}

/// As [`plan_seconds`], for a plan that is linked where that is possible: most of its groups have been priced.
///
/// # Errors
/// As there.
pub(crate) fn linked_seconds(
    base: Option<&LinkBase<'_>>,
    (f, plan): (&Function, &Plan),
    device: &MachineModel,
    engine: &dyn EngineModel,
) -> Result<f64, Diagnostic> {
    let memo = engine.memo().filter(|memo| memo.is_for(device));
    let program = memo.and_then(|memo| linked(base?, plan, (device, memo)));
    let Some(program) = program else { return plan_seconds(f, plan, device, engine) };
    each_new_group(&program, &|group| {
        group_price(group, engine, device);
    });
    let of =
        |StepOfGroup { group, step }: &StepOfGroup| group_price(group, engine, device).steps[*step];
    Ok(total(&program.steps.iter().map(|step| of(&step.of)).collect::<Vec<f64>>()))
}

/// What compiling a program costs, as [`compile_cost`](crate::compile_cost()) counts it: the code of equal groups is
/// counted once.
fn compile(placed: &PlacedProgram, device: &MachineModel) -> CompileCost {
    let program = &placed.program;
    let count = |program: &Program, step: &Step| step_code(program, step, device);
    let of = |(step, of_group): (&Step, &Option<StepOfGroup>)| match of_group {
        Some(of_group) => of_group.code(count),
        None => count(program, step),
    };
    together(program.steps.iter().zip(&placed.of_group).map(of)).on(program.steps.len(), device)
}

/// The seconds of a group's steps with an engine: counted once for all groups of its form. The group is priced by
/// itself, so it has one price in all plans.
pub(crate) fn group_price<'g>(
    group: &'g LoweredGroup,
    engine: &dyn EngineModel,
    device: &MachineModel,
) -> &'g GroupPrice {
    group.price(|program| {
        let facts = engine.facts(program, device);
        let stated = facts.is_some();
        let costs = step_costs(program, facts.as_deref(), engine, device);
        let ideal = costs.iter().map(|cost| cost.ideal_seconds).sum();
        GroupPrice { steps: costs.iter().map(|cost| cost.seconds).collect(), ideal, stated }
    })
}

/// What each step of a program costs, whose facts an engine has stated or not.
fn step_costs(
    program: &Program,
    facts: Option<&[KernelFacts]>,
    engine: &dyn EngineModel,
    device: &MachineModel,
) -> Vec<StepCost> {
    let blocks = |program: &Program| engine.cost(program, device);
    let of = |(n, step): (usize, &Step)| {
        let facts = facts.and_then(|facts| facts.get(n));
        step_cost_with((program, step), device, facts, &blocks)
    };
    program.steps.iter().enumerate().map(of).collect()
}

/// Seconds of all steps, added in their order, as everywhere: sums of floats depend on it.
pub(crate) fn total(seconds: &[f64]) -> f64 {
    seconds.iter().fold(0.0, |sum, seconds| sum + seconds)
}

/// Predicted seconds of each step of a program, as [`EngineModel::cost`] counts them: those of equal groups once. The
/// engine is asked only for the facts of groups that have not been priced, and of steps that are of no group that is
/// known.
pub(crate) fn seconds_of_steps(
    placed: &PlacedProgram,
    device: &MachineModel,
    engine: &dyn EngineModel,
) -> Vec<f64> {
    let program = &placed.program;
    let of_group = |n: usize| placed.of_group.get(n).and_then(Option::as_ref);
    let asked: Vec<usize> = (0..program.steps.len()).filter(|&n| of_group(n).is_none()).collect();
    let mut others = Vec::new();
    if !asked.is_empty() {
        let steps = asked.iter().map(|&n| program.steps[n].clone()).collect();
        let Program { name, buffers, outputs, .. } = program;
        let (name, buffers, outputs) = (name.clone(), buffers.clone(), outputs.clone());
        let program = Program { name, buffers, outputs, steps };
        let facts = engine.facts(&program, device);
        others = step_costs(&program, facts.as_deref(), engine, device);
    }
    let mut others = others.into_iter();
    let of = |n: usize| match of_group(n) {
        Some(of) => group_price(&of.group, engine, device).steps[of.step],
        None => others.next().map_or(0.0, |cost| cost.seconds),
    };
    (0..program.steps.len()).map(of).collect()
}
