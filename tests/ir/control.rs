//! Branches and loops: derivatives of every order in every mode against differences, against loops written out,
//! and over batches.

use crate::common::batch::{Side, agrees};
use crate::common::control::{decode, draw, inputs};
use crate::common::loops::LOOPS;
use crate::common::random::programs;
use crate::compose::{evaluate, first, numbers, program};
use crate::ops::derivatives::{Point, check};
use adfuse::autodiff::{differentiable, grad, jvp, linearize, value_and_grad, vjp};
use adfuse::backends::Array;
use adfuse::ir::{DType, Literal, Module, TensorType};
use adfuse::sample::rng;
use approx::assert_abs_diff_eq;

fn scalar(x: f64) -> Array {
    Array::from_f64s(DType::F64, &[], &[x]).expect("one number")
}

fn number(dtype: DType, n: i64) -> Array {
    Array::from_bits(dtype, &[], &[Literal::from_i64(dtype, n).bits()]).expect("one number")
}

/// Programs with what their integers are. Each is differentiated to order 2 in the four orders of the modes.
const PROGRAMS: &[(&str, i64)] = &[
    // Both branches, one that does not depend on anything, what is around them.
    ("func @f(%x: f64[], %y: f64[]) -> f64[] {
        %p = gt %x, %y : bool[]
        %r = cond %p : f64[] then { %a = sin %x : f64[] %b = mul %a, %y : f64[] yield %b }
          else { %a = mul %x, %x : f64[] yield %a }
        return %r }", 0),
    ("func @f(%x: f64[2], %p: bool[]) -> f64[2] {
        %r = cond %p : f64[2] then { %a = tanh %x : f64[2] yield %a } else { yield 2.0 }
        %s = mul %r, %x : f64[2] return %s }", 1),
    ("func @f(%x: f64[2], %p: bool[]) -> f64[2] {
        %r = cond %p : f64[2] then { %a = tanh %x : f64[2] yield %a } else { yield 2.0 }
        %s = mul %r, %x : f64[2] return %s }", 0),
    // A root that has no value on the branch that is not taken.
    ("func @f(%x: f64[]) -> f64[] {
        %p = gt %x, 100.0 : bool[]
        %r = cond %p : f64[] then { %z = sub %x, 100.0 : f64[] %a = sqrt %z : f64[] yield %a }
          else { %a = mul %x, 3.0 : f64[] yield %a }
        return %r }", 0),
    // A linear loop.
    ("func @f(%h: f64[2], %xs: f64[5,2]) -> (f64[2], f64[5,2]) {
        %c, %ys = scan %h, %xs {carry = 1} : f64[2], f64[5,2] body(%s: f64[2], %x: f64[2]) {
          %n = add %s, %x : f64[2] yield %n, %n }
        return %c, %ys }", 0),
    // Numbers of steps that are operands: none, one, several.
    ("func @f(%n: i32[], %x: f64[2]) -> f64[2] {
        %r = fori 1, %n, %x : f64[2] body(%i: i32[], %c: f64[2]) {
          %k = convert_element_type %i : f64[] %kk = broadcast_in_dim %k {dims = []} : f64[2]
          %y = sin %c : f64[2] %z = mul %y, %kk : f64[2] yield %z }
        return %r }", 4),
    ("func @f(%n: i32[], %x: f64[2]) -> f64[2] {
        %r = fori 1, %n, %x : f64[2] body(%i: i32[], %c: f64[2]) { %y = sin %c : f64[2] yield %y }
        return %r }", 0),
    ("func @f(%n: i32[], %x: f64[2], %w: f64[2]) -> f64[2] {
        %k, %r = while %n, %x : i32[], f64[2] cond(%i: i32[], %c: f64[2]) { %p = gt %i, 0 : bool[] yield %p }
          body(%i: i32[], %c: f64[2]) { %a = mul %c, %w : f64[2] %b = sin %a : f64[2] %j = sub %i, 1 : i32[] yield %j, %b }
        return %r }", 3),
    ("func @f(%n: i32[], %x: f64[2], %w: f64[2]) -> f64[2] {
        %k, %r = while %n, %x : i32[], f64[2] cond(%i: i32[], %c: f64[2]) { %p = gt %i, 0 : bool[] yield %p }
          body(%i: i32[], %c: f64[2]) { %a = mul %c, %w : f64[2] %b = sin %a : f64[2] %j = sub %i, 1 : i32[] yield %j, %b }
        return %r }", 0),
    // Newton's method for a square root: the condition reads a float.
    ("func @f(%x: f64[]) -> f64[] {
        %a = add %x, 4.0 : f64[]
        %r = while %a : f64[] cond(%c: f64[]) {
          %s = mul %c, %c : f64[] %d = sub %s, %a : f64[] %e = abs %d : f64[] %p = gt %e, 1e-13 : bool[] yield %p }
          body(%c: f64[]) { %q = div %a, %c : f64[] %s = add %c, %q : f64[] %h = mul %s, 0.5 : f64[] yield %h }
        return %r }", 0),
    // A condition that makes something of what is carried.
    ("func @f(%x: f64[], %k: f64[]) -> f64[] {
        %l = sub %k, 3.0 : f64[]
        %r = while %x : f64[] cond(%c: f64[]) { %m = neg %c : f64[] %q = gt %m, %l : bool[] yield %q }
          body(%d: f64[]) { %e = add %d, 1.0 : f64[] yield %e }
        return %r }", 0),
    // A call in a loop.
    ("func @f(%x: f64[], %xs: f64[3]) -> f64[] {
        %c = scan %x, %xs {carry = 1} : f64[] body(%s: f64[], %t: f64[]) { %r = call %s, %t {func = @g} : f64[] yield %r }
        return %c }
      func @g(%a: f64[], %b: f64[]) -> f64[] { %c = mul %a, %b : f64[] %d = sin %c : f64[] return %d }", 0),
    // An adjoint that a user writes.
    ("func @f(%x: f64[], %a: f64[], %xs: f64[3], %ws: f64[3]) -> (f64[], f64[], f64[3], f64[3]) {
        %c, %d, %ys, %zs = adjoint %x, %a, %xs, %ws {carry = 1, up = 1, xs = 1, ys = 1} : f64[], f64[], f64[3], f64[3]
          step(%i: i64[], %s: f64[], %t: f64[]) { %m = mul %s, %t : f64[] %n = sin %m : f64[] yield %n, %m }
          back(%i: i64[], %s: f64[], %u: f64[], %t: f64[], %w: f64[]) {
            %e = cos %s : f64[] %g = mul %u, %e : f64[] %h = mul %w, %t : f64[] %k = add %g, %h : f64[] %l = mul %k, %s : f64[] yield %k, %l }
        return %c, %d, %ys, %zs }", 0),
];

