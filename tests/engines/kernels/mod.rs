//! Programs of kernels: what a function is lowered to is accepted by the verifier and gives the bits
//! of the reference engine. `ADFUSE_PROGRAMS` sets how many random programs (300 by default, and 700 gradients, of each of three types).

mod block_reports;
mod blocks;
mod control;
mod mutations;
mod rules;
mod schedules;
mod windows;

pub(crate) use crate::common::kernels::{arguments, files, numbers};
use crate::common::parallel;
use crate::common::programs::{Step, decode};
use crate::common::random;
pub(crate) use crate::common::random::inputs;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::fusion::{
    Effort, Fp, MachineModel, Plan, PlanOptions, compile, cost, lower, plan, prepare,
};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, verify};
use adfuse::ir::op::{Body, Domain};
use adfuse::ir::rewrite::specialize;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module, Op};

pub(crate) fn programs(property: impl Fn(&[Step]) -> Result<(), String>) {
    random::programs(11, 700, property);
}

pub(crate) fn cases(op: Op) -> Vec<Module> {
    random::cases(op, 130)
}

/// Plans, lowers, verifies and runs a function at every effort; the results must be the reference
/// engine's. Most options give programs that others gave: equal ones are verified and run once.
fn agrees(module: &Module, f: &Function, args: &[Array]) -> Result<(), String> {
    let expected = run(module, f, args, &mut Silent).map_err(|d| d.to_string())?;
    let prepared = prepare(module, f).map_err(|d| format!("{d}\n{f}"))?;
    let mut checked = Checked::default();
    for effort in [Effort::Off, Effort::Quick, Effort::Default] {
        for device in devices() {
            let options = PlanOptions { device, effort, fp: Fp::Strict };
            planned(&prepared, &options, args, &expected, &mut checked)
                .map_err(|why| format!("{effort:?} {}: {why}\n{prepared}", options.device.name))?;
        }
    }
    Ok(())
}

/// The devices there are, one on which no row fits a tile, one on which few do, and one that leaves
/// little to share.
fn devices() -> [MachineModel; 5] {
    let narrow =
        MachineModel { name: "narrow".into(), tile_bytes: 8, parallel: 1, ..MachineModel::cpu() };
    let tight = MachineModel { name: "tight".into(), tile_bytes: 36, ..narrow.clone() };
    let plain = MachineModel {
        name: "plain".into(),
        contract_epilogue: false,
        parallel: i64::MAX,
        ops_per_s: 1e18,
        ..MachineModel::cpu()
    };
    [MachineModel::cpu(), MachineModel::h200(), narrow, tight, plain]
}

/// The plans that read back, and the programs that gave the bits.
#[derive(Default)]
struct Checked {
    plans: Vec<Plan>,
    programs: Vec<Program>,
}

fn planned(
    f: &Function,
    options: &PlanOptions,
    args: &[Array],
    expected: &[Array],
    checked: &mut Checked,
) -> Result<(), String> {
    let plan = plan(f, options).map_err(|d| d.to_string())?;
    let text = plan.text(f);
    if !checked.plans.contains(&plan) {
        let again = Plan::parse(&text, f).map_err(|d| format!("{d}\n{text}"))?;
        if again != plan {
            return Err(format!("the plan does not read back:\n{text}"));
        }
        checked.plans.push(again);
    }
    let program = lower(f, &plan, &options.device).map_err(|d| format!("{d}\n{text}"))?;
    if checked.programs.contains(&program) {
        return Ok(());
    }
    checked.programs.push(program.clone());
    let printed = program.to_string();
    let parsed = read(&printed).map_err(|d| format!("{d}: {:?}\n{printed}", d.at.span))?;
    if parsed != program || parsed.to_string() != printed {
        return Err(format!("printing is no fixpoint:\n{printed}\n{parsed}"));
    }
    let verified = verify(program).map_err(|e| format!("{}\n{text}\n{printed}", e[0]))?;
    let found = kernel::run(&verified, args).map_err(|d| format!("{d}\n{printed}"))?;
    if found == expected {
        return Ok(());
    }
    Err(format!("{found:?}\nis not\n{expected:?}\n{text}\n{printed}"))
}

#[test]
fn random_programs_agree_with_the_reference_engine() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        // Fewer than of gradients, which have these programs in them.
        random::programs(11, 300, |steps| {
            let f = decode(steps, dtype);
            agrees(&Module::single(f.clone()), &f, &inputs(&f, &[Domain::Normal]))
        });
    }
}

#[test]
fn gradients_of_random_programs_agree_with_the_reference_engine() {
    parallel::each(&[DType::F32, DType::F64, DType::BF16], |&dtype| {
        programs(|steps| {
            let f = decode(steps, dtype);
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            agrees(&Module::single(g.clone()), &g, &inputs(&g, &[Domain::Normal]))
        });
    });
}

