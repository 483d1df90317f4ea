//! Memory for steps that a GPU runs at the same time: apart, under a peak that is no higher, and proved by the check of layouts.

use crate::common::{models, parallel};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::ptx::{self, GpuTarget};
use adfuse::backends::{ArenaLayout, check_layout};
use adfuse::engine::arena_layout;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile, memory_apart, memory_spaced};
use adfuse::ir::kernel::{SpacedSteps, verify};
use adfuse::ir::op::Composition;
use adfuse::ir::rewrite::{StepLowering, with_steps};
use adfuse::ir::{Kind, Module};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn memory_of_steps_side_by_side_is_apart_and_raises_no_peak() {
    let (concurrent, spaced, refused) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    parallel::each(&models::all(), |(name, module, f)| {
        let g = forward_and_backward(module, f, &differentiable(f, None).expect("floats"));
        let g = g.unwrap_or_else(|d| panic!("{name}: {d}"));
        // Attention is what it is composed of.
        let composed = with_steps(g, &|_, _| StepLowering::Composed(Composition::Defined));
        let f = composed.expect("known extents");
        let options =
            PlanOptions { device: MachineModel::h200(), effort: Effort::Default, fp: Fp::Strict };
        let made = compile(&Module::single(f.clone()), &f, &options).expect("compiles");
        let program = verify(made.program).unwrap_or_else(|e| panic!("{e:?}"));
        let module = ptx::compile(&program, GpuTarget::SM90, Fp::Strict);
        let module = module.unwrap_or_else(|d| panic!("{name}: {d}"));
        let scratch: Vec<u64> = module.steps.iter().map(|step| step.scratch).collect();
        // As long as the whole program, and as the engine has it.
        let straight = program.steps.iter().all(|step| step.blocks().is_empty());
        let whole = 0..program.steps.len();
        let all: Vec<Vec<Range<usize>>> = match straight {
            true => vec![module.concurrent.clone(), vec![whole]],
            false => vec![module.concurrent.clone()],
        };
        for ranges in all {
            let effort = Effort::Default;
            let plain = memory_apart(&program, effort, &scratch, &[]).expect("small");
            let found = memory_spaced(&program, effort, (&scratch, &[]), &ranges, &plain);
            let found = found.expect("small").unwrap_or_else(|| plain.clone());
            assert!(found.peak <= plain.peak && found.arena <= plain.arena, "{name}");
            let layout = arena_layout(&found);
            check_layout(&program, &layout, &[]).unwrap_or_else(|d| panic!("{name}: {d}"));
            let text = layout.text(&program);
            let again = ArenaLayout::parse(&text, &program).unwrap_or_else(|d| panic!("{d}"));
            assert_eq!(again.text(&program), text);
            concurrent.fetch_add(usize::from(!ranges.is_empty()), Ordering::Relaxed);
            spaced.fetch_add(usize::from(!found.apart.is_empty()), Ordering::Relaxed);
            // A layout that uses memory again at once keeps no such promise.
            let apart = ranges.iter().map(|steps| SpacedSteps { steps: steps.clone(), apart: 16 });
            let claimed = ArenaLayout { apart: apart.collect(), ..arena_layout(&plain) };
            if let Err(d) = check_layout(&program, &claimed, &[]) {
                assert!(d.kind == Kind::Usage && d.message.contains("at the same time"), "{d}");
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let counts = [concurrent, spaced, refused].map(AtomicUsize::into_inner);
    assert!(counts[0] > 30 && counts[1] > 10 && counts[2] > 10, "{counts:?}");
}
