//! Which residuals are stacked: the known failures of others, each with the classes and the bytes.

use super::*;

/// The text of a program, the parameters it is differentiated in, the residuals of its loops, and their bytes.
struct ResidualCase {
    text: &'static str,
    wrt: &'static [usize],
    residuals: &'static [&'static str],
    bytes: u64,
}

const CASES: &[ResidualCase] = &[
    // A carry that never changes, and a capture, are read where they are: not a stack of as many as there are steps.
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
        residuals: &[],
        bytes: 1,
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
        residuals: &[],
        bytes: 1,
    },
    ResidualCase {
        text: "func @f(%h: f32[256], %w: f32[256,256], %xs: f32[5,3,256]) -> f32[256] {
           %r = scan %h, %xs {carry = 1} : f32[256] body(%s: f32[256], %x: f32[3,256]) {
             %c = scan %s, %x {carry = 1} : f32[256] body(%t: f32[256], %y: f32[256]) {
               %a = dot_general %w, %t {contract = [1] x [0]} : f32[256] %b = add %a, %y : f32[256] %n = tanh %b : f32[256] yield %n }
             yield %c }
           return %r }",
        wrt: &[0, 1],
        residuals: &[],
        bytes: 1,
    },
    // What the loop gives anyway is no stack of its own.
    ResidualCase {
        text: "func @f(%h: f32[64], %w: f32[64,64]) -> (f32[64], f32[16,64]) {
           %r, %ys = scan %h {carry = 1, length = 16} : f32[64], f32[16,64] body(%s: f32[64]) {
             %a = dot_general %w, %s {contract = [1] x [0]} : f32[64] %n = tanh %a : f32[64] yield %n, %n }
           return %r, %ys }",
        wrt: &[0],
        residuals: &[],
        bytes: 1,
    },
];

fn classes(loops: &[LoopResiduals]) -> Vec<String> {
    loops.iter().flat_map(|l| &l.residuals).map(|r| format!("{} {}", r.class, r.ty)).collect()
}

#[test]
fn residuals_are_in_their_classes() {
    for (n, case) in CASES.iter().enumerate() {
        let (module, f) = program(case.text);
        let g = vjp(&module, &f, case.wrt).expect("reverses");
        let g = prepared(&Module::single(g.clone()), &g);
        let loops = loop_residuals(&g).expect("is known");
        let bytes: u64 = loops.iter().map(LoopResiduals::bytes).sum();
        println!("{n}: {:?} {bytes}", classes(&loops));
        let r = keeps_bits(&g, 0).unwrap_or_else(|e| panic!("{n}: {e}"));
        if n > 4 {
            println!("{r}");
        }
    }
}
