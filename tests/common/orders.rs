//! Programs with sorts, scatters and transpositions on difficult values, for every engine that must have the bits of
//! the kernel evaluator.

use super::kernels::numbers;
use adfuse::backends::Array;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::kernel::text::parse;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::text::parse_example;
use adfuse::ir::{DType, Literal};

/// A program with its arguments.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) program: Verified<Program>,
    pub(crate) args: Vec<Array>,
}

/// Every type of elements.
fn types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|&d| d != DType::Token)
}

/// Numbers of which many are equal, or equal but for their sign, or none.
pub(crate) fn hard(dtype: DType, dims: &[u64], seed: u64) -> Array {
    let special = [0.0, -0.0, f64::NAN, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, 2.5];
    let mut number = numbers(seed);
    let count: u64 = dims.iter().product();
    let bits: Vec<u64> = (0..count)
        .map(|_| match number(4) {
            0 => Literal::from_f64(dtype, special[number(8)]).bits(),
            1 => Literal::from_f64(dtype, number(5) as f64 - 2.0).bits(),
            _ => {
                let any = number(1 << 31) as u64 ^ (number(1 << 31) as u64) << 31;
                let any = any ^ (number(4) as u64) << 62;
                // A bool has one bit.
                any & u64::MAX >> (64 - if dtype == DType::Bool { 1 } else { dtype.bits() })
            }
        })
        .collect();
    Array::from_bits(dtype, dims, &bits).expect("fits")
}

/// Numbers of which sums are no NaN, and differ with their order.
fn finite(dtype: DType, dims: &[u64], seed: u64) -> Array {
    let mut number = numbers(seed);
    let n: u64 = dims.iter().product();
    let values: Vec<f64> = (0..n).map(|_| number(20001) as f64 / 1000.0 - 10.0).collect();
    Array::from_f64s(dtype, dims, &values).expect("fits")
}

/// A function of one instruction, as a program of kernels.
fn lowered(text: &str) -> Verified<Program> {
    let module = parse_example(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function");
    let options =
        PlanOptions { device: MachineModel::h200(), effort: Effort::Default, fp: Fp::Strict };
    let made = compile(&module, f, &options).unwrap_or_else(|d| panic!("{d}"));
    verify(made.program).unwrap_or_else(|e| panic!("{}", e[0]))
}

fn case(name: String, text: &str, args: Vec<Array>) -> Case {
    let program = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
    Case { name, program, args }
}

/// Orders of lines of one length, of every type, both ways: alone or several, whole or their first places,
/// along the last axis or another.
pub(crate) fn orders(length: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for (k, dtype) in (0u64..).zip(types()) {
        for descending in [false, true] {
            let turn = k + length + u64::from(descending);
            let lines = if length > 4096 { 1 + turn % 2 } else { [1, 3, 5][(turn % 3) as usize] };
            let few = length > 8192 && turn % 2 == 1;
            let count = if few { 7.min(length) } else { length };
            let last = !turn.is_multiple_of(4);
            let dims = if last { [lines, length] } else { [length, lines] };
            let to = if last { [lines, count] } else { [count, lines] };
            let (axis, way) = (usize::from(last), if descending { " descending" } else { "" });
            let text = format!(
                "program @order {{
                   input %x: {dtype}{dims:?}
                   output %y: i32{to:?}
                   %y = argsort %x axis {axis}{way}
                   return %y
                 }}"
            );
            let name = format!("{dtype}{dims:?} axis {axis}{way}, first {count}");
            cases.push(case(name, &text, vec![hard(dtype, &dims, turn)]));
        }
    }
    cases
}

/// The order of a line of this many blocks that their counts are added up in several turns.
pub(crate) fn longest(dtype: DType) -> Case {
    let n = 1_100_000;
    let text = format!(
        "program @order {{
           input %x: {dtype}[{n}]
           output %y: i32[{n}]
           %y = argsort %x axis 0
           return %y
         }}"
    );
    case(format!("{dtype}[{n}]"), &text, vec![hard(dtype, &[n], 11)])
}

