//! Loops and branches in programs of kernels: the CPU engine gives the bits of the kernel evaluator, at any number of
//! threads and checkpoints, and what both give is what a loop of this file computes.

use crate::common::kernels::{block_files, numbers};
use adfuse::backends::cpu::{ArenaLayout, CpuExecutable, CpuOptions, peak, scratch};
use adfuse::backends::reference::kernel;
use adfuse::backends::reference::kernel::NoFunctions;
use adfuse::backends::{Array, RunLimits};
use adfuse::engine::arena_layout;
use adfuse::fusion::{Effort, Fp, memory_beside};
use adfuse::ir::kernel::text::parse;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::{DType, Kind};
use adfuse::sample::{rng, sample};

/// A kernel without stages' axes that stores an expression of what it loads.
fn kernel_of(name: &str, dims: &str, loads: &[&str], scalars: &str, to: &str) -> String {
    let loads: Vec<String> =
        loads.iter().enumerate().map(|(k, load)| format!("p{k} = load {load}")).collect();
    format!("kernel @{name} {dims} {{ stage [] {{ {} {scalars} {to} }} }}", loads.join(" "))
}

/// `%n = %h * %w + %x`, elementwise over `n` elements.
fn fma(n: usize) -> String {
    kernel_of(
        "fma",
        &format!("[{n}]"),
        &["%h[d0]", "%w[d0]", "%x[d0]"],
        "s0 = param.f32 0 s1 = param.f32 1 s2 = param.f32 2 s3 = mul.f32 s0 s1 s4 = add.f32 s3 s2",
        "%n[d0] = store s4",
    )
}

pub(super) fn program(text: &str) -> Verified<Program> {
    let program = parse(text).unwrap_or_else(|d| panic!("{d}\n{text}"));
    let printed = program.to_string();
    let again = parse(&printed).unwrap_or_else(|d| panic!("{d}\n{printed}"));
    assert_eq!(again, program, "{printed}");
    assert_eq!(again.to_string(), printed);
    verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

pub(super) fn laid_out(program: &Verified<Program>) -> ArenaLayout {
    let beside = scratch(program).unwrap_or_else(|d| panic!("{d}"));
    let plan = memory_beside(program, Effort::Default, &beside);
    arena_layout(&plan.unwrap_or_else(|d| panic!("{d}")))
}

pub(super) fn options(threads: usize) -> CpuOptions {
    CpuOptions { threads, fp: Fp::Strict, ..CpuOptions::default() }
}

/// Runs a program on the evaluator and on the engine, twice each time: what an earlier run left is not seen.
pub(super) fn agrees(name: &str, program: &Verified<Program>, args: &[Array]) -> Vec<Array> {
    let expected = kernel::run(program, args).unwrap_or_else(|d| panic!("{name}: {d}"));
    for (threads, layout) in
        [(1, laid_out(program)), (3, laid_out(program)), (1, ArenaLayout::default())]
    {
        let made = CpuExecutable::compile(program, &layout, options(threads));
        let made = made.unwrap_or_else(|d| panic!("{name}: {d}"));
        assert_eq!(made.memory().peak(), peak(program, &layout).expect("counted"), "{name}");
        for _ in 0..2 {
            let found = made.run(args).unwrap_or_else(|d| panic!("{name}: {d}"));
            assert_eq!(found, expected, "{name}, {threads} threads\n{}", **program);
        }
    }
    expected
}

pub(super) fn arguments(program: &Program) -> Vec<Array> {
    let mut rng = rng(7, 0);
    let types = program.inputs().filter_map(|b| program.buffers[b].ty());
    types.map(|t| sample(&t, Domain::Normal, &mut rng).expect("small")).collect()
}

/// A program with a scan over `n` steps of `each` elements.
pub(super) fn scan(n: usize, each: usize, more: &str, back: &str) -> String {
    let fma = fma(each);
    let returned = match back.is_empty() {
        true => ("", ""),
        false => ("output %g: f32[EACH] output %z: f32[N, EACH]", ", %g, %z"),
    };
    format!(
        "program @scan {{
           input %h0: f32[EACH] input %xs: f32[N, EACH] input %w: f32[EACH]
           output %h: f32[EACH] output %ys: f32[N, EACH] {}
           loop @scan {{
             trips N {more} carry %h = %h0 stack %ys
             step (carry 0, element %xs, whole %w) program @step {{
               input %h: f32[EACH] input %x: f32[EACH] input %w: f32[EACH] output %n: f32[EACH]
               {fma} return %n, %h
             }}
             {back}
           }}
           return %h, %ys{}
         }}",
        returned.0, returned.1
    )
    .replace("EACH", &each.to_string())
    .replace('N', &n.to_string())
}

