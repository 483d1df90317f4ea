//! Loops over scalars, which are one function each, and contractions of few products, which are sweeps.

use super::agrees;
use super::dots::made;
use crate::common::random::inputs;
use adfuse::autodiff::value_and_grad;
use adfuse::backends::Array;
use adfuse::fusion::Fp;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Literal, Module};

/// Loops with `T` for the type of the numbers, and what becomes of each step: a `while`, elements and stacks in both directions,
/// positions of other types and from other numbers on, constants, and numbers that are no numbers.
const LOOPS: [&str; 6] = [
    "func @newton(%a: T[], %x: T[]) -> (i32[], T[]) {
       %p = abs %a : T[]
       %n, %r = while 0, %x {max_trips = 50} : i32[], T[] cond(%i: i32[], %c: T[]) {
         %more = lt %i, 20 : bool[]
         %far = ne %c, 0.5 : bool[]
         %both = and %more, %far : bool[]
         yield %both
       } body(%j: i32[], %d: T[]) {
         %q = div %p, %d : T[]
         %s = add %q, %d : T[]
         %y = mul %s, 0.5 : T[]
         %k = add %j, 1 : i32[]
         yield %k, %y
       }
       return %n, %r
     }",
    "func @reversed(%h: T[], %xs: T[37], %w: T[]) -> (T[], T[37], T[37]) {
       %0, %1, %2 = scan %h, %xs {carry = 1, reverse = true} : T[], T[37], T[37] body(%c: T[], %x: T[]) {
         %p = mul %c, %w : T[]
         %s = add %p, %x : T[]
         %t = tanh %s : T[]
         yield %t, %c, %s
       }
       return %0, %1, %2
     }",
    "func @positions(%a: i32[], %x: T[]) -> T[] {
       %from = rem %a, 5 : i32[]
       %to = add %from, 9 : i32[]
       %0 = fori %from, %to, %x : T[] body(%i: i32[], %c: T[]) {
         %k = convert_element_type %i : T[]
         %s = sin %k : T[]
         %1 = sub %c, %s : T[]
         yield %1
       }
       return %0
     }",
    "func @none(%n: i64[], %x: T[]) -> T[] {
       %m = neg %n : i64[]
       %l = min %m, %n : i64[]
       %0 = fori 1, %l, %x : T[] body(%i: i64[], %c: T[]) {
         %1 = add %c, %c : T[]
         yield %1
       }
       return %0
     }",
    "func @numbers(%x: T[], %xs: T[9]) -> (T[], bool[], T[9]) {
       %0, %1, %2 = scan %x, true, %xs {carry = 2} : T[], bool[], T[9] body(%c: T[], %p: bool[], %d: T[]) {
         %z = sub %c, %c : T[]
         %q = div %d, %z : T[]
         %r = sub %q, %q : T[]
         %g = gt %d, %c : bool[]
         %b = select_n %p, %q, %r : T[]
         %n = max %b, %d : T[]
         yield %d, %g, %n
       }
       return %0, %1, %2
     }",
    "func @swapped(%x: T[], %y: T[]) -> (T[], T[]) {
       %0, %1 = scan %x, %y {carry = 2, length = 7} : T[], T[] body(%a: T[], %b: T[]) {
         yield %b, %a
       }
       return %0, %1
     }",
];

fn function(text: &str, of: &str) -> (Module, Function) {
    let text = text.replace("T[", &format!("{of}["));
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function").clone();
    (module, f)
}

#[test]
fn loops_over_scalars_have_the_bits_of_the_evaluator() {
    for (text, of) in LOOPS.iter().flat_map(|p| ["f32", "f64"].map(|of| (p, of))) {
        let (module, f) = function(text, of);
        for domain in [Domain::Normal, Domain::Small, Domain::Ints(-3, 4)] {
            let args = inputs(&f, &[domain]);
            agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{} of {of}: {why}", f.name));
        }
        let steps = made(&f, Fp::Strict, 1).steps().to_vec();
        let own = steps.iter().filter(|s| s.notes.iter().any(|n| n.contains("in one function")));
        assert_eq!(own.count(), 1, "{}: {steps:?}", f.name);
    }
}

