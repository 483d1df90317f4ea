//! Costs of what random functions are lowered to. `ADFUSE_PROGRAMS` sets how many (200 by default).

use crate::common::models;
use crate::common::programs::decode;
use crate::common::random::programs;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::{
    AnyEngine, Effort, Fp, MachineModel, PlanOptions, compile, cost, plan, plan_attempts,
    plan_point, prepare, step_cost,
};
use adfuse::ir::kernel::text::parse;
use adfuse::ir::kernel::{Program, Role};
use adfuse::ir::rewrite::specialize;
use adfuse::ir::{DType, Function, Module};

/// What holds of the cost of any program that lowering makes.
fn sound(module: &Module, f: &Function) -> Result<(), String> {
    for effort in [Effort::Off, Effort::Default] {
        let options = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
        let compiled = compile(module, f, &options).map_err(|d| format!("{d}\n{f}"))?;
        cost_is_sound(&compiled.program, effort)?;
    }
    Ok(())
}

fn cost_is_sound(program: &Program, effort: Effort) -> Result<(), String> {
    // Nothing stays close where every buffer is larger than what does.
    let bare = MachineModel { tile_bytes: 0, ..MachineModel::cpu() };
    for device in [MachineModel::cpu(), MachineModel::h200(), bare] {
        let found = cost(program, &device);
        let fail = |why: &str| Err(format!("{why}: {found:?}\n{program}"));
        if found.bytes_moved < found.least_bytes {
            return fail("less moves than has to");
        }
        let inputs = program.inputs().map(|b| program.buffers[b].bytes()).sum::<u64>();
        let outputs = program.buffers.values().filter(|b| b.role == Role::Output);
        if found.least_bytes > inputs + outputs.map(|b| b.bytes()).sum::<u64>() {
            return fail("more has to move than inputs and outputs have");
        }
        for (step, cost) in program.steps.iter().zip(&found.steps) {
            let bytes = |b| program.buffers[b].bytes();
            if step_cost(program, step, &device) != *cost {
                return fail("a step alone costs something else");
            }
            // A kernel of one instruction has no two passes.
            if effort == Effort::Off && cost.reads > step.reads().map(bytes).sum::<u64>() {
                return fail("a step reads more than there is");
            }
            if cost.writes != step.writes().map(bytes).sum::<u64>() {
                return fail("a step does not write what it writes");
            }
            if !(cost.seconds >= device.launch_s && cost.seconds < 1.0) {
                return fail("a time that is none");
            }
            if !(cost.occupancy > 0.0 && cost.occupancy <= 1.0) {
                return fail("an occupancy that is none");
            }
        }
        let read = parse(&program.to_string()).map_err(|d| d.to_string())?;
        if cost(&read, &device) != found {
            return fail("the program read back costs something else");
        }
    }
    Ok(())
}

#[test]
fn no_program_moves_less_than_it_has_to() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        programs(12, 200, |steps| {
            let f = decode(steps, dtype);
            sound(&Module::single(f.clone()), &f)?;
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            sound(&Module::single(g.clone()), &g)
        });
    }
}

/// No plan is slower by more than a thousandth, by the cost model, than one that was made for less effort or with a kernel for
/// each instruction; and of those as fast none has a lower peak.
#[test]
fn the_plan_is_the_fastest_that_was_made() {
    let programs = model_programs();
    assert!(programs.len() >= 40, "{} programs", programs.len());
    for (name, f) in programs {
        for effort in [Effort::Quick, Effort::Default] {
            let options = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
            let point = |plan| plan_point(&f, plan, &options, &AnyEngine).expect("lowers");
            let chosen = point(plan(&f, &options).expect("plans"));
            let off = PlanOptions { effort: Effort::Off, ..options.clone() };
            let unfused = point(plan(&f, &off).expect("plans"));
            assert!(chosen.seconds <= unfused.seconds, "{name}: effort off is faster");
            let attempts = plan_attempts(&f, &options, &AnyEngine).expect("plans");
            let least = attempts.iter().map(|(_, made)| made.seconds).fold(f64::INFINITY, f64::min);
            assert!(chosen.seconds <= least * 1.001, "{name}: another plan is faster");
            for (effort, made) in attempts.iter().filter(|(_, a)| a.seconds <= least * 1.001) {
                assert!(made.peak >= chosen.peak, "{name}: {effort:?} takes less memory");
            }
        }
    }
}

/// The plan of effort quick is one that effort default makes on its way: both are found in one grouping.
#[test]
fn effort_quick_is_how_effort_default_begins() {
    let mut different = 0;
    for (name, f) in model_programs() {
        let quick = |effort: Effort| {
            let options = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
            let all = plan_attempts(&f, &options, &AnyEngine).expect("plans");
            let made = all.into_iter().find(|(effort, _)| *effort == Effort::Quick);
            made.map(|(_, point)| (point.plan.inline, point.plan.groups, point.plan.storage))
        };
        // Where effort default ends with the same plan, there is one.
        if let Some(beside) = quick(Effort::Default) {
            different += 1;
            assert_eq!(Some(beside), quick(Effort::Quick), "{name}");
        }
    }
    assert!(different > 0, "both efforts make the same plans");
}