/// The way back of [`scan`], which has the derivative of its step.
pub(super) fn way_back(each: usize, checkpoints: u64) -> String {
    let mul = kernel_of(
        "mul",
        &format!("[{each}]"),
        &["%g[d0]", "%w[d0]", "%h[d0]"],
        "s0 = param.f32 0 s1 = param.f32 1 s2 = param.f32 2 s3 = mul.f32 s0 s1 s4 = mul.f32 s0 s2",
        "%n[d0] = store s3 %z[d0] = store s4",
    );
    format!(
        "back checkpoints {checkpoints} {{
           carry %g = f32(1.0) stack %z
           step (carry 0, returned 0, whole %w) program @back {{
             input %h: f32[{each}] input %g: f32[{each}] input %w: f32[{each}]
             output %n: f32[{each}] output %z: f32[{each}]
             {mul} return %n, %z
           }}
         }}"
    )
}

#[test]
fn scans_are_loops() {
    for (n, each) in [(0, 3), (1, 3), (2, 5), (7, 40), (33, 1), (4, 0), (3, 70_000)] {
        for reverse in [false, true] {
            let program = program(&scan(n, each, if reverse { "reverse" } else { "" }, ""));
            let args = arguments(&program);
            let found = agrees(&format!("{n} steps of {each}"), &program, &args);
            let values = |a: &Array| -> Vec<f32> { a.iter().map(|l| l.to_f64() as f32).collect() };
            let [mut h, xs, w] = [&args[0], &args[1], &args[2]].map(values);
            let mut ys = vec![0.0; n * each];
            for t in 0..n {
                let p = if reverse { n - 1 - t } else { t };
                for k in 0..each {
                    ys[p * each + k] = h[k];
                    h[k] = h[k] * w[k] + xs[p * each + k];
                }
            }
            assert_eq!((values(&found[0]), values(&found[1])), (h, ys), "{n} steps of {each}");
        }
    }
}

#[test]
fn checkpoints_change_no_bit() {
    for (n, each) in [(0, 3), (1, 3), (2, 3), (9, 20), (50, 2)] {
        for more in ["", "reverse"] {
            let mut expected = None;
            for checkpoints in [1, 2, 3, 7, n as u64 + 1, 1 << 40] {
                let program = program(&scan(n, each, more, &way_back(each, checkpoints)));
                let args = arguments(&program);
                let name = format!("{n} steps, {checkpoints} checkpoints");
                let found = agrees(&name, &program, &args);
                // The gradient of the sum of what is carried at the end.
                let w: Vec<f32> = args[2].iter().map(|l| l.to_f64() as f32).collect();
                let g: Vec<f32> = w.iter().map(|w| (0..n).fold(1.0, |g, _| g * w)).collect();
                let result: Vec<f32> = found[2].iter().map(|l| l.to_f64() as f32).collect();
                assert_eq!(result, g, "{name}");
                assert_eq!(*expected.get_or_insert(found.clone()), found, "{name}");
            }
        }
    }
}