pub(crate) fn off() -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort: Effort::Off, fp: Fp::Strict }
}

#[test]
fn every_row_agrees_with_the_reference_engine() {
    let mut lowered = 0;
    for &op in Op::ALL {
        for module in cases(op) {
            let f = module.funcs.values().next().expect("a function");
            if matches!(op.def().body, Body::Effect(_)) {
                // What effects do on each engine is compared by `tests/plan/effects.rs` and the filetests.
                compile(&module, f, &off()).unwrap_or_else(|d| panic!("`{op}`: {d}"));
                continue;
            }
            let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
            let f = specialize(f, &extents).expect("three of each");
            let mut domains: Vec<Domain> = op.def().domain.to_vec();
            if domains.is_empty() {
                domains.push(Domain::Normal);
            }
            if let Err(why) = agrees(&module, &f, &inputs(&f, &domains)) {
                panic!("`{op}`: {why}");
            }
            lowered += 1;
        }
    }
    assert!(lowered > 1000, "{lowered} cases");
}

#[test]
fn what_has_no_lowering_is_named() {
    let refused = |text: &str| {
        let module = parse(text).expect("parses");
        let f = module.funcs.values().next().expect("a function");
        let d = compile(&module, f, &off()).expect_err("has no lowering");
        assert_eq!(d.kind, Kind::Unsupported);
        d.to_string()
    };
    let symbolic = "func @f<n>(%x: f32[n]) -> f32[n] {\n  %0 = neg %x : f32[n]\n  return %0\n}\n";
    assert!(refused(symbolic).contains("the extent `n`"), "{}", refused(symbolic));
}

/// Programs that asked much of planning: each agrees, as do its gradients where it has floats, and
/// none is planned at greater cost than an instruction a kernel.
#[test]
fn hard_programs_agree_with_the_reference_engine() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engines/kernels/programs");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 7, "{} programs", paths.len());
    for path in paths {
        let name = path.display();
        let module = parse(&std::fs::read_to_string(&path).expect("text")).expect("parses");
        let f = module.funcs.values().next().expect("a function").clone();
        let wrt = differentiable(&f, None).expect("has floats");
        let g = forward_and_backward(&module, &f, &wrt).unwrap_or_else(|d| panic!("{name}: {d}"));
        for f in [f, g] {
            let module = Module::single(f.clone());
            if let Err(why) = agrees(&module, &f, &inputs(&f, &[Domain::Normal])) {
                panic!("{name}: {why}");
            }
            let seconds = |effort| {
                let options = PlanOptions { effort, ..off() };
                let compiled = compile(&module, &f, &options).expect("compiles");
                cost(&compiled.program, &options.device).seconds
            };
            let (planned, off) = (seconds(Effort::Default), seconds(Effort::Off));
            assert!(planned <= off, "{name}: {planned} s planned, {off} s without a plan");
        }
    }
}

/// Axes longer than the blocks of every order, which random programs do not reach.
#[test]
fn long_axes_fold_in_the_defined_orders() {
    let cases = [
        ("%x: f32[3,70,5,40]", "reduce_sum %x {axes = [0, 1, 3]}", "f32[5]"),
        ("%x: f32[3,1,70,5,1,40]", "reduce_sum %x {axes = [0, 1, 3, 5]}", "f32[70,1]"),
        ("%x: f32[2,1,1300]", "reduce_prod %x {axes = [0, 1, 2]}", "f32[]"),
        ("%x: f32[150,7]", "reduce_sum %x {axes = [0]}", "f32[7]"),
        ("%x: f32[3,2200]", "cumsum %x {axis = 1, reverse = true}", "f32[3,2200]"),
        ("%x: f32[1100,2]", "cumsum %x {axis = 0}", "f32[1100,2]"),
        ("%x: f32[0,4]", "reduce_max %x {axes = [0]}", "f32[4]"),
        ("%x: f32[2,3,0]", "reduce_sum %x {axes = [0, 2]}", "f32[3]"),
        ("%x: f32[4,300]", "argmin %x {axis = 1}", "i32[4]"),
        (
            "%x: f32[3,1100], %y: f32[1100,2]",
            "dot_general %x, %y {contract = [1] x [0]}",
            "f32[3,2]",
        ),
    ];
    for (params, inst, result) in cases {
        for dtype in ["f32", "f64", "bf16"] {
            let text = format!(
                "func @f({params}) -> {result} {{\n  %r = {inst} : {result}\n  return %r\n}}\n"
            );
            let module = parse(&text.replace("f32", dtype)).unwrap_or_else(|e| panic!("{e:?}"));
            let f = module.funcs.values().next().expect("a function");
            if let Err(why) = agrees(&module, f, &inputs(f, &[Domain::Normal])) {
                panic!("{why}");
            }
        }
    }
}

