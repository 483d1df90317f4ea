//! Loops that are merged, and loops that are not.

use super::*;

/// A program, its `scan`s and `fori`s once loops are merged, and the carries of all of them.
struct MergeCase {
    text: &'static str,
    loops: [usize; 2],
    carries: i64,
}

const CASES: &[MergeCase] = &[
    // The same carry, other stacks.
    MergeCase {
        text: "func @f(%h: f32[2], %xs: f32[4,2]) -> (f32[2], f32[4,2], f32[4,2]) {
           %c, %ys = scan %h, %xs {carry = 1} : f32[2], f32[4,2] body(%s: f32[2], %x: f32[2]) { %n = add %s, %x : f32[2] yield %n, %s }
           %d, %zs = scan %h, %xs {carry = 1} : f32[2], f32[4,2] body(%t: f32[2], %y: f32[2]) { %m = add %t, %y : f32[2] %e = exp %m : f32[2] yield %m, %e }
           %r = add %c, %d : f32[2] return %r, %ys, %zs }",
        loops: [1, 0],
        carries: 1,
    },
    // One carry in common of two, in another order, and an operand that is computed between the two.
    MergeCase {
        text: "func @f(%h: f32[2], %xs: f32[4,2]) -> (f32[2], f32[2], f32[2]) {
           %c, %d = scan %h, 0.0, %xs {carry = 2} : f32[2], f32[2] body(%s: f32[2], %a: f32[2], %x: f32[2]) {
             %n = mul %s, %x : f32[2] %b = add %a, %s : f32[2] yield %n, %b }
           %zs = exp %xs : f32[4,2]
           %e, %g = scan 1.0, %h, %zs, %xs {carry = 2} : f32[2], f32[2] body(%a: f32[2], %s: f32[2], %z: f32[2], %x: f32[2]) {
             %n = mul %s, %x : f32[2] %p = mul %z, %s : f32[2] %b = add %a, %p : f32[2] yield %b, %n }
           %r = add %c, %g : f32[2] return %r, %d, %e }",
        loops: [1, 0],
        carries: 3,
    },
    // Carries that are equal only together: each is the next of the other.
    MergeCase {
        text: "func @f(%h: f32[2], %g: f32[2]) -> (f32[2], f32[2]) {
           %a, %b, %c, %d = scan %h, %g, %h, %g {carry = 4, length = 5} : f32[2], f32[2], f32[2], f32[2]
             body(%p: f32[2], %q: f32[2], %r: f32[2], %s: f32[2]) {
               %n = mul %p, %s : f32[2] %m = mul %r, %q : f32[2] yield %q, %n, %s, %m }
           %x = add %a, %c : f32[2] %y = add %b, %d : f32[2] return %x, %y }",
        loops: [1, 0],
        carries: 2,
    },
    // They begin equal and part.
    MergeCase {
        text: "func @f(%h: f32[2]) -> (f32[2], f32[2]) {
           %a, %b = scan %h, %h {carry = 2, length = 5} : f32[2], f32[2] body(%p: f32[2], %q: f32[2]) {
             %n = mul %p, %p : f32[2] %m = add %q, %p : f32[2] yield %n, %m }
           return %a, %b }",
        loops: [1, 0],
        carries: 2,
    },
    // They stay equal for a step, until what they read parts.
    MergeCase {
        text: "func @f(%h: f32[2], %g: f32[2]) -> (f32[2], f32[2], f32[2], f32[2]) {
           %a, %b, %c, %d = scan %h, %h, %g, %g {carry = 4, length = 5} : f32[2], f32[2], f32[2], f32[2]
             body(%p: f32[2], %q: f32[2], %r: f32[2], %s: f32[2]) {
               %n = mul %p, %p : f32[2] %m = add %q, %p : f32[2] %o = add %r, %p : f32[2] %t = add %s, %q : f32[2]
               yield %n, %m, %o, %t }
           return %a, %b, %c, %d }",
        loops: [1, 0],
        carries: 4,
    },
    // A carry that never changes, one that nothing reads, and one that only another of that kind reads.
    MergeCase {
        text: "func @f(%h: f32[2], %w: f32[2]) -> (f32[2], f32[2]) {
           %a, %b, %c, %d = scan %h, %w, %h, 1.0 {carry = 4, length = 5} : f32[2], f32[2], f32[2], f32[2]
             body(%p: f32[2], %q: f32[2], %r: f32[2], %s: f32[2]) {
               %n = mul %p, %q : f32[2] %m = add %r, %s : f32[2] %o = exp %s : f32[2] yield %n, %q, %m, %o }
           return %a, %b }",
        loops: [1, 0],
        carries: 1,
    },
    // Maps without a carry, which compute something in common, and one that does not.
    MergeCase {
        text: "func @f(%xs: f32[4,2]) -> (f32[4,2], f32[4,2], f32[4,2]) {
           %a = scan %xs {carry = 0} : f32[4,2] body(%x: f32[2]) { %e = exp %x : f32[2] yield %e }
           %b = scan %xs {carry = 0} : f32[4,2] body(%x: f32[2]) { %e = exp %x : f32[2] %d = mul %e, %x : f32[2] yield %d }
           %c = scan %xs {carry = 0} : f32[4,2] body(%x: f32[2]) { %e = sin %x : f32[2] yield %e }
           return %a, %b, %c }",
        loops: [2, 0],
        carries: 0,
    },
    // A loop between constants and a scan over positions.
    MergeCase {
        text: "func @f(%h: f32[2]) -> (f32[2], f32[4,2]) {
           %a = fori 0, 4, %h : f32[2] body(%i: i64[], %s: f32[2]) {
             %k = convert_element_type %i : f32[] %j = broadcast_in_dim %k {dims = []} : f32[2] %n = add %s, %j : f32[2] yield %n }
           %is = iota {axis = 0} : i64[4]
           %b, %ys = scan %h, %is {carry = 1} : f32[2], f32[4,2] body(%s: f32[2], %i: i64[]) {
             %k = convert_element_type %i : f32[] %j = broadcast_in_dim %k {dims = []} : f32[2] %n = add %s, %j : f32[2] yield %n, %s }
           %r = add %a, %b : f32[2] return %r, %ys }",
        loops: [1, 0],
        carries: 1,
    },
    // A loop between constants that has no partner stays one.
    MergeCase {
        text: "func @f(%h: f32[2]) -> f32[2] {
           %a = fori 0, 4, %h : f32[2] body(%i: i64[], %s: f32[2]) { %n = sin %s : f32[2] yield %n }
           return %a }",
        loops: [0, 1],
        carries: 0,
    },
    // The second reads what the first ends with; scans it; in other directions; of other lengths; nothing in common.
    MergeCase {
        text: "func @f(%h: f32[2], %xs: f32[4,2]) -> f32[4,2] {
           %c = scan %h, %xs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[2]) { %n = mul %s, %x : f32[2] yield %n }
           %e = exp %c : f32[2]
           %d, %ys = scan %h, %xs {carry = 1} : f32[2], f32[4,2] body(%s: f32[2], %x: f32[2]) { %n = mul %s, %x : f32[2] %y = mul %n, %e : f32[2] yield %n, %y }
           return %ys }",
        loops: [2, 0],
        carries: 2,
    },
    MergeCase {
        text: "func @f(%h: f32[2], %xs: f32[4,2]) -> f32[2] {
           %c = scan %h, %xs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[2]) { %n = mul %s, %x : f32[2] yield %n }
           %zs = broadcast_in_dim %c {dims = [1]} : f32[4,2]
           %d = scan %h, %xs, %zs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[2], %z: f32[2]) { %n = mul %s, %x : f32[2] %m = mul %n, %z : f32[2] yield %m }
           return %d }",
        loops: [2, 0],
        carries: 2,
    },
    MergeCase {
        text: "func @f(%h: f32[2], %xs: f32[4,2]) -> (f32[2], f32[2]) {
           %c = scan %h, %xs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[2]) { %n = mul %s, %x : f32[2] yield %n }
           %d = scan %h, %xs {carry = 1, reverse = true} : f32[2] body(%s: f32[2], %x: f32[2]) { %n = mul %s, %x : f32[2] yield %n }
           return %c, %d }",
        loops: [2, 0],
        carries: 2,
    },
    MergeCase {
        text: "func @f(%h: f32[2]) -> (f32[2], f32[2], f32[2]) {
           %c = scan %h {carry = 1, length = 3} : f32[2] body(%s: f32[2]) { %n = sin %s : f32[2] yield %n }
           %d = scan %h {carry = 1, length = 4} : f32[2] body(%s: f32[2]) { %n = sin %s : f32[2] yield %n }
           %e = scan %h {carry = 1, length = 4} : f32[2] body(%s: f32[2]) { %n = cos %s : f32[2] yield %n }
           return %c, %d, %e }",
        loops: [3, 0],
        carries: 3,
    },
    // What does not change is computed before the loop; a stack of it is a broadcast.
    MergeCase {
        text: "func @f(%h: f32[2], %w: f32[2]) -> (f32[2], f32[4,2]) {
           %a, %ys = scan %h {carry = 1} : f32[2], f32[4,2] body(%s: f32[2]) {
             %e = exp %w : f32[2] %n = mul %s, %e : f32[2] yield %n, %e }
           %b = scan %h {carry = 1, length = 4} : f32[2] body(%s: f32[2]) {
             %e = exp %w : f32[2] %n = mul %s, %e : f32[2] yield %n }
           %r = add %a, %b : f32[2] return %r, %ys }",
        loops: [1, 0],
        carries: 1,
    },
    // Loops in loops: the outer ones first, then what they have in common inside.
    MergeCase {
        text: "func @f(%h: f32[2], %xs: f32[4,3,2]) -> (f32[2], f32[4,3,2]) {
           %a = scan %h, %xs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[3,2]) {
             %c = scan %s, %x {carry = 1} : f32[2] body(%t: f32[2], %y: f32[2]) { %n = mul %t, %y : f32[2] yield %n } yield %c }
           %b, %zs = scan %h, %xs {carry = 1} : f32[2], f32[4,3,2] body(%s: f32[2], %x: f32[3,2]) {
             %c, %ys = scan %s, %x {carry = 1} : f32[2], f32[3,2] body(%t: f32[2], %y: f32[2]) { %n = mul %t, %y : f32[2] yield %n, %t } yield %c, %ys }
           %r = add %a, %b : f32[2] return %r, %zs }",
        loops: [2, 0],
        carries: 2,
    },
    // Equal loops are one, and so are the branches around them.
    MergeCase {
        text: "func @f(%h: f32[2], %p: bool[]) -> f32[2] {
           %a = cond %p : f32[2] then { %c = scan %h {carry = 1, length = 3} : f32[2] body(%s: f32[2]) { %n = sin %s : f32[2] yield %n } yield %c } else { yield %h }
           %b = cond %p : f32[2] then { %c = scan %h {carry = 1, length = 3} : f32[2] body(%t: f32[2]) { %n = sin %t : f32[2] yield %n } yield %c } else { yield %h }
           %r = add %a, %b : f32[2] return %r }",
        loops: [1, 0],
        carries: 1,
    },
    // Of no steps.
    MergeCase {
        text: "func @f(%h: f32[2], %w: f32[2], %xs: f32[0,2]) -> (f32[2], f32[2], f32[0,2]) {
           %c, %d, %ys = scan %h, %w, %xs {carry = 2} : f32[2], f32[2], f32[0,2] body(%s: f32[2], %v: f32[2], %x: f32[2]) {
             %n = mul %s, %v : f32[2] yield %n, %v, %v }
           return %c, %d, %ys }",
        loops: [1, 0],
        carries: 1,
    },
];

