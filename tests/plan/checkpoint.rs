//! Checkpoint regions: what their policies say holds in every plan, no bit changes, and kernels still go across their
//! borders.

use super::plan_invariance::{Checked, holds};
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use adfuse::autodiff::{Batching, differentiable, forward_and_backward, grad, vjp, vmap};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::fusion::{
    AnyEngine, Constraint, Effort, Fp, MachineModel, PlanOptions, ResidualChoice, decisions, plan,
    plan_frontier, plan_point, prepare, saved_bytes,
};
use adfuse::ir::op::Domain;
use adfuse::ir::text::{Names, parse};
use adfuse::ir::{
    Attr, Attrs, Builder, CheckpointPolicy, DType, Function, Kind, Module, Op, verify,
};
use adfuse::prelude::{f32s, trace};
use std::collections::BTreeSet;

mod loops;

const EFFORTS: [Effort; 4] = [Effort::Off, Effort::Quick, Effort::Default, Effort::Search];

fn options(effort: Effort) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict }
}

fn module(text: &str) -> Module {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(&module).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    assert_eq!(module.to_string(), text, "prints as it is written");
    module
}

/// Values and gradients of the first function of a text in all of its floats, prepared.
fn gradients(text: &str) -> Function {
    let module = module(text);
    let f = module.funcs.values().next().expect("a function");
    let wrt = differentiable(f, None).expect("has floats");
    let g = forward_and_backward(&module, f, &wrt).expect("differentiates");
    let f = prepare(&Module::single(g.clone()), &g).expect("prepares");
    let alone = Module::single(f.clone());
    verify(&alone).unwrap_or_else(|e| panic!("{}\n{f}", e[0]));
    let text = alone.to_string();
    let read = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    assert_eq!(read.to_string(), text, "a prepared function reads back");
    f
}

