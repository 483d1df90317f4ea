//! Kernels that share nothing run as one: updates of many parameters are a launch or a few, bits and peaks stay, and what
//! depends on each other is never in one launch.

use crate::common::random::inputs;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    Effort, EngineModel, Fp, LoweredFunction, MachineModel, Memory, Plan, PlanOptions,
    SizedProgram, compile, cost, lower, memory, plan_for, prepare,
};
use adfuse::ir::kernel::{Program, Step, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Diagnostic, Function, Kind, Module};

/// Parameters of these extents with gradients: a step of gradient descent, or of AdamW without its corrections.
fn updates(shapes: &[&[i64]], adam: bool) -> String {
    let (mut params, mut lines, mut results, mut types) = (vec![], vec![], vec![], vec![]);
    for (k, shape) in shapes.iter().enumerate() {
        let dims: Vec<String> = shape.iter().map(i64::to_string).collect();
        let ty = format!("f32[{}]", dims.join(","));
        let mut line = |text: String| lines.push(format!("  {text} : {ty}\n"));
        params.extend(["w", "g"].map(|name| format!("%{name}{k}: {ty}")));
        let mut step = format!("%g{k}");
        if adam {
            params.extend(["m", "q"].map(|name| format!("%{name}{k}: {ty}")));
            line(format!("%ma{k} = mul %m{k}, 0.9"));
            line(format!("%mb{k} = mul %g{k}, 0.1"));
            line(format!("%n{k} = add %ma{k}, %mb{k}"));
            line(format!("%gg{k} = mul %g{k}, %g{k}"));
            line(format!("%s{k} = fma %q{k}, 0.999, %gg{k}"));
            line(format!("%r{k} = sqrt %s{k}"));
            line(format!("%e{k} = add %r{k}, 1e-8"));
            line(format!("%u{k} = div %n{k}, %e{k}"));
            results.extend([format!("%n{k}"), format!("%s{k}")]);
            types.extend([ty.clone(), ty.clone()]);
            step = format!("%u{k}");
        }
        line(format!("%rate{k} = broadcast_in_dim %rate {{dims = []}}"));
        line(format!("%d{k} = mul {step}, %rate{k}"));
        line(format!("%v{k} = sub %w{k}, %d{k}"));
        results.push(format!("%v{k}"));
        types.push(ty);
    }
    params.push("%rate: f32[]".into());
    let (params, types) = (params.join(", "), types.join(", "));
    format!(
        "func @updates({params}) -> ({types}) {{\n{}  return {}\n}}\n",
        lines.concat(),
        results.join(", ")
    )
}

fn options(device: MachineModel) -> PlanOptions {
    PlanOptions { device, effort: Effort::Default, fp: Fp::Strict }
}

fn function(text: &str) -> (Module, Function) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function").clone();
    (module, f)
}

fn compiled(text: &str, device: MachineModel) -> LoweredFunction {
    let (module, f) = function(text);
    compile(&module, &f, &options(device)).expect("compiles")
}

/// How many kernels each bundle of a program has.
fn bundles(program: &Program) -> Vec<usize> {
    let kernels = |step: &Step| match step {
        Step::Bundle(bundle) => Some(bundle.kernels.len()),
        _ => None,
    };
    program.steps.iter().filter_map(kernels).collect()
}

/// An engine for which programs with bundles take more memory by this many bytes.
struct LargerBundles(u64);

/// A program for that engine.
struct SizedForBundles {
    scratch: Vec<u64>,
    more: u64,
}

impl EngineModel for LargerBundles {
    fn sized<'a>(&'a self, program: &'a Program) -> Result<Box<dyn SizedProgram + 'a>, Diagnostic> {
        let more = if bundles(program).is_empty() { 0 } else { self.0 };
        Ok(Box::new(SizedForBundles { scratch: vec![0; program.steps.len()], more }))
    }
}

impl SizedProgram for SizedForBundles {
    fn scratch(&self) -> &[u64] {
        &self.scratch
    }

