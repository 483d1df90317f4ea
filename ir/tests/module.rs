//! Modules: functions are found by their names, whatever a module is made of and however many it has.

use adfuse_ir::rewrite::inline;
use adfuse_ir::text::parse;
use adfuse_ir::{Function, Module, verify};
use std::fmt::Write;
use std::time::{Duration, Instant};

#[test]
fn functions_are_found_by_name() {
    let mut m = Module::default();
    assert!(m.find("f0").is_none());
    for k in 0..100 {
        let key = m.funcs.push(Function::new(format!("f{k}")));
        assert_eq!(m.funcs.named(&format!("f{k}")), Some(key));
    }
    // Of two with one name, which the verifier refuses, the first.
    m.funcs.push(Function::new("f7"));
    assert_eq!(m.funcs.named("f7"), m.funcs.keys().nth(7));
    // A copy has an index of its own.
    let mut copy = m.clone();
    copy.funcs.push(Function::new("g"));
    assert!(copy.find("g").is_some() && m.find("g").is_none());
    for (key, f) in copy.funcs.iter() {
        let first = copy.funcs.named(&f.name).expect("is there");
        assert_eq!(&copy.funcs[first].name, &f.name);
        assert!(first <= key);
    }
    assert_eq!(copy.funcs.values().len(), 102);
}

/// A function that calls as many others, and the time to read, verify and inline it.
fn called(n: usize) -> Duration {
    let mut text = String::new();
    for k in 0..n {
        let _ = writeln!(text, "func @f{k}(%x: f32[]) -> f32[] {{\nreturn %x\n}}");
    }
    text += "func @main(%x: f32[]) -> f32[] {\n";
    for k in 0..n {
        let from = if k == 0 { "x".into() } else { format!("y{}", k - 1) };
        let _ = writeln!(text, "%y{k} = call %{from} {{func = @f{k}}} : f32[]");
    }
    let _ = writeln!(text, "return %y{}\n}}", n - 1);
    let begun = Instant::now();
    let module = parse(&text).expect("parses");
    verify(&module).expect("verifies");
    let main = module.find("main").expect("is there");
    assert!(inline(&module, main, &|_| true).expect("inlines").body_insts().is_empty());
    begun.elapsed()
}

/// Sixteen times as many functions take about sixteen times as long, not 256 times.
#[test]
fn calls_take_time_by_their_number() {
    let least = |n: usize| (0..3).map(|_| called(n)).min().expect("three");
    let (less, more) = (least(2000), least(32_000));
    assert!(more < 64 * less, "{less:?} and {more:?}");
}