/// The same text without policies.
fn plain(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(" checkpoint(") {
        Some((before, _)) => format!("{before} {{\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn evaluated(f: &Function) -> Vec<Array> {
    let args = inputs(f, &[Domain::Normal]);
    run(&Module::single(f.clone()), f, &args, &mut Silent).expect("runs")
}

/// The names of values that a plan keeps for later phases, parameters and constants apart.
fn kept(f: &Function, effort: Effort) -> BTreeSet<String> {
    let options = options(effort);
    let chosen = plan(f, &options).unwrap_or_else(|e| panic!("{e}\n{f}"));
    let all = decisions(f, &chosen, &options, None, &AnyEngine).expect("has a lowering");
    let names = Names::of(f);
    all.iter().filter(|d| d.saved > 0).map(|d| names.get(d.value)).collect()
}

/// How often an op occurs.
fn count(f: &Function, op: Op) -> usize {
    f.body_insts().iter().filter(|&&i| f.op(i) == op).count()
}

/// Layers of two contractions, of which each is a region.
fn layers(n: usize, policy: &str) -> String {
    let mut text = String::from("func @main(%x: f32[32,16], ");
    let ws: Vec<String> = (0..n).map(|k| format!("%w{k}: f32[16,16]")).collect();
    text += &format!("{}) -> f32[] {{\n", ws.join(", "));
    let mut h = "%x".to_string();
    for k in 0..n {
        text += &format!("  %h{k} = call {h}, %w{k} {{func = @layer}} : f32[32,16]\n");
        h = format!("%h{k}");
    }
    text += &format!("  %loss = reduce_sum {h} {{axes = [0, 1]}} : f32[]\n  return %loss\n}}\n\n");
    text += &format!("func @layer(%h: f32[32,16], %w: f32[16,16]) -> f32[32,16]{policy} {{\n");
    text += "  %a = dot_general %h, %w {contract = [1] x [0]} : f32[32,16]\n";
    text += "  %b = sin %a : f32[32,16]\n  %c = dot_general %b, %w {contract = [1] x [0]} : f32[32,16]\n";
    text + "  %d = logistic %c : f32[32,16]\n  %e = mul %d, %b : f32[32,16]\n  return %e\n}\n"
}

/// Bytes of a value of a layer.
const LAYER: u64 = 32 * 16 * 4;

#[test]
fn of_regions_that_are_computed_again_only_what_they_are_given_is_kept() {
    for n in [1, 4] {
        let text = layers(n, " checkpoint(remat)");
        let (f, without) = (gradients(&text), gradients(&plain(&text)));
        assert_eq!(evaluated(&f), evaluated(&without), "{f}");
        for effort in [Effort::Off, Effort::Quick, Effort::Default] {
            let found = kept(&f, effort);
            assert!(found.iter().all(|v| v.starts_with('e')), "{found:?}\n{f}");
            assert!(kept(&without, effort).len() > found.len(), "{without}");
            for point in plan_frontier(&f, &options(effort), &AnyEngine).expect("plans").points() {
                let bytes = saved_bytes(&f, &point.plan).expect("a plan");
                assert!(bytes <= (n as u64 - 1) * LAYER, "{bytes}\n{f}\n{}", point.plan.text(&f));
            }
            // What is computed again is not there before the way back asks for it.
            let peak = |f: &Function| {
                let chosen = plan(f, &options(effort)).expect("a plan");
                plan_point(f, chosen, &options(effort), &AnyEngine).expect("a plan").peak
            };
            let (with, all) = (peak(&f), peak(&without));
            assert!(n == 1 || with + (n as u64 - 2) * LAYER <= all, "{with} and {all} bytes\n{f}");
        }
    }
}

#[test]
fn every_plan_of_regions_keeps_every_bit() {
    let mut checked = Checked::default();
    for policy in ["remat", "save", "names = [\"b\", \"d\"]"] {
        let f = gradients(&layers(3, &format!(" checkpoint({policy})")));
        for effort in EFFORTS {
            holds(&f, effort, &mut checked).unwrap_or_else(|why| panic!("{policy}: {why}"));
        }
    }
}

/// A random program, as a region of one that calls it.
fn enclosed(inner: &Function, policy: Option<CheckpointPolicy>) -> (Module, Function) {
    let mut b = Builder::new("main");
    b.func_mut().symbols = inner.symbols.clone();
    let types = inner.param_types();
    let params: Vec<_> = types.iter().map(|ty| b.param(ty.clone(), None)).collect();
    let attrs = Attrs::none().with("func", Attr::Func(inner.name.clone()));
    let results = b.inst(Op::Call, &params, attrs, Some(&inner.result_types()));
    b.set_results(&results);
    let f = b.finish().expect("a call");
    let mut module = Module::single(f.clone());
    let mut inner = inner.clone();
    inner.checkpoint = policy;
    module.funcs.push(inner);
    (module, f)
}

#[test]
fn random_programs_in_regions_keep_every_bit() {
    random::programs(37, 30, |steps| {
        let inner = decode(steps, DType::F32);
        let both =
            [Some(CheckpointPolicy::Remat), Some(CheckpointPolicy::Save), None].map(|policy| {
                let (module, f) = enclosed(&inner, policy);
                let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
                forward_and_backward(&module, &f, &wrt).map_err(|d| d.to_string())
            });
        let due = evaluated(both[2].as_ref().map_err(String::clone)?);
        for g in &both[..2] {
            let g = g.as_ref().map_err(String::clone)?;
            if evaluated(g) != due {
                return Err(format!("other bits\n{g}"));
            }
            let mut checked = Checked::default();
            for effort in [Effort::Off, Effort::Default] {
                holds(g, effort, &mut checked)?;
            }
        }
        Ok(())
    });
}

/// A chain of `n` sines. Its first half is a region. Both halves are divided in the same way, down to two sines.
fn recursive(n: usize) -> String {
    let mut text = String::from("func @main(%x: f32[]) -> f32[] {\n");
    text += &format!("  %y = call %x {{func = @f{n}}} : f32[]\n  return %y\n}}\n");
    let mut size = n;
    while size > 2 {
        let half = size / 2;
        text += &format!("\nfunc @f{size}(%x: f32[]) -> f32[] {{\n");
        text += &format!("  %a = call %x {{func = @r{half}}} : f32[]\n");
        text += &format!("  %b = call %a {{func = @f{half}}} : f32[]\n  return %b\n}}\n");
        text += &format!("\nfunc @r{half}(%x: f32[]) -> f32[] checkpoint(remat) {{\n");
        text += &format!("  %a = call %x {{func = @f{half}}} : f32[]\n  return %a\n}}\n");
        size = half;
    }
    text += "\nfunc @f2(%x: f32[]) -> f32[] {\n  %a = sin %x : f32[]\n  %b = sin %a : f32[]\n";
    text + "  return %b\n}\n"
}

#[test]
fn recursive_checkpoints_recompute_as_often_as_they_nest() {
    // The bounds are `n / 2` sines for each level. The last sine of a region is what the region gives: it is kept where
    // it is read, and never computed again for its own region alone.
    for (n, due, most) in [(2, 0, 0), (4, 1, 2), (8, 5, 8), (16, 17, 24)] {
        let f = gradients(&recursive(n));
        let without = gradients(&plain(&recursive(n)));
        assert_eq!(count(&without, Op::Sin), n);
        let again = count(&f, Op::Sin) - n;
        assert!(again <= most, "{again} of {n}\n{f}");
        assert_eq!(again, due, "{f}");
        assert_eq!(evaluated(&f), evaluated(&without));
    }
}

#[test]
fn a_recomputed_sine_costs_one_sine() {
    let text = "func @main(%x: f32[8]) -> f32[8] {
  %y = call %x {func = @r} : f32[8]
  return %y
}

func @r(%x: f32[8]) -> f32[8] checkpoint(remat) {
  %a = sin %x : f32[8]
  %b = exp %a : f32[8]
  %c = sin %b : f32[8]
  return %c
}
";
    let (f, without) = (gradients(text), gradients(&plain(text)));
    let counts = |f: &Function| [Op::Sin, Op::Exp, Op::Cos].map(|op| count(f, op));
    assert_eq!(counts(&without), [2, 1, 2]);
    assert_eq!(counts(&f), [3, 2, 2], "{f}");
}

/// Values of a wide region that cannot be computed again for free.
const CHAIN: &str = "func @main(%x: f32[64,64], %w: f32[64,64]) -> f32[] {
  %y = call %x, %w {func = @r} : f32[64,64]
  %z = mul %y, %y : f32[64,64]
  %l = reduce_sum %z {axes = [0, 1]} : f32[]
  return %l
}