#[test]
fn loops_with_a_carry_in_common_are_one() {
    for (n, case) in CASES.iter().enumerate() {
        let (module, f) = program(case.text);
        let f = prepared(&module, &f);
        let g = merge_loops(&f).unwrap_or_else(|e| panic!("case {n}: {e}"));
        let mut carries = 0;
        g.walk(&mut |g, i| {
            if g.op(i) == Op::Scan {
                carries += g.attrs(i).int("carry");
            }
        });
        assert_eq!([count(&g, Op::Scan), count(&g, Op::Fori)], case.loops, "case {n}\n{g}");
        assert_eq!(carries, case.carries, "case {n}\n{g}");
        for k in 0..2 {
            keeps_bits(&f, k).unwrap_or_else(|e| panic!("case {n}: {e}"));
        }
    }
}

/// What does not change is computed before the loop, from inner loops too; views of it stay where they are read.
#[test]
fn invariants_are_computed_before_loops() {
    let (module, f) = program(
        "func @f(%h: f32[2], %w: f32[]) -> f32[2] {
           %a = scan %h {carry = 1, length = 4} : f32[2] body(%s: f32[2]) {
             %k = sin %s : f32[2]
             %c = scan %s {carry = 1, length = 3} : f32[2] body(%t: f32[2]) {
               %e = exp %w : f32[] %d = broadcast_in_dim %e {dims = []} : f32[2]
               %l = exp %k : f32[2] %n = mul %t, %d : f32[2] %m = mul %n, %l : f32[2] yield %m }
             yield %c }
           return %a }",
    );
    let f = prepared(&module, &f);
    let g = keeps_bits(&f, 0).unwrap_or_else(|e| panic!("{e}"));
    let within = |depth: usize| -> Vec<Op> {
        let mut at = g.body();
        for _ in 0..depth {
            let inner = g.region(at).insts.iter().find(|&&i| g.op(i) == Op::Scan);
            at = g.inst(*inner.expect("a loop")).regions[0];
        }
        g.region(at).insts.iter().map(|&i| g.op(i)).collect()
    };
    assert_eq!(within(0), [Op::Exp, Op::Scan], "{g}");
    assert_eq!(within(1), [Op::Sin, Op::Exp, Op::Scan], "{g}");
    assert_eq!(within(2), [Op::BroadcastInDim, Op::Mul, Op::Mul], "{g}");
}