#[test]
fn derivatives_agree_with_differences_to_order_two() {
    for (n, (text, k)) in PROGRAMS.iter().chain(LOOPS).enumerate() {
        let module = program(text);
        let f = adfuse::ir::rewrite::inline(&module, first(&module), &|_| true).expect("inlines");
        let point = Point::new(f.clone(), inputs(&f, *k));
        let count =
            check(&point, 2, &mut rng(n as u64, 1)).unwrap_or_else(|e| panic!("program {n}: {e}"));
        assert_eq!(count, 6, "program {n}: a mode refuses\n{text}");
    }
}

/// One program over every element of a batch, gradients too, whatever is mapped: finished elements keep their bits.
#[test]
fn loops_over_a_batch_are_loops_over_its_elements() {
    for (n, (text, k)) in PROGRAMS.iter().chain(LOOPS).enumerate() {
        let module = program(text);
        let f = first(&module);
        let back = vjp(&module, f, &differentiable(f, None).expect("floats")).expect("reverses");
        for (g, m) in [(f, &module), (&back, &Module::single(back.clone()))] {
            for mapped in 0..1usize << g.params().len().min(3) {
                let mut count = 0;
                let mut next = |_: usize, ty: &TensorType| {
                    count += 1;
                    draw(ty, k + count % 3, count as u64)
                };
                let is = |p: usize| mapped >> p & 1 == 1 || p >= 3;
                agrees(m, g, 3, &is, Side::First, &mut next)
                    .unwrap_or_else(|e| panic!("program {n}, mapped {mapped:b}: {e}"));
            }
        }
    }
}

#[test]
fn random_programs_have_their_derivatives() {
    let orders = std::cell::Cell::new(0u32);
    programs(61, 120, |steps| {
        let f = decode(steps, DType::F64);
        orders.set(orders.get() + 1);
        let k = steps.first().map_or(0, |s| i64::from(s.1 % 4));
        let point = Point::new(f.clone(), inputs(&f, k));
        let order = if orders.get().is_multiple_of(8) && steps.len() < 12 { 2 } else { 1 };
        check(&point, order, &mut rng(5, 1)).map(|_| ()).map_err(|e| format!("{e}\n{f}"))
    });
}

