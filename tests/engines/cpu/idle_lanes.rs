//! Lines over short axes that do not divide a vector: repeated, skipped and padded elements, rows of a few elements, and strided windows, by
//! 3, 5, 6 and 7. The last lanes of their groups are idle, and nothing may be stored by them.

use super::{agrees, layout, same_on, special};
use crate::common::random::inputs;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::Effort;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Module};

/// Numbers that do not divide a vector, and one that does.
const BY: [i64; 5] = [3, 4, 5, 6, 7];

/// A kernel over these extents, of `%x` with these, gives the evaluator's bits on unusual values.
fn holds(domain: &str, x: &str, load: &str, body: &str, [d, e]: [DType; 2], turn: usize) {
    let axes = domain.matches(',').count() + 1;
    let at: Vec<String> = (0..axes).map(|k| format!("d{k}")).collect();
    let at = at.join(", ");
    let text = format!(
        "program @f {{
           input %x: {d}[{x}]
           input %y: {e}[{domain}]
           output %z: {e}[{domain}]
           output %w: {d}[{domain}]
           kernel @a [{domain}] {{ stage [] {{
             p0 = load {load}
             p1 = load %y[{at}]
             s0 = param.{d} 0
             s1 = param.{e} 1
             {body}
             %w[{at}] = store s0
             %z[{at}] = store s2
           }} }}
           return %z, %w
         }}"
    );
    let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let program = verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
    let hard = program.inputs().filter_map(|b| program.buffers[b].ty());
    let hard = hard.map(|t| special(t.dtype, &t.dims().expect("constant"), turn)).collect();
    let all = [hard, super::arguments(&program)];
    let agreed = layout(&program, Effort::Default).and_then(|at| same_on(&program, &at, &all));
    agreed.unwrap_or_else(|why| panic!("{}\n{text}", &why[..why.len().min(2000)]));
}

/// Beside elements of 32 bits in patterns there are neighbours of other types.
const TYPES: [[DType; 2]; 4] = [
    [DType::F32, DType::F32],
    [DType::F32, DType::F64],
    [DType::I32, DType::I64],
    [DType::I32, DType::U8],
];

fn body([_, e]: [DType; 2]) -> String {
    format!("s2 = add.{e} s1 s1")
}

#[test]
fn patterns() {
    for (turn, by) in BY.into_iter().enumerate() {
        for types in TYPES {
            for n in [1, 2, 5, 16, 33, 100] {
                let all = n * by;
                // Rows of a few elements: one of a column, and the columns of a row.
                holds(&format!("{n}, {by}"), &format!("{n}"), "%x[d0]", &body(types), types, turn);
                holds(
                    &format!("2, {n}, {by}"),
                    &format!("{by}, 2"),
                    "%x[d2, d0]",
                    &body(types),
                    types,
                    turn,
                );
                // Each element repeated, then elements with holes between them. The first hole may be anywhere.
                let one = format!("2, {all}");
                holds(
                    &one,
                    &format!("2, {n}"),
                    &format!("%x[d0, d1 / {by}]"),
                    &body(types),
                    types,
                    turn,
                );
                for from in [0, 1, by - 1] {
                    let guard = format!(
                        "%x[d0, (d1 + {from}) / {by}] when (d1 + {from}) % {by} in [0, 1) else {}({})",
                        types[0],
                        if types[0].is_float() { "0.0" } else { "0" },
                    );
                    let wide = format!("2, {}", n + 1);
                    holds(&one, &wide, &guard, &body(types), types, turn);
                }
            }
        }
    }
}

/// Two short axes, of which the outer one reads elsewhere, inside of padding.
#[test]
fn images() {
    for (turn, [h, w]) in
        [[2, 3], [3, 2], [3, 5], [5, 3], [7, 2], [6, 6], [7, 7]].into_iter().enumerate()
    {
        for types in TYPES {
            let domain = format!("9, {h}, {w}");
            let x = format!("9, {}, {}", h + 2, w + 3);
            holds(&domain, &x, "%x[d0, d1 + 1, d2 + 2]", &body(types), types, turn);
        }
    }
}

/// Windows with strides, their maxima and sums, and the gradients of these.
#[test]
fn windows() {
    for by in [2, 3, 5] {
        for fold in ["max", "sum"] {
            for (k, n) in [(by, 4 * by), (by, 16 * by), (by + 1, 9 * by + 1), (by - 1, 7 * by)] {
                let m = (n - k) / by + 1;
                let text = format!(
                    "func @f(%x: f32[3,{n},{n}], %t: f32[3,{m},{m}]) -> f32[] {{
                       %p = reduce_window_{fold} %x {{window = [1, {k}, {k}], strides = [1, {by}, {by}]}} : f32[3,{m},{m}]
                       %w = mul %p, %t : f32[3,{m},{m}]
                       %s = reduce_sum %w {{axes = [0, 1, 2]}} : f32[]
                       return %s
                     }}"
                );
                let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
                let f = module.funcs.values().next().expect("a function");
                let wrt = differentiable(f, None).expect("has floats");
                let g = forward_and_backward(&module, f, &wrt).expect("a gradient");
                let args = inputs(&g, &[Domain::Normal]);
                if let Err(why) = agrees(&Module::single(g.clone()), &g, &args) {
                    panic!("{text}: {}", &why[..why.len().min(3000)]);
                }
            }
        }
    }
}
