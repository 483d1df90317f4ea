//! Loops over matrices: products that are only added to what is carried, which are done after the loop, weights that are copied before it,
//! and carries that are where they are stacked. Each has the bits of the evaluator.

use super::agrees;
use super::dots::made;
use super::vector_loops::{function, gradients};
use crate::common::random::inputs;
use adfuse::fusion::Fp;
use adfuse::ir::op::Domain;
use adfuse::ir::{Function, Module};

/// A recurrent layer of `U` units over `N` steps of a batch, whose weights are stored by outputs.
const LAYER: &str = "func @layer(%w: T[U,U], %h: T[9,U], %xs: T[N,9,U]) -> T[] {
  %last, %all = scan %h, %xs {carry = 1, reverse = R} : T[9,U], T[N,9,U] body(%s: T[9,U], %x: T[9,U]) {
    %p = dot_general %s, %w {contract = [1] x [1]} : T[9,U]
    %z = add %x, %p : T[9,U]
    %next = tanh %z : T[9,U]
    yield %next, %next
  }
  %sum = reduce_sum %last {axes = [0, 1]} : T[]
  %squares = mul %all, %all : T[N,9,U]
  %others = reduce_sum %squares {axes = [0, 1, 2]} : T[]
  %loss = add %sum, %others : T[]
  return %loss
}";

/// A layer with four gates, an LSTM: on the way back their cotangents are parts of one array.
const GATED: &str = "func @gated(%w: T[132,33], %h: T[9,33], %xs: T[N,9,132]) -> T[] {
  %last, %cell = scan %h, %h, %xs {carry = 2, reverse = R} : T[9,33], T[9,33]
    body(%s: T[9,33], %c: T[9,33], %x: T[9,132]) {
    %p = dot_general %s, %w {contract = [1] x [1]} : T[9,132]
    %z = add %x, %p : T[9,132]
    %i, %f, %g, %o = split %z {sizes = [33, 33, 33, 33], axis = 1} : T[9,33], T[9,33], T[9,33], T[9,33]
    %fs = logistic %f : T[9,33]
    %kept = mul %fs, %c : T[9,33]
    %is = logistic %i : T[9,33]
    %gt = tanh %g : T[9,33]
    %new = mul %is, %gt : T[9,33]
    %cell1 = add %kept, %new : T[9,33]
    %os = logistic %o : T[9,33]
    %ct = tanh %cell1 : T[9,33]
    %next = mul %os, %ct : T[9,33]
    yield %next, %cell1
  }
  %loss = reduce_sum %last {axes = [0, 1]} : T[]
  return %loss
}";

/// Sums of products: of elements, from an input on; of an element and a result that is stacked, from a number on; by columns. Two that
/// stay in the loop: one is stacked as it goes, one is read by another step. Carries that are stacked before a step and after it.
const SUMS: &str = "func @sums(%a: T[U,70], %h: T[9,70], %xs: T[N,9,U], %ys: T[N,9,70])
    -> (T[U,70], T[70,U], T[U,70], T[U,70], T[9,70], T[N,9,70], T[N,U,70], T[N,9,70], T[N,9,70]) {
  %s0 = broadcast_in_dim -0.5 {dims = []} : T[70,U]
  %0, %1, %2, %3, %4, %5, %6, %7, %8 = scan %a, %s0, %a, %a, %h, %xs, %ys {carry = 5, reverse = R}
    : T[U,70], T[70,U], T[U,70], T[U,70], T[9,70], T[N,9,70], T[N,U,70], T[N,9,70], T[N,9,70]
    body(%p: T[U,70], %q: T[70,U], %r: T[U,70], %t: T[U,70], %g: T[9,70], %x: T[9,U], %y: T[9,70]) {
    %e = tanh %y : T[9,70]
    %o = dot_general %x, %y {contract = [0] x [0]} : T[U,70]
    %p1 = add %p, %o : T[U,70]
    %oq = dot_general %e, %x {contract = [0] x [0]} : T[70,U]
    %q1 = add %oq, %q : T[70,U]
    %or = dot_general %x, %e {contract = [0] x [0]} : T[U,70]
    %r1 = add %r, %or : T[U,70]
    %t1 = add %t, %or : T[U,70]
    %line = reduce_sum %t {axes = [0]} : T[70]
    %lines = broadcast_in_dim %line {dims = [1]} : T[9,70]
    %small = mul %lines, 0.001 : T[9,70]
    %g0 = mul %g, 0.5 : T[9,70]
    %g1 = add %g0, %small : T[9,70]
    yield %p1, %q1, %r1, %t1, %g1, %e, %r1, %g, %g1
  }
  return %0, %1, %2, %3, %4, %5, %6, %7, %8
}";

/// The steps of a program whose names begin or end so.
fn steps(f: &Function, part: &str) -> usize {
    let steps = made(f, Fp::Strict, 1).steps().to_vec();
    steps.iter().filter(|s| s.name.ends_with(part) || s.name.starts_with(part)).count()
}

