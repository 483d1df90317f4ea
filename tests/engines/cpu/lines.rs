//! Lines of every kind that vectors access: packed elements, guards, indices that are data.

use super::{agrees, arguments, same};
use crate::common::random::inputs;
use adfuse::backends::Array;
use adfuse::backends::cpu::{CpuExecutable, Vectors};
use adfuse::fusion::Effort;
use adfuse::ir::DType;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// Packed elements of every width, in lines that begin at any bit of a byte, and two arrays that do not
/// begin bytes together.
#[test]
fn packed_lines() {
    for (dtype, bits) in
        [("bool", "b1"), ("i32", "u2"), ("u8", "u4"), ("i64", "u4"), ("i8", "u8"), ("i64", "u2")]
    {
        for (rows, n, skip) in [(1, 300, 0), (3, 64, 8), (5, 37, 0), (7, 75, 3), (4, 131, 16)] {
            let m = n - skip;
            let value = match dtype {
                "bool" => "s2 = gt.bool s0 s1".to_owned(),
                d => format!("s2 = convert.{d} s0"),
            };
            let text = format!(
                "program @f {{
                  input %x: f32[{rows}, {n}]
                  temp %p: {dtype}[{rows}, {n}] as {bits}
                  temp %q: {dtype}[{rows}, {m}] as {bits}
                  output %y: f32[{rows}, {m}]
                  output %z: f32[{rows}, {m}]
                  kernel @a [{rows}, {n}] {{
                    stage [] {{
                      p0 = load %x[d0, d1]
                      s0 = param.f32 0 s1 = const.f32 0.25 {value}
                      %p[d0, d1] = store s2
                    }}
                  }}
                  kernel @b [{rows}, {m}] {{
                    stage [] {{
                      p0 = load %p[d0, d1 + {skip}]
                      s0 = param.{dtype} 0 s1 = convert.f32 s0
                      %q[d0, d1] = store s0
                      %y[d0, d1] = store s1
                    }}
                  }}
                  kernel @c [{rows}, {m}] {{
                    stage [] {{
                      p0 = load %p[d0, d1 + {skip}]
                      p1 = load %q[d0, d1]
                      s0 = param.{dtype} 0 s1 = convert.f32 s0
                      s2 = param.{dtype} 1 s3 = convert.f32 s2
                      s4 = const.f32 3.0 s5 = fma.f32 s1 s4 s3
                      %z[d0, d1] = store s5
                    }}
                  }}
                  return %y, %z
                }}"
            );
            let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
            let mut values = arguments(&program)[0].to_f64s();
            // Numbers that use all bits of an element.
            values.iter_mut().enumerate().for_each(|(k, v)| *v = *v * 3.0 + (k * 7 % 19) as f64);
            let args =
                [Array::from_f64s(DType::F32, &[rows as u64, n as u64], &values).expect("fits")];
            if let Err(why) = same(&program, Effort::Default, &args) {
                panic!("{dtype} as {bits}, {rows} rows of {n}, {skip} skipped: {why}");
            }
        }
    }
}

/// What is read through guards and by data, in lines longer and shorter than vectors.
#[test]
fn guards_and_data() {
    let cases = [
        // Shifted neighbours, as a stencil has them.
        "%l = slice %x {start = [0, 0], limit = [R, M], stride = [1, 1]} : T[R,M]
         %a = pad %l, 0.5 {low = [0, 1], high = [0, 0], interior = [0, 0]} : T[R,N]
         %h = slice %x {start = [0, 1], limit = [R, N], stride = [1, 1]} : T[R,M]
         %b = pad %h, -2.0 {low = [0, 0], high = [0, 1], interior = [0, 0]} : T[R,N]
         %c = add %a, %b : T[R,N]
         %r = mul %c, %x : T[R,N]",
        // Guards of both axes.
        "%a = pad %x, 1.5 {low = [1, 2], high = [0, -2], interior = [0, 0]} : T[Q,N]
         %b = pad %a, 2.5 {low = [-1, -5], high = [0, 5], interior = [0, 0]} : T[R,N]
         %r = sub %b, %x : T[R,N]",
        // Pieces that begin anywhere, one of them backwards.
        "%a = slice %x {start = [0, 3], limit = [R, N], stride = [1, 1]} : T[R,K]
         %b = slice %x {start = [0, 0], limit = [R, 3], stride = [1, 1]} : T[R,3]
         %c = concatenate %a, %b {axis = 1} : T[R,N]
         %v = rev %x {axes = [1]} : T[R,N]
         %p = pad %v, 0.25 {low = [0, 4], high = [0, -4], interior = [0, 0]} : T[R,N]
         %s = sub %c, %p : T[R,N]
         %r = mul %s, %x : T[R,N]",
        // Between elements.
        "%a = slice %x {start = [0, 0], limit = [R, N], stride = [1, 2]} : T[R,H]
         %b = pad %a, 7.0 {low = [0, 0], high = [0, E], interior = [0, 1]} : T[R,N]
         %c = mul %b, %x : T[R,N]
         %d = exp %c : T[R,N]
         %r = add %d, %x : T[R,N]",
    ];
    for body in cases {
        for dtype in ["f32", "f64", "bf16", "f16"] {
            for (rows, n) in [(1usize, 9usize), (3, 35), (2, 131), (5, 64)] {
                let half = n.div_ceil(2);
                let text = format!("func @f(%x: T[R,N]) -> T[R,N] {{\n{body}\nreturn %r\n}}");
                let text = text
                    .replace("T[", &format!("{dtype}["))
                    .replace(['Q'], &(rows + 1).to_string())
                    .replace(['R'], &rows.to_string())
                    .replace(['N'], &n.to_string())
                    .replace(['M'], &(n - 1).to_string())
                    .replace(['K'], &(n - 3).to_string())
                    .replace(['H'], &half.to_string())
                    .replace(['E'], &(n + 1 - 2 * half).to_string());
                let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
                let f = module.funcs.values().next().expect("a function");
                if let Err(why) = agrees(&module, f, &inputs(f, &[Domain::Normal])) {
                    panic!("{text}: {}", &why[..why.len().min(3000)]);
                }
            }
        }
    }
}

