//! Single changes of greedy plans: what greedy grouping does not see is found, equal layers are decided alike, no bit
//! changes.

use crate::common::models;
use crate::common::random::inputs;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    Alternative, Constraint, Effort, EngineModel, Fp, MachineModel, Plan, PlanOptions, cost,
    decisions, lower, plan, plan_for, prepare,
};
use adfuse::ir::kernel::{Program, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Function, Module};

fn options(device: MachineModel, effort: Effort) -> PlanOptions {
    PlanOptions { device, effort, fp: Fp::Strict }
}

/// A function as it is planned, with its gradients or without.
fn prepared(text: &str, grad: bool) -> Function {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function").clone();
    let f = match grad {
        true => {
            let wrt = differentiable(&f, None).expect("has floats");
            forward_and_backward(&module, &f, &wrt).expect("differentiates")
        }
        false => f,
    };
    prepare(&Module::single(f.clone()), &f).expect("prepares")
}

/// The plan of an effort and its program, which gives the bits of the reference engine.
fn planned(f: &Function, options: &PlanOptions) -> (Plan, Program) {
    let plan = plan(f, options).expect("plans");
    let program = verify(lower(f, &plan, &options.device).expect("lowers")).expect("verifies");
    let args = inputs(f, &[Domain::Normal]);
    let expected = run(&Module::single(f.clone()), f, &args, &mut Silent).expect("runs");
    assert_eq!(kernel::run(&program, &args).expect("runs"), expected, "{}", plan.text(f));
    (plan, program.into_inner())
}

#[test]
fn producers_of_one_value_share_its_kernel() {
    let text = "func @two(%x: f32[1000], %y: f32[1000]) -> f32[1000] {
  %s = sin %x : f32[1000]
  %c = cos %y : f32[1000]
  %r = add %s, %c : f32[1000]
  return %r
}
";
    let f = prepared(text, false);
    for device in [MachineModel::cpu(), MachineModel::h200()] {
        let options = options(device, Effort::Default);
        let (_, program) = planned(&f, &options);
        assert_eq!(program.steps.len(), 1, "{program}");
        let cost = cost(&program, &options.device);
        assert_eq!(cost.bytes_moved, cost.least_bytes, "{program}");
    }
}

#[test]
fn what_is_read_along_other_axes_keeps_its_bits() {
    let text = "func @turned(%x: f32[48,48], %y: f32[48,48]) -> (f32[48,48], f32[48,48]) {
  %s = sin %x : f32[48,48]
  %c = cos %y : f32[48,48]
  %t = transpose %c {perm = [1, 0]} : f32[48,48]
  %r = add %s, %t : f32[48,48]
  return %r, %c
}
";
    let f = prepared(text, false);
    planned(&f, &options(MachineModel::cpu(), Effort::Default));
}

/// Batch norm, relu and a pool: what the pool reads is worth keeping, since each element is computed for several
/// windows otherwise.
const POOL: &str = "func @f(%x: f32[16,8,8,8], %g: f32[8], %b: f32[8]) -> f32[] {
  %s = reduce_sum %x {axes = [0, 2, 3]} : f32[8]
  %m = mul %s, 0.0009765625 : f32[8]
  %mb = broadcast_in_dim %m {dims = [1]} : f32[16,8,8,8]
  %c = sub %x, %mb : f32[16,8,8,8]
  %sq = square %c : f32[16,8,8,8]
  %vs = reduce_sum %sq {axes = [0, 2, 3]} : f32[8]
  %v = mul %vs, 0.0009765625 : f32[8]
  %ve = add %v, 0.00001 : f32[8]
  %r = rsqrt %ve : f32[8]
  %rg = mul %r, %g : f32[8]
  %rgb = broadcast_in_dim %rg {dims = [1]} : f32[16,8,8,8]
  %n = mul %c, %rgb : f32[16,8,8,8]
  %bb = broadcast_in_dim %b {dims = [1]} : f32[16,8,8,8]
  %y = add %n, %bb : f32[16,8,8,8]
  %h = relu %y : f32[16,8,8,8]
  %0 = reduce_window_max %h {window = [1, 1, 2, 2], strides = [1, 1, 2, 2]} : f32[16,8,4,4]
  %1 = square %0 : f32[16,8,4,4]
  %2 = reduce_sum %1 {axes = [0, 1, 2, 3]} : f32[]
  return %2
}
";

/// Where keeping a value is faster and takes no more memory, the plan keeps it; a plan by what an engine says of steps is no
/// slower there than one by their structure.
#[test]
fn gains_that_take_no_memory_are_taken() {
    let f = prepared(POOL, true);
    let options = options(MachineModel::cpu(), Effort::Default);
    let (by_structure, _) = planned(&f, &options);
    let session = Cpu::default();
    let by_facts = plan_for(&f, &options, &session).expect("plans");
    let seconds = |plan: &Plan| {
        let program = lower(&f, plan, &options.device).expect("lowers");
        session.cost(&program, &options.device).seconds
    };
    assert!(seconds(&by_facts) <= seconds(&by_structure), "{}", by_facts.text(&f));
    for d in decisions(&f, &by_facts, &options, None, &session).expect("has a lowering") {
        if let (Constraint::Search, Alternative::Keep(x)) = (d.bound, &d.other) {
            assert!(x.peak > 0 || x.saved > 0, "{d:?}");
        }
    }
}

