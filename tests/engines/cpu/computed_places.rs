//! Places that vectors compute or step over: data and quotients as indices, far and backward steps of every type, stores in steps, coordinates
//! of short axes, and packed truth values that begin anywhere in a byte.

use super::{arguments, layout, same_on, special};
use adfuse::fusion::Effort;
use adfuse::ir::DType;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::verify;

/// A program gives the evaluator's bits, on unusual values too.
fn holds(text: &str) {
    let program = read(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
    let types = || program.inputs().filter_map(|b| program.buffers[b].ty());
    let hard =
        |turn| types().map(|t| special(t.dtype, &t.dims().expect("constant"), turn)).collect();
    let all = [hard(0), hard(5), arguments(&program)];
    let agreed = layout(&program, Effort::Default).and_then(|at| same_on(&program, &at, &all));
    agreed.unwrap_or_else(|why| panic!("{}\n{text}", &why[..why.len().min(2000)]));
}

fn types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|&d| d != DType::Token)
}

/// One kernel over a domain, which reads `%x` and gives it as it is.
fn copies(dtype: DType, [x, y]: [&str; 2], loads: &str, store: &str) {
    let domain = y;
    let k = loads.matches("= load").count() - 1;
    let more = if loads.contains("%i") { "input %i: i32[70]" } else { "" };
    holds(&format!(
        "program @f {{
           input %x: {dtype}[{x}]
           {more}
           output %y: {dtype}[{y}]
           kernel @a [{domain}] {{ stage [] {{
             {loads}
             s0 = param.{dtype} {k}
             %y[{store}] = store s0
           }} }}
           return %y
         }}"
    ));
}

#[test]
fn steps_of_every_type() {
    for dtype in types() {
        for n in [1, 7, 16, 37, 70] {
            let length = format!("{n}");
            for step in [2, 3, 10, 17] {
                let x = format!("{}", n * step + 3);
                copies(dtype, [&x, &length], &format!("p0 = load %x[d0 * {step} + 2]"), "d0");
            }
            copies(dtype, [&length, &length], &format!("p0 = load %x[d0 * -1 + {}]", n - 1), "d0");
        }
    }
}

#[test]
fn steps_where_guards_hold() {
    for dtype in types() {
        let rest = match dtype {
            DType::Bool => "true".to_string(),
            d if d.is_float() => format!("{d}(-2.5)"),
            d => format!("{d}(3)"),
        };
        let rest = if dtype == DType::Bool { format!("bool({rest})") } else { rest };
        for (index, n) in [("d1 * 2 + -3", 33), ("d1 * -3 + 60", 50), ("d1 * 5 + d0", 41)] {
            let load = format!("p0 = load %x[d0, {index}] when {index} in [0, {n}) else {rest}");
            copies(dtype, [&format!("3, {n}"), "3, 40"], &load, "d0, d1");
        }
    }
}

#[test]
fn stores_in_steps() {
    for dtype in types() {
        for (rows, n) in [(3, 5), (2, 16), (3, 37), (17, 70)] {
            let [from, to] = [format!("{rows}, {n}"), format!("{n}, {rows}")];
            holds(&format!(
                "program @f {{
                   input %x: {dtype}[{from}]
                   output %y: {dtype}[{to}]
                   kernel @a [{from}] {{ stage [] {{
                     p0 = load %x[d0, d1]
                     s0 = param.{dtype} 0
                     %y[d1, d0] = store s0
                   }} }}
                   return %y
                 }}"
            ));
        }
    }
}

#[test]
fn data_as_places() {
    for dtype in types() {
        for index in types().filter(|d| d.is_int()) {
            for rows in [1, 3] {
                holds(&format!(
                    "program @f {{
                       input %x: {dtype}[50, 9]
                       input %i: {index}[{rows}, 70]
                       output %y: {dtype}[{rows}, 70]
                       output %z: {dtype}[{rows}, 70]
                       kernel @a [{rows}, 70] {{ stage [] {{
                         p0 = load %i[d0, d1]
                         p1 = load %x[clamp(p0, 0, 49), d1 % 8 + d0 / 2]
                         p2 = load %x[clamp(p0, 3, 30) + d0, d1 / 9]
                         s0 = param.{dtype} 1
                         s1 = param.{dtype} 2
                         %y[d0, d1] = store s0
                         %z[d0, d1] = store s1
                       }} }}
                       return %y, %z
                     }}"
                ));
            }
        }
    }
}

