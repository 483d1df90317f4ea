//! Products of `bf16` and of 8-bit integers, which hosts with AMX, `AVX512_BF16` or `AVX512_VNNI` multiply by dot-product
//! instructions: integers have the evaluator's bits, `bf16` the same bits in every run, near the exact sums.
//!
//! `ADFUSE_EXPECT` names what the host must have, separated by commas: `amx`, `bf16`, `vnni`. Without it the tests pass
//! whatever multiplies.

use super::{agrees, layout};
use crate::common::random::inputs;
use adfuse::backends::Array;
use adfuse::backends::cpu::{CpuExecutable, CpuOptions};
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module, TensorType};

/// Batch, rows, columns, depth.
const SIZES: [[usize; 4]; 7] = [
    [1, 8, 8, 32],
    [1, 33, 70, 100],
    [2, 64, 64, 64],
    [3, 17, 40, 65],
    [1, 200, 96, 515],
    [1, 130, 600, 70],
    // Too few rows for dot products.
    [2, 3, 40, 64],
];

/// Operands by rows, or with the depth first; as they are, or computed; sums that are stored, or followed.
fn program(elements: &str, sums: &str, size: [usize; 4], way: usize) -> (Module, Function) {
    let [b, m, n, k] = size;
    let left = if way & 1 == 0 { [m, k] } else { [k, m] };
    let right = if way & 2 == 0 { [k, n] } else { [n, k] };
    let axes = [2 - (way & 1), 1 + (way >> 1 & 1)];
    let (of_x, of_y) = (
        format!("{elements}[{b},{},{}]", left[0], left[1]),
        format!("{elements}[{b},{},{}]", right[0], right[1]),
    );
    let of_z = format!("{sums}[{b},{m},{n}]");
    let mut lines = vec![];
    let (mut x, mut z) = ("%x", "%z");
    if way & 4 != 0 {
        lines.push(format!("%c = add %x, %x : {of_x}"));
        x = "%c";
    }
    lines.push(format!(
        "%z = dot_general {x}, %y {{batch = [0] x [0], contract = [{}] x [{}]}} : {of_z}",
        axes[0], axes[1]
    ));
    if way & 8 != 0 {
        lines.push(format!("%m = mul %z, %z : {of_z}"));
        lines.push(format!("%r = sub %m, %z : {of_z}"));
        z = "%r";
    }
    let text = format!(
        "func @f(%x: {of_x}, %y: {of_y}) -> {of_z} {{\n{}\nreturn {z}\n}}",
        lines.join("\n")
    );
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function").clone();
    (module, f)
}

/// Whether the environment says that the host has one of these.
fn expected(names: &[&str]) -> bool {
    let given = std::env::var("ADFUSE_EXPECT").unwrap_or_default();
    given.split(',').any(|word| names.contains(&word.trim()))
}

/// What runs a function in a mode.
pub(super) fn made(f: &Function, fp: Fp, threads: usize) -> CpuExecutable {
    let options = fusion::PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp };
    let compiled = compile(&Module::single(f.clone()), f, &options).expect("compiles");
    let program = verify(compiled.program).expect("verifies");
    let layout = layout(&program, Effort::Default).expect("fits");
    let options = CpuOptions { threads, fp, ..CpuOptions::default() };
    CpuExecutable::compile(&program, &layout, options).expect("compiles")
}

/// What multiplies.
fn multiplier(made: &CpuExecutable) -> String {
    let notes = made.steps().iter().flat_map(|s| &s.notes);
    let by = notes.filter_map(|note| note.rsplit_once(", by ").map(|(_, by)| by.to_string()));
    by.collect::<Vec<_>>().join(" ")
}

#[test]
fn integers_have_the_bits_of_the_evaluator() {
    for (elements, sums) in [("i8", "i32"), ("i8", "i8"), ("u8", "u32"), ("u8", "u8")] {
        for (n, size) in SIZES.into_iter().enumerate() {
            for way in (0..16).filter(|way| (way + n) % 3 == 0) {
                let (module, f) = program(elements, sums, size, way);
                let args = inputs(&f, &[Domain::Normal]);
                agrees(&module, &f, &args).unwrap_or_else(|why| panic!("{size:?}, {way}: {why}"));
            }
        }
        let (_, f) = program(elements, sums, [1, 64, 64, 64], 0);
        let by = multiplier(&made(&f, Fp::Strict, 1));
        if expected(&["amx"]) {
            assert!(by.contains("amx-int8"), "{elements}: {by}");
        } else if expected(&["vnni"]) {
            assert!(by.contains("vnni"), "{elements}: {by}");
        }
    }
}

#[test]
fn products_of_bf16_are_near_exact_and_the_same_in_every_run() {
    for (n, size) in SIZES.into_iter().enumerate() {
        for way in (0..8).filter(|way| (way + n) % 2 == 0) {
            let (_, f) = program("bf16", "f32", size, way);
            let (_, exact) = program("f64", "f64", size, way);
            let args = inputs(&f, &[Domain::Normal]);
            let widened = |(a, t): (&Array, TensorType)| {
                let dims: Vec<u64> = t.dims().expect("constant").to_vec();
                Array::from_f64s(DType::F64, &dims, &a.to_f64s()).expect("fits")
            };
            let wide: Vec<Array> = args.iter().zip(f.param_types()).map(widened).collect();
            let exact = made(&exact, Fp::Strict, 1).run(&wide).expect("runs")[0].to_f64s();
            let largest = exact.iter().fold(1.0f64, |most, x| most.max(x.abs()));
            for fp in [Fp::Reproducible, Fp::Fast] {
                let found = made(&f, fp, 1).run(&args).expect("runs");
                assert_eq!(found, made(&f, fp, 3).run(&args).expect("runs"), "{size:?}, {way}");
                for (x, y) in found[0].to_f64s().iter().zip(&exact) {
                    let apart = (x - y).abs() / largest;
                    assert!(apart <= 4e-6, "{fp:?}, {size:?}, {way}: {x} is not {y}");
                }
            }
        }
    }
}

/// The strict mode keeps its chain: dot-product instructions round in another order.
#[test]
fn strict_products_of_bf16_keep_the_chain() {
    for way in [0, 3, 5] {
        let (module, f) = program("bf16", "f32", [1, 40, 70, 600], way);
        agrees(&module, &f, &inputs(&f, &[Domain::Normal])).expect("the evaluator's bits");
    }
    let (_, f) = program("bf16", "f32", [1, 64, 64, 64], 0);
    let by = multiplier(&made(&f, Fp::Strict, 1));
    assert!(!by.contains("amx") && !by.contains("bf16"), "{by}");
    let by = multiplier(&made(&f, Fp::Reproducible, 1));
    if expected(&["amx"]) {
        assert!(by.contains("amx-bf16"), "{by}");
    } else if expected(&["bf16"]) {
        assert!(by.contains("bf16"), "{by}");
    }
}