/// Programs by name, with the values of their inputs by `normal` samples.
pub(super) fn table() -> Vec<(&'static str, String)> {
    let add = |d: &str, one: &str| {
        let scalars = format!("s0 = param.{d} 0 s1 = const.{d} {one} s2 = add.{d} s0 s1");
        kernel_of("add", "[]", &["%a[]"], &scalars, "%n[] = store s2")
    };
    let [one, half] = [add("i32", "1"), add("f64", "0.5")];
    vec![
        ("places are swapped", format!(
            "program @f {{ input %x: f64[] input %y: f64[] output %a: f64[] output %b: f64[] output %c: f64[]
             loop @swap {{ trips 7 carry %a = %x carry %b = %y carry %c = f64(2.0)
               step (carry 0, carry 1, carry 2) program @step {{
                 input %a: f64[] input %b: f64[] input %c: f64[] output %n: f64[] {half}
                 return %b, %c, %n }} }}
             return %a, %b, %c }}")),
        ("outputs are inputs, constants and others again",
            "program @f { input %x: f32[3] input %es: f32[4, 3]
               output %a: f32[3] output %b: f32[3] output %s: f32[4, 3] output %t: f32[4, 3] output %u: f32[4, 3]
             loop @same { trips 4 reverse carry %a = %x carry %b = f32(-1.0) stack %s stack %t stack %u
               step (carry 0, carry 1, element %es, whole %x) program @step {
                 input %a: f32[3] input %b: f32[3] input %e: f32[3] input %x: f32[3]
                 constant %c: f32[3] = [1.0, 2.0, 3.0] output %n: f32[3]
                 kernel @add [3] { stage [] { p0 = load %a[d0] p1 = load %c[d0]
                   s0 = param.f32 0 s1 = param.f32 1 s2 = add.f32 s0 s1 %n[d0] = store s2 } }
                 return %n, %e, %n, %c, %x } }
             return %a, %b, %s, %t, %u }".into()),
        ("bits are stacked and read",
            "program @f { input %xs: i32[5, 4, 8] output %ys: i32[5, 4, 8] output %m: i32[4, 8]
               temp %n: i32[4, 8] as u4 temp %bits: bool[5, 4, 8] as b1 temp %low: i32[5, 4, 8] as u4
             loop @pack { trips 5 carry %n = i32(-3) stack %bits stack %low
               step (element %xs, carry 0) program @step {
                 input %x: i32[4, 8] input %c: i32[4, 8] as u4 output %b: bool[4, 8] as b1 output %l: i32[4, 8] as u4
                 output %n: i32[4, 8] as u4
                 kernel @pack [4, 8] { stage [] { p0 = load %x[d0, d1] p1 = load %c[d0, d1]
                   s0 = param.i32 0 s1 = const.i32 0 s2 = gt.bool s0 s1 s3 = param.i32 1 s4 = add.i32 s3 s0
                   %b[d0, d1] = store s2 %l[d0, d1] = store s0 %n[d0, d1] = store s4 } }
                 return %n, %b, %l } }
             loop @unpack { trips 5 stack %ys
               step (element %bits, element %low) program @step {
                 input %b: bool[4, 8] as b1 input %l: i32[4, 8] as u4 output %y: i32[4, 8]
                 kernel @unpack [4, 8] { stage [] { p0 = load %b[d0, d1] p1 = load %l[d0, d1]
                   s0 = param.bool 0 s1 = param.i32 1 s2 = const.i32 -1 s3 = select.i32 s0 s1 s2
                   %y[d0, d1] = store s3 } }
                 return %y } }
             kernel @out [4, 8] { stage [] { p0 = load %n[d0, d1] s0 = param.i32 0 %m[d0, d1] = store s0 } }
             return %ys, %m }".into()),
        ("strides are carried",
            "program @f { input %x: f32[3, 4] output %y: f32[3, 4] temp %s: f32[3, 4] strides [1, 5]
               temp %a: f32[3, 4] strides [1, 5]
             kernel @in [3, 4] { stage [] { p0 = load %x[d0, d1] s0 = param.f32 0 %s[d0, d1] = store s0 } }
             loop @rows { trips 3 carry %a = %s
               step (carry 0) program @step {
                 input %a: f32[3, 4] strides [1, 5] output %n: f32[3, 4] strides [1, 5]
                 kernel @turn [3, 4] { stage [] { p0 = load %a[d0, d1 * -1 + 3] s0 = param.f32 0
                   s1 = const.f32 2.0 s2 = mul.f32 s0 s1 %n[d0, d1] = store s2 } }
                 return %n } }
             kernel @out [3, 4] { stage [] { p0 = load %a[d0, d1] s0 = param.f32 0 %y[d0, d1] = store s0 } }
             return %y }".into()),
        ("loops are in loops and branches", format!(
            "program @f {{ input %x: i32[] input %c: bool[3] output %a: i32[] output %ks: i64[3, 4] output %os: i64[3]
             loop @outer {{ trips 3 carry %a = %x stack %ks stack %os
               step (carry 0, element %c, index) program @outer {{
                 input %a: i32[] input %c: bool[] input %i: i64[]
                 output %n: i32[] output %k: i64[4]
                 branch @choice %c {{ to %n, %k
                   case (whole %a, whole %i) program @then {{
                     input %a: i32[] input %i: i64[] output %n: i32[] output %k: i64[4]
                     loop @inner {{ trips 4 reverse carry %n = %a stack %k
                       step (carry 0, index, whole %i) program @inner {{
                         input %a: i32[] input %j: i64[] input %i: i64[] output %n: i32[] output %k: i64[]
                         {one}
                         kernel @index [] {{ stage [] {{ p0 = load %i[] p1 = load %j[]
                           s0 = param.i64 0 s1 = param.i64 1 s2 = const.i64 10 s3 = mul.i64 s0 s2 s4 = add.i64 s3 s1
                           %k[] = store s4 }} }}
                         return %n, %k }} }}
                     return %n, %k }}
                   case (whole %a) program @else {{
                     input %a: i32[] constant %k: i64[4] = [-1, -2, -3, -4] return %a, %k }} }}
                 return %n, %k, %i }} }}
             return %a, %ks, %os }}")),
        ("ranges, counts, and what they are when there are none", format!(
            "program @f {{ input %x: i32[] output %a: i32[] output %b: i32[] output %c: i32[] output %d: i32[]
               constant %from: i32[] = [-3] constant %to: i32[] = [4] constant %n: i64[] = [5] constant %m: i64[] = [-5]
             loop @range {{ trips %from to %to reverse carry %a = %x
               step (carry 0, index) program @step {{ input %a: i32[] input %i: i32[] output %n: i32[]
                 kernel @mix [] {{ stage [] {{ p0 = load %a[] p1 = load %i[] s0 = param.i32 0 s1 = param.i32 1
                   s2 = const.i32 3 s3 = mul.i32 s0 s2 s4 = add.i32 s3 s1 %n[] = store s4 }} }} return %n }} }}
             loop @none {{ trips %to to %from carry %b = %x
               step (carry 0) program @step {{ input %a: i32[] output %n: i32[] {one} return %n }} }}
             loop @count {{ trips %n carry %c = i32(7)
               step (carry 0) program @step {{ input %a: i32[] output %n: i32[] {one} return %n }}
               back checkpoints 2 {{ carry %d = i32(0) step (carry 0, returned 0) program @back {{
                 input %h: i32[] input %a: i32[] output %n: i32[]
                 kernel @mix [] {{ stage [] {{ p0 = load %a[] p1 = load %h[] s0 = param.i32 0 s1 = param.i32 1
                   s2 = const.i32 3 s3 = mul.i32 s0 s2 s4 = add.i32 s3 s1 %n[] = store s4 }} }} return %n }} }} }}
             return %a, %b, %c, %d }}").replace("constant %m: i64[] = [-5]", "")),
        ("a test holds for a while", format!(
            "program @f {{ input %x: i32[] output %a: i32[] output %b: i32[]
             loop @some {{ while (carry 0) program @test {{ input %a: i32[] output %c: bool[]
                 kernel @less [] {{ stage [] {{ p0 = load %a[] s0 = param.i32 0 s1 = const.i32 5 s2 = lt.bool s0 s1
                   %c[] = store s2 }} }} return %c }}
               carry %a = i32(-4) step (carry 0, index) program @step {{
                 input %a: i32[] input %i: i64[] output %n: i32[] {one} return %n }} }}
             loop @never {{ while () program @test {{ constant %c: bool[] = [false] return %c }}
               carry %b = %x step (carry 0) program @step {{ input %a: i32[] output %n: i32[] {one} return %n }} }}
             return %a, %b }}")),
        ("products, folds and places are in blocks",
            "program @f { input %h0: f32[3, 5] input %w: f32[5, 5] input %x: f32[6, 3, 5] input %at: i32[6, 2]
               output %h: f32[3, 5] output %sums: f32[6, 5] output %placed: f32[6, 4] output %order: i32[6, 3, 5]
             loop @rnn { trips 6 carry %h = %h0 stack %sums stack %placed stack %order
               step (carry 0, whole %w, element %x, element %at) program @step {
                 input %h: f32[3, 5] input %w: f32[5, 5] input %x: f32[3, 5] input %at: i32[2]
                 output %n: f32[3, 5] output %sum: f32[5] output %p: f32[4] output %o: i32[3, 5]
                 contract @dense { member batch [] rows [3] cols [5] depth [5] sum f32 {
                   lhs { p0 = load %h[d0, d1] s0 = param.f32 0 s1 = tanh.f32 s0 out s1 }
                   rhs { p0 = load %w[d1, d0] s0 = param.f32 0 out s0 }
                   then { p0 = sum p1 = load %x[d0, d1] s0 = param.f32 0 s1 = param.f32 1 s2 = add.f32 s0 s1
                     s3 = tanh.f32 s2 %n[d0, d1] = store s3 } } }
                 kernel @sum [3, 5] { stage [] { p0 = load %n[d0, d1] s0 = param.f32 0
                   %sum[d1] = fold.sum s0 chain(d0) } }
                 %p = scatter f32(1.0) [2] { p0 = load %at[d0] s0 = param.i32 0 s1 = convert.f32 s0
                   [clamp(p0, 0, 3)] = add s1 }
                 %o = argsort %n axis 1
                 return %n, %sum, %p, %o } }
             return %h, %sums, %placed, %order }".into()),
    ]
}

