//! Bodies of many values, which are computed in parts: values, truth values and pairs of vectors cross from part to part, outputs
//! are early ones too, and are stored where an operand was.

use super::widths::{made, wide};
use super::{agrees_on, special};
use crate::common::random::inputs;
use adfuse::ir::DType;
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
const LENGTHS: [u64; 6] = [63, 64, 130, 200, 1100, 1543];

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
        // One operand is the value before, so that nothing is left out; another is as old as may be.
        let (a, b) = (random.below(i), i - 1);
        text += &match random.below(8) {
            0 => format!("%v{i} = mul %v{a}, %v{b} : {t}[{dims}]\n"),
            1 => format!("%v{i} = max %v{a}, %v{b} : {t}[{dims}]\n"),
            2 | 3 if i > 3 => {
                masks.push(i);
                let chosen = masks[random.below(masks.len())];
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
            if n >= 64 {
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
        }
    }
}

/// Neighbours are read as well, and results are stored where what was read had been.
#[test]
fn operands_that_end_in_results() {
    for (k, types) in TYPES.into_iter().enumerate() {
        let (t, dims) = (types[0], "4,300");
        let all = steps(types, dims, 120, k as u64 + 5);
        let text = format!(
            "func @f(%x: {t}[{dims}], %y: {t}[4,298], %v2: {t}[{dims}]) -> {t}[{dims}] {{
               %v0 = sort %x {{axis = 1}} : {t}[{dims}]
               %v1 = pad %y, 1 {{low = [0, 1], high = [0, 1], interior = [0, 0]}} : {t}[{dims}]
               {all}%s = sort %v122 {{axis = 1}} : {t}[{dims}]
               return %s
             }}"
        );
        holds(&text, k);
    }
}

/// Hundreds of values are alive to the end: the body is whole.
#[test]
fn bodies_with_too_much_alive() {
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

/// What changes with every fourth element alone is computed once for several groups, not in parts.
#[test]
fn random_bits_beside_many_values() {
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
    assert_eq!(f.param_types()[2].dtype, DType::I64);
    agrees_on(&module, f, &[inputs(f, &[Domain::Normal])]).unwrap_or_else(|why| panic!("{why}"));
}
