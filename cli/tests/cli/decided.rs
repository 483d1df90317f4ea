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

/// `%5`, the gate of a softplus, is not kept: it is not even in the function that is planned.
const SOFTPLUS: &str =
    "func @f(%x: f32[1024,1024], %w: f32[1024,1024], %v: f32[1024,1024]) -> f32[] {
  %a = dot_general %x, %w {contract = [1] x [0]} : f32[1024,1024]
  %e = exp %a : f32[1024,1024]
  %p = add %e, 1.0 : f32[1024,1024]
  %l = log %p : f32[1024,1024]
  %b = dot_general %l, %v {contract = [1] x [0]} : f32[1024,1024]
  %s = reduce_sum %b {axes = [0, 1]} : f32[]
  return %s
}
";

#[test]
fn what_is_recovered_and_gone_is_explained() {
    let d = Folder::new();
    d.file("f.ir", SOFTPLUS);
    let plan = "plan f.ir --grad --fp fast --no-cache";
    let listed = d.good(&format!("{plan} --decisions"));
    let line = listed.lines().find(|line| line.contains("recover it from %l")).expect("a line");
    let (name, _) = line.split_once(':').expect("a name");
    for name in [name, name.trim_start_matches('%')] {
        let told = d.good(&format!("{plan} --explain {name}"));
        assert_eq!(told, format!("{line}\n"));
    }
    let told = d.good(&format!("{plan} --explain {name} --json"));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["value"], &told["from"]), (&name.into(), &"%l".into()));
    // In strict mode it is kept, and other names are as unknown as before.
    assert!(
        d.good("plan f.ir --grad --fp strict --no-cache --explain %l").contains("kept as it is")
    );
    let ran = d.run(&format!("{plan} --explain %nothing"));
    assert!(ran.code == 2 && ran.err.contains("no value %nothing"), "{}", ran.err);
}

/// Modes that let results round may recover `%b` from `%y`: that it rounds is not what keeps them from it.
#[test]
fn what_keeps_a_value_beside_its_answer_depends_on_the_mode() {
    let d = Folder::new();
    for (b, y, due) in [
        ("exp %a", "log %b", "priced"),
        ("exp %a", "sqrt %b", "priced"),
        // The square of a great number is infinite.
        ("exp %a", "square %b", "exactness"),
        // The derivative of `tanh` reads its answer first.
        ("tanh %a", "mul %b, 0.5", "order"),
    ] {
        let text = format!(
            "func @f(%x: f32[256,256], %w: f32[256,256], %v: f32[256,256], %u: f32[256,256]) -> f32[] {{
  %a = dot_general %x, %w {{contract = [1] x [0]}} : f32[256,256]
  %b = {b} : f32[256,256]
  %y = {y} : f32[256,256]
  %c = dot_general %y, %v {{contract = [1] x [0]}} : f32[256,256]
  %d = dot_general %b, %u {{contract = [1] x [0]}} : f32[256,256]
  %g = add %c, %d : f32[256,256]
  %s = reduce_sum %g {{axes = [0, 1]}} : f32[]
  return %s
}}
"
        );
        d.file("f.ir", text);
        let plan = "plan f.ir --grad --wrt x,w,v,u --no-cache --explain %b --fp";
        let strict = d.good(&format!("{plan} strict"));
        let rounds = "settled by exactness: %y is kept as well, and gives this but for rounding";
        assert!(strict.contains(rounds), "{y}: {strict}");
        // What strict mode says of the other modes is what they do.
        let may = strict.contains("; --fp reproducible and fast may take it from there");
        assert_eq!(may, due == "priced", "{y}: {strict}");
        let late = strict.contains("reads it before %y is there, or to compute it");
        assert_eq!(late, due == "order", "{y}: {strict}");
        for fp in ["reproducible", "fast"] {
            let told = d.good(&format!("{plan} {fp}"));
            let json: Value =
                serde_json::from_str(&d.good(&format!("{plan} {fp} --json"))).unwrap();
            let (settled, recovered) = (&json["settled_by"], &json["recovered"]);
            assert_eq!(recovered["from"], "%y", "{y}, {fp}: {told}");
            assert!(!told.contains(rounds) && told.contains("%y is kept as well, "), "{told}");
            let price = "  recovered from %y instead: peak ";
            assert_eq!(told.contains(price), due == "priced", "{y}, {fp}: {told}");
            let number = |key: &str| recovered[key].as_f64().expect("a number");
            let due = match due {
                "priced" if number("ms") > 0.0 => "time",
                "priced" if number("peak_bytes") > 0.0 => "peak",
                "priced" if number("saved_bytes") >= 0.0 => "bytes",
                "priced" => "search",
                due => due,
            };
            let said = match due {
                "time" => ", but by itself that is slower",
                "peak" => ", but by itself that raises the peak",
                "bytes" => ", but by itself that leaves no fewer bytes",
                _ => "",
            };
            assert!(fp == "fast" || strict.contains(said), "{y}, {due}: {strict}");
            assert_eq!(settled, due, "{y}, {fp}: {told}");
            assert_eq!(json["inexact_from"] == "%y", due == "exactness", "{y}, {fp}: {json}");
        }
        let off = "plan f.ir --grad --wrt x,w,v,u --fp fast --effort off --decisions --no-cache";
        let off = d.good(off);
        let row = off.lines().find(|line| line.starts_with("%b ")).expect("a row");
        let word = if due == "priced" { "effort" } else { due };
        assert!(row.ends_with(&format!("  {word}")), "{y}: {off}");
    }
}

const LOOP: &str = "func @f(%x: f32[8]) -> f32[8] {
  %h = scan %x {carry = 1, length = 4} : f32[8] body(%c: f32[8]) {
    %inner = sin %c : f32[8]
    yield %inner
  }
  %y = exp %h : f32[8]
  return %y
}
";

#[test]
fn values_inside_loops_are_said_to_be_there() {
    let d = Folder::new();
    d.file("f.ir", LOOP);
    for args in
        ["--explain %inner", "--explain inner", "--explain-fusion %y %inner", "--explain %c"]
    {
        let ran = d.run(&format!("plan f.ir --no-cache {args}"));
        assert_eq!(ran.code, 2, "{args}: {}", ran.err);
        assert!(ran.err.contains("is inside a loop or a branch"), "{args}: {}", ran.err);
        assert!(!ran.err.contains("emit --stage ad"), "{args}: {}", ran.err);
    }
    let ran = d.run("plan f.ir --no-cache --explain %other_one");
    assert!(ran.err.contains("emit --stage ad"), "{}", ran.err);
}

#[test]
fn a_value_beside_itself_is_told_once() {
    let d = Folder::new();
    d.file("f.ir", TEXT);
    for (args, due) in [
        ("%r r", "both are %r\n  %r: at each element, in group 0\n"),
        ("%x %x", "both are %x\n  %x: in no group\n%x: %x is given, not computed\n"),
    ] {
        let told = d.good(&format!("plan f.ir --fp strict --no-cache --explain-fusion {args}"));
        assert_eq!(told, due, "{args}");
    }
}
