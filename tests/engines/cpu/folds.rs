//! Folds of every length, type and operation, on difficult values: along lines and over columns, in bodies that leave
//! registers for the lanes, in bodies that do not, and in bodies without vectors.

use super::{agrees, layout, same_on, special};
use crate::common::random::inputs;
use crate::common::thorough;
use adfuse::backends::Array;
use adfuse::fusion::Effort;
use adfuse::ir::DType;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// Around the lanes and the blocks of both orders, and what code leaves to Rust.
const LENGTHS: [usize; 19] =
    [2, 15, 16, 17, 31, 32, 33, 35, 63, 64, 65, 130, 1000, 1023, 1024, 1025, 2047, 2048, 2081];

fn folds(dtype: DType) -> &'static [&'static str] {
    if dtype == DType::Bool { &["and", "or"] } else { &["sum", "prod", "max", "min"] }
}

/// On unusual values of a type, on ordinary ones, and on zeros below 0 with and without one above.
fn agree(text: &str, turn: usize) {
    let program = read(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
    let ordinary = super::arguments(&program);
    let all = [hard(&program, turn), zeros(&ordinary, 1), zeros(&ordinary, 37), ordinary];
    let agreed = layout(&program, Effort::Default).and_then(|at| same_on(&program, &at, &all));
    if let Err(why) = agreed {
        panic!("{}\n{text}", &why[..why.len().min(2000)]);
    }
}

fn hard(program: &Program, turn: usize) -> Vec<Array> {
    let types = program.inputs().filter_map(|b| program.buffers[b].ty());
    types.map(|t| special(t.dtype, &t.dims().expect("constant"), turn)).collect()
}

/// Zeros below 0, every this many-th of them above; all below where that is the first.
fn zeros(like: &[Array], every: usize) -> Vec<Array> {
    let one = |k: usize| if k % every == every / 2 && every > 1 { 0.0 } else { -0.0 };
    let zeros = like.iter().map(|a| {
        let values: Vec<f64> = (0..a.to_f64s().len()).map(one).collect();
        Array::from_f64s(a.dtype(), a.dims(), &values).expect("fits")
    });
    zeros.collect()
}

const TYPES: [DType; 7] =
    [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::I8, DType::Bool];

/// Rows, each operation alone and all at once.
#[test]
fn rows() {
    for (turn, n) in LENGTHS.into_iter().enumerate() {
        for d in TYPES {
            let all = folds(d);
            let mut text = format!("program @f {{ input %x: {d}[3, {n}]\n");
            for k in 0..2 * all.len() {
                text += &format!("output %y{k}: {d}[3]\n");
            }
            let stage = |which: &[(usize, &str)]| {
                let mut rows = String::new();
                let mut sinks = String::new();
                let mut after = String::new();
                for (at, (k, fold)) in which.iter().enumerate() {
                    rows += &format!("row r{at}: {d}\n");
                    sinks += &format!("r{at} = reduce.{fold} s0 lane(d1)\n");
                    after += &format!(
                        "stage [] {{ p0 = r{at} s0 = param.{d} 0 %y{k}[d0] = store s0 }}\n"
                    );
                }
                format!(
                    "kernel @k{} [3] {{ {rows}
                       stage [{n}] {{ p0 = load %x[d0, d1] s0 = param.{d} 0 {sinks} }}
                       {after} }}\n",
                    which[0].0
                )
            };
            let together: Vec<(usize, &str)> = all.iter().copied().enumerate().collect();
            text += &stage(&together);
            for (k, fold) in all.iter().enumerate() {
                text += &stage(&[(all.len() + k, fold)]);
            }
            let results: Vec<String> = (0..2 * all.len()).map(|k| format!("%y{k}")).collect();
            agree(&format!("{text} return {} }}", results.join(", ")), turn);
        }
    }
}