#[test]
fn the_engine_has_the_bits_of_the_evaluator() {
    for (name, text) in block_files() {
        let program = program(&text);
        let normal = arguments(&program);
        // Integers are small enough for loops that a test ends.
        agrees(&name, &program, &normal);
    }
    for (name, text) in table() {
        // From the last element to the first too: what is written past the end of one is seen then.
        let back = text.replace("trips 5 carry", "trips 5 reverse carry");
        for text in [back.replace("4, 8", "12, 8"), back, text] {
            let program = program(&text);
            agrees(name, &program, &arguments(&program));
        }
    }
}

/// What the lines above give, for some of them, worked out by hand.
#[test]
fn values_are_those_that_were_worked_out() {
    let found = |name: &str, args: Vec<Array>| -> Vec<Vec<f64>> {
        let table = table();
        let (_, text) = table.iter().find(|(n, _)| *n == name).expect("a name");
        let results = agrees(name, &program(text), &args);
        results.iter().map(|a| a.iter().map(|l| l.to_f64()).collect()).collect()
    };
    let scalar = |d, x: f64| Array::from_f64s(d, &[], &[x]).expect("one");
    let [x, y] = [scalar(DType::F64, 10.0), scalar(DType::F64, 20.0)];
    // (10, 20, 2) (20, 2, 10.5) (2, 10.5, 20.5) (10.5, 20.5, 2.5) .. : every third turn adds a half to all.
    assert_eq!(found("places are swapped", vec![x, y]), [[21.0], [3.0], [11.5]]);
    let chosen = Array::from_f64s(DType::Bool, &[3], &[1.0, 0.0, 1.0]).expect("three");
    let keys = vec![0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, -4.0, 20.0, 21.0, 22.0, 23.0];
    let nested = found("loops are in loops and branches", vec![scalar(DType::I32, 5.0), chosen]);
    assert_eq!(nested, [vec![13.0], keys, vec![0.0, 1.0, 2.0]]);
    let held = found("a test holds for a while", vec![scalar(DType::I32, 9.0)]);
    assert_eq!(held, [[5.0], [9.0]]);
    let ranges = "ranges, counts, and what they are when there are none";
    // a = 3 a + i for i = 3, 2, .. -3 from 0; d = 3 d + h for h = 11, 10, .. 7 from 0.
    let a = (-3..=3).rev().fold(0, |a, i| 3 * a + i);
    let d = (7..=11).rev().fold(0, |d, h| 3 * d + h);
    let expected = [[f64::from(a)], [0.0], [12.0], [f64::from(d)]];
    assert_eq!(found(ranges, vec![scalar(DType::I32, 0.0)]), expected);
}

