//! Which residuals are stacked: the known failures of others, each with the classes and the bytes.

use super::*;
use adfuse::autodiff::{Batching, vmap};
use adfuse::ir::Dim;

/// The text of a program, the parameters it is differentiated in, the residuals of its loops, and their bytes.
struct ResidualCase {
    text: &'static str,
    wrt: &'static [usize],
    residuals: &'static [&'static str],
    bytes: u64,
}

const CASES: &[ResidualCase] = &[
    // A carry that never changes, and a capture, are read where they are.
    ResidualCase {
        text: "func @f(%h: f32[3], %w: f32[3,3], %b: f32[3], %xs: f32[50,3]) -> f32[3] {
           %c, %u = scan %h, %w, %xs {carry = 2} : f32[3], f32[3,3] body(%s: f32[3], %v: f32[3,3], %x: f32[3]) {
             %a = dot_general %v, %s {contract = [1] x [0]} : f32[3] %e = mul %a, %b : f32[3]
             %d = add %e, %x : f32[3] %n = tanh %d : f32[3] yield %n, %v }
           return %c }",
        wrt: &[0, 1, 3],
        residuals: &["invariant f32[3]", "invariant f32[3,3]", "carry f32[3]", "recomputed f32[3]"],
        bytes: 600,
    },
    // What is scanned is read again.
    ResidualCase {
        text: "func @f(%h: f32[4], %xs: f32[8,4,2]) -> f32[4] {
           %c = scan %h, %xs {carry = 1} : f32[4] body(%s: f32[4], %x: f32[4,2]) {
             %a = slice %x {start = [0, 1], limit = [4, 2], stride = [1, 1]} : f32[4,1] %d = reshape %a : f32[4]
             %e = mul %s, %d : f32[4] yield %e }
           return %c }",
        wrt: &[0],
        residuals: &["forwarded f32[4]"],
        bytes: 0,
    },
    // The position, and what follows from it, is computed again.
    ResidualCase {
        text: "func @f(%h: f32[4]) -> f32[4] {
           %r = fori 0, 10, %h : f32[4] body(%i: i64[], %s: f32[4]) {
             %k = convert_element_type %i : f32[] %e = exp %k : f32[] %j = broadcast_in_dim %e {dims = []} : f32[4]
             %n = mul %s, %j : f32[4] yield %n }
           return %r }",
        wrt: &[0],
        residuals: &["index f32[4]"],
        bytes: 0,
    },
    // Of a gate one bit is kept.
    ResidualCase {
        text: "func @f(%h: f32[64], %w: f32[64,64]) -> f32[64] {
           %r = scan %h {carry = 1, length = 16} : f32[64] body(%s: f32[64]) {
             %a = dot_general %w, %s {contract = [1] x [0]} : f32[64] %n = relu %a : f32[64] yield %n }
           return %r }",
        wrt: &[0],
        residuals: &["invariant f32[64,64]", "stacked bool[64]"],
        bytes: 128,
    },
    ResidualCase {
        text: "func @f(%h: f32[64], %w: f32[64,64]) -> f32[64] {
           %r = scan %h {carry = 1, length = 16} : f32[64] body(%s: f32[64]) {
             %a = dot_general %w, %s {contract = [1] x [0]} : f32[64] %n = relu %a : f32[64] yield %n }
           return %r }",
        wrt: &[0, 1],
        residuals: &["invariant f32[64,64]", "carry f32[64]", "stacked bool[64]"],
        bytes: 4224,
    },
    // A conversion of a narrower value is stacked narrow.
    ResidualCase {
        text: "func @f(%h: f32[64], %w: bf16[64,64]) -> f32[64] {
           %r = scan %h {carry = 1, length = 16} : f32[64] body(%s: f32[64]) {
             %b = convert_element_type %s : bf16[64]
             %a = dot_general %w, %b {contract = [1] x [0]} : bf16[64] %c = convert_element_type %a : f32[64]
             %n = sin %c : f32[64] yield %n }
           return %r }",
        wrt: &[0],
        residuals: &["invariant bf16[64,64]", "recomputed f32[64]", "stacked bf16[64]"],
        bytes: 2048,
    },
    // The results of a branch that cross are stacked; the branch is not taken again for what it computes otherwise.
    ResidualCase {
        text: "func @f(%h: f32[256], %w: f32[256,256], %p: bool[]) -> f32[256] {
           %r = scan %h {carry = 1, length = 16} : f32[256] body(%s: f32[256]) {
             %d, %e = cond %p : f32[256], f32[256] then {
                 %a = dot_general %w, %s {contract = [1] x [0]} : f32[256] %b = sin %a : f32[256] yield %a, %b }
               else { yield %s, 1.0 }
             %n = mul %d, %e : f32[256] %m = tanh %n : f32[256] yield %m }
           return %r }",
        wrt: &[0],
        residuals: &["invariant bool[]", "invariant f32[256,256]", "carry f32[256]", "stacked f32[256]", "stacked f32[256]", "recomputed f32[256]"],
        bytes: 49152,
    },
    // An inner loop leaves its residuals to the step, and the outer loop stacks what crosses.
    ResidualCase {
        text: "func @f(%h: f32[2], %w: f32[2], %xs: f32[5,3,2]) -> f32[2] {
           %r = scan %h, %xs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[3,2]) {
             %c = scan %s, %x {carry = 1} : f32[2] body(%t: f32[2], %y: f32[2]) {
               %a = mul %t, %w : f32[2] %b = add %a, %y : f32[2] %n = tanh %b : f32[2] yield %n }
             yield %c }
           return %r }",
        wrt: &[0, 1],
        residuals: &["invariant f32[2]", "carry f32[2]", "recomputed f32[2]", "invariant f32[2]", "recomputed f32[2]", "recomputed f32[3,2]", "carry f32[2]"],
        bytes: 64,
    },
    ResidualCase {
        text: "func @f(%h: f32[256], %w: f32[256,256], %xs: f32[5,3,256]) -> f32[256] {
           %r = scan %h, %xs {carry = 1} : f32[256] body(%s: f32[256], %x: f32[3,256]) {
             %c = scan %s, %x {carry = 1} : f32[256] body(%t: f32[256], %y: f32[256]) {
               %a = dot_general %w, %t {contract = [1] x [0]} : f32[256] %b = add %a, %y : f32[256] %n = tanh %b : f32[256] yield %n }
             yield %c }
           return %r }",
        wrt: &[0, 1],
        residuals: &["invariant f32[256,256]", "carry f32[256]", "recomputed f32[256]", "invariant f32[256,256]", "stacked f32[256]", "stacked f32[3,256]"],
        bytes: 23552,
    },
    // What the loop gives anyway is no stack of its own.
    ResidualCase {
        text: "func @f(%h: f32[64], %w: f32[64,64]) -> (f32[64], f32[16,64]) {
           %r, %ys = scan %h {carry = 1, length = 16} : f32[64], f32[16,64] body(%s: f32[64]) {
             %a = dot_general %w, %s {contract = [1] x [0]} : f32[64] %n = tanh %a : f32[64] yield %n, %n }
           return %r, %ys }",
        wrt: &[0],
        residuals: &["invariant f32[64,64]", "recomputed f32[64]", "output f32[64]"],
        bytes: 0,
    },
];