/// On a device on which nothing is as slow as an operation, computing again what is fused does not pay.
#[test]
fn a_kernel_for_each_instruction_may_be_the_fastest() {
    let mut device = MachineModel::cpu();
    (device.launch_s, device.ops_per_s) = (1e-9, 1e6);
    device.memory_bytes_per_s = 1e15;
    device.cache_bytes_per_s = 1e15;
    device.core_bytes_per_s = 1e15;
    let mut unfused = 0;
    for (_, f) in model_programs() {
        let options =
            PlanOptions { device: device.clone(), effort: Effort::Default, fp: Fp::Strict };
        let off = plan(&f, &PlanOptions { effort: Effort::Off, ..options.clone() }).expect("plans");
        unfused += u32::from(plan(&f, &options).expect("plans") == off);
    }
    assert!(unfused > 0, "effort off is never chosen");
}

/// The models with their gradients, and their values.
fn model_programs() -> Vec<(String, Function)> {
    let mut all = Vec::new();
    for (name, module, f) in models::all() {
        let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
        let f = specialize(&f, &extents).expect("three of each");
        let wrt = differentiable(&f, None).expect("has floats");
        let g = forward_and_backward(&module, &f, &wrt).expect("differentiates");
        all.push((
            format!("{name}_grad"),
            prepare(&Module::single(g.clone()), &g).expect("prepares"),
        ));
        all.push((name, prepare(&module, &f).expect("prepares")));
    }
    all
}

/// A planner asks often: ten thousand steps take under 50 ms in a release build on two cores.
#[test]
fn long_programs_are_counted_quickly() {
    let declared = "input %x: f32[64, 512] input %b: f32[512] output %y: f32[64, 512]";
    let stage = "p0 = load %x[d0, d1] p1 = load %b[d1] s0 = param.f32 0 s1 = param.f32 1
        s2 = add.f32 s0 s1 s3 = const.f32 0.7 s4 = mul.f32 s2 s3 s5 = erf.f32 s4
        s6 = fma.f32 s5 s3 s3 s7 = mul.f32 s2 s6 s8 = exp.f32 s7 s9 = tanh.f32 s8
        %y[d0, d1] = store s9";
    let text = format!(
        "program @f {{ {declared} kernel @k [64, 512] {{ stage [] {{ {stage} }} }} return %y }}"
    );
    let mut program: Program = parse(&text).expect("reads");
    program.steps = vec![program.steps[0].clone(); 10_000];
    let device = MachineModel::cpu();
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begin = std::time::Instant::now();
        let found = cost(&program, &device);
        best = best.min(begin.elapsed().as_secs_f64());
        assert_eq!(found.launches, 10_000);
    }
    let limit = if cfg!(debug_assertions) { 2.0 } else { 0.05 };
    assert!(best < limit, "{best} s");
}

/// Elements of a kernel's loads and stores that are strided, placed and branched for, and cuts of lines.
fn lying(domain: &str, body: &str) -> [f64; 4] {
    let text = format!(
        "program @f {{ input %x: f32[8, 16] input %c: f32[8] input %at: i32[16] output %y: f32[8, 16]
           kernel @k {domain} {{ stage [] {{ {body} }} }} return %y }}"
    );
    let program = parse(&text).unwrap_or_else(|d| panic!("{d}\n{text}"));
    // An operation takes a second, and nothing else any time.
    let none = MachineModel {
        ops_per_s: 1.0,
        memory_bytes_per_s: 1e30,
        cache_bytes_per_s: 1e30,
        core_bytes_per_s: 1e30,
        parallel: 1,
        stride_ops: 0.0,
        place_ops: 0.0,
        branch_ops: 0.0,
        cut_ops: 0.0,
        fold_ops: 0.0,
        interchange_ops: 0.0,
        line: 1,
        ..MachineModel::cpu()
    };
    let without = cost(&program, &none).seconds;
    let priced = [
        MachineModel { stride_ops: 1.0, ..none.clone() },
        MachineModel { place_ops: 1.0, ..none.clone() },
        MachineModel { branch_ops: 1.0, ..none.clone() },
        MachineModel { cut_ops: 1.0, ..none.clone() },
    ];
    priced.map(|device| (cost(&program, &device).seconds - without).round())
}