#[test]
fn layers_and_their_gradients_have_the_bits_of_the_evaluator() {
    for (n, steps) in ["1", "2", "8", "33"].into_iter().enumerate() {
        for (k, units) in ["16", "37", "70"].into_iter().enumerate() {
            let of = if (n + k) % 3 == 0 { "f64" } else { "f32" };
            let reverse = if (n + k) % 2 == 0 { "false" } else { "true" };
            let with = [of, units, steps, reverse];
            let (module, f) = function(LAYER, with);
            for domain in [Domain::Small, Domain::Normal] {
                let args = inputs(&f, &[domain]);
                agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{with:?}: {why}"));
                let f = gradients(&module, &f, &[0, 1, 2]);
                let module = Module::single(f.clone());
                let args = inputs(&f, &[domain]);
                agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{with:?}: {why}"));
            }
        }
    }
}

#[test]
fn gates_and_their_gradients_have_them_too() {
    for (n, (steps, of)) in [("1", "f32"), ("3", "f64"), ("10", "f32")].into_iter().enumerate() {
        let with = [of, "1", steps, if n % 2 == 0 { "true" } else { "false" }];
        let (module, f) = function(GATED, with);
        let args = inputs(&f, &[Domain::Small]);
        agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{with:?}: {why}"));
        let f = gradients(&module, &f, &[0, 1, 2]);
        let module = Module::single(f.clone());
        agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{with:?}: {why}"));
    }
}

/// Cotangents of gates are stored side by side by the kernel that computes them.
#[test]
fn gates_are_stored_where_they_end() {
    let (module, f) = function(GATED, ["f32", "1", "10", "false"]);
    let f = gradients(&module, &f, &[0, 1, 2]);
    let names: Vec<String> = made(&f, Fp::Strict, 1).sweeps().map(|s| s.name.to_string()).collect();
    let in_loop = names.iter().filter(|name| name.contains("scan.step")).count();
    assert!(in_loop > 0 && !names.iter().any(|name| name.contains("concatenate")), "{names:?}");
}

#[test]
fn sums_of_products_have_them_too() {
    for (n, steps) in ["2", "9", "16"].into_iter().enumerate() {
        for (k, of) in ["f32", "f64", "bf16"].into_iter().enumerate() {
            let reverse = if (n + k) % 2 == 0 { "false" } else { "true" };
            let with = [of, ["17", "64", "100"][(n + 2 * k) % 3], steps, reverse];
            let (module, f) = function(SUMS, with);
            // Products of the second kind round to zeros of either sign.
            for domain in [Domain::Normal, Domain::SignedUniform(1e-23, 2e-23)] {
                let args = inputs(&f, &[domain]);
                agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{with:?}: {why}"));
            }
        }
    }
}

#[test]
fn products_that_are_only_added_up_come_after_the_loop() {
    let (module, f) = function(LAYER, ["f32", "64", "20", "false"]);
    assert_eq!(steps(&f, ".sums"), 0);
    let f = gradients(&module, &f, &[0, 1, 2]);
    assert_eq!(steps(&f, ".sums"), usize::from(has_packed_tiles()));
    let (_, f) = function(SUMS, ["f32", "64", "20", "true"]);
    assert_eq!(steps(&f, ".sums"), 2 * usize::from(has_packed_tiles()));
}

#[test]
fn weights_that_are_stored_by_outputs_are_copied_before_the_loop() {
    let (_, f) = function(LAYER, ["f32", "64", "100", "false"]);
    assert_eq!(steps(&f, "copy of"), 1);
    // Few steps gain little, and beside little the copy takes much memory.
    for few in ["7", "20"] {
        let (_, f) = function(LAYER, ["f32", "64", few, "false"]);
        assert_eq!(steps(&f, "copy of"), 0);
    }
}

/// What the inner loop's sums begin with is a part of a concatenation too.
const STARTS: &str =
    "func @starts(%z: T[4,U,70], %xs: T[5,N,U], %ys: T[5,N,70]) -> (T[4,W,70], T[4,U,70]) {
  %0, %1 = scan %z {carry = 0, reverse = R} : T[4,W,70], T[4,U,70] body(%e: T[U,70]) {
    %p = tanh %e : T[U,70]
    %i = scan %p, %xs, %ys {carry = 1} : T[U,70] body(%c: T[U,70], %x: T[N,U], %y: T[N,70]) {
      %p1 = dot_general %x, %y {contract = [0] x [0]} : T[U,70]
      %q1 = add %c, %p1 : T[U,70]
      yield %q1
    }
    %s = sin %e : T[U,70]
    %cc = concatenate %p, %s {axis = 0} : T[W,70]
    yield %cc, %i
  }
  return %0, %1
}";

#[test]
fn what_sums_begin_with_is_not_stored_elsewhere() {
    let text = STARTS.replace('W', "128");
    for of in ["f32", "f64"] {
        let (module, f) = function(&text, [of, "64", "9", "false"]);
        let args = inputs(&f, &[Domain::Normal]);
        agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{of}: {why}"));
    }
}

/// Whether products of floats are by tiles that add to what there is.
fn has_packed_tiles() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    false
}