    fn peak(&self, memory: &Memory) -> Result<u64, Diagnostic> {
        Ok(memory.peak + self.more)
    }
}

/// Runs a function as planned on the evaluator and on one thread and three, and compares it with the reference engine.
fn keeps_bits(text: &str) {
    let (module, f) = function(text);
    let args = inputs(&f, &[Domain::Uniform(0.1, 2.0)]);
    let expected = run(&module, &f, &args, &mut Silent).expect("runs");
    let program = verify(compiled(text, MachineModel::cpu()).program).expect("verifies");
    assert_eq!(kernel::run(&program, &args).expect("runs"), expected);
    for threads in [1, 3] {
        let cpu = Cpu { plan: options(MachineModel::cpu()), threads, ..Cpu::default() };
        let made = cpu.compile(&module, &f).expect("compiles");
        assert!(!bundles(&made.program).is_empty(), "{}", *made.program);
        assert_eq!(made.executable.run(&args).expect("runs"), expected, "{threads} threads");
    }
}

#[test]
fn three_updates_are_one_launch() {
    let text = updates(&[&[64, 128], &[128], &[128, 10]], false);
    for device in [MachineModel::cpu(), MachineModel::h200()] {
        let made = compiled(&text, device.clone());
        assert_eq!(bundles(&made.program), [3], "{}", made.program);
        assert_eq!(cost(&made.program, &device).launches, 1, "{}", made.program);
    }
    keeps_bits(&text);
}

#[test]
fn what_shares_a_launch_takes_no_more_memory_but_for_the_time_that_it_saves() {
    let options = options(MachineModel::h200());
    // Short updates alone, of which a launch in place of three takes half of the time or less, and beside one that takes nearly all of it.
    let short: [&[i64]; 3] = [&[64, 64], &[64], &[256, 64]];
    let beside_long: [&[i64]; 4] = [short[0], short[1], short[2], &[16384, 8192]];
    let cases = [(&short[..], [5000, 100], [60, 1]), (&beside_long[..], [5000, 2000], [100, 1])];
    for (shapes, fits, does_not) in cases {
        let (module, f) = function(&updates(shapes, true));
        let f = &prepare(&module, &f).expect("prepares");
        let planned = |more: u64| {
            let plan = plan_for(f, &options, &LargerBundles(more)).expect("has a plan");
            lower(f, &plan, &options.device).expect("lowers")
        };
        let peak = memory(&planned(0), Effort::Quick).expect("is small").peak;
        for (part, found) in fits.map(|part| (part, 1)).into_iter().chain(does_not.map(|p| (p, 0)))
        {
            assert_eq!(bundles(&planned(peak / part)).len(), found, "1/{part} of {peak} more");
        }
    }
}

#[test]
fn updates_of_many_parameters_are_a_few_launches() {
    let layer: [&[i64]; 6] = [&[16], &[16, 48], &[48], &[16, 16], &[16, 64], &[64, 16]];
    let shapes: Vec<&[i64]> = (0..148).map(|k| layer[k % layer.len()]).collect();
    for adam in [false, true] {
        let text = updates(&shapes, adam);
        let made = compiled(&text, MachineModel::h200());
        let launches = made.program.steps.len();
        assert!(launches <= if adam { 6 } else { 3 }, "{launches} launches, {adam}");
        keeps_bits(&text);
    }
    // These are several tasks together.
    let long: &[i64] = &[1 << 14];
    keeps_bits(&updates(&[long, &[3], long, long, long, long], true));
}

/// A plan with these groups, of a function that `prepare` leaves as it is.
fn with_groups(f: &Function, groups: &str) -> Result<Program, (Kind, String)> {
    let plan = adfuse::fusion::plan(f, &options(MachineModel::cpu())).expect("plans");
    let text: Vec<String> = plan
        .text(f)
        .lines()
        .filter(|line| !["group", "inline", "}"].iter().any(|w| line.trim().starts_with(w)))
        .map(String::from)
        .collect();
    let text = format!("{}\n{groups}}}\n", text.join("\n"));
    let plan = Plan::parse(&text, f).map_err(|d| (d.kind, d.message))?;
    lower(f, &plan, &MachineModel::cpu()).map_err(|d| (d.kind, d.message))
}