fn classes(loops: &[LoopResiduals]) -> Vec<String> {
    loops.iter().flat_map(|l| &l.residuals).map(|r| format!("{} {}", r.class, r.ty)).collect()
}

/// The derivative of a program's results in the parameters at `wrt`, as it is planned.
fn reversed_in(text: &str, wrt: &[usize]) -> Function {
    let (module, f) = program(text);
    let g = vjp(&module, &f, wrt).unwrap_or_else(|e| panic!("{e}\n{f}"));
    prepared(&Module::single(g.clone()), &g)
}

#[test]
fn residuals_are_in_their_classes() {
    for (n, case) in CASES.iter().enumerate() {
        let g = reversed_in(case.text, case.wrt);
        let loops = loop_residuals(&g, StackGoal::Time).expect("is known");
        assert_eq!(classes(&loops), case.residuals, "case {n}\n{g}");
        let bytes: u64 = loops.iter().map(LoopResiduals::bytes).sum();
        assert_eq!(bytes, case.bytes, "case {n}");
        let merged = keeps_bits(&g, 1).unwrap_or_else(|e| panic!("case {n}: {e}"));
        // What an inner loop leaves for a step may be what the outer loop stacks.
        if loops.len() == 1 {
            assert_eq!(
                stacks_of(&merged),
                case.bytes,
                "case {n}: other bytes
{merged}"
            );
        }
    }
}

/// Bytes of all stacks of the loops in a function's body that are scanned by another loop and are no results; truth
/// values take a bit.
fn stacks_of(f: &Function) -> u64 {
    let (mut made, mut scanned, mut bytes) = (Vec::new(), Vec::new(), 0);
    f.walk(&mut |f, i| {
        if f.op(i) == Op::Scan {
            let carry = f.attrs(i).int("carry") as usize;
            made.extend_from_slice(&f.inst_results(i)[carry..]);
            scanned.extend_from_slice(&f.args(i)[carry..]);
        }
    });
    made.retain(|v| scanned.contains(v) && !f.results().contains(v));
    for v in made {
        let n = f.ty(v).elements().expect("known");
        bytes +=
            if f.ty(v).dtype == DType::Bool { n.div_ceil(8) } else { n * f.ty(v).dtype.bytes() };
    }
    bytes
}