/// A plan decides equal layers alike.
#[test]
fn equal_layers_are_decided_alike() {
    let layer = |n: usize| {
        format!(
            "  %p{n} = dot_general %h{n}, %w{n} {{contract = [1] x [0]}} : f32[64,64]
  %s{n} = sin %p{n} : f32[64,64]
  %c{n} = cos %h{n} : f32[64,64]
  %h{} = add %s{n}, %c{n} : f32[64,64]\n",
            n + 1
        )
    };
    let layers = 6;
    let weights: Vec<String> = (0..layers).map(|n| format!("%w{n}: f32[64,64]")).collect();
    let body: String = (0..layers).map(layer).collect();
    let weights = weights.join(", ");
    let text = format!(
        "func @deep(%h0: f32[64,64], {weights}) -> f32[64,64] {{\n{body}  return %h{layers}\n}}\n"
    );
    let f = prepared(&text, false);
    let (made, _) = planned(&f, &options(MachineModel::cpu(), Effort::Default));
    // The first layer differs, since what it reads is a parameter, and may have two groups; so does the last.
    let inner = made.groups.iter().rev().skip(1).take(layers - 2);
    let sizes: Vec<usize> = inner.map(|g| g.parts[0].len()).collect();
    assert!(made.groups.len() <= layers + 1, "{}", made.text(&f));
    assert!(sizes.iter().all(|&size| size == sizes[0]), "{}", made.text(&f));
}

/// Groups are divided where greedy grouping and joining have put one member too many into a kernel: here the folds of a batch
/// norm, each of which is read by the next. The plan is about as fast as the one that a search finds.
#[test]
fn groups_are_divided_as_well_as_joined() {
    let all = models::all();
    let (.., module, f) = all.iter().find(|(stem, ..)| stem == "batch_norm").expect("a model");
    let wrt = differentiable(f, None).expect("has floats");
    let f = forward_and_backward(module, f, &wrt).expect("differentiates");
    let f = prepare(&Module::single(f.clone()), &f).expect("prepares");
    let (found, searched) = (seconds(&f, Effort::Default), seconds(&f, Effort::Search));
    assert!(found <= searched, "{found}, {searched}");
}

/// Predicted seconds of the plan of an effort for the CPU engine.
fn seconds(f: &Function, effort: Effort) -> f64 {
    let (options, session) = (options(MachineModel::cpu(), effort), Cpu::default());
    let plan = plan_for(f, &options, &session).expect("plans");
    let program = lower(f, &plan, &options.device).expect("lowers");
    session.cost(&program, &options.device).seconds
}

/// Where no single change gains, two may: a number is inlined so that its group joins a product; what is spread over short
/// rows is stored spread, by the first of two kernels or by a kernel of the same axes before, so that its readers go through
/// their arrays as one line.
#[test]
fn changes_that_gain_together_are_made_together() {
    for (model, grad, gain) in
        [("dropout_mlp", false, 1.3), ("l2_norm", true, 1.04), ("mlp_tanh_mse", false, 1.03)]
    {
        let all = models::all();
        let (.., module, f) = all.iter().find(|(stem, ..)| stem == model).expect("a model");
        let f = match grad {
            true => {
                let wrt = differentiable(f, None).expect("has floats");
                forward_and_backward(module, f, &wrt).expect("differentiates")
            }
            false => f.clone(),
        };
        let f = prepare(&Module::single(f.clone()), &f).expect("prepares");
        planned(&f, &options(MachineModel::cpu(), Effort::Default));
        let (quick, found) = (seconds(&f, Effort::Quick), seconds(&f, Effort::Default));
        let searched = seconds(&f, Effort::Search);
        assert!(found <= 1.01 * searched, "{model}: {found}, {searched}");
        assert!(quick >= gain * found, "{model}: {quick}, {found}");
    }
}

/// A search changes the plan of effort default before decisions are taken that cost nothing, and may end where these gain less.
#[test]
fn a_search_is_no_slower_than_default() {
    let text = include_str!("../../benches/programs/mlp_small.ir").replace("<n>", "");
    let f = prepared(&text, true);
    let (found, searched) = (seconds(&f, Effort::Default), seconds(&f, Effort::Search));
    assert!(searched <= found, "{searched}, {found}");
}

/// What a kernel reads again of a result moves again, and a kernel that touches a few bytes more than the cache has
/// is hardly slower than one that fits: neither is a reason to divide one.
#[test]
fn kernels_are_not_divided_to_fit_the_cache() {
    let text = include_str!("../../benches/programs/gelu_loss.ir");
    let device = MachineModel::cpu();
    let fits = device.cache_bytes / (6 * 4);
    for n in [fits - 1, fits, fits + 1, fits * 5 / 4, fits * 2, fits * 3] {
        let text = text.replace("<n>", "").replace("f32[n]", &format!("f32[{n}]"));
        let f = prepared(&text, true);
        let made = plan_for(&f, &options(device.clone(), Effort::Default), &Cpu::default());
        let program = made.and_then(|plan| lower(&f, &plan, &device)).expect("plans");
        assert_eq!(program.steps.len(), 1, "{n} elements: {program}");
    }
}
