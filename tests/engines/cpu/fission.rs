//! Bodies of many values, which are computed in parts: values, truth values and pairs of vectors cross from part to part, outputs
//! are early ones too, and are stored where an operand was.

use super::widths::{made, wide};
use super::{agrees_on, special};
use crate::common::random::inputs;
use adfuse::backends::cpu::Vectors;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// Types of values, and others that some are converted to on the way.
const TYPES: [[&str; 2]; 8] = [
    ["f32", "f64"],
    ["f32", "i32"],
    ["f64", "f32"],
    ["bf16", "f32"],
    ["i32", "i64"],
    ["i64", "i32"],
    ["u8", "u32"],
    ["f16", "bf16"],
];

/// Whole strips, groups that are left, and the first lines that have strips.
const LENGTHS: [u64; 6] = [63, 130, 256, 271, 1100, 1543];

/// Numbers of a sequence.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// This many steps from `%v0` to `%v2` on. The last value has the number of steps and two more.
fn steps([t, other]: [&str; 2], dims: &str, count: usize, seed: u64) -> String {
    let mut random = Sequence(seed);
    let mut text = String::new();
    let mut masks = Vec::new();
    for i in 3..count + 3 {
        // One operand is the value before, so that nothing is left out; another is one of the last, or now and then as old as may be.
        let recent = i - 1 - random.below(i.min(5));
        let (a, b) = (if random.below(9) == 0 { random.below(i) } else { recent }, i - 1);
        text += &match random.below(8) {
            0 => format!("%v{i} = mul %v{a}, %v{b} : {t}[{dims}]\n"),
            1 => format!("%v{i} = max %v{a}, %v{b} : {t}[{dims}]\n"),
            2 | 3 if i > 3 => {
                masks.push(i);
                let recent = random.below(masks.len().min(3));
                let chosen = masks[masks.len() - 1 - recent];
                let mask = format!("%m{i} = lt %v{a}, %v{b} : bool[{dims}]\n");
                format!("{mask}%v{i} = select_n %m{chosen}, %v{b}, %v{a} : {t}[{dims}]\n")
            }
            4 => format!(
                "%w{i} = convert_element_type %v{b} : {other}[{dims}]
                 %x{i} = add %w{i}, %w{i} : {other}[{dims}]
                 %y{i} = convert_element_type %x{i} : {t}[{dims}]
                 %v{i} = sub %y{i}, %v{a} : {t}[{dims}]\n"
            ),
            5 => format!("%v{i} = sub %v{b}, %v{a} : {t}[{dims}]\n"),
            _ => format!("%v{i} = add %v{a}, %v{b} : {t}[{dims}]\n"),
        };
    }
    text
}

fn holds(text: &str, turn: usize) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function");
    let types = f.param_types();
    let hard = types.iter().enumerate();
    let hard = hard.map(|(k, t)| special(t.dtype, &t.dims().expect("constant"), turn + k));
    let all = [hard.collect(), inputs(f, &[Domain::Normal])];
    agrees_on(&module, f, &all)
        .unwrap_or_else(|why| panic!("{}\n{text}", &why[..why.len().min(3000)]));
}

/// Whether the instructions of a function are of a body in parts: vectors of a strip are at multiples of the offset of a mask.
fn in_parts(asm: &str) -> bool {
    asm.lines().any(|l| l.contains("[rsp+r10*8") || l.contains("[rsp+r10*4"))
}

/// Values of every kind, with an early value and a truth value among the results.
#[test]
fn lines_in_strips() {
    for (k, types) in TYPES.into_iter().enumerate() {
        for (turn, n) in LENGTHS.into_iter().enumerate() {
            let (t, dims) = (types[0], n.to_string());
            let all = steps(types, &dims, 130, (k * 31 + turn) as u64);
            let text = format!(
                "func @f(%v0: {t}[{dims}], %v1: {t}[{dims}], %v2: {t}[{dims}]) -> ({t}[{dims}], {t}[{dims}], bool[{dims}]) {{
                   {all}%less = lt %v20, %v60 : bool[{dims}]
                   return %v132, %v10, %less
                 }}"
            );
            holds(&text, turn);
            if n >= 256 && t == "f32" {
                for vectors in wide() {
                    let found = made(&text, vectors);
                    assert!(found.iter().any(|(_, asm)| in_parts(asm)), "{vectors:?}\n{text}");
                }
            }
        }
    }
}