func @r(%x: f32[64,64], %w: f32[64,64]) -> f32[64,64] checkpoint(POLICY) {
  %a = dot_general %x, %w {contract = [1] x [0]} : f32[64,64]
  %b = sin %a : f32[64,64]
  %c = dot_general %b, %w {contract = [1] x [0]} : f32[64,64]
  %d = sin %c : f32[64,64]
  %e = dot_general %d, %w {contract = [1] x [0]} : f32[64,64]
  return %e
}
";

#[test]
fn policies_keep_what_they_name() {
    let cases: [(&str, &[&str]); 5] = [
        ("remat", &[]),
        ("names = [\"b\"]", &["b"]),
        ("names = [\"a\", \"d\"]", &["a", "d"]),
        ("names = [\"a\", \"b\", \"c\", \"d\"]", &["a", "b", "c", "d"]),
        ("names = []", &[]),
    ];
    for (policy, due) in cases {
        let f = gradients(&CHAIN.replace("POLICY", policy));
        for effort in EFFORTS {
            let mut found = kept(&f, effort);
            // The region gives it: it may be kept, or share a kernel with what reads it.
            found.remove("e");
            assert_eq!(found, due.iter().map(|v| v.to_string()).collect(), "{policy}\n{f}");
        }
    }
}

#[test]
fn what_a_region_saves_is_in_memory_under_every_budget() {
    let f = gradients(&CHAIN.replace("POLICY", "save"));
    let without = gradients(&plain(&CHAIN.replace("POLICY", "save")));
    let least = |f: &Function| {
        let frontier = plan_frontier(f, &options(Effort::Default), &AnyEngine).expect("plans");
        let bytes = |p: &adfuse::fusion::PlanPoint| saved_bytes(f, &p.plan).expect("a plan");
        (frontier.points().iter().map(bytes).min(), frontier)
    };
    let (with, frontier) = least(&f);
    assert!(with > least(&without).0, "{with:?}\n{without}");
    let names = Names::of(&f);
    for point in frontier.points() {
        let all = decisions(&f, &point.plan, &options(Effort::Default), None, &AnyEngine);
        let all = all.expect("has a lowering");
        let kept: Vec<_> = all.iter().filter(|d| d.bound == Constraint::Checkpoint).collect();
        assert!(kept.iter().all(|d| d.choice == ResidualChoice::Save), "{kept:?}");
        let kept: BTreeSet<String> = kept.iter().map(|d| names.get(d.value)).collect();
        assert!(kept.contains("b") && kept.contains("d"), "{kept:?}");
    }
}

