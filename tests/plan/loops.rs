//! Residuals of loops and merged loops: the same bits, nothing stacked that need not be, no step computed twice.

use crate::common::control::{decode, inputs};
use crate::common::loops::LOOPS;
use crate::common::random::programs;
use adfuse::autodiff::{differentiable, vjp};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    LoopResiduals, StackGoal, loop_reports, loop_residuals, lower, merge_loops, prepare,
    stack_residuals,
};
use adfuse::ir::kernel::forward_steps;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Literal, Module, Op, TensorType, verify};

mod classes;
mod merging;

fn program(text: &str) -> (Module, Function) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(&module).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function").clone();
    (module, f)
}

/// The function as it is planned.
fn prepared(module: &Module, f: &Function) -> Function {
    prepare(module, f).unwrap_or_else(|e| panic!("{e}\n{f}"))
}

/// The derivative of all results in all floats, as it is planned.
fn reversed(module: &Module, f: &Function) -> Function {
    let wrt = differentiable(f, None).expect("has floats");
    let g = vjp(module, f, &wrt).unwrap_or_else(|e| panic!("{e}\n{f}"));
    prepared(&Module::single(g.clone()), &g)
}

fn evaluated(f: &Function, k: i64) -> Result<Vec<Array>, String> {
    let args = inputs(f, k);
    let module = Module::single(f.clone());
    verify(&module).map_err(|e| format!("{}\n{f}", e[0]))?;
    run(&module, f, &args, &mut Silent).map_err(|d| format!("{d}\n{f}"))
}

/// Whether results have the same types and bits; all NaNs are one.
fn same(a: &[Array], b: &[Array]) -> bool {
    let equal = |x: Literal, y: Literal| {
        x == y || x.dtype().is_float() && x.to_f64().is_nan() && y.to_f64().is_nan()
    };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.ty() == b.ty() && a.iter().zip(b.iter()).all(|(x, y)| equal(x, y)))
}

/// How often an op occurs, in regions too.
fn count(f: &Function, op: Op) -> usize {
    let mut n = 0;
    f.walk(&mut |f, i| n += usize::from(f.op(i) == op));
    n
}

/// Runs every pass on a function, and compares bits on the reference engine. A second time changes nothing.
fn keeps_bits(f: &Function, k: i64) -> Result<Function, String> {
    let due = evaluated(f, k)?;
    let stacked =
        stack_residuals(f, &|_| Some(StackGoal::Time)).map_err(|d| format!("{d}\n{f}"))?;
    let merged = merge_loops(&stacked).map_err(|d| format!("{d}\n{stacked}"))?;
    for (name, g) in [
        ("stack_residuals", &stacked),
        ("merge_loops", &merged),
        ("merge_loops alone", &merge_loops(f).map_err(|d| format!("{d}\n{f}"))?),
    ] {
        if !same(&evaluated(g, k)?, &due) {
            return Err(format!("{name} changes bits\n{f}\n{g}"));
        }
    }
    let again = merge_loops(&merged).map_err(|d| format!("{d}\n{merged}"))?;
    if again.to_string() != merged.to_string() {
        return Err(format!("merged twice it is another\n{merged}\n{again}"));
    }
    Ok(merged)
}

/// Programs with what their integers are, and how many `adjoint`s of known length are left in each derivative: none.
const PROGRAMS: &[(&str, i64)] = &[
    ("func @f(%h: f64[2], %xs: f64[3,2], %p: bool[]) -> f64[3,2] {
        %c, %ys = scan %h, %xs {carry = 1} : f64[2], f64[3,2] body(%s: f64[2], %x: f64[2]) {
          %d, %e = cond %p : f64[2], f64[2] then { %a = sin %s : f64[2] %b = exp %a : f64[2] yield %a, %b }
            else { %a = mul %x, %s : f64[2] yield %a, %x }
          %n = mul %d, %e : f64[2] yield %n, %d }
        return %ys }", 1),
    // Positions that begin elsewhere.
    ("func @f(%x: f64[2]) -> f64[2] {
        %r = fori 1, 4, %x : f64[2] body(%i: i64[], %c: f64[2]) {
          %k = convert_element_type %i : f64[] %kk = broadcast_in_dim %k {dims = []} : f64[2]
          %y = sin %c : f64[2] %z = mul %y, %kk : f64[2] yield %z }
        return %r }", 0),
    // A number of steps that is not known.
    ("func @f(%n: i32[], %x: f64[2]) -> f64[2] {
        %r = fori 1, %n, %x : f64[2] body(%i: i32[], %c: f64[2]) { %y = sin %c : f64[2] yield %y }
        return %r }", 3),
    // An adjoint that a user writes: all that it gives is used, and some of it does not depend on what is handed back.
    ("func @f(%x: f64[], %a: f64[], %xs: f64[3], %ws: f64[3]) -> (f64[], f64[], f64[3], f64[3], f64[3], f64[3]) {
        %c, %d, %ys, %zs, %us, %vs = adjoint %x, %a, %xs, %ws {carry = 1, up = 1, xs = 1, ys = 1} : f64[], f64[], f64[3], f64[3], f64[3], f64[3]
          step(%i: i64[], %s: f64[], %t: f64[]) { %m = mul %s, %t : f64[] %n = sin %m : f64[] yield %n, %m }
          back(%i: i64[], %s: f64[], %u: f64[], %t: f64[], %w: f64[]) {
            %e = cos %s : f64[] %g = mul %u, %e : f64[] %h = mul %w, %t : f64[] %k = add %g, %h : f64[] %l = mul %k, %s : f64[]
            %o = exp %e : f64[] yield %k, %o, %l, %t }
        return %c, %d, %ys, %zs, %us, %vs }", 0),
    ("func @f(%x: f64[], %a: f64[], %xs: f64[3]) -> (f64[], f64[], f64[3]) {
        %c, %d, %zs = adjoint %x, %a, %xs {carry = 1, up = 1, xs = 1, reverse = true} : f64[], f64[], f64[3]
          step(%i: i64[], %s: f64[], %t: f64[]) { %f = convert_element_type %i : f64[] %m = mul %s, %t : f64[] %n = add %m, %f : f64[] yield %n }
          back(%i: i64[], %s: f64[], %u: f64[], %t: f64[]) {
            %e = cos %s : f64[] %g = mul %u, %e : f64[] yield %g, %u }
        return %c, %d, %zs }", 0),
];

