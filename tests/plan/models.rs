//! The models of `tests/models`: planned at every effort they give the bits of the reference engine,
//! values and gradients.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile, cost, prepare};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module};
use adfuse::sample::{rng, sample};
use approx::abs_diff_eq;
use std::path::Path;

fn inputs(f: &Function) -> Vec<Array> {
    let mut rng = rng(5, 0);
    let draw = |t| sample(t, Domain::Normal, &mut rng).expect("small");
    f.param_types().iter().map(draw).collect()
}

/// The model's function with its gradients in all float parameters, which call nothing.
fn differentiated(path: &Path) -> (Module, Function) {
    let text = std::fs::read_to_string(path).expect("a model");
    let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
    let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
    let f = module.find(stem).or_else(|| module.find("main")).expect("the model's function");
    let wrt = differentiable(f, None).expect("has floats");
    let g = forward_and_backward(&module, f, &wrt)
        .unwrap_or_else(|d| panic!("{}: {d}", path.display()));
    (Module::single(g.clone()), g)
}

#[test]
fn plans_change_no_bit_of_any_model() {
    let models = crate::common::models::paths();
    assert!(models.len() >= 20, "{} models", models.len());
    for path in models {
        let (module, g) = differentiated(&path);
        let args = inputs(&g);
        let expected = run(&module, &g, &args, &mut Silent).expect("runs");
        let mut steps = Vec::new();
        for effort in [Effort::Off, Effort::Quick, Effort::Default] {
            for device in [MachineModel::cpu(), MachineModel::h200()] {
                let options = PlanOptions { device, effort, fp: Fp::Strict };
                let found = planned(&path, &module, &g, &options, &args, &mut steps);
                assert!(found == expected, "{} at {effort:?}", path.display());
            }
        }
        assert!(steps[4] < steps[0] && steps[5] < steps[0], "{}: {steps:?}", path.display());
    }
}

/// Where the order of sums is the plan's, results differ by rounding, and not from run to run.
#[test]
fn other_modes_differ_by_rounding() {
    for path in crate::common::models::paths() {
        let (module, g) = differentiated(&path);
        let args = inputs(&g);
        let expected = run(&module, &g, &args, &mut Silent).expect("runs");
        // What is rounded to 8 bits on the way differs by that much.
        let coarse = g.param_types().iter().any(|t| t.dtype == DType::BF16);
        for fp in [Fp::Reproducible, Fp::Fast] {
            let options = PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp };
            let mut steps = Vec::new();
            let found = planned(&path, &module, &g, &options, &args, &mut steps);
            assert_eq!(found, planned(&path, &module, &g, &options, &args, &mut steps));
            for (k, (x, y)) in found.iter().zip(&expected).enumerate() {
                let tolerance = match x.dtype() {
                    d if d.is_float() && coarse => 0.05,
                    DType::F64 => 1e-11,
                    DType::F32 => 2e-4,
                    _ => 0.0,
                };
                let (x, y) = (x.to_f64s(), y.to_f64s());
                let most = y.iter().fold(1.0f64, |m, y| m.max(y.abs()));
                let near = |(x, y): (&f64, &f64)| abs_diff_eq!(x, y, epsilon = tolerance * most);
                let all = x.iter().zip(&y).all(near);
                assert!(all, "{} at {fp:?}, result {k}: {x:?} {y:?}", path.display());
            }
        }
    }
}

/// Plans, verifies and runs a function; how many steps there are is noted.
fn planned(
    path: &Path,
    module: &Module,
    g: &Function,
    options: &PlanOptions,
    args: &[Array],
    steps: &mut Vec<usize>,
) -> Vec<Array> {
    let name = path.display();
    let compiled = compile(module, g, options).unwrap_or_else(|d| panic!("{name}: {d}"));
    steps.push(compiled.program.steps.len());
    let text = compiled.program.to_string();
    let program = verify(compiled.program).unwrap_or_else(|e| panic!("{name}: {}\n{text}", e[0]));
    kernel::run(&program, args).unwrap_or_else(|d| panic!("{name}: {d}\n{text}"))
}

/// The operations of a function with a kernel for every instruction: multiply-adds are two.
fn operations(module: &Module, f: &Function) -> u64 {
    let options = PlanOptions { device: MachineModel::cpu(), effort: Effort::Off, fp: Fp::Strict };
    let compiled = compile(module, f, &options).expect("compiles");
    let ops = cost(&compiled.program, &options.device).steps.into_iter().map(|s| s.ops);
    let each = |o: adfuse::fusion::Ops| {
        o.simple + o.special + o.integer + 2 * (o.contract_f32 + o.contract_f16 + o.contract_f64)
    };
    ops.map(each).sum()
}

/// Values and gradients together take at most four times the instructions and operations of the values.
#[test]
fn gradients_stay_in_proportion() {
    let mut worst = (0.0f64, 0.0f64);
    for (name, module, f) in crate::common::models::all() {
        let wrt = differentiable(&f, None).expect("has floats");
        let g = forward_and_backward(&module, &f, &wrt).unwrap_or_else(|d| panic!("{name}: {d}"));
        let alone = Module::single(g.clone());
        let count =
            |m: &Module, f: &Function| prepare(m, f).expect("prepares").body_insts().len() as f64;
        let longer = count(&alone, &g) / count(&module, &f);
        let more = operations(&alone, &g) as f64 / operations(&module, &f) as f64;
        assert!(longer <= 4.0, "{name}: {longer:.2} times the instructions\n{g}");
        assert!(more <= 4.0, "{name}: {more:.2} times the operations\n{g}");
        worst = (worst.0.max(longer), worst.1.max(more));
    }
    assert!(worst.0 > 1.0 && worst.1 > 1.0, "{worst:?}");
}