#[test]
fn what_depends_on_each_other_shares_no_launch() {
    let text = "func @f(%x: f32[5,6], %z: f32[7]) -> (f32[5,6], f32[5], f32[7], f32[7]) {
  %a = exp %x : f32[5,6]
  %r = reduce_sum %x {axes = [0]} : f32[6]
  %s = reduce_sum %x {axes = [1]} : f32[5]
  %t = reduce_sum %r {axes = [0]} : f32[]
  %tb = broadcast_in_dim %t {dims = []} : f32[7]
  %b = neg %z : f32[7]
  %c = mul %b, %tb : f32[7]
  return %a, %s, %b, %c
}
";
    let (module, f) = function(text);
    let f = prepare(&module, &f).expect("prepares");
    let made = |groups: &str| with_groups(&f, groups);
    let rest = "  group %r\n  group %t\n  group %c\n  inline %tb\n";
    let good = made(&format!("  group %a; %b\n  group %s\n{rest}")).expect("lowers");
    assert_eq!(bundles(&good), [2], "{good}");
    verify(good).expect("verifies");
    let folds = format!("  group %a; %s\n  group %b\n{rest}");
    let reads = "  group %a\n  group %s\n  group %r\n  group %t\n  group %b; %c\n  inline %tb\n";
    for (groups, part) in [(&*folds, "folds over"), (reads, "another part of its group")] {
        let (kind, message) = made(groups).expect_err(groups);
        assert!(kind == Kind::Usage && message.contains(part), "{message}");
    }
}

#[test]
fn donated_parameters_are_updated_in_place_in_a_bundle() {
    let text = updates(&[&[32, 16], &[16], &[16, 40]], true);
    let (module, f) = function(&text);
    let args = inputs(&f, &[Domain::Uniform(0.1, 2.0)]);
    let expected = run(&module, &f, &args, &mut Silent).expect("runs");
    // Of each parameter itself, its momentum and its square; the gradient and the rate are lent.
    let donated = vec![0, 2, 3, 4, 6, 7, 8, 10, 11];
    let cpu = Cpu { plan: options(MachineModel::cpu()), donated, ..Cpu::default() };
    let made = cpu.compile(&module, &f).expect("compiles");
    assert!(!bundles(&made.program).is_empty(), "{}", *made.program);
    assert!(made.executable.left_in().all(|left| left.is_some()), "{}", *made.program);
    assert_eq!(made.executable.memory().outputs, 0);
    assert_eq!(made.executable.run_donating(args).expect("runs"), expected);
}

/// What two kernels of a bundle read takes the place of nothing.
#[test]
fn a_kernel_writes_over_nothing_that_another_reads() {
    let text = "func @f(%x: f32[40], %y: f32[8]) -> (f32[40], f32[8]) {
  %a = exp %x : f32[40]
  %s = slice %x {start = [0], limit = [8], stride = [1]} : f32[8]
  %b = mul %s, %y : f32[8]
  return %a, %b
}
";
    let (module, f) = function(text);
    let f = prepare(&module, &f).expect("prepares");
    let program = with_groups(&f, "  group %a; %b\n  inline %s\n").expect("lowers");
    let plan_text = program.to_string().replace("%x: f32[40]", "%x: f32[40] donated");
    let program = adfuse::ir::kernel::text::parse(&plan_text).expect("reads");
    assert_eq!(bundles(&program), [2], "{program}");
    let memory = adfuse::fusion::memory(&program, Effort::Default).expect("fits");
    assert!(memory.in_donor.values().all(Option::is_none), "{program}");
    let _ = module;
}