#[test]
fn bits_stay_at_orders_one_and_two() {
    for (n, (text, k)) in PROGRAMS.iter().chain(LOOPS).enumerate() {
        let (module, f) = program(text);
        let first = reversed(&module, &f);
        let second = reversed(&Module::single(first.clone()), &first);
        let known = !text.contains("fori 1, %n") && !text.contains("while");
        for (order, f) in [prepared(&module, &f), first, second].iter().enumerate() {
            let g = keeps_bits(f, *k).unwrap_or_else(|e| panic!("program {n}, order {order}: {e}"));
            let left = count(&g, Op::Adjoint);
            assert!(!known || left == 0, "program {n}, order {order}: {left} are left\n{g}");
        }
    }
}

#[test]
fn functions_of_the_filetests_keep_their_bits() {
    let module = parse(include_str!("../filetests/run/loops.ir")).expect("parses");
    let mut tried = 0;
    for f in module.funcs.values() {
        let plain = |ty: &TensorType| ty.dtype != DType::Token;
        // One of them does not end.
        if f.name == "endless" || !f.param_types().iter().all(plain) {
            continue;
        }
        tried += 1;
        keeps_bits(&prepared(&module, f), 2).unwrap_or_else(|e| panic!("@{}: {e}", f.name));
        if differentiable(f, None).is_ok_and(|wrt| !wrt.is_empty()) {
            let g = reversed(&module, f);
            keeps_bits(&g, 2).unwrap_or_else(|e| panic!("@{} in reverse: {e}", f.name));
        }
    }
    assert!(tried >= 5);
}

#[test]
fn random_programs_keep_their_bits() {
    let scans = std::cell::Cell::new(0);
    programs(71, 150, |steps| {
        let f = decode(steps, DType::F32);
        let k = steps.first().map_or(0, |s| i64::from(s.1 % 4));
        let module = Module::single(f.clone());
        let first = reversed(&module, &f);
        scans.set(
            scans.get() + loop_residuals(&first, StackGoal::Time).map_err(|d| d.to_string())?.len(),
        );
        keeps_bits(&first, k)?;
        if steps.len() < 8 {
            keeps_bits(&reversed(&Module::single(first.clone()), &first), k)?;
        }
        Ok(())
    });
    assert!(scans.get() > 100, "few of the programs have loops: {}", scans.get());
}

/// Of two loops one is chosen: the other stays.
#[test]
fn chosen_loops_alone_are_replaced() {
    let (module, f) = program(
        "func @f(%h: f32[2], %xs: f32[3,2]) -> f32[2] {
           %c = scan %h, %xs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[2]) { %n = mul %s, %x : f32[2] yield %n }
           %d = scan %c, %xs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[2]) { %m = mul %s, %x : f32[2] %n = sin %m : f32[2] yield %n }
           return %d }",
    );
    let g = reversed(&module, &f);
    let all = loop_residuals(&g, StackGoal::Time).expect("both have known lengths");
    assert_eq!(all.len(), 2);
    for chosen in &all {
        let one = stack_residuals(&g, &|i| (i == chosen.inst).then_some(StackGoal::Time))
            .expect("is replaced");
        assert_eq!(count(&one, Op::Adjoint), 1, "{one}");
        assert!(same(&evaluated(&one, 0).expect("runs"), &evaluated(&g, 0).expect("runs")));
    }
    let none = stack_residuals(&g, &|_| None).expect("is copied");
    assert_eq!(none.to_string(), g.to_string());
}

/// Loops of such lengths that with one checkpoint they would take longer than can be counted are planned within a budget at once,
/// with as many checkpoints as there is room for.
#[test]
fn endless_loops_are_planned_within_a_budget() {
    for steps in [100_000u64, 1_000_000_000, 1 << 40] {
        let (module, f) = program(&format!(
            "func @f(%w: f32[14], %h: f32[14]) -> f32[] {{
               %c = scan %h {{carry = 1, length = {steps}}} : f32[14] body(%s: f32[14]) {{
                 %a = mul %s, %w : f32[14] %n = tanh %a : f32[14] yield %n }}
               %r = reduce_sum %c {{axes = [0]}} : f32[] return %r }}"
        ));
        let g = reversed(&module, &f);
        let engine = Cpu { mem_budget: Some(4096), ..Cpu::default() };
        let begun = std::time::Instant::now();
        let made = engine.plan_prepared(&g).unwrap_or_else(|d| panic!("{steps} steps: {d}"));
        let function = &made.narrowed.function;
        let program = lower(function, &made.plan, &engine.plan.device).expect("lowers");
        let backs: Vec<_> = loop_reports(&program).into_iter().filter_map(|l| l.back).collect();
        assert!(begun.elapsed().as_secs() < 20, "{steps} steps take {:?}", begun.elapsed());
        assert_eq!(backs.len(), 1, "{steps} steps: {program}");
        assert!((20..60).contains(&backs[0].checkpoints), "{steps} steps: {backs:?}");
        assert_eq!(backs[0].forward, Some(forward_steps(steps, backs[0].checkpoints)));
    }
}
