//! `plan --explain` and `plan --decisions`: what becomes of values that a later pass needs.

use crate::folder::Folder;
use serde_json::Value;

const TEXT: &str = "func @f(%x: f32[64,128], %w1: f32[128,256], %w2: f32[256,64]) -> f32[] {
  %h = dot_general %x, %w1 {contract = [1] x [0]} : f32[64,256]
  %r = relu %h : f32[64,256]
  %y = dot_general %r, %w2 {contract = [1] x [0]} : f32[64,64]
  %s = reduce_sum %y {axes = [0, 1]} : f32[]
  return %s
}
";

#[test]
fn one_value_is_explained() {
    let d = Folder::new();
    d.file("f.ir", TEXT);
    let text = d.good("plan f.ir --grad --wrt x --fp strict --explain %0");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "%0: bool[64,256], of phase 0: kept as b1, 1 bit an element, 2.00 KiB");
    assert_eq!(lines[1], "  group 2 reads it from memory");
    assert!(lines[2].contains("in memory at the peak of "), "{text}");
    assert!(lines[3].starts_with("  computed again instead: peak "), "{text}");
    assert!(lines[4].starts_with("  settled by "), "{text}");
    // It has no name: so it is told by what it is made of, and where.
    assert_eq!(lines[5], "  %0 is gt(%r, 0.0): bool[64,256], line 3");
    assert_eq!(lines.len(), 6, "{text}");
    let text = d.good("plan f.ir --grad --wrt x --fp strict --explain s");
    assert_eq!(text, "no later phase reads %s: there is nothing to decide\n");
    let text = d.good("plan f.ir --grad --wrt x --fp strict --explain s --json");
    assert_eq!(text, "null\n");
}

#[test]
fn every_value_is_listed() {
    let d = Folder::new();
    d.file("f.ir", TEXT);
    let all = "plan f.ir --grad --wrt x --fp strict --decisions";
    let found: Value = serde_json::from_str(&d.good(&format!("{all} --json"))).unwrap();
    let found = found.as_array().unwrap();
    let names: Vec<&str> = found.iter().map(|d| d["value"].as_str().unwrap()).collect();
    assert_eq!(names, ["%w1", "%w2", "%0"]);
    assert_eq!(found[0]["instead"]["impossible"], "parameter");
    let mask = &found[2];
    assert_eq!((&mask["decision"], &mask["bits"]), (&"compress".into(), &1.into()));
    assert_eq!(mask["saved_bytes"], 2048);
    // The hidden layer would be kept instead.
    let instead = &mask["instead"];
    assert_eq!((&instead["decision"], &instead["saved_bytes"]), (&"remat".into(), &63488.into()));
    assert!(instead["ms"].is_number() && mask["settled_by"].is_string(), "{mask}");
    let text = d.good(all);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_eq!(text, d.good(all));
    let one = d.good("plan f.ir --grad --wrt x --fp strict --explain %0 --json");
    assert_eq!(serde_json::from_str::<Value>(&one).unwrap(), *mask);
}

#[test]
fn policies_of_checkpoint_regions_are_told() {
    let d = Folder::new();
    let text = "func @main(%x: f32[64,64], %w: f32[64,64]) -> f32[] {
  %y = call %x, %w {func = @r} : f32[64,64]
  %s = reduce_sum %y {axes = [0, 1]} : f32[]
  return %s
}

func @r(%x: f32[64,64], %w: f32[64,64]) -> f32[64,64] checkpoint(names = [\"h\"]) {
  %a = dot_general %x, %w {contract = [1] x [0]} : f32[64,64]
  %h = sin %a : f32[64,64]
  %b = dot_general %h, %w {contract = [1] x [0]} : f32[64,64]
  %c = sin %b : f32[64,64]
  return %c
}
";
    d.file("f.ir", text);
    let text = d.good("plan f.ir --grad --fp strict --decisions");
    let row = text.lines().find(|line| line.starts_with("%h ")).expect("a row");
    assert!(row.contains(" save ") && row.ends_with("checkpoint"), "{text}");
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("computed again for checkpoint regions: %"), "{text}");
    assert!(last.contains("%b_1") && !last.contains("%h_1"), "{text}");
    let text = d.good("plan f.ir --grad --fp strict --explain %h");
    assert!(text.contains("settled by its checkpoint region, which keeps it"), "{text}");
}