/// Divisors at which no axis is split, and guards of data and of quotients.
#[test]
fn quotients_and_guards_as_places() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I8] {
        let rest = if dtype.is_float() { format!("{dtype}(7.5)") } else { format!("{dtype}(7)") };
        for (x, load) in [
            ("64, 64", "%x[d1 / 3, (d1 + 2) % 5]".to_string()),
            ("64, 64", "%x[(d1 + -20) / 7 + 3, d0 * 7 + d1 % 32]".to_string()),
            ("64, 64", format!("%x[d1 / 19, d1 / 4] when d1 % 6 in [2, 5) else {rest}")),
            (
                "64, 64",
                format!(
                    "%x[d0, (d1 + -9) / 6] when d1 + -9 in [0, 40) and (d1 + -9) % 6 in [0, 1) else {rest}"
                ),
            ),
            ("64, 64", format!("%x[d0, clamp(p0, 0, 63)] when d1 in [3, 61) else {rest}")),
        ] {
            let loads = format!("p0 = load %i[d1 * -1 + 66]\n p1 = load {load}");
            copies(dtype, [x, "3, 67"], &loads, "d0, d1");
        }
    }
}

/// Places of updates: rows at data, single elements at data, beside guards.
#[test]
fn updates_at_places() {
    for dtype in [DType::F32, DType::F64, DType::I32] {
        for (updates, at, when) in [
            ("3, 7, 12", "clamp(p0, 0, 49), d2", ""),
            ("3, 7, 20", "clamp(p0, 0, 49), 19 + d2 * -1", ""),
            ("3, 7, 64", "clamp(p0, 1, 9) + d0, d2 / 4", ""),
            ("3, 7, 20", "clamp(p0, 0, 49), d2", "when d2 in [2, 17)"),
        ] {
            let zero = if dtype.is_float() { "0.0" } else { "0" };
            holds(&format!(
                "program @f {{
                   input %i: i32[3, 7]
                   input %u: {dtype}[{updates}]
                   output %y: {dtype}[50, 64]
                   %y = scatter {dtype}({zero}) [{updates}] {{
                     p0 = load %i[d0, d1]
                     p1 = load %u[d0, d1, d2]
                     s0 = param.{dtype} 1
                     [{at}] = add s0 {when}
                   }}
                   return %y
                 }}"
            ));
        }
    }
}

/// Images and rows shorter than a vector, whose coordinates are values too.
#[test]
fn coordinates_of_short_axes() {
    for extents in ["6, 4, 4", "5, 8, 2", "9, 3, 5", "40, 7", "11, 2, 3"] {
        let axes = extents.matches(',').count() + 1;
        let [last, before] = [axes - 1, axes - 2].map(|k| format!("d{k}"));
        let at: Vec<String> = (0..axes).map(|k| format!("d{k}")).collect();
        let at = at.join(", ");
        holds(&format!(
            "program @f {{
               input %x: f32[{extents}]
               output %y: f32[{extents}]
               output %z: i64[{extents}]
               kernel @a [{extents}] {{ stage [] {{
                 p0 = load %x[{at}]
                 p1 = coord {last} * 3 + {before} + -1
                 p2 = coord {last}
                 s0 = param.f32 0
                 s1 = param.i64 1
                 s2 = param.i64 2
                 s3 = lt.bool s2 s1
                 s4 = neg.f32 s0
                 s5 = select.f32 s3 s0 s4
                 %y[{at}] = store s5
                 %z[{at}] = store s1
               }} }}
               return %y, %z
             }}"
        ));
    }
}