/// Orders of keys in other layouts.
pub(crate) fn layouts() -> Vec<Case> {
    let text = "program @order {
      input %x: f32[70, 40] strides [1, 71]
      input %b: bool[3, 100] as b1
      input %n: i32[9000] as u4
      input %z: f32[0, 3]
      input %e: f32[3, 5]
      output %y: i32[70, 40] strides [41, 1]
      output %t: i32[70, 40]
      output %p: i32[3, 100]
      output %q: i32[9000]
      output %r: i32[0, 3]
      output %s: i32[3, 0]
      %y = argsort %x axis 0
      %t = argsort %x axis 1 descending
      %p = argsort %b axis 1
      %q = argsort %n axis 0 descending
      %r = argsort %z axis 1
      %s = argsort %e axis 1
      return %y, %t, %p, %q, %r, %s
    }";
    let small: Vec<i64> = (0..9000).map(|k| k * 7919 % 16).collect();
    let args = vec![
        hard(DType::F32, &[70, 40], 1),
        hard(DType::Bool, &[3, 100], 2),
        Array::from_i64s(DType::I32, &[9000], &small).expect("fits"),
        hard(DType::F32, &[0, 3], 3),
        hard(DType::F32, &[3, 5], 4),
    ];
    vec![case("layouts".to_owned(), text, args)]
}

/// Updates, places and width of a scatter, and what the places are.
struct Updates {
    count: u64,
    rows: u64,
    width: u64,
    /// Different places that there are at most, from so far below the first row on.
    places: usize,
    below: i64,
}

/// Scatters of few and many updates: to one place, to some again and again, to none, outside of the rows.
pub(crate) fn scatters(most: u64) -> Vec<Case> {
    let all = [
        Updates { count: 0, rows: 5, width: 3, places: 1, below: 0 },
        Updates { count: 1, rows: 5, width: 3, places: 5, below: 0 },
        Updates { count: 200, rows: 7, width: 33, places: 9, below: 1 },
        Updates { count: 256, rows: 1, width: 2, places: 1, below: 0 },
        Updates { count: 257, rows: 1, width: 2, places: 1, below: 0 },
        Updates { count: 1000, rows: 7, width: 33, places: 9, below: 1 },
        Updates { count: 1000, rows: 7, width: 1, places: 3, below: 3 },
        Updates { count: 3000, rows: 5000, width: 4, places: 5000, below: 0 },
        Updates { count: 9000, rows: 300, width: 1, places: 310, below: 5 },
        Updates { count: 20000, rows: 70000, width: 1, places: 70000, below: 0 },
        Updates { count: 100_000, rows: 40, width: 1, places: 40, below: 0 },
    ];
    let mut cases = Vec::new();
    let ops = ["scatter_add", "scatter_max", "scatter", "scatter_min"];
    let types =
        [DType::F32, DType::BF16, DType::I32, DType::F64, DType::F16, DType::I8, DType::I64];
    for (k, u) in all.iter().enumerate().filter(|(_, u)| u.count <= most) {
        for turn in 0..4 {
            let (op, dtype) = (ops[turn], types[(k + turn) % types.len()]);
            // Sums matter most: every other is one.
            let op = if (k + turn).is_multiple_of(2) { "scatter_add" } else { op };
            let mode = if turn < 3 { "drop" } else { "clip" };
            let Updates { count, rows, width, .. } = *u;
            let text = format!(
                "%x: {dtype}[{rows},{width}], %i: i32[{count},1], %u: {dtype}[{count},{width}] | \
                 {op} %x, %i, %u {{window_dims = [1], inserted = [0], start_map = [0], \
                 mode = {mode}}} : {dtype}[{rows},{width}]"
            );
            let mut number = numbers(k as u64);
            let places: Vec<i64> = (0..count).map(|_| number(u.places) as i64 - u.below).collect();
            let args = vec![
                finite(dtype, &[rows, width], 5),
                Array::from_i64s(DType::I32, &[count, 1], &places).expect("fits"),
                finite(dtype, &[count, width], 6),
            ];
            let program = lowered(&text);
            cases.push(Case { name: text, program, args });
        }
    }
    // Axes that are axes of the result and choose rows too.
    let text = "program @batches {
      input %x: f32[3, 50, 4]
      input %i: i32[3, 400]
      input %u: f32[3, 400, 4]
      input %v: f32[3, 400]
      output %y: f32[3, 50, 4]
      output %z: f32[3, 3]
      %y = scatter %x [3, 400, 4] {
        p0 = load %i[d0, d1]
        p1 = load %u[d0, d1, d2]
        s0 = param.i32 0
        s1 = param.f32 1
        [d0, clamp(p0, 0, 49), d2] = add s1 when clamp(p0, -1, 50) in [0, 50)
      }
      %z = scatter f32(1.0) [3, 400] {
        p0 = load %v[d0, d1]
        s0 = param.f32 0
        [d0, d0] = add s0
      }
      return %y, %z
    }";
    let places: Vec<i64> = (0..1200).map(|k| k * 37 % 53 - 2).collect();
    let args = vec![
        hard(DType::F32, &[3, 50, 4], 7),
        Array::from_i64s(DType::I32, &[3, 400], &places).expect("fits"),
        hard(DType::F32, &[3, 400, 4], 8),
        hard(DType::F32, &[3, 400], 9),
    ];
    cases.push(case("batches".to_owned(), text, args));
    cases
}

