//! Derivatives of every differentiable row, at orders 1 and 2, where its domain says.

use super::cases::{OneOp, arguments, examples, map_case, reads_parameters, signature};
use super::derivatives::{Point, check, check_adjoint};
use crate::common::ranks::of_all_ranks;
use adfuse::ir::op::{Body, Deriv, Domain, LinearSlots};
use adfuse::ir::rewrite::widen;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Module, Op, verify};
use adfuse::sample::rng;

fn is_differentiable(op: Op) -> bool {
    let result = |case: &OneOp| case.f().ty(case.f().results()[0]).dtype.is_float();
    match op.def().body {
        Body::Region(_) | Body::Opaque => false,
        Body::Composed(_) => examples(op).iter().all(result),
        _ => !matches!(op.def().deriv, Deriv::Zero),
    }
}

/// The row's programs in `f64`: its examples, or its signature at a few shapes.
fn cases(op: Op) -> Vec<OneOp> {
    let wide = |c: OneOp| {
        let module = widen(&c.module).expect("widens");
        OneOp { op, module: of_all_ranks(&module) }
    };
    let mut cases: Vec<OneOp> = examples(op).into_iter().map(wide).collect();
    if signature(op).is_some() && !op.def().declared {
        cases.extend([&[3][..], &[3, 4], &[], &[0, 2]].map(|dims| map_case(op, DType::F64, dims)));
    }
    cases
}

fn point(case: &OneOp, seed: u64) -> Point {
    let args = arguments(case.f(), &case.domains(), &mut rng(seed, 0));
    Point { module: case.module.clone(), args }
}

#[test]
fn derivatives_agree_with_differences_and_each_other() {
    let mut failures = Vec::new();
    let mut checks = 0;
    for &op in Op::ALL.iter().filter(|op| is_differentiable(**op)) {
        for case in cases(op) {
            for seed in 0..3 {
                match check(&point(&case, seed), 2, &mut rng(seed, 1)) {
                    Ok(n) => checks += n,
                    Err(why) => failures.push(format!("`{op}`, seed {seed}: {why}")),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert!(checks > 2000, "{checks} checks");
}

/// Every set of operands that a row is linear in, or that it has partials for, transposes alone.
#[test]
fn every_set_of_operands_transposes() {
    let mut subsets = 0;
    for &op in Op::ALL.iter().filter(|op| is_differentiable(**op)) {
        for case in cases(op).into_iter().filter(|c| reads_parameters(c.f())) {
            let point = point(&case, 7);
            let wrt = point.wrt();
            if let Deriv::Linear(LinearSlots::Only(slots), _) = op.def().deriv {
                assert_eq!(wrt, slots, "`{op}`: its float operands are the linear ones");
            }
            for set in 1..1usize << wrt.len() {
                let some: Vec<usize> = wrt
                    .iter()
                    .enumerate()
                    .filter(|(b, _)| set >> b & 1 == 1)
                    .map(|(_, &k)| k)
                    .collect();
                check_adjoint(&point, &some, &mut rng(7, set as u64))
                    .unwrap_or_else(|e| panic!("`{op}`: {e}"));
                subsets += 1;
            }
        }
    }
    assert!(subsets > 150, "{subsets} subsets");
}

/// `cond` differentiates in forward mode; reverse mode says that it does not. Calls do both.
#[test]
fn regions_and_calls_differentiate() {
    let source = "func @f(%p: bool[], %x: f64[3], %y: f64[3]) -> (f64[3], f64[]) {
        %0, %1 = cond %p : f64[3], f64[] then {
            %a = mul %x, %y : f64[3]
            %b = sin %a : f64[3]
            %c = reduce_sum %b {axes = [0]} : f64[]
            yield %b, %c
        } else { yield %x, 2.0 }
        return %0, %1 }";
    for p in [0, 1] {
        let module = parse(source).expect("parses");
        let f = module.funcs.values().next().expect("a function");
        let domains = [Domain::Ints(p, p + 1), Domain::Normal, Domain::Normal];
        let args = arguments(f, &domains, &mut rng(0, 0));
        let n = check(&Point { module: module.clone(), args }, 2, &mut rng(0, 1));
        assert!(n.as_ref().is_ok_and(|&n| n >= 2), "{n:?}");
    }
    let source = "func @f(%x: f64[3], %y: f64[3]) -> f64[] {
        %0 = call %x, %y {func = @g} : f64[3]
        %1 = call %0, %y {func = @g} : f64[3]
        %2 = reduce_sum %1 {axes = [0]} : f64[]
        return %2 }
        func @g<n>(%x: f64[n], %y: f64[n]) -> f64[n] {
        %0 = tanh %x : f64[n]
        %1 = mul %0, %y : f64[n]
        return %1 }";
    let module: Module = parse(source).expect("parses");
    verify(&module).expect("verifies");
    let f = module.funcs.values().next().expect("a function");
    let args = arguments(f, &[Domain::Normal; 2], &mut rng(0, 0));
    let n = check(&Point { module: module.clone(), args }, 2, &mut rng(0, 1));
    assert!(n.as_ref().is_ok_and(|&n| n == 6), "{n:?}");
}

/// A derivative that is off by a thousandth is found.
#[test]
fn a_wrong_derivative_is_found() {
    let source = "func @g(%x: f64[3]) -> f64[3] {
        %0 = call %x {func = @f} : f64[3]
        return %0 }
        func @f(%x: f64[3]) -> f64[3] custom_jvp(@rule) {
        %0 = sin %x : f64[3]
        return %0 }
        func @rule(%x: f64[3], %t: f64[3]) -> (f64[3], f64[3]) {
        %0 = sin %x : f64[3]
        %1 = cos %x : f64[3]
        %2 = mul %1, FACTOR : f64[3]
        %3 = mul %2, %t : f64[3]
        return %0, %3 }";
    for (factor, right) in [("1.0", true), ("1.001", false)] {
        let module = parse(&source.replace("FACTOR", factor)).expect("parses");
        let f = module.funcs.values().next().expect("a function");
        let args = arguments(f, &[Domain::Normal], &mut rng(0, 0));
        let result = check(&Point { module: module.clone(), args }, 1, &mut rng(0, 1));
        assert_eq!(result.is_ok(), right, "{result:?}");
    }
}
