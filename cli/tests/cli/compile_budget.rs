//! `--compile-budget`: the fastest plan that compiles within it.

use crate::folder::Folder;
use serde_json::Value;

const TEXT: &str = "func @f(%x: f32[64,64], %w: f32[64,64]) -> f32[] {
  %h = dot_general %x, %w {contract = [1] x [0]} : f32[64,64]
  %t = tanh %h : f32[64,64]
  %e = exp %t : f32[64,64]
  %s = reduce_sum %e {axes = [0, 1]} : f32[]
  return %s
}
";

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("is JSON")
}

#[test]
fn plans_compile_within_a_budget_or_the_least_is_told() {
    let d = Folder::new();
    d.file("f.ir", TEXT);
    let free = json(&d.good("plan f.ir --grad --json"));
    let ms = free["compile_ms"].as_f64().expect("a time");
    assert!(ms > 0.0 && free["code_bytes"].as_u64().is_some_and(|n| n > 0));
    let frontier = json(&d.good("plan f.ir --grad --frontier 3 --no-cache --json"));
    assert!(frontier["points"][0]["compile_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    let within = json(&d.good("plan f.ir --grad --compile-budget 1s --no-cache --json"));
    assert_eq!(within["compile_budget"]["compile_budget_ms"], 1000.0);
    assert!(within["compile_ms"].as_f64().is_some_and(|ms| ms <= 1000.0));
    for command in ["plan", "emit --stage plan", "bench --min-seconds 0"] {
        let refused = d.run(&format!("{command} f.ir --grad --compile-budget 1us --no-cache"));
        assert!(refused.code == 1 && refused.err.contains("the least takes"), "{}", refused.err);
    }
    let refused = d.run("plan f.ir --compile-budget 3 --no-cache");
    assert!(refused.code == 2 && refused.err.contains("expected a time, such as 50ms"));
}