/// Sums of many updates of a few rows, of whole numbers: exact in any order.
pub(crate) fn exact_scatters() -> Vec<Case> {
    let rows = [(257, 1, 4), (300, 2, 3), (4096, 3, 8), (5000, 200, 1), (1000, 70, 5)];
    let mut cases = Vec::new();
    for (k, (count, rows, width)) in (0u64..).zip(rows) {
        let text = format!(
            "%x: f32[{rows},{width}], %i: i32[{count},1], %u: f32[{count},{width}] | \
             scatter_add %x, %i, %u {{window_dims = [1], inserted = [0], start_map = [0], \
             mode = drop}} : f32[{rows},{width}]"
        );
        let mut number = numbers(k);
        // Most updates are of the first row; some are left out.
        let mut place = || number(4).min(1) as i64 * (number(rows as usize + 2) as i64 - 1);
        let places: Vec<i64> = (0..count).map(|_| place()).collect();
        let mut whole = |n: u64| -> Vec<f64> { (0..n).map(|_| number(64) as f64 - 31.0).collect() };
        let of =
            |dims: [u64; 2], all: &[f64]| Array::from_f64s(DType::F32, &dims, all).expect("fits");
        let args = vec![
            of([rows, width], &whole(rows * width)),
            Array::from_i64s(DType::I32, &[count, 1], &places).expect("fits"),
            of([count, width], &whole(count * width)),
        ];
        let program = lowered(&text);
        cases.push(Case { name: text, program, args });
    }
    cases
}