/// Folds over the domain: along lines, over all places, over columns, and over columns of lines.
#[test]
fn domains() {
    let shapes = [
        [2, 16],
        [3, 17],
        [63, 16],
        [64, 33],
        [65, 20],
        [130, 64],
        [5, 1000],
        [2, 1025],
        [33, 63],
        [70, 5],
        [129, 100],
    ];
    for (turn, [m, n]) in shapes.into_iter().enumerate() {
        for d in [DType::F32, DType::F64, DType::I32, DType::I64, DType::U8] {
            for (k, fold) in folds(d).iter().enumerate() {
                // Of integers, each operation at every other shape.
                if !d.is_float() && !(turn + k).is_multiple_of(2) && !thorough() {
                    continue;
                }
                let text = format!(
                    "program @f {{
                       input %x: {d}[3, {m}, {n}]
                       input %b: {d}[{n}]
                       output %line: {d}[3, {m}]
                       output %all: {d}[1]
                       output %wide: {d}[1]
                       output %columns: {d}[3, {n}]
                       output %both: {d}[{m}]
                       kernel @a [3, {m}, {n}] {{ stage [] {{
                         p0 = load %x[d0, d1, d2]
                         s0 = param.{d} 0
                         %line[d0, d1] = fold.{fold} s0 lane(d2)
                         %columns[d0, d2] = fold.{fold} s0 chain(d1)
                         %both[d1] = fold.{fold} s0 lane(d2) chain(d0)
                       }} }}
                       kernel @b [3, {m}, {n}] {{ stage [] {{
                         p0 = load %x[d0, d1, d2]
                         s0 = param.{d} 0
                         %all[0] = fold.{fold} s0 lane(d0, d1, d2)
                       }} }}
                       kernel @c [3, {m}] {{ stage [{n}] {{
                         p0 = load %x[d0, d1, d2]
                         p1 = load %b[d2]
                         s0 = param.{d} 0 s1 = param.{d} 1 s2 = max.{d} s0 s1
                         %wide[0] = fold.{fold} s2 lane(d0, d1, d2)
                       }} }}
                       return %line, %all, %wide, %columns, %both
                     }}"
                );
                agree(&text, turn);
            }
        }
    }
}

/// Lines of every length up to that of nine vectors, in any number and beginning anywhere, of which calls and tasks cut some: what
/// folds along them, what follows their folds, and what folds over their columns.
#[test]
fn short_lines() {
    let types = [DType::F32, DType::F64, DType::I32];
    for n in 2usize..=132 {
        for (k, d) in types.into_iter().enumerate() {
            // Each type at every third length, and all at those around vectors.
            if !(n + k).is_multiple_of(3) && n % 16 > 1 && !thorough() {
                continue;
            }
            let (m, wide) = ([2, 3, 5, 67][(n + k) % 4], n + 3);
            let (shift, body) = match d.is_float() {
                true => (1 + n % 3, format!("s3 = exp.{d} s2")),
                false => (n % 3, format!("s3 = mul.{d} s2 s0")),
            };
            let text = format!(
                "program @f {{
                   input %x: {d}[{m}, {wide}]
                   output %y: {d}[{m}, {n}]
                   output %t: {d}[{m}]
                   output %c: {d}[{n}]
                   output %z: {d}[{m}, {n}]
                   kernel @k [{m}] {{
                     row r0: {d}
                     row r1: {d}
                     row r2: {d}
                     stage [{n}] {{ p0 = load %x[d0, d1 + {shift}] s0 = param.{d} 0 r0 = reduce.max s0 lane(d1) }}
                     stage [{n}] {{
                       p0 = load %x[d0, d1 + {shift}] p1 = r0
                       s0 = param.{d} 0 s1 = param.{d} 1 s2 = sub.{d} s0 s1 {body}
                       %y[d0, d1] = store s3
                       r1 = reduce.sum s3 lane(d1)
                       r2 = reduce.prod s0 lane(d1)
                       %c[d1] = fold.sum s2 chain(d0)
                     }}
                     stage [] {{ p0 = r1 p1 = r2 s0 = param.{d} 0 s1 = param.{d} 1 s2 = add.{d} s0 s1 %t[d0] = store s2 }}
                   }}
                   kernel @z [{m}, {n}] {{ stage [] {{
                     p0 = load %x[d0, d1 + {shift}] p1 = load %c[d1] p2 = load %t[d0]
                     s0 = param.{d} 0 s1 = param.{d} 1 s2 = param.{d} 2
                     s3 = mul.{d} s0 s1 s4 = sub.{d} s3 s2
                     %z[d0, d1] = store s4
                   }} }}
                   return %y, %t, %c, %z
                 }}"
            );
            agree(&text, n);
        }
    }
}