#[test]
fn what_does_not_lie_beside_one_another_is_counted() {
    let value = "s0 = param.f32 0 s1 = neg.f32 s0 %y[d0, d1] = store s1";
    for (load, due) in [
        // Neighbours, and what is the same along a line.
        ("p0 = load %x[d0, d1]", [0.0; 4]),
        ("p0 = load %c[d0]", [0.0; 4]),
        ("p0 = load %x[d0, d1 / 16]", [0.0, 128.0, 0.0, 0.0]),
        ("p0 = load %x[d0 / 2, d1]", [0.0; 4]),
        // Backwards, and every other one of half a line.
        ("p0 = load %x[d0, d1 * -1 + 15]", [128.0, 0.0, 0.0, 0.0]),
        ("p0 = load %x[d0 / 2, d0]", [0.0; 4]),
        // Guards cut each of eight lines: at one end inside, at two, at the other end of the line.
        ("p0 = load %x[d0, d1 - 1] when d1 - 1 in [0, 15) else f32(0.0)", [0.0, 0.0, 0.0, 8.0]),
        ("p0 = load %x[d0, d1] when d1 in [2, 9) else f32(0.0)", [0.0, 0.0, 0.0, 16.0]),
        ("p0 = load %x[d0, d1] when d1 * -1 + 20 in [0, 12) else f32(0.0)", [0.0, 0.0, 0.0, 8.0]),
        ("p0 = load %x[d0, d1] when d0 in [2, 5) else f32(0.0)", [0.0; 4]),
        // What is not beside one another, or guarded by what is not affine, is asked for.
        ("p0 = load %c[d0] when d1 in [2, 9) else f32(0.0)", [0.0, 0.0, 128.0, 0.0]),
        ("p0 = load %x[d0, d1] when d1 % 2 in [0, 1) else f32(0.0)", [0.0, 0.0, 128.0, 0.0]),
    ] {
        assert_eq!(lying("[8, 16]", &format!("{load} {value}")), due, "{load}");
    }
    // A store across, and a place from data.
    let turned = "p0 = load %x[d1, d0] s0 = param.f32 0 %y[d1, d0] = store s0";
    assert_eq!(lying("[16, 8]", turned), [256.0, 0.0, 0.0, 0.0]);
    let picked = "p0 = load %at[d1] p1 = load %x[d0, clamp(p0, 0, 15)] s0 = param.f32 1 %y[d0, d1] = store s0";
    assert_eq!(lying("[8, 16]", picked), [0.0, 128.0, 0.0, 0.0]);
}

/// What a kernel over [16, 8] takes on a machine, an operation a second; its results are one for each of 16 or of 8.
fn seconds(domain: &str, body: &str, machine: impl Fn(&mut MachineModel)) -> f64 {
    let text = format!(
        "program @f {{ input %x: f32[16, 8] output %r: f32[16] output %c: f32[8] output %y: f32[16, 8]
           kernel @k {domain} {{ {body} }} return %y }}"
    );
    let program = parse(&text).unwrap_or_else(|d| panic!("{d}\n{text}"));
    let mut device = MachineModel {
        ops_per_s: 1.0,
        memory_bytes_per_s: 1e30,
        cache_bytes_per_s: 1e30,
        core_bytes_per_s: 1e30,
        parallel: 1,
        lanes: 1,
        line: 1,
        stride_ops: 0.0,
        place_ops: 0.0,
        fold_ops: 0.0,
        interchange_ops: 0.0,
        ..MachineModel::cpu()
    };
    machine(&mut device);
    cost(&program, &device).seconds
}

#[test]
fn folds_that_vectors_do_not_do_take_their_elements_one_by_one() {
    let fold = |runs: &str, to: &str| {
        let stage = format!(
            "stage [] {{ p0 = load %x[d0, d1] s0 = param.f32 0 {to} = fold.sum s0 {runs} }}"
        );
        let plain = seconds("[16, 8]", &stage, |_| ());
        let single = seconds("[16, 8]", &stage, |m| m.fold_ops = 1.0) - plain;
        let interchanged = seconds("[16, 8]", &stage, |m| m.interchange_ops = 1.0) - plain;
        [single, interchanged].map(f64::round)
    };
    // Rows of eight, columns of eight, and rows that come a column after the other.
    assert_eq!(fold("lane(d1)", "%r[d0]"), [128.0, 0.0]);
    assert_eq!(fold("chain(d0)", "%c[d1]"), [128.0, 0.0]);
    assert_eq!(fold("lane(d0)", "%c[d1]"), [128.0, 128.0]);
}

#[test]
fn short_lines_leave_lanes_idle() {
    let taken = |load: &str| {
        let stage = format!(
            "stage [] {{ p0 = load {load} s0 = param.f32 0 s1 = neg.f32 s0 %y[d0, d1] = store s1 }}"
        );
        let [full, short] =
            [1, 16].map(|line| seconds("[16, 8]", &stage, |m| m.line = line).round());
        short / full
    };
    // Both axes are one line; lines of eight fill half a vector.
    assert_eq!(taken("%x[d0, d1]"), 1.0);
    assert_eq!(taken("%x[d0 / 2, d1]"), 2.0);
    assert_eq!(taken("%x[d0 * -1 + 15, d1]"), 2.0);
}
