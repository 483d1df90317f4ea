//! Checkpoint regions: what their policies say holds in every plan, no bit changes, and kernels still go across their
//! borders.

use crate::common::models;
use crate::common::random::inputs;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    AnyEngine, Effort, Fp, MachineModel, PlanOptions, decisions, lower, plan, prepare, saved_bytes,
};
use adfuse::ir::kernel::verify as verify_program;
use adfuse::ir::op::Domain;
use adfuse::ir::text::{Names, parse};
use adfuse::ir::{Function, Module, Op, Phase, verify};
use std::collections::BTreeSet;

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

fn evaluated(f: &Function) -> (Vec<Array>, Vec<Array>) {
    let args = inputs(f, &[Domain::Normal]);
    let found = run(&Module::single(f.clone()), f, &args, &mut Silent).expect("runs");
    (args, found)
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

/// Instructions of a later phase than the first read values of the first; those that are computed.
fn crossing(f: &Function) -> BTreeSet<String> {
    let names = Names::of(f);
    let mut phase_of = std::collections::BTreeMap::new();
    let mut found = BTreeSet::new();
    for &i in f.body_insts() {
        for &v in f.inst_results(i) {
            phase_of.insert(v, f.inst(i).phase);
        }
        if f.inst(i).phase == Phase::PRIMAL {
            continue;
        }
        let early = |v: &&adfuse::ir::Value| phase_of.get(*v) == Some(&Phase::PRIMAL);
        found.extend(f.args(i).iter().filter(early).map(|&v| names.get(v)));
    }
    found
}

/// Layers `tanh(h w + gelu(h) v)`, of which each is a region.
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

#[test]
fn of_regions_that_are_computed_again_only_what_they_are_given_is_kept() {
    for n in [1, 3] {
        let text = layers(n, " checkpoint(remat)");
        let (f, without) = (gradients(&text), gradients(&plain(&text)));
        let due: BTreeSet<String> = (0..n - 1).map(|k| format!("h{k}")).collect();
        for effort in EFFORTS {
            let found = kept(&f, effort);
            assert!(found.len() <= due.len() && found.iter().all(|v| v.starts_with('e')), "{found:?}\n{f}");
            assert!(kept(&without, effort).len() > found.len(), "{without}");
            let chosen = plan(&f, &options(effort)).expect("a plan");
            let bytes = saved_bytes(&f, &chosen).expect("a plan");
            assert_eq!(bytes, due.len() as u64 * 32 * 16 * 4, "{f}\n{}", chosen.text(&f));
        }
    }
}