/// No elements: beside what folds, which then has blocks of nothing, and of what folds.
#[test]
fn nothing() {
    for dims in [[2u64, 100, 0], [2, 0, 100], [0, 100, 2], [1, 3000, 0], [100, 2, 0]] {
        for axis in 0..3 {
            let mut left: Vec<String> = dims.iter().map(u64::to_string).collect();
            let all = left.join(",");
            left.remove(axis);
            let left = left.join(",");
            let text = format!(
                "func @f(%x: f32[{all}]) -> (f32[{left}], f32[{left}]) {{
                   %s = reduce_sum %x {{axes = [{axis}]}} : f32[{left}]
                   %e = exp %x : f32[{all}]
                   %m = reduce_max %e {{axes = [{axis}]}} : f32[{left}]
                   return %s, %m
                 }}"
            );
            let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            let f = module.funcs.values().next().expect("a function");
            if let Err(why) = agrees(&module, f, &inputs(f, &[Domain::Normal])) {
                panic!("{text}: {why}");
            }
        }
    }
}

/// Bodies that leave no registers, that read through guards and packed elements, and that have no vectors.
#[test]
fn bodies() {
    let bodies = [
        ("s3 = exp.f32 s2", "s3", "s4"),
        ("s3 = tanh.f32 s2 s4 = sin.f32 s3 s5 = mul.f32 s4 s3", "s5", "s6"),
        ("s3 = rem.f32 s2 s1", "s3", "s4"),
    ];
    let loads = ["load %x[d0, d1]", "load %x[d0, d1 + 3] when d1 in [0, LESS) else f32(-0.0)"];
    for (turn, n) in [40usize, 100, 1025, 2100].into_iter().enumerate() {
        for (body, last, after) in bodies {
            for load in loads {
                let load = load.replace("LESS", &(n - 3).to_string());
                let text = format!(
                    "program @f {{
                       input %x: f32[4, {n}]
                       input %p: bool[4, {n}]
                       temp %b: bool[4, {n}] as b1
                       output %y: f32[4]
                       output %z: f32[4]
                       output %c: f32[{n}]
                       kernel @p [4, {n}] {{ stage [] {{
                         p0 = load %p[d0, d1] s0 = param.bool 0 %b[d0, d1] = store s0
                       }} }}
                       kernel @k [4] {{
                         row r0: f32
                         row r1: f32
                         stage [{n}] {{
                           p0 = {load} p1 = load %b[d0, d1]
                           s0 = param.bool 1 s1 = const.f32 0.25 s2 = param.f32 0 {body}
                           {after} = select.f32 s0 {last} s1
                           r0 = reduce.sum {last} lane(d1)
                           r1 = reduce.max {after} lane(d1)
                           %c[d1] = fold.sum {after} chain(d0)
                         }}
                         stage [] {{
                           p0 = r0 p1 = r1 s0 = param.f32 0 s1 = param.f32 1
                           %y[d0] = store s0
                           %z[d0] = store s1
                         }}
                       }}
                       return %y, %z, %c
                     }}"
                );
                agree(&text, turn);
            }
        }
    }
}