#[test]
fn regions_are_no_barriers() {
    // Nothing of these regions is needed again, so that kernels are those without regions.
    let text = "func @main(%x: f32[64], %y: f32[64]) -> f32[] {
  %a = call %x, %y {func = @r} : f32[64]
  %b = call %a, %y {func = @r} : f32[64]
  %c = sub %b, %x : f32[64]
  %d = reduce_sum %c {axes = [0]} : f32[]
  return %d
}

func @r(%x: f32[64], %y: f32[64]) -> f32[64] checkpoint(remat) {
  %0 = add %x, %y : f32[64]
  %1 = mul %0, 2.0 : f32[64]
  return %1
}
";
    for policy in ["remat", "save"] {
        let text = text.replace("remat", policy);
        let (f, without) = (gradients(&text), gradients(&plain(&text)));
        for effort in EFFORTS {
            let groups = |f| plan(f, &options(effort)).expect("a plan").groups.len();
            assert_eq!(groups(&f), groups(&without), "{policy} {effort:?}\n{f}");
        }
    }
    // Values of a region that is computed again share kernels with what is around it.
    let text = layers(3, " checkpoint(remat)");
    let groups = |f: &Function| plan(f, &options(Effort::Default)).expect("a plan").groups.len();
    let f = gradients(&text);
    let off = plan(&f, &options(Effort::Off)).expect("a plan").groups.len();
    assert!(groups(&f) < off / 2, "{} of {off}", groups(&f));
}

#[test]
fn recomputations_wait_for_the_way_back() {
    // Both regions begin with what a kernel of the forward pass computes as well, from the same operand.
    let text = "func @main(%x: f32[64,64], %w: f32[64,64]) -> f32[] {
  %h = call %x, %w {func = @r} : f32[64,64]
  %g = dot_general %h, %w {contract = [1] x [0]} : f32[64,64]
  %s = sin %g : f32[64,64]
  %last = dot_general %s, %w {contract = [1] x [0]} : f32[64,64]
  %t = tanh %last : f32[64,64]
  %l = reduce_sum %t {axes = [0, 1]} : f32[]
  return %l
}

func @r(%x: f32[64,64], %w: f32[64,64]) -> f32[64,64] checkpoint(remat) {
  %p = dot_general %x, %w {contract = [1] x [0]} : f32[64,64]
  %q = logistic %p : f32[64,64]
  %e = erf_inv %x : f32[64,64]
  %u = mul %q, %e : f32[64,64]
  %v = dot_general %u, %w {contract = [1] x [0]} : f32[64,64]
  return %v
}
";
    let f = gradients(text);
    let names = Names::of(&f);
    for effort in EFFORTS {
        let frontier = plan_frontier(&f, &options(effort), &AnyEngine).expect("plans");
        for point in frontier.points() {
            let places = |wanted: &dyn Fn(&str, bool) -> bool| {
                let mut found = Vec::new();
                for (g, group) in point.plan.groups.iter().enumerate() {
                    for &i in group.parts.iter().flatten() {
                        let again = f.path(i).is_again();
                        if wanted(&names.get(f.inst_results(i)[0]), again) {
                            found.push(g);
                        }
                    }
                }
                found
            };
            let last = places(&|name, _| name == "last");
            let again = places(&|_, again| again);
            let (Some(last), Some(first)) = (last.first(), again.first()) else {
                panic!("nothing is computed again\n{f}");
            };
            assert!(first > last, "{}\n{f}", point.plan.text(&f));
        }
    }
}