/// Guards that fall along a line, in steps of one and three, before pieces that read another place.
#[test]
fn guards_that_fall() {
    for n in [9, 40, 131] {
        for (step, low, high) in [(1, 3, 30), (1, 5, 6), (3, 7, 100), (3, 8, 101), (3, -4, 50)] {
            let top = n * step;
            let guard = format!("d0 * -{step} + {top} in [{low}, {high})");
            let text = format!(
                "program @f {{
                  input %x: f32[{n}]
                  output %y: f32[{n}]
                  kernel @a [{n}] {{
                    stage [] {{
                      p0 = load %x[d0] when {guard} else f32(-2.5)
                      p1 = load f32(0.5) when {guard} else %x[d0]
                      s0 = param.f32 0 s1 = param.f32 1 s2 = const.f32 3.0
                      s3 = fma.f32 s0 s2 s1
                      %y[d0] = store s3
                    }}
                  }}
                  return %y
                }}"
            );
            let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
            if let Err(why) = same(&program, Effort::Default, &arguments(&program)) {
                panic!("{guard}: {why}");
            }
        }
    }
}

/// Elements whose place is read from memory, along a line.
#[test]
fn places_by_data() {
    for (dtype, from, n) in [("i32", "f32", 131), ("i64", "f64", 70), ("u8", "bf16", 40)] {
        let text = format!(
            "program @f {{
              input %i: {dtype}[{n}]
              input %j: {dtype}[50]
              input %t: {from}[50]
              input %x: {from}[{n}]
              output %y: {from}[{n}]
              kernel @a [{n}] {{
                stage [] {{
                  p0 = load %i[d0]
                  p1 = load %j[clamp(p0, 0, 49)]
                  p2 = load %t[clamp(p1, 0, 49)]
                  p3 = load %x[d0]
                  s0 = param.{from} 2 s1 = param.{from} 3
                  s2 = convert.f32 s0 s3 = convert.f32 s1
                  s4 = mul.f32 s2 s3 s5 = add.f32 s4 s3 s6 = sub.f32 s5 s2 s7 = mul.f32 s6 s6
                  s8 = convert.{from} s7
                  %y[d0] = store s8
                }}
              }}
              return %y
            }}"
        );
        let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let args = arguments(&program);
        if let Err(why) = same(&program, Effort::Default, &args) {
            panic!("{dtype}, {from}: {why}");
        }
    }
}

/// Truth values of a bit each, read out of their order: down columns, backwards, every third one, from any bit of a word on. Vectors
/// with masks gather the words.
#[test]
fn packed_truth_values_out_of_order() {
    let reads = [
        ("[70, 37]", "%p[d1, d0]", [37, 70]),
        ("[45, 300]", "%p[d1, d0 + 3]", [29, 45]),
        ("[7, 211]", "%p[d0, d1 * 3 + 1]", [7, 70]),
        ("[5, 131]", "%p[d0, d1 * -1 + 130]", [5, 131]),
        ("[3, 40, 33]", "%p[2, d1 * -1 + 39, d0]", [33, 40]),
        ("[40, 33]", "%p[d1, 32]", [2, 40]),
    ];
    for (dims, at, [rows, n]) in reads {
        let count: i64 =
            dims.trim_matches(['[', ']']).split(", ").map(|n| n.parse::<i64>().unwrap()).product();
        let text = format!(
            "program @f {{
              input %x: f32[{count}]
              input %y: f32[{rows}, {n}]
              temp %p: bool{dims} as b1
              output %z: f32[{rows}, {n}]
              kernel @a {dims} {{
                stage [] {{
                  p0 = load %x[{flat}]
                  s0 = param.f32 0 s1 = const.f32 0.25 s2 = gt.bool s0 s1
                  %p[{own}] = store s2
                }}
              }}
              kernel @b [{rows}, {n}] {{
                stage [] {{
                  p0 = load {at}
                  p1 = load %y[d0, d1]
                  s0 = param.bool 0 s1 = param.f32 1 s2 = neg.f32 s1
                  s3 = select.f32 s0 s1 s2
                  %z[d0, d1] = store s3
                }}
              }}
              return %z
            }}",
            flat = row_major(dims),
            own = (0..dims.split(", ").count())
                .map(|k| format!("d{k}"))
                .collect::<Vec<_>>()
                .join(", "),
        );
        let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        if let Err(why) = same(&program, Effort::Default, &arguments(&program)) {
            panic!("{at} of {dims}: {why}");
        }
        let layout = super::layout(&program, Effort::Default).expect("fits");
        let made = CpuExecutable::compile(&program, &layout, super::strict()).expect("compiles");
        let refused: Vec<_> = made.sweeps().filter_map(|s| s.emitter.why()).collect();
        if Vectors::host() == Vectors::Avx512 {
            assert!(refused.is_empty(), "{at} of {dims}: {refused:?}");
        }
    }
}

/// The place of `d0, d1, ..` in an array of these extents.
fn row_major(dims: &str) -> String {
    let extents = dims.trim_matches(['[', ']']).split(", ");
    let extents: Vec<i64> = extents.map(|n| n.parse().expect("a number")).collect();
    let term = |k: usize| {
        let step: i64 = extents[k + 1..].iter().product();
        format!("d{k} * {step}")
    };
    (0..extents.len()).map(term).collect::<Vec<_>>().join(" + ")
}