/// Rows and tiles over several stages, which lowering one instruction at a time does not make.
#[test]
fn stages_leave_rows_and_tiles_to_later_ones() {
    let stage = |lines: &str| format!("stage [300] {{ {lines} }}");
    let maximum = stage("p0 = load %x[d0, d1] s0 = param.f32 0 r0 = reduce.max s0 lane(d1)");
    let power = stage(
        "p0 = load %x[d0, d1] p1 = r0 s0 = param.f32 0 s1 = param.f32 1 s2 = sub.f32 s0 s1
         s3 = exp.f32 s2 t0 = keep s3 r1 = reduce.sum s3 lane(d1)",
    );
    let quotient = stage(
        "p0 = t0 p1 = r1 s0 = param.f32 0 s1 = param.f32 1 s2 = div.f32 s0 s1
         %y[d0, d1] = store s2",
    );
    let text = format!(
        "program @softmax {{
           input %x: f32[4, 300] output %y: f32[4, 300]
           kernel @softmax [4] {{
             row r0: f32 row r1: f32 tile t0: f32[300]
             {maximum} {power} {quotient}
           }}
           return %y
         }}"
    );
    let program = verify(read(&text).expect("reads")).expect("verifies");
    let module = parse(
        "func @f(%x: f32[4,300]) -> f32[4,300] {
           %m = reduce_max %x {axes = [1]} : f32[4]
           %b = broadcast_in_dim %m {dims = [0]} : f32[4,300]
           %d = sub %x, %b : f32[4,300]
           %e = exp %d : f32[4,300]
           %s = reduce_sum %e {axes = [1]} : f32[4]
           %t = broadcast_in_dim %s {dims = [0]} : f32[4,300]
           %y = div %e, %t : f32[4,300]
           return %y
         }",
    )
    .expect("parses");
    let f = module.funcs.values().next().expect("a function");
    let args = inputs(f, &[Domain::Normal]);
    let expected = run(&module, f, &args, &mut Silent).expect("runs");
    assert_eq!(kernel::run(&program, &args).expect("runs"), expected);
}

#[test]
fn arguments_have_the_types_of_the_inputs() {
    let text = "program @f { input %x: f32[2] return %x }";
    let program = verify(read(text).expect("reads")).expect("verifies");
    let wrong = Array::from_f64s(DType::F32, &[3], &[1.0; 3]).expect("three");
    let refused = kernel::run(&program, &[wrong]).expect_err("three for two");
    assert_eq!(refused.kind, Kind::Usage);
}

/// What steps read and write, against the names in their text.
#[test]
fn steps_say_what_they_read_and_write() {
    let mut steps = 0;
    for (name, text) in files() {
        let program = read(&text).expect("reads");
        for step in &program.steps {
            let alone = Program { steps: vec![step.clone()], ..program.clone() };
            let lines = alone.to_string();
            let inside = lines.lines().filter(|l| {
                let word = l.split_whitespace().next().unwrap_or_default();
                !["input", "output", "temp", "constant", "return"].contains(&word)
            });
            let (mut reads, mut writes) = (Vec::new(), Vec::new());
            for line in inside {
                let log_sum = line.trim().starts_with("log_sum");
                let (made, rest) = match line.split_once(" = ") {
                    Some((made, rest)) if made.trim().starts_with('%') => (made, rest),
                    _ if log_sum => (line, ""),
                    _ => ("", line),
                };
                for (part, met) in [(made, &mut writes), (rest, &mut reads)] {
                    for piece in part.split('%').skip(1) {
                        let end = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                        let word = piece[..end.unwrap_or(piece.len())].to_string();
                        // Remainders in index expressions are followed by a blank.
                        if !word.is_empty() && !met.contains(&word) {
                            met.push(word);
                        }
                    }
                }
            }
            let names = |all: &mut dyn Iterator<Item = adfuse::ir::kernel::Buffer>| {
                all.map(|b| program.buffers[b].name.clone()).collect::<Vec<_>>()
            };
            assert_eq!(names(&mut step.reads()), reads, "{name}: {}", step.title());
            assert_eq!(names(&mut step.writes()), writes, "{name}: {}", step.title());
            let mut visited = Vec::new();
            step.clone().buffers_mut(&mut |b| visited.push(*b));
            for b in program.buffers.keys() {
                let count = visited.iter().filter(|&&other| other == b).count();
                let data = &program.buffers[b];
                assert_eq!(step.mentions(b), count, "{name}: {} of {}", step.title(), data.name);
            }
            steps += 1;
        }
    }
    assert!(steps > 20, "{steps} steps");
}