#[test]
fn second_derivatives_keep_their_bits() {
    let text = "func @main(%x: f32[]) -> f32[] {
  %y = call %x {func = @r} : f32[]
  %z = mul %y, %x : f32[]
  return %z
}

func @r(%x: f32[]) -> f32[] checkpoint(remat) {
  %a = sin %x : f32[]
  %b = exp %a : f32[]
  %c = tanh %b : f32[]
  return %c
}
";
    let twice = |text: &str| {
        let module = module(text);
        let f = module.funcs.values().next().expect("a function");
        let once = grad(&module, f, &[0]).expect("differentiates");
        let alone = Module::single(once.clone());
        let g = forward_and_backward(&alone, &once, &[0]).expect("differentiates");
        let f = prepare(&Module::single(g.clone()), &g).expect("prepares");
        verify(&Module::single(f.clone())).unwrap_or_else(|e| panic!("{}\n{f}", e[0]));
        f
    };
    let (f, without) = (twice(text), twice(&plain(text)));
    assert_eq!(evaluated(&f), evaluated(&without), "{f}");
    assert!(count(&f, Op::Exp) > count(&without, Op::Exp), "{f}");
    for effort in EFFORTS {
        holds(&f, effort, &mut Checked::default()).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn a_batch_has_the_regions_of_its_elements() {
    let text = CHAIN.replace("POLICY", "names = [\"b\"]");
    let batched = |text: &str| {
        let module = module(text);
        let f = module.funcs.values().next().expect("a function");
        let wrt = differentiable(f, None).expect("has floats");
        let g = forward_and_backward(&module, f, &wrt).expect("differentiates");
        let batching = Batching::new(3, [Some(0), None]);
        let after = vmap(&Module::single(g.clone()), &g, &batching).expect("is batched");
        let v = vmap(&module, f, &batching).expect("is batched");
        let before = vjp(&Module::single(v.clone()), &v, &wrt).expect("differentiates");
        [after, before].map(|f| prepare(&Module::single(f.clone()), &f).expect("prepares"))
    };
    for (f, without) in batched(&text).iter().zip(&batched(&plain(&text))) {
        assert_eq!(evaluated(f), evaluated(without), "{f}");
        assert_eq!(count(f, Op::Sin), count(without, Op::Sin) + 1, "{f}");
        let found = kept(f, Effort::Default);
        assert!(
            found.contains("b") && !found.contains("a") && !found.contains("d"),
            "{found:?}\n{f}"
        );
    }
}

#[test]
fn traces_have_regions() {
    let traced = |policy: Option<CheckpointPolicy>| {
        trace("main", |t| {
            let (x, w) = (t.input("x", f32s([64, 64])), t.input("w", f32s([64, 64])));
            let body = || {
                let b = x.dot(&w).sin().named("b");
                b.dot(&w).sin().named("d").dot(&w)
            };
            let y = match policy {
                Some(policy) => t.checkpoint(policy, body),
                None => body(),
            };
            y.sin().sum(&[0, 1])
        })
    };
    let prepared = |policy| {
        let f = traced(policy).expect("traces").function().clone();
        let module = Module::single(f.clone());
        let read = parse(&module.to_string()).unwrap_or_else(|e| panic!("{e:?}\n{f}"));
        assert_eq!(read.to_string(), module.to_string());
        let g = forward_and_backward(&module, &f, &[0, 1]).expect("differentiates");
        prepare(&Module::single(g.clone()), &g).expect("prepares")
    };
    let named = CheckpointPolicy::Names(vec!["d".into()]);
    let (f, without) = (prepared(Some(named)), prepared(None));
    assert_eq!(evaluated(&f), evaluated(&without));
    let found = kept(&f, Effort::Default);
    assert!(found.contains("d") && !found.contains("b"), "{found:?}\n{f}");
    let wrong = traced(Some(CheckpointPolicy::Names(vec!["q".into()]))).expect_err("no such value");
    assert_eq!(wrong.kind, Kind::UnknownName, "{wrong}");
}