#[test]
fn gradients_of_loops_over_scalars_have_them_too() {
    for of in ["f32", "f64"] {
        let (module, f) = function(
            "func @chain(%h: T[], %xs: T[100], %w: T[]) -> T[] {
               %0 = scan %h, %xs {carry = 1} : T[] body(%c: T[], %x: T[]) {
                 %p = mul %c, %w : T[]
                 %s = add %p, %x : T[]
                 %t = tanh %s : T[]
                 yield %t
               }
               return %0
             }",
            of,
        );
        let f = value_and_grad(&module, &f, &[0, 1, 2]).expect("a gradient");
        let module = Module::single(f.clone());
        agrees(&module, &f, &inputs(&f, &[Domain::Normal])).expect("the evaluator's bits");
    }
}

#[test]
fn a_loop_that_does_not_end_in_time_is_an_error() {
    let text = "func @late(%x: T[]) -> T[] {
      %0 = while %x {max_trips = 5} : T[] cond(%c: T[]) {
        %p = le %c, 0.0 : bool[]
        yield %p
      } body(%d: T[]) {
        %1 = add %d, 1.0 : T[]
        yield %1
      }
      return %0
    }";
    let made = made(&function(text, "f64").1, Fp::Strict, 1);
    let run = |x: f64| made.run(&[Array::scalar(Literal::from_f64(DType::F64, x))]);
    let one = Array::scalar(Literal::from_f64(DType::F64, 1.0));
    assert_eq!(run(-4.0).expect("takes five steps"), [one]);
    let refused = run(-5.0).expect_err("takes six");
    assert_eq!(refused.kind, Kind::Limit, "{refused}");
    assert!(refused.to_string().contains("loop @while"), "{refused}");
}

/// Extents of batch, rows, columns and depth.
const SIZES: [[u64; 4]; 9] = [
    [1, 1, 1, 1],
    [1, 14, 1, 14],
    [1, 1, 14, 14],
    [3, 2, 3, 4],
    [1, 16, 16, 16],
    [1, 17, 33, 1],
    [2, 1, 5, 32],
    [1, 1, 300, 64],
    [40, 3, 3, 3],
];

#[test]
fn contractions_of_few_products_are_sweeps_of_the_same_bits() {
    for ([batch, rows, cols, depth], of) in
        SIZES.into_iter().flat_map(|size| ["f32", "f64"].map(|of| (size, of)))
    {
        for turned in [false, true] {
            let (x, y) = match turned {
                false => ([batch, rows, depth], [batch, depth, cols]),
                true => ([batch, depth, rows], [batch, cols, depth]),
            };
            let (a, b) = if turned { (1, 2) } else { (2, 1) };
            let text = format!(
                "func @few(%x: T{x:?}, %y: T{y:?}, %b: T[{cols}]) -> T[{batch},{rows},{cols}] {{
                   %z = dot_general %x, %y {{batch = [0] x [0], contract = [{a}] x [{b}]}} : T[{batch},{rows},{cols}]
                   %w = broadcast_in_dim %b {{dims = [2]}} : T[{batch},{rows},{cols}]
                   %s = add %z, %w : T[{batch},{rows},{cols}]
                   %t = tanh %s : T[{batch},{rows},{cols}]
                   return %t
                 }}"
            );
            let (module, f) = function(&text, of);
            let args = inputs(&f, &[Domain::Normal]);
            agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{text}: {why}"));
            let steps = made(&f, Fp::Strict, 1).steps().to_vec();
            let in_sweeps =
                |s: &adfuse::backends::StepReport| s.notes.iter().any(|n| n.ends_with("by sweeps"));
            assert!(steps.iter().any(in_sweeps), "{text}: {steps:?}");
            let (module, f) = summed(&text, of);
            let f = value_and_grad(&module, &f, &[0, 1, 2]).expect("a gradient");
            agrees(&Module::single(f.clone()), &f, &args).expect("the evaluator's bits");
        }
    }
}

/// The sum of what such a function returns.
fn summed(text: &str, of: &str) -> (Module, Function) {
    let (head, rest) = text.split_once("->").expect("a result");
    let (_, body) = rest.split_once('{').expect("a body");
    let sum = "%r = reduce_sum %t {axes = [0, 1, 2]} : T[]\n return %r";
    function(&format!("{head} -> T[] {{ {}", body.replace("return %t", sum)), of)
}
