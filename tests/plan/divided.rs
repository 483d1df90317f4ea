//! Engines that divide steps: plans are the same whether the engine sizes programs as wholes or each lowered group by itself.

use crate::common::models;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::{
    DividedSteps, Effort, EngineModel, Fp, MachineModel, Memory, PlanOptions, SizedProgram,
    StepSizes, memory_apart, plan_for, plan_frontier, prepare,
};
use adfuse::ir::kernel::{Buffer, BufferData, Kernel, Program, Role, Step, Storage};
use adfuse::ir::{Diagnostic, Module};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An engine that copies what a step reads before it, and runs the step on the copy.
struct CopyingEngine {
    effort: Effort,
    /// Whether it sizes steps by themselves.
    alone: bool,
    /// How many programs it has sized as wholes.
    wholes: AtomicUsize,
}

/// What it runs for the steps of a program.
fn copied(given: &Program) -> DividedSteps {
    let mut program = Program { steps: Vec::new(), ..given.clone() };
    let (mut scratch, mut reads_again) = (Vec::new(), Vec::new());
    for step in &given.steps {
        let mut step = step.clone();
        let is_dense = |b: &Buffer| {
            let data = &given.buffers[*b];
            data.storage == Storage::Plain && data.strides.is_none() && !data.dims.is_empty()
        };
        let first = step.reads().find(is_dense);
        if let Some(from) = first.filter(|&from| step.writes().all(|b| b != from)) {
            let BufferData { dtype, dims, .. } = given.buffers[from].clone();
            let name = format!("copy.{}", program.buffers.len());
            let to = program.buffers.push(BufferData::new(name, dtype, dims.clone(), Role::Temp));
            let copy = Kernel::copying("copy".into(), from, to, (dtype, &dims));
            program.steps.push(Step::Kernel(copy));
            scratch.push(0);
            reads_again.push(false);
            step.buffers_mut(&mut |b| *b = if *b == from { to } else { *b });
        }
        let twice = step.reads().count() % 2 == 1;
        scratch.push(given.scratch(&step) + 192 * u64::from(twice));
        reads_again.push(twice);
        program.steps.push(step);
    }
    DividedSteps { program, scratch, reads_again }
}

impl EngineModel for CopyingEngine {
    fn sized<'a>(&'a self, program: &'a Program) -> Result<Box<dyn SizedProgram + 'a>, Diagnostic> {
        self.wholes.fetch_add(1, Ordering::Relaxed);
        let scratch = program.steps.iter().map(|step| program.scratch(step)).collect();
        Ok(Box::new(WholeProgram { divided: copied(program), effort: self.effort, scratch }))
    }

    fn step_sizes(&self) -> Option<Box<dyn StepSizes + '_>> {
        self.alone.then(|| Box::new(StepsAlone(self.effort)) as Box<dyn StepSizes>)
    }
}

/// A program that is sized as a whole.
struct WholeProgram {
    divided: DividedSteps,
    effort: Effort,
    scratch: Vec<u64>,
}

impl SizedProgram for WholeProgram {
    fn scratch(&self) -> &[u64] {
        &self.scratch
    }

    fn peak(&self, _: &Memory) -> Result<u64, Diagnostic> {
        let DividedSteps { program, scratch, reads_again } = &self.divided;
        Ok(memory_apart(program, self.effort, scratch, reads_again)?.peak)
    }

    fn divided_peak(&self) -> Result<Option<u64>, Diagnostic> {
        self.peak(&Memory::default()).map(Some)
    }
}

/// Steps that are sized by themselves.
struct StepsAlone(Effort);

impl StepSizes for StepsAlone {
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        Ok(program.steps.iter().map(|step| program.scratch(step)).collect())
    }

    fn peak(&self, _: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        Ok(memory.peak)
    }

    fn divides(&self) -> Option<Effort> {
        Some(self.0)
    }

    fn divided(&self, program: &Program) -> Result<Option<DividedSteps>, Diagnostic> {
        Ok(Some(copied(program)))
    }
}

/// Models with folds, products, packed values and values that are computed again.
const MODELS: &[&str] = &["batch_norm", "dropout_mlp", "layer_norm", "recurrent"];

#[test]
fn plans_do_not_depend_on_whether_steps_are_divided_by_themselves() {
    for (name, module, f) in models::all().into_iter().filter(|(n, ..)| MODELS.contains(&&**n)) {
        let wrt = differentiable(&f, None).expect("has parameters");
        let g = forward_and_backward(&module, &f, &wrt).expect("has a gradient");
        let f = prepare(&Module::single(g.clone()), &g).expect("prepares");
        for device in [MachineModel::cpu(), MachineModel::h200()] {
            let options = PlanOptions { device, effort: Effort::Default, fp: Fp::Strict };
            let [as_wholes, alone] = [false, true].map(|alone| {
                let wholes = AtomicUsize::new(0);
                let engine = CopyingEngine { effort: options.effort, alone, wholes };
                let plan = plan_for(&f, &options, &engine).expect("has a plan").text(&f);
                let frontier = plan_frontier(&f, &options, &engine).expect("has plans");
                let points = frontier.points().iter();
                let points: Vec<_> =
                    points.map(|p| (p.peak, p.seconds, p.saved, p.plan.text(&f))).collect();
                (plan, points, engine.wholes.into_inner())
            });
            assert_eq!(as_wholes.0, alone.0, "{name}");
            assert_eq!(as_wholes.1, alone.1, "{name}");
            let (many, few) = (as_wholes.2, alone.2);
            assert!(few * 4 < many, "{name}: {few} of {many} programs are sized as wholes");
        }
    }
}
