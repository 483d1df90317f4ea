//! Equal steps share code: what models of more equal layers are compiled to does not grow, and no bit changes.

use crate::common::layers;
use adfuse::backends::reference::kernel;
use adfuse::backends::{Array, ptx};
use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile_cost, lower, plan};
use adfuse::ir::kernel::{EqualSteps, Program, Verified, verify};

fn program(count: usize) -> Verified<Program> {
    let f = layers::gradients(count);
    let options =
        PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
    let plan = plan(&f, &options).expect("is planned");
    verify(lower(&f, &plan, &options.device).expect("is lowered")).expect("is verified")
}

/// Numbers for all inputs, the same every time.
fn arguments(program: &Program) -> Vec<Array> {
    let input = |(k, b): (usize, _)| {
        let dims: Vec<u64> = program.buffers[b].dims.iter().map(|&n| n.unsigned_abs()).collect();
        let count = dims.iter().product::<u64>();
        let value = |n: u64| ((n * 37 + k as u64 * 11) % 64) as f32 / 64.0 - 0.5;
        let values: Vec<f32> = (0..count).map(value).collect();
        Array::from_f32s(&dims, &values).expect("as there are")
    };
    program.inputs().enumerate().map(input).collect()
}

#[test]
fn equal_sweeps_share_a_function_and_keep_every_bit() {
    let code = |count: usize| {
        let program = program(count);
        let args = arguments(&program);
        let due = kernel::run(&program, &args).expect("runs");
        let made = Cpu::default().of_program(program).expect("compiles").executable;
        assert_eq!(made.run(&args).expect("runs"), due);
        made.sweeps().filter(|sweep| !sweep.code.is_empty()).count()
    };
    let counts = [4, 8, 16].map(code);
    assert!(counts[1] == counts[2], "{counts:?}");
}

#[test]
fn equal_steps_launch_the_same_entry_points() {
    let entries = |count: usize| {
        let program = program(count);
        let made = ptx::compile(&program, ptx::GpuTarget::SM90, Fp::Strict).expect("compiles");
        let equal = EqualSteps::of(&program);
        for n in 0..program.steps.len() {
            let (own, first) = (&made.steps[n], &made.steps[equal.first(n)]);
            assert_eq!(own.scratch, first.scratch);
            for (a, b) in own.launches.iter().zip(&first.launches) {
                assert_eq!((&a.entry, a.grid, a.shared), (&b.entry, b.grid, b.shared));
            }
        }
        made.text.matches(".entry").count()
    };
    let counts = [4, 8, 16].map(entries);
    assert!(counts[1] == counts[2], "{counts:?}");
}

/// What is printed of a schedule is what is compiled, whether code of other programs is there or not.
#[test]
fn kept_code_changes_no_text() {
    let codes = ptx::CodeCache::default();
    for count in [4, 6, 4] {
        let program = program(count);
        let target = ptx::GpuTarget::SM90;
        let alone = ptx::compile(&program, target, Fp::Strict).expect("compiles");
        let kept = codes
            .compile(&program, ptx::ScheduleContext::new(target, Fp::Strict), &[])
            .expect("compiles");
        assert_eq!(kept, alone);
        let schedule = ptx::schedule(&program, target, Fp::Strict).expect("is scheduled");
        assert_eq!(ptx::print(&schedule).expect("is printed"), alone);
    }
    assert!(!codes.is_empty());
}

#[test]
fn code_of_equal_layers_does_not_grow() {
    let (some, many) = (program(8), program(16));
    for device in [MachineModel::cpu(), MachineModel::h200()] {
        let (some, many) = (compile_cost(&some, &device), compile_cost(&many, &device));
        assert_eq!((some.functions, some.code_bytes), (many.functions, many.code_bytes));
        assert!(some.seconds > 0.0 && some.seconds < many.seconds && some.code_bytes > 0);
    }
}
