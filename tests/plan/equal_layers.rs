//! Equal layers: what is lowered once for all of its equals is what lowering gives each of them.

use crate::common::programs::decode;
use crate::common::{layers, models, parallel, random};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    AnyEngine, Effort, EngineModel, Fp, LoweringMemo, MachineModel, PlanOptions, PlanPoint, lower,
    lower_with_memo, plan, plan_among, plan_frontier, plan_point, prepare,
};
use adfuse::ir::kernel::EqualSteps;
use adfuse::ir::{DType, Function, Module};
use std::sync::Arc;

fn options(effort: Effort, fp: Fp) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort, fp }
}

fn gradients(module: &Module, f: &Function) -> Option<Function> {
    let wrt = differentiable(f, None).ok()?;
    prepare(module, &forward_and_backward(module, f, &wrt).ok()?).ok()
}

/// Lowers all plans of a frontier with one memo, twice, and compares programs and costs with what lowering gives
/// without one.
fn agrees(f: &Function, options: &PlanOptions, engine: &dyn EngineModel) -> Result<(), String> {
    let Ok(frontier) = plan_frontier(f, options, engine) else { return Ok(()) };
    let memo = LoweringMemo::new(&options.device);
    for point in frontier.points() {
        let why = |m: String| format!("{m}\n{}\n{f}", point.plan.text(f));
        let due = lower(f, &point.plan, &options.device).map_err(|d| why(d.to_string()))?;
        for _ in 0..2 {
            let found = lower_with_memo(f, &point.plan, (&options.device, &memo));
            let found = found.map_err(|d| why(d.to_string()))?;
            let same = found.steps.len() == due.steps.len() && found.outputs == due.outputs;
            let steps = found.steps.iter().zip(&due.steps);
            // Names of buffers inside of blocks are numbers too.
            let mut others = steps.filter(|(a, b)| a != b && a.blocks().is_empty());
            if let Some((found, due)) = others.next() {
                return Err(why(format!("{found:?} is not {due:?}")));
            }
            if !same {
                return Err(why("other steps or outputs".into()));
            }
        }
        // The frontier was made with a memo of its own, and most of its plans were not lowered.
        let alone = plan_point(f, point.plan.clone(), options, engine);
        let alone = alone.map_err(|d| why(d.to_string()))?;
        let of = |p: &PlanPoint| (p.seconds.to_bits(), p.peak, p.saved, p.compile, p.again.clone());
        if of(&alone) != of(point) {
            return Err(why(format!("{alone:?} is not {point:?}")));
        }
    }
    Ok(())
}

#[test]
fn models_are_lowered_as_without_a_memo() {
    parallel::each(&models::all(), |(stem, module, f)| {
        let Some(g) = gradients(module, f) else { return };
        for how in [options(Effort::Quick, Fp::Fast), options(Effort::Default, Fp::Strict)] {
            agrees(&g, &how, &AnyEngine).unwrap_or_else(|why| panic!("{stem}: {why}"));
        }
        // The engine says what it makes of steps, and sizes each by itself.
        let cpu = Cpu { plan: options(Effort::Default, Fp::Strict), ..Cpu::default() };
        agrees(&g, &cpu.plan, &cpu).unwrap_or_else(|why| panic!("{stem} on cpu: {why}"));
    });
}

/// What is put together from the groups that planning has lowered is the program of the plan, with its names.
#[test]
fn a_planned_function_has_the_program_of_its_plan() {
    parallel::each(&models::all(), |(stem, module, f)| {
        let Some(g) = gradients(module, f) else { return };
        for effort in [Effort::Quick, Effort::Default] {
            let cpu = Cpu { plan: options(effort, Fp::Strict), ..Cpu::default() };
            let made = plan_among(&g, &cpu.plan, &cpu).expect("is planned");
            let found = made.lower(&g, &made.plan, &cpu.plan.device).expect("has a program");
            let due = lower(&g, &made.plan, &cpu.plan.device).expect("has a program");
            assert_eq!(found, due, "{stem}");
            // The plan of another function is refused, as without those groups.
            let other =
                adfuse::fusion::Plan { graph: String::from("another"), ..made.plan.clone() };
            assert!(made.lower(&g, &other, &cpu.plan.device).is_err(), "{stem}");
        }
    });
}

#[test]
fn random_programs_are_lowered_as_without_a_memo() {
    random::programs(77, 40, |steps| {
        let f = decode(steps, DType::F32);
        match gradients(&Module::single(f.clone()), &f) {
            Some(g) => {
                let cpu = Cpu { plan: options(Effort::Quick, Fp::Strict), ..Cpu::default() };
                agrees(&g, &cpu.plan, &AnyEngine)?;
                agrees(&g, &cpu.plan, &cpu)
            }
            None => Ok(()),
        }
    });
}

/// What a model of more layers has to be lowered, and the different steps that it becomes, do not grow with it.
#[test]
fn equal_layers_are_lowered_once() {
    let counted = |count: usize| {
        let f = layers::gradients(count);
        let options = options(Effort::Default, Fp::Strict);
        let plan = plan(&f, &options).expect("is planned");
        let memo = LoweringMemo::new(&options.device);
        let program = lower_with_memo(&f, &plan, (&options.device, &memo)).expect("is lowered");
        (program.steps.len(), memo.groups(), EqualSteps::of(&program).count())
    };
    let (some, many) = (counted(6), counted(18));
    assert!(many.0 >= some.0 + 12 * 3, "{some:?}, {many:?}");
    assert_eq!((some.1, some.2), (many.1, many.2));
}

/// What runs a plan that was put together from what planning has lowered is what runs the plan by itself: engines find the
/// same program, with the same layout, in their cache. Another plan has another one.
#[test]
fn planned_groups_make_the_program_of_the_plan() {
    for effort in [Effort::Quick, Effort::Default] {
        let engine = Cpu { plan: options(effort, Fp::Strict), ..Cpu::default() };
        let f = layers::gradients(3);
        let made = engine.plan_prepared(&f).expect("is planned");
        assert!(made.groups.is_some());
        let found = engine.follow_prepared(&made).expect("is made");
        let due = engine.follow(&made.narrowed.function, &made.plan).expect("is made");
        assert_eq!(found.program, due.program);
        assert!(Arc::ptr_eq(&found.executable, &due.executable), "{effort:?}");
        let unfused = plan(&f, &options(Effort::Off, Fp::Strict)).expect("is planned");
        let other = engine.follow(&f, &unfused).expect("is made");
        assert!(!Arc::ptr_eq(&found.executable, &other.executable), "{effort:?}");
    }
}