/// Effects stay, in their order and as often.
#[test]
fn loops_with_effects_stay() {
    let module = parse(include_str!("../../filetests/run/loops.ir")).expect("parses");
    let f = module.find("printed").expect("is there");
    let g = merge_loops(f).expect("is copied");
    assert_eq!(g.to_string(), f.to_string());
}

/// A loop over a symbol is not stacked, and its carries are merged where extents of elements are symbols.
#[test]
fn symbols_stay() {
    let (module, f) = program(
        "func @f<n>(%h: f32[n], %xs: f32[n,2], %ws: f32[3,n]) -> (f32[n], f32[2]) {
           %a, %b = scan %h, %h, %ws {carry = 2} : f32[n], f32[n] body(%s: f32[n], %t: f32[n], %w: f32[n]) {
             %p = mul %s, %w : f32[n] %q = mul %t, %w : f32[n] yield %p, %q }
           %c = scan 1.0, %xs {carry = 1} : f32[2] body(%s: f32[2], %x: f32[2]) { %p = mul %s, %x : f32[2] yield %p }
           %r = add %a, %b : f32[n] return %r, %c }",
    );
    let g = reversed(&module, &f);
    assert_eq!(loop_residuals(&g, StackGoal::Time).expect("is looked at"), []);
    let stacked = stack_residuals(&g, &|_| Some(StackGoal::Time)).expect("is copied");
    assert_eq!(count(&stacked, Op::Adjoint), 2, "{stacked}");
    let merged = merge_loops(&stacked).expect("merges");
    verify(&Module::single(merged.clone())).unwrap_or_else(|e| panic!("{}\n{merged}", e[0]));
    assert!(merged.to_string().contains("scan %h, %ws {carry = 1}"), "{merged}");
}