#[test]
fn random_programs_over_a_batch_are_a_loop() {
    programs(62, 60, |steps| {
        let f = decode(steps, DType::F32);
        let mut count = 0;
        let mut next = |_: usize, ty: &TensorType| {
            count += 1;
            draw(ty, count % 4, count as u64)
        };
        let module = Module::single(f.clone());
        let which = steps.first().map_or(31, |s| s.2 as usize);
        agrees(&module, &f, 3, &|p| which >> p & 1 == 1, Side::First, &mut next)?;
        let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
        let back = vjp(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
        let all = |p: usize| which >> (p % 5) & 1 == 1 || p >= 5;
        agrees(&Module::single(back.clone()), &back, 3, &all, Side::First, &mut next)
    });
}

/// The forward part of `linearize` and its linear part give what `jvp` gives.
#[test]
fn linear_parts_are_tangents() {
    for (n, (text, k)) in PROGRAMS.iter().chain(LOOPS).enumerate() {
        let module = program(text);
        let f = first(&module);
        let wrt = differentiable(f, None).expect("floats");
        let split = linearize(&module, f, &wrt).unwrap_or_else(|e| panic!("program {n}: {e}"));
        let pushed = jvp(&module, f, &wrt).expect("forward");
        let args = inputs(f, *k);
        let tangents: Vec<Array> =
            wrt.iter().map(|&p| draw(&f.param_types()[p], 0, 90 + p as u64)).collect();
        let both = evaluate(&pushed, &[args.clone(), tangents.clone()].concat()).expect("runs");
        let mut primal = evaluate(&split.primal, &args).expect("runs");
        let residuals = primal.split_off(f.results().len());
        assert_eq!(residuals.len(), split.residuals);
        let moved = evaluate(&split.linear, &[residuals, tangents].concat()).expect("runs");
        let (found, due) = (numbers(&[primal, moved].concat()), numbers(&both));
        assert_eq!(found.len(), due.len());
        for (a, b) in found.iter().zip(&due) {
            assert_abs_diff_eq!(*a, *b, epsilon = 1e-14 * b.abs().max(1.0));
        }
    }
}

/// A scan is the loop written out: values to the bit in the same order, gradients to rounding.
#[test]
fn a_scan_is_its_steps_written_out() {
    let body = "%a = mul %h, %w : f64[2] %b = add %a, %x : f64[2] %n = tanh %b : f64[2]";
    let scan = program(&format!(
        "func @f(%h0: f64[2], %w: f64[2], %xs: f64[6,2]) -> f64[] {{
           %c = scan %h0, %xs {{carry = 1}} : f64[2] body(%h: f64[2], %x: f64[2]) {{ {body} yield %n }}
           %s = reduce_sum %c {{axes = [0]}} : f64[] return %s }}"
    ));
    let mut text = String::from("func @f(%h0: f64[2], %w: f64[2], %xs: f64[6,2]) -> f64[] {\n");
    for k in 0..6 {
        text += &format!(
            "%x{k}_ = slice %xs {{start = [{k}, 0], limit = [{}, 2], stride = [1, 1]}} : f64[1,2]
             %x{k} = reshape %x{k}_ : f64[2]
             %a{k} = mul %h{k}, %w : f64[2]\n %b{k} = add %a{k}, %x{k} : f64[2]\n %h{} = tanh %b{k} : f64[2]\n",
            k + 1, k + 1
        );
    }
    text += "%s = reduce_sum %h6 {axes = [0]} : f64[] return %s }";
    let written = program(&text);
    let args = inputs(first(&scan), 0);
    let run = |m: &Module| {
        let g = value_and_grad(m, first(m), &[0, 1, 2]).expect("reverses");
        numbers(&evaluate(&g, &args).expect("runs"))
    };
    let (a, b) = (run(&scan), run(&written));
    assert_eq!(a[0].to_bits(), b[0].to_bits());
    for (a, b) in a.iter().zip(&b) {
        assert_abs_diff_eq!(*a, *b, epsilon = 1e-13);
    }
}

/// What others got wrong: a gradient of more than the last step, with nothing asked of the initial carry; a number of
/// steps that differs in a batch; what does not change in a loop is not stacked.
#[test]
fn known_failures_of_others() {
    // The gradient of every step, not of the last alone: d/dw w^n = n w^(n-1).
    let m = program(
        "func @f(%n: i32[], %w: f64[]) -> f64[] {
           %k, %r = while %n, 1.0 : i32[], f64[] cond(%i: i32[], %c: f64[]) { %p = gt %i, 0 : bool[] yield %p }
             body(%i: i32[], %c: f64[]) { %a = mul %c, %w : f64[] %j = sub %i, 1 : i32[] yield %j, %a }
           return %r }",
    );
    let g = grad(&m, first(&m), &[1]).expect("reverses");
    for n in 0..5 {
        let found = numbers(&evaluate(&g, &[number(DType::I32, n), scalar(1.5)]).expect("runs"));
        assert_abs_diff_eq!(found[0], n as f64 * 1.5f64.powi(n as i32 - 1), epsilon = 1e-13);
    }
    // Invariant carries and what a loop reads are operands, never stacks of the number of steps.
    let m = program(
        "func @f(%h: f64[3], %w: f64[3,3], %xs: f64[50,3]) -> f64[] {
           %c, %u = scan %h, %w, %xs {carry = 2} : f64[3], f64[3,3] body(%s: f64[3], %v: f64[3,3], %x: f64[3]) {
             %a = dot_general %v, %s {contract = [1] x [0]} : f64[3] %b = add %a, %x : f64[3] %n = tanh %b : f64[3] yield %n, %v }
           %r = reduce_sum %c {axes = [0]} : f64[] return %r }",
    );
    let g = grad(&m, first(&m), &[0, 1, 2]).expect("reverses");
    let mut largest = 0;
    g.walk(&mut |f, i| {
        for &v in f.inst_results(i) {
            largest = largest.max(f.ty(v).elements().unwrap_or(u64::MAX));
        }
    });
    assert_eq!(largest, 150, "the cotangent of what is scanned is the largest value\n{g}");
}
