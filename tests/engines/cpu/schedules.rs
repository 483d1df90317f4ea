//! Schedules decide the loops of a kernel, and no bit.

use super::{Turn, agrees, arguments, files, inputs, random, same};
use crate::common::kernels::numbers;
use crate::common::random::programs;
use crate::common::schedules::walked;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Step, loops, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Module};

#[test]
fn random_schedules_of_random_gradients() {
    for dtype in [DType::F32, DType::BF16] {
        programs(17, 60, |steps| {
            let (f, turn): (_, Turn) = random(steps, dtype);
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            for (seed, effort) in [(1, Effort::Off), (2, Effort::Default)] {
                let options = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
                let compiled = compile(&Module::single(g.clone()), &g, &options);
                let compiled = compiled.map_err(|d| d.to_string())?;
                let other = walked(&compiled.program, &mut numbers(seed));
                let other = verify(other).map_err(|e| e[0].to_string())?;
                same(&other, effort, &turn.arguments(&g))?;
            }
            Ok(())
        });
    }
}

#[test]
fn random_schedules_of_written_programs() {
    let mut seen = 0;
    for (name, text) in files() {
        let program = read(&text).expect("reads");
        if program.steps.iter().any(|s| matches!(s, Step::Library(_))) {
            continue;
        }
        for seed in 0..10 {
            let other = verify(walked(&program, &mut numbers(seed))).expect("verifies");
            if let Err(why) = same(&other, Effort::Default, &arguments(&other)) {
                panic!("{name}: {why}");
            }
            seen += usize::from(*other != program);
        }
    }
    assert!(seen > 50, "{seen} programs were changed");
}

/// Vectors along an axis of the stages that is not their last, which folds over the domain name too.
#[test]
fn vectors_along_an_axis_of_stages_that_fold() {
    for (runs, vector) in [
        ("chain(d2)", "d1"),
        ("chain(d2) lane(d0)", "d1"),
        ("lane(d0) chain(d2, d3)", "d1"),
        ("lane(d3)", "d2"),
    ] {
        let left: Vec<usize> = (0..4).filter(|k| !runs.contains(&format!("d{k}"))).collect();
        let dims: Vec<String> = left.iter().map(|&k| [3, 40, 5, 2][k].to_string()).collect();
        let index: Vec<String> = left.iter().map(|k| format!("d{k}")).collect();
        let (dims, index) = (dims.join(", "), index.join(", "));
        let text = format!(
            "program @f {{
               input %x: f64[3, 40, 5, 2]
               output %y: f64[{dims}]
               output %z: i32[{dims}]
               kernel @k [3] {{
                 schedule vector {vector}
                 stage [40, 5, 2] {{
                   p0 = load %x[d0, d1, d2, d3]
                   s0 = param.f64 0
                   %y[{index}] = fold.sum s0 {runs}
                   %z[{index}] = fold.argmax s0 {runs}
                 }}
               }}
               return %y, %z
             }}"
        );
        let program = read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        if let Err(why) = same(&program, Effort::Default, &arguments(&program)) {
            panic!("{why}");
        }
    }
}

fn transposition(schedule: &str) -> Program {
    read(&format!(
        "program @f {{
           input %x: f32[83, 61]
           output %y: f32[61, 83]
           kernel @k [61, 83] {{
             {schedule}
             stage [] {{
               p0 = load %x[d1, d0]
               s0 = param.f32 0
               %y[d0, d1] = store s0
             }}
           }}
           return %y
         }}"
    ))
    .expect("reads")
}

/// The loops of the kernels that a schedule makes, as their extents, outermost first.
#[test]
fn schedules_are_loops() {
    let cases: [(&str, &[&[i64]]); 7] = [
        ("", &[&[61, 83]]),
        ("schedule order(d1, d0)", &[&[83, 61]]),
        ("schedule vector d0", &[&[83, 61]]),
        ("schedule tiles(61, 83)", &[&[61, 83]]),
        // Four tiles of 15 rows and one row more; the vectors run through all columns of a tile of rows.
        ("schedule tiles(15, 1) vector d1", &[&[4, 15, 83], &[1, 83]]),
        ("schedule tiles(15, 20)", &[&[4, 4, 15, 20], &[4, 15, 3], &[1, 4, 20], &[1, 3]]),
        ("schedule order(d1, d0) tiles(1, 41) vector d1", &[&[2, 61, 41], &[61, 1]]),
    ];
    for (schedule, expected) in cases {
        let program = transposition(schedule);
        let Step::Kernel(kernel) = &program.steps[0] else { panic!("a kernel") };
        let made = loops(kernel).expect("verified");
        let extents: Vec<&[i64]> = made.iter().map(|k| &k.domain[..]).collect();
        assert_eq!(extents, expected, "{schedule}");
        let program = verify(program).expect("verifies");
        same(&program, Effort::Default, &arguments(&program)).expect(schedule);
    }
}

/// What the planner asks for: vectors along neighbours, and tiles where buffers lie across one another.
#[test]
fn planned_schedules() {
    let cases = [
        // Near enough to the cores, however they are walked.
        ("[40, 50]", "[50, 40]", "[1, 0]", ""),
        ("[130, 70]", "[70, 130]", "[1, 0]", "schedule tiles(35, 130) vector d1"),
        // Lines are in 16 sets of the first cache, of 64.
        ("[96, 256]", "[256, 96]", "[1, 0]", "schedule tiles(32, 32) vector d1"),
        ("[1021, 83]", "[83, 1021]", "[1, 0]", "schedule tiles(32, 256) vector d1"),
        ("[6, 50, 70]", "[70, 6, 50]", "[2, 0, 1]", "schedule tiles(35, 1, 50) vector d2"),
        // Neighbours stay neighbours.
        ("[6, 50, 70]", "[50, 6, 70]", "[1, 0, 2]", ""),
    ];
    for (from, to, perm, schedule) in cases {
        let text = format!(
            "func @f(%x: f32{from}, %y: f32{to}) -> f32{to} {{
               %t = transpose %x {{perm = {perm}}} : f32{to}
               %z = mul %t, %y : f32{to}
               return %z
             }}"
        );
        let module = parse(&text).expect("reads");
        let f = module.funcs.values().next().expect("a function");
        let options =
            PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
        let program = compile(&module, f, &options).expect("compiles").program.to_string();
        let found = program.lines().find(|l| l.contains("schedule")).unwrap_or("").trim();
        assert_eq!(found, schedule, "{program}");
        agrees(&module, f, &inputs(f, &[Domain::Normal])).unwrap_or_else(|why| panic!("{why}"));
    }
}