#[test]
fn loops_that_are_too_long_are_refused() {
    let forever = "program @f { input %x: i32[] output %a: i32[]
      loop @forever { while MOST () program @test { constant %c: bool[] = [true] return %c }
        carry %a = %x step (carry 0) program @step { input %a: i32[] return %a } }
      return %a }";
    let counted = "program @f { input %x: i32[] output %a: i32[] constant %n: i64[] = [21]
      loop @counted { trips %n carry %a = %x step (carry 0) program @step { input %a: i32[] return %a } }
      return %a }";
    let limits = RunLimits { max_trips: 20 };
    for (text, message) in [
        (forever.replace("MOST", ""), "`while` takes more than 20 steps"),
        (forever.replace("MOST", "most 7"), "`while` takes more than 7 steps"),
        (forever.replace("MOST", "most 700"), "`while` takes more than 20 steps"),
        (counted.into(), "`adjoint` takes 21 steps, the limit is 20"),
    ] {
        let program = program(&text);
        let args = arguments(&program);
        let evaluated = kernel::run_within(&program, &args, &mut NoFunctions, limits);
        let made = CpuExecutable::compile(
            &program,
            &laid_out(&program),
            CpuOptions { limits, ..options(1) },
        );
        let made = made.expect("compiles");
        for found in [evaluated, made.run(&args), made.run(&args)] {
            let d = found.expect_err("too long");
            assert_eq!((d.kind, d.message.as_str()), (Kind::Limit, message));
            let at = d.at.inst.unwrap_or_default();
            assert!(at.starts_with("step 0: loop @"), "{at}");
        }
    }
}

/// Small programs with random numbers of steps, checkpoints, carries and nesting.
#[test]
fn random_loops_agree() {
    let mut random = numbers(5);
    for case in 0..60 {
        let n = random(12);
        let each = [1, 3, 16, 33][random(4)];
        let more = ["", "reverse"][random(2)];
        let inner = scan(n, each, more, &way_back(each, 1 + random(5) as u64));
        // The whole of it is a step of a loop around it.
        let turns = random(4);
        let text = format!(
            "program @f {{ input %h: f32[{each}] input %xs: f32[{n}, {each}] input %w: f32[{each}]
               output %o: f32[{each}] output %ys: f32[{turns}, {n}, {each}]
               output %gs: f32[{turns}, {each}] output %zs: f32[{turns}, {n}, {each}]
               loop @outer {{ trips {turns} carry %o = %h stack %ys stack %gs stack %zs
                 step (carry 0, whole %xs, whole %w) {} }}
               return %o, %ys, %gs, %zs }}",
            inner
        );
        let program = program(&text);
        agrees(&format!("case {case}"), &program, &arguments(&program));
    }
}