#[test]
fn bits_that_begin_anywhere() {
    for n in [3, 16, 33, 70, 200] {
        for (first, step) in [(0, 1), (3, 1), (1, 2)] {
            let wide = n * step + first + 2;
            holds(&format!(
                "program @f {{
                   input %m: bool[7, {wide}] as b1
                   input %x: f32[7, {n}]
                   output %y: f32[7, {n}]
                   output %r: f32[7]
                   kernel @a [7] {{
                     row r0: f32
                     stage [{n}] {{
                       p0 = load %m[d0, d1 * {step} + {first}]
                       p1 = load %x[d0, d1]
                       s0 = param.bool 0
                       s1 = param.f32 1
                       s2 = const.f32 0.5
                       s3 = select.f32 s0 s1 s2
                       r0 = reduce.sum s3 lane(d1)
                       %y[d0, d1] = store s3
                     }}
                     stage [] {{ p0 = r0 s0 = param.f32 0 %r[d0] = store s0 }}
                   }}
                   return %y, %r
                 }}"
            ));
        }
    }
}

/// Rows of several arrays side by side, along their rows and across them.
#[test]
fn arrays_side_by_side() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32] {
        for (a, b, c) in [(3, 4, 1), (5, 4, 1), (1, 7, 8), (3, 4, 5), (20, 1, 2)] {
            for [row, column, domain] in [["d0", "d1", "rows"], ["d1", "d0", "columns"]] {
                let [to_b, to_c] = [a + b, a + b + c];
                let domain = match domain {
                    "rows" => format!("37, {to_c}"),
                    _ => format!("{to_c}, 37"),
                };
                holds(&format!(
                    "program @f {{
                       input %a: {dtype}[37, {a}]
                       input %b: {dtype}[37, {b}]
                       input %c: {dtype}[37, {c}]
                       output %y: {dtype}[37, {to_c}]
                       kernel @a [{domain}] {{ stage [] {{
                         p0 = load %a[{row}, {column}] when {column} in [0, {a})
                           else %b[{row}, {column} + -{a}] when {column} in [{a}, {to_b})
                           else %c[{row}, {column} + -{to_b}]
                         s0 = param.{dtype} 0
                         %y[{row}, {column}] = store s0
                       }} }}
                       return %y
                     }}"
                ));
            }
        }
    }
}

/// Factors, divisors and ends of guards that 32 bits do not hold: wrapped, they would pass guards and leave arrays.
#[test]
fn numbers_of_more_than_32_bits() {
    // Eight terms that have 30 bits each, and together 2^32 at some places.
    let sum =
        (1..9).map(|k| format!("(d1 + {k}) / 20 * 268435456")).collect::<Vec<_>>().join(" + ");
    let sum = format!("%x[(d1 + 1) / 7] when {sum} in [0, 100)");
    for dtype in [DType::F32, DType::F64, DType::I8] {
        for (x, y, load) in [
            ("8", "58, 54", sum.as_str()),
            ("8", "58, 54", "%x[(d1 + 1) / 7] when d1 * 4294967296 in [0, 100)"),
            ("8", "58, 54", "%x[(d1 + 1) / 7] when (d1 + 1) / 7 in [2, 4294967296)"),
            ("64", "2, 40", "%x[d1 / 4294967297] when d1 in [0, 39)"),
            (
                "100, 8",
                "58, 54",
                "%x[(d0 + 1) / 15 * 4294967296, (d1 + 1) / 7] when (d0 + 1) / 15 * 4294967296 in [0, 100)",
            ),
            (
                "100",
                "58, 54",
                "%x[(d1 + 1) / 7 * 4294967296] when (d1 + 1) / 7 * 4294967296 in [0, 100)",
            ),
            ("3", "2, 40", "%x[d1 / 4294967297] when d1 % 4294967297 in [0, 1)"),
            ("3", "2, 40", "%x[d1 / 12884901888] when d1 % 12884901888 in [0, 1)"),
            ("8", "58, 54", "%x[(d1 + 1) / 7] when (d0 + 1) / 15 * 268435456 in [0, 805306368)"),
            ("8", "58, 54", "%x[(d1 + 1) / 7] when (d1 + 1) / 15 * 268435456 in [0, 805306368)"),
        ] {
            copies(dtype, [x, y], &format!("p0 = load {load} else {dtype}(5)"), "d0, d1");
        }
    }
}
