//! `--compile-budget`: the fastest plan that compiles within it.

use crate::folder::Folder;
use serde_json::Value;
use std::path::Path;

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
    for nothing in ["--compile-budget 0", "--mem-budget 0"] {
        let refused = d.run(&format!("plan f.ir {nothing} --no-cache"));
        assert!(refused.code == 1 && refused.err.contains("the least takes"), "{}", refused.err);
    }
    let refused = d.run("plan f.ir --compile-budget 3 --no-cache");
    assert!(refused.code == 2 && refused.err.contains("expected a time, such as 50ms"));
}

/// Chains of elementwise ops and products.
fn chain(links: usize) -> String {
    let mut text = "func @f(%x: f32[16,16], %w: f32[16,16]) -> f32[] {\n".to_string();
    let mut last = "%x".to_string();
    for k in 0..links {
        text +=
            &format!("  %h{k} = dot_general {last}, %w {{contract = [1] x [0]}} : f32[16,16]\n");
        text += &format!("  %t{k} = tanh %h{k} : f32[16,16]\n");
        last = format!("%t{k}");
    }
    text + &format!("  %s = reduce_sum {last} {{axes = [0, 1]}} : f32[]\n  return %s\n}}\n")
}

#[test]
fn times_that_are_printed_are_budgets_that_are_kept() {
    let d = Folder::new();
    let deep = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/deep.ir");
    let deep = std::fs::read_to_string(deep).unwrap();
    for text in (1..6).map(chain).chain([deep]) {
        d.file("f.ir", text);
        let plan = "plan f.ir --grad --no-cache";
        let refused = d.run(&format!("{plan} --compile-budget 1us"));
        let least = refused.err.split("the least takes ").nth(1).expect("a time");
        let (least, _) = least.split_once(" ms").expect("a unit");
        d.good(&format!("{plan} --compile-budget {least}ms"));
        let shown = d.good(&format!("{plan} --frontier 3"));
        for row in shown.lines().skip(3) {
            let cells: Vec<&str> =
                row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            let budget = cells[4].replace(' ', "");
            assert!(budget.ends_with("ms"), "{shown}");
            d.good(&format!("{plan} --compile-budget {budget}"));
        }
    }
}