/// Sums along lines and over columns.
#[test]
fn folds_of_bodies_in_parts() {
    for (k, types) in TYPES.into_iter().take(6).enumerate() {
        for (axis, left) in [(1, "3"), (0, "1100")] {
            let (t, dims) = (types[0], "3,1100");
            let all = steps(types, dims, 120, (k * 17 + axis) as u64);
            let text = format!(
                "func @f(%v0: {t}[{dims}], %v1: {t}[{dims}], %v2: {t}[{dims}]) -> ({t}[{left}], {t}[{left}], {t}[{dims}]) {{
                   {all}%sum = reduce_sum %v122 {{axes = [{axis}]}} : {t}[{left}]
                   %most = reduce_max %v90 {{axes = [{axis}]}} : {t}[{left}]
                   return %sum, %most, %v30
                 }}"
            );
            holds(&text, k);
            for vectors in wide().into_iter().filter(|_| t == "f32") {
                let found = made(&text, vectors);
                assert!(found.iter().any(|(_, asm)| in_parts(asm)), "{vectors:?}\n{text}");
            }
        }
    }
}

/// A result is stored where an operand was that is a result itself: it is read before.
#[test]
fn operands_that_end_in_results() {
    for whole in ["reduce_sum", "reduce_max"] {
        let mut body = String::from("%h0 = mul %t, %b : f32[1100]\n");
        for i in 1..60 {
            let other = if i < 4 { "%t" } else { "%b" };
            body += &format!(
                "%m{i} = mul %h{}, %b : f32[1100]
                 %h{i} = add %m{i}, {other} : f32[1100]\n",
                i - 1
            );
        }
        let scatter = "{window_dims = [], inserted = [0], start_map = [0], mode = drop}";
        let text = format!(
            "func @f(%a: f32[1100], %b: f32[1100], %i: i32[7,1], %u: f32[7]) -> (f32[1100], f32[]) {{
               %t = scatter_add %a, %i, %u {scatter} : f32[1100]
               {body}%s = {whole} %t {{axes = [0]}} : f32[]
               %y = scatter_add %h59, %i, %u {scatter} : f32[1100]
               return %y, %s
             }}"
        );
        holds(&text, 0);
        for vectors in wide() {
            let found = made(&text, vectors);
            assert!(found.iter().any(|(_, asm)| in_parts(asm)), "{vectors:?}\n{text}");
        }
    }
}

/// Hundreds of values are alive at once, in as many kernels as the planner makes.
#[test]
fn hundreds_of_values_alive() {
    let dims = "700";
    let mut all = String::new();
    for i in 3..700 {
        all += &format!("%v{i} = mul %v{}, %v{} : f32[{dims}]\n", i - 1, i - 3);
    }
    all += "%s1 = add %v0, %v1 : f32[700]\n";
    for i in 2..700 {
        all += &format!("%s{i} = add %s{}, %v{i} : f32[{dims}]\n", i - 1);
    }
    let mut back = String::from("%b0 = mul %s699, 0.5 : f32[700]\n");
    for i in 1..700 {
        back += &format!("%b{i} = sub %v{}, %b{} : f32[{dims}]\n", 700 - i, i - 1);
    }
    let text = format!(
        "func @f(%v0: f32[{dims}], %v1: f32[{dims}], %v2: f32[{dims}]) -> f32[{dims}] {{ {all}{back} return %b699 }}"
    );
    holds(&text, 1);
}

/// Strips and the spills of other groups are in one frame, which has room for both.
#[test]
fn strips_and_spills_in_one_frame() {
    // Hundreds of long values, of which a hundred are alive at once now and then.
    let mut body = String::new();
    for k in 0..2 {
        let base = k * 400;
        for i in 1..=200 {
            body += &format!("%v{} = mul %v{}, %p : f64[2000]\n", base + i, base + i - 1);
        }
        for i in 1..=200 {
            body += &format!(
                "%v{} = add %v{}, %v{} : f64[2000]\n",
                base + 200 + i,
                base + 200 + i - 1,
                base + if i < 190 { 0 } else { 201 - i }
            );
        }
    }
    let text =
        format!("func @f(%v0: f64[2000], %p: f64[2000]) -> f64[2000] {{ {body} return %v800 }}");
    holds(&text, 1);
    for vectors in wide() {
        let found = made(&text, vectors);
        assert!(found.iter().all(|(emitter, _)| emitter.why().is_none()), "{vectors:?}\n{text}");
    }
}

/// What changes with every fourth element alone is computed once for several groups, not in parts.
#[test]
fn random_bits_among_many_values() {
    let all = steps(["f32", "f64"], "1000", 120, 9);
    let text = format!(
        "func @f(%v0: f32[1000], %v1: f32[1000], %seed: i64[], %step: i64[]) -> f32[1000] {{
           %bits = rng_bits %seed, %step : u32[1000]
           %v2 = convert_element_type %bits : f32[1000]
           {all}return %v122
         }}"
    );
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function");
    agrees_on(&module, f, &[inputs(f, &[Domain::Normal])]).unwrap_or_else(|why| panic!("{why}"));
    for vectors in wide().into_iter().filter(|&v| v == Vectors::Avx512) {
        assert!(made(&text, vectors).iter().all(|(_, asm)| !in_parts(asm)), "{text}");
    }
}
