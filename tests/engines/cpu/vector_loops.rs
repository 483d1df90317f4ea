//! Loops over small vectors: turns that are calls alone, steps that are done for several turns at once, and matrices that are copied
//! before a loop. Each has the bits of the evaluator.

use super::agrees;
use super::dots::made;
use crate::common::random::inputs;
use adfuse::autodiff::value_and_grad;
use adfuse::fusion::{Fp, StackGoal, merge_loops, stack_residuals};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Function, Module};

/// A recurrent cell of `U` units over `N` steps, in either direction: its way back adds up outer products and multiplies by transposed
/// weights.
const CELL: &str = "func @cell(%w: T[U,U], %u: T[U,U], %b: T[U], %h: T[U], %xs: T[N,U]) -> T[] {
  %last = scan %h, %xs {carry = 1, reverse = R} : T[U] body(%s: T[U], %x: T[U]) {
    %p = dot_general %s, %w {contract = [0] x [0]} : T[U]
    %q = dot_general %x, %u {contract = [0] x [0]} : T[U]
    %z = add %p, %q : T[U]
    %zb = add %z, %b : T[U]
    %next = tanh %zb : T[U]
    yield %next
  }
  %loss = reduce_sum %last {axes = [0]} : T[]
  return %loss
}";

/// Sums that are carried: of a temporary and an element; of what is the same in all turns; of a carry, which changes from turn to turn; one that
/// is read elsewhere too; one from a constant on; and one that is stacked as it goes.
const SUMS: &str =
    "func @sums(%a: T[6,U], %c: T[U], %k: T[6,U], %h: T[6], %xs: T[N,6], %ys: T[N,U])
    -> (T[6,U], T[6,U], T[U], T[U], T[6,U], T[N,U]) {
  %s0 = broadcast_in_dim 0.5 {dims = []} : T[6,U]
  %0, %1, %2, %3, %4, %5, %6 = scan %a, %s0, %c, %c, %h, %a, %xs, %ys {carry = 6, reverse = R}
    : T[6,U], T[6,U], T[U], T[U], T[6], T[6,U], T[N,U]
    body(%p: T[6,U], %q: T[6,U], %r: T[U], %t: T[U], %g: T[6], %m: T[6,U], %x: T[6], %y: T[U]) {
    %e = tanh %y : T[U]
    %o = dot_general %x, %e {contract = [] x []} : T[6,U]
    %p1 = add %p, %o : T[6,U]
    %o2 = dot_general %g, %e {contract = [] x []} : T[6,U]
    %q1 = add %q, %o2 : T[6,U]
    %r1 = sub %r, %e : T[U]
    %t1 = add %t, %r : T[U]
    %g1 = mul %g, %x : T[6]
    %km = mul %k, 0.25 : T[6,U]
    %m1 = add %m, %km : T[6,U]
    yield %p1, %q1, %r1, %t1, %g1, %m1, %t1
  }
  return %0, %1, %2, %3, %5, %6
}";

pub(super) fn function(text: &str, [of, units, steps, reverse]: [&str; 4]) -> (Module, Function) {
    let text = text.replace("T[", &format!("{of}["));
    let text = text.replace('U', units).replace('N', steps).replace("= R", &format!("= {reverse}"));
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function").clone();
    (module, f)
}

/// A function with its gradients, whose ways back read stacks of residuals.
pub(super) fn gradients(module: &Module, f: &Function, wrt: &[usize]) -> Function {
    let f = value_and_grad(module, f, wrt).expect("a gradient");
    let stacked = stack_residuals(&f, &|_| Some(StackGoal::Time)).expect("residuals");
    merge_loops(&stacked).expect("loops")
}

/// The names of the functions of a program on a thread.
fn names(f: &Function) -> Vec<String> {
    made(f, Fp::Strict, 1).sweeps().map(|s| s.name.to_string()).collect()
}

#[test]
fn cells_and_their_gradients_have_the_bits_of_the_evaluator() {
    let all = ["1", "7", "31", "32", "33", "47", "64", "101"];
    for (n, steps) in all.into_iter().enumerate() {
        for (k, units) in ["3", "14", "16", "37"].into_iter().enumerate() {
            let of = if (n + k) % 3 == 0 { "f64" } else { "f32" };
            let reverse = if (n + k) % 2 == 0 { "false" } else { "true" };
            let with = [of, units, steps, reverse];
            let (module, f) = function(CELL, with);
            let args = inputs(&f, &[Domain::Small]);
            agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{with:?}: {why}"));
            let f = gradients(&module, &f, &[0, 1, 2, 3, 4]);
            let module = Module::single(f.clone());
            agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{with:?}: {why}"));
        }
    }
}

#[test]
fn sums_that_loops_carry_have_them_too() {
    for (n, steps) in ["8", "16", "31", "32", "40", "50"].into_iter().enumerate() {
        for (k, of) in ["f32", "f64", "bf16"].into_iter().enumerate() {
            let reverse = if (n + k) % 2 == 0 { "false" } else { "true" };
            let with = [of, ["5", "16", "20"][(n + 2 * k) % 3], steps, reverse];
            let (module, f) = function(SUMS, with);
            for domain in [Domain::Normal, Domain::Small] {
                let args = inputs(&f, &[domain]);
                agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{with:?}: {why}"));
            }
        }
    }
}

#[test]
fn outer_products_are_added_for_several_turns_at_once() {
    let (module, f) = function(CELL, ["f32", "14", "100", "false"]);
    let f = gradients(&module, &f, &[0, 1]);
    let names = names(&f);
    let at_once = names.iter().filter(|name| name.contains(".turns")).count();
    assert_eq!(at_once, 2, "{names:?}");
    let (_, few) = function(CELL, ["f32", "14", "15", "false"]);
    let few = gradients(&module, &few, &[0, 1]);
    assert!(!self::names(&few).iter().any(|name| name.contains(".turns")));
}

#[test]
fn transposed_weights_are_copied_once_before_a_loop() {
    let (module, f) = function(CELL, ["f32", "14", "100", "false"]);
    let copies = |f: &Function| {
        let steps = made(f, Fp::Strict, 1).steps().to_vec();
        steps.iter().filter(|s| s.name.starts_with("copy of")).count()
    };
    assert_eq!(copies(&f), 0);
    let f = gradients(&module, &f, &[0, 1, 4]);
    assert_eq!(copies(&f), 2);
}
