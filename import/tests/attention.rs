//! Attention as people write it in JAX (`tests/attention/make.py`) becomes the op, with the values of what is written.

use adfuse::backends::reference::{Silent, run};
use adfuse::backends::{Array, cpu::Vectors};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions};
use adfuse::ir::op::AttentionReach;
use adfuse::ir::{DType, Function, Module, Op};
use adfuse::pipeline::{self, CompileUnit, ListingCompiler, Machine};
use adfuse_import::{ImportOptions, stablehlo};

/// The programs, the reach of rows, and how many operands the op has.
const PROGRAMS: &[(&str, &str, usize)] = &[
    ("transposed_keys", "causal", 3),
    ("mask_of_numbers", "causal", 3),
    ("added_mask", "causal", 3),
    ("root_of_depth", "causal", 3),
    ("no_mask", "", 3),
    ("batched", "causal", 3),
    ("heads_after_rows", "causal", 3),
    ("batched_inside", "causal", 3),
    ("of_jax", "", 3),
    ("of_jax_causal", "causal", 3),
    ("of_jax_window", "window [32, 0]", 3),
    // A finite number stands where the mask hides a key: a row which sees nothing has equal weights.
    ("of_jax_masked", "", 4),
    ("of_flax", "causal", 3),
    ("one_head", "causal", 3),
];

/// What the pass `stabilize` makes of a function on an engine.
fn stable(module: &Module, f: &Function, (machine, device, fp): (Machine, &str, Fp)) -> Function {
    let device = MachineModel::named(device).expect("a device");
    let options = PlanOptions { device, effort: Effort::Quick, fp };
    let mut unit = CompileUnit::of(module, f);
    let compiler = ListingCompiler { options, machine };
    pipeline::run(&compiler, &mut unit, "stabilize", "stabilize").unwrap_or_else(|d| panic!("{d}"));
    unit.take_function().expect("a function")
}

/// Elements from -1 to 1 that follow no line, and truth values of which a row in 16 has none.
fn arguments(f: &Function) -> Vec<Array> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    let each = f.param_types().into_iter().map(|ty| {
        let dims = ty.dims().expect("extents");
        let row = *dims.last().expect("an axis") as usize;
        let count = dims.iter().product::<u64>() as usize;
        let value = |k: usize, x: f64| match ty.dtype {
            DType::Bool => f64::from(x > 0.0 && k / row % 16 != 5),
            _ => x,
        };
        let values: Vec<f64> = (0..count).map(|k| value(k, next())).collect();
        Array::from_f64s(ty.dtype, &dims, &values).expect("an array")
    });
    each.collect()
}

#[test]
fn attention_of_jax_becomes_the_op() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attention");
    let vectors = Vectors::of_bits(256).expect("vectors");
    for (name, reach, operands) in PROGRAMS {
        for dtype in ["f32", "bf16"] {
            let name = format!("{name}.{dtype}");
            let text = std::fs::read_to_string(folder.join(format!("{name}.mlir"))).expect(&name);
            let imported = stablehlo(&text, &ImportOptions::default());
            let module = imported.unwrap_or_else(|e| panic!("{name}: {e}")).module;
            let f = module.find("main").expect("main");
            let cpu =
                (Machine::Target("x86_64-unknown-linux-gnu", vectors), "cpu", Fp::Reproducible);
            // A GPU has a step for it in all modes but, of f32, in `fast`.
            let fp = if dtype == "f32" { Fp::Reproducible } else { Fp::Fast };
            for engine in [cpu, (Machine::Gpu(9, 0), "h200", fp)] {
                let made = stable(&module, f, engine);
                let mut found = made.body_insts().iter().filter(|&&i| made.op(i) == Op::Attention);
                let op = *found.next().unwrap_or_else(|| panic!("{name}: {made}"));
                assert_eq!(AttentionReach::of(made.attrs(op)).to_string().trim(), *reach, "{name}");
                assert_eq!(made.args(op).len(), *operands, "{name}");
                let exponentials = made.body_insts().iter().filter(|&&i| made.op(i) == Op::Exp);
                assert_eq!(exponentials.count(), 0, "{name}");
                let args = arguments(f);
                let [old, new] = [f, &made].map(|f| run(&module, f, &args, &mut Silent));
                let [old, new] = [old, new].map(|r| r.expect("runs")[0].to_f64s());
                // Scores and weights of `bf16` are not rounded on the way.
                let tolerance = if dtype == "f32" { 1e-5 } else { 1.0 / 32.0 };
                let close = |(x, y): (&f64, &f64)| (x - y).abs() <= tolerance * (1.0 + y.abs());
                assert!(old.len() == new.len() && old.iter().zip(&new).all(close), "{name}");
            }
        }
    }
}