/// Elements that are turned around, alone and with others that are not, of extents that fill no tile.
pub(crate) fn transposes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (k, dtype) in (0u64..).zip(types()) {
        let wide = dtype.compute();
        // 16-bit floats compute in another type.
        let program = match wide == dtype {
            true => format!(
                "s0 = param.{dtype} 0 s1 = param.{dtype} 1 s2 = param.{dtype} 2
                 s3 = max.{dtype} s0 s1 s4 = min.{dtype} s3 s2"
            ),
            false => format!(
                "s0 = param.{dtype} 0 s1 = param.{dtype} 1 s2 = param.{dtype} 2
                 s3 = convert.{wide} s0 s4 = convert.{wide} s1 s5 = convert.{wide} s2
                 s6 = max.{wide} s3 s4 s7 = min.{wide} s6 s5 s8 = convert.{dtype} s7"
            ),
        };
        let result = if wide == dtype { "s4" } else { "s8" };
        for [a, b, c] in [[1, 33, 65], [2, 67, 31], [3, 32, 64], [1, 129, 24], [2, 17, 100]] {
            let text = format!(
                "program @turned {{
                   input %x: {dtype}[{a}, {b}, {c}]
                   input %w: {dtype}[{b}, {a}, {c}]
                   output %y: {dtype}[{a}, {c}, {b}]
                   output %z: {dtype}[{c}, {b}, {a}]
                   output %v: {dtype}[{a}, {c}, {b}]
                   kernel @alone [{a}, {c}, {b}] {{
                     stage [] {{
                       p0 = load %x[d0, d2, d1]
                       s0 = param.{dtype} 0
                       %y[d0, d1, d2] = store s0
                     }}
                   }}
                   kernel @ends [{c}, {b}, {a}] {{
                     stage [] {{
                       p0 = load %x[d2, d1, d0]
                       s0 = param.{dtype} 0
                       %z[d0, d1, d2] = store s0
                     }}
                   }}
                   kernel @both [{a}, {c}, {b}] {{
                     stage [] {{
                       p0 = load %y[d0, d1, d2]
                       p1 = load %w[d2, d0, d1]
                       p2 = load %x[d0, d2 * -1 + {last}, d1]
                       {program}
                       %v[d0, d1, d2] = store {result}
                     }}
                   }}
                   return %y, %z, %v
                 }}",
                last = b - 1
            );
            let args = vec![hard(dtype, &[a, b, c], k), hard(dtype, &[b, a, c], k + 1)];
            cases.push(case(format!("{dtype} {a} {b} {c}"), &text, args));
        }
        // Axes that are long enough together.
        let text = format!(
            "program @joined {{
               input %x: {dtype}[2, 5, 7, 40]
               input %i: i32[5]
               output %y: {dtype}[2, 40, 5, 7]
               output %z: {dtype}[40, 2, 5, 7]
               output %v: {dtype}[40, 2, 5, 7]
               output %w: {dtype}[40, 2, 5, 7]
               kernel @channels [2, 40, 5, 7] {{
                 stage [] {{
                   p0 = load %x[d0, d2, d3, d1]
                   s0 = param.{dtype} 0
                   %y[d0, d1, d2, d3] = store s0
                 }}
               }}
               kernel @first [40, 2, 5, 7] {{
                 stage [] {{
                   p0 = load %x[d1, d2, d3, d0]
                   p1 = load %i[d2]
                   p2 = load %x[d1, clamp(p1, 0, 4), d3, d0]
                   p3 = load %x[d1, d2, d3 - 1, d0] when d3 - 1 in [0, 7) else {dtype}({zero})
                   s0 = param.{dtype} 0
                   s1 = param.{dtype} 2
                   s2 = param.{dtype} 3
                   %z[d0, d1, d2, d3] = store s0
                   %v[d0, d1, d2, d3] = store s1
                   %w[d0, d1, d2, d3] = store s2
                 }}
               }}
               return %y, %z, %v, %w
             }}",
            zero = Literal::zero(dtype)
        );
        let places = Array::from_i64s(DType::I32, &[5], &[4, -1, 9, 0, 2]).expect("fits");
        let args = vec![hard(dtype, &[2, 5, 7, 40], k), places];
        cases.push(case(format!("{dtype} joined"), &text, args));
    }
    cases
}

/// Partial sums along axes of one length, the last and another, both ways.
pub(crate) fn scans(length: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let types = [DType::F32, DType::F64, DType::BF16, DType::I32, DType::I8];
    for (dtype, reverse) in types.into_iter().zip([false, true].into_iter().cycle()) {
        for (axis, dims) in [(1, [3, length]), (0, [length, 3]), (0, [length, 1])] {
            let text = format!(
                "%x: {dtype}{dims:?} | cumsum %x {{axis = {axis}, reverse = {reverse}}} : {dtype}{dims:?}"
            );
            let program = lowered(&text);
            cases.push(Case { name: text, program, args: vec![finite(dtype, &dims, length)] });
        }
    }
    cases
}
