//! Checkpoint regions in loops, and loops in checkpoint regions.

use super::*;
use adfuse::fusion::{StackGoal, loop_residuals, merge_loops, stack_residuals};

#[test]
fn loops_stack_what_policies_keep() {
    let text = "func @main(%h: f32[64], %w: f32[64,64]) -> f32[64] {
  %r = scan %h {carry = 1, length = 16} : f32[64] body(%s: f32[64]) {
    %n = call %s, %w {func = @cell} : f32[64]
    yield %n
  }
  return %r
}

func @cell(%s: f32[64], %w: f32[64,64]) -> f32[64] checkpoint(POLICY) {
  %a = dot_general %w, %s {contract = [1] x [0]} : f32[64]
  %b = relu %a : f32[64]
  %c = sin %b : f32[64]
  return %c
}
";
    let stacked = |text: &str| {
        let module = module(text);
        let f = module.funcs.values().next().expect("a function");
        let g = vjp(&module, f, &[0, 1]).expect("differentiates");
        let f = prepare(&Module::single(g.clone()), &g).expect("prepares");
        let all = loop_residuals(&f, StackGoal::Time).expect("loops");
        let lines = all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let lines = lines.lines().map(str::trim).filter(|l| l.starts_with("stacked"));
        lines.map(|l| l.split(':').next().unwrap_or_default().to_string()).collect::<Vec<_>>()
    };
    let without = stacked(&plain(&text.replace("POLICY", "remat")));
    assert!(!without.is_empty(), "something is stacked otherwise");
    assert_eq!(stacked(&text.replace("POLICY", "remat")), Vec::<String>::new());
    assert_eq!(stacked(&text.replace("POLICY", "names = [\"a\"]")), ["stacked %a"]);
}

#[test]
fn a_loop_in_a_region_runs_again() {
    let text = "func @main(%h: f32[8], %w: f32[8,8]) -> f32[8] {
  %n = call %h, %w {func = @r} : f32[8]
  %m = sin %n : f32[8]
  return %m
}

func @r(%h: f32[8], %w: f32[8,8]) -> f32[8] checkpoint(remat) {
  %g = tanh %h : f32[8]
  %r = scan %g {carry = 1, length = 4} : f32[8] body(%s: f32[8]) {
    %a = dot_general %w, %s {contract = [1] x [0]} : f32[8]
    %b = sin %a : f32[8]
    yield %b
  }
  %e = exp %r : f32[8]
  return %e
}
";
    let loops = |text: &str| {
        let f = gradients(text);
        let stacked = stack_residuals(&f, &|_| Some(StackGoal::Time)).expect("stacks");
        let merged = merge_loops(&stacked).expect("merges");
        let f = prepare(&Module::single(merged.clone()), &merged).expect("prepares");
        verify(&Module::single(f.clone())).unwrap_or_else(|e| panic!("{}\n{f}", e[0]));
        f
    };
    let (f, without) = (loops(text), loops(&plain(text)));
    assert_eq!(evaluated(&f), evaluated(&without), "{f}");
    // What is around a loop says nothing of what its steps leave to each other.
    f.walk(&mut |f, i| {
        let inner = !f.body_insts().contains(&i);
        assert!(!inner || f.path(i).is_empty(), "{f}");
    });
    // One goes forward and stacks, one goes back; a region has a loop of its own that stacks.
    assert_eq!((count(&f, Op::Scan), count(&without, Op::Scan)), (3, 2), "{f}");
    assert_eq!((count(&f, Op::Tanh), count(&without, Op::Tanh)), (2, 1), "{f}");
    for effort in EFFORTS {
        let saved = |f: &Function| {
            let chosen = plan(f, &options(effort)).unwrap_or_else(|e| panic!("{e}\n{f}"));
            saved_bytes(f, &chosen).expect("a plan")
        };
        // `%e`, and what the planner makes of it outside of the region.
        assert!(saved(&f) <= 64 && saved(&f) < saved(&without), "{} bytes\n{f}", saved(&f));
    }
}