/// A step of many operations on few values: what is stacked is where they are few, not each of them.
#[test]
fn a_step_of_many_values_stacks_the_few_that_it_begins_with() {
    let mut body = String::from("%v0 = mul %s, %s : f32[9,64]\n%v1 = add %v0, %t : f32[9,64]\n");
    for k in 2..60 {
        let op = ["mul", "add", "sub"][k % 3];
        body += &format!("%v{k} = {op} %v{}, %v{} : f32[9,64]\n", k - 1, k - 2);
    }
    let g = reversed_in(
        &format!(
            "func @f(%h: f32[9,64], %g: f32[9,64]) -> f32[9,64] {{
               %c, %d = scan %h, %g {{carry = 2, length = 100}} : f32[9,64], f32[9,64] body(%s: f32[9,64], %t: f32[9,64]) {{
                 {body} %n = tanh %v59 : f32[9,64] yield %n, %s }}
               return %c }}"
        ),
        &[0, 1],
    );
    let loops = loop_residuals(&g, StackGoal::Time).expect("is known");
    let all = &loops[0];
    let read = all.residuals.len();
    let stacked = all.residuals.iter().filter(|r| r.bits_per_step() > 0).count();
    assert!(read > 20 && stacked <= 2, "{all}");
    assert_eq!(all.bytes_per_step(), 2 * 9 * 64 * 4, "{all}");
    keeps_bits(&g, 0).unwrap_or_else(|e| panic!("{e}"));
}

/// A batch of gradients has the residuals of one gradient, each for the batch; what is shared stays as it is.
#[test]
fn a_batch_has_the_residuals_of_its_elements() {
    for case in &CASES[..6] {
        let g = reversed_in(case.text, case.wrt);
        let module = Module::single(g.clone());
        // The matrix is shared.
        let shared = |ty: &TensorType| (ty.rank() != 2).then_some(0);
        let batching = Batching::new(Dim::Const(5), g.param_types().iter().map(shared));
        let batched = vmap(&module, &g, &batching).unwrap_or_else(|e| panic!("{e}\n{g}"));
        let batched = prepared(&Module::single(batched.clone()), &batched);
        let bytes = |f: &Function| -> u64 {
            loop_residuals(f, StackGoal::Time)
                .expect("is known")
                .iter()
                .map(LoopResiduals::bytes)
                .sum()
        };
        assert_eq!(bytes(&batched), 5 * bytes(&g), "{batched}");
        keeps_bits(&batched, 0).unwrap_or_else(|e| panic!("{e}"));
        // The other way round: a batch of the two loops is two loops.
        let two = merge_loops(&stack_residuals(&g, &|_| Some(StackGoal::Time)).expect("stacks"))
            .expect("merges");
        let over = vmap(&Module::single(two.clone()), &two, &batching).expect("is batched");
        assert_eq!(count(&over, Op::Scan), count(&two, Op::Scan), "{over}");
        assert_eq!(count(&over, Op::Adjoint), 0);
    }
}

/// A gradient is one loop that goes forward and one that goes back, and neither computes what the other does.
#[test]
fn no_step_is_computed_twice() {
    let g = reversed_in(
        "func @f(%h: f32[32], %c: f32[32], %w: f32[128,32], %u: f32[128,32], %xs: f32[20,32]) -> f32[20,32] {
           %hn, %cn, %ys = scan %h, %c, %xs {carry = 2} : f32[32], f32[32], f32[20,32] body(%s: f32[32], %t: f32[32], %x: f32[32]) {
             %a = dot_general %w, %s {contract = [1] x [0]} : f32[128] %b = dot_general %u, %x {contract = [1] x [0]} : f32[128]
             %z = add %a, %b : f32[128]
             %i0 = slice %z {start = [0], limit = [32], stride = [1]} : f32[32] %i = logistic %i0 : f32[32]
             %f0 = slice %z {start = [32], limit = [64], stride = [1]} : f32[32] %f = logistic %f0 : f32[32]
             %g0 = slice %z {start = [64], limit = [96], stride = [1]} : f32[32] %g = tanh %g0 : f32[32]
             %o0 = slice %z {start = [96], limit = [128], stride = [1]} : f32[32] %o = logistic %o0 : f32[32]
             %p = mul %f, %t : f32[32] %q = mul %i, %g : f32[32] %n = add %p, %q : f32[32]
             %m = tanh %n : f32[32] %r = mul %o, %m : f32[32] yield %r, %n, %r }
           return %ys }",
        &[0, 1, 2, 3, 4],
    );
    let merged = keeps_bits(&g, 0).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(count(&merged, Op::Scan), 2, "{merged}");
    assert_eq!(count(&merged, Op::Adjoint), 0, "{merged}");
    // Two products on the way forward; two for the cotangents and two for the weights on the way back.
    assert_eq!(count(&merged, Op::DotGeneral), 6, "{merged}");
    // Both carries and the four gates are stacked; what follows from them elementwise is computed again.
    let loops = loop_residuals(&g, StackGoal::Time).expect("is known");
    assert_eq!(loops[0].bytes_per_step(), 6 * 32 * 4, "{}", loops[0]);
}

#[test]
fn residuals_have_a_text() {
    let g = reversed_in(include_str!("../../filetests/grad/scan.ir"), &[0, 1, 2]);
    let loops = loop_residuals(&g, StackGoal::Time).expect("is known");
    let text: String = loops.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        "adjoint: 3 steps, 8 bytes a step, 24 bytes\n  invariant %w: f32[2]\n  carry: f32[2], 24 bytes\n  \
         recomputed sub: f32[2]\n"
    );
}
