//! Programs that JAX wrote (`tests/jax/make.py`): values and gradients beside JAX's, on the reference engine and on the
//! CPU engine.

use adfuse::autodiff::value_and_grad_has_aux;
use adfuse::backends::{Array, reference};
use adfuse::engine::Cpu;
use adfuse::ir::rewrite::specialize;
use adfuse::ir::{Dim, Function, Module, Op, Symbol};
use adfuse_import::{ImportOptions, stablehlo};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Default)]
struct Fixture {
    inputs: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
    gradients: Option<Vec<Vec<f64>>>,
    /// The extents of the arguments of a program with symbols.
    extents: Option<Vec<Vec<f64>>>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/jax")
}

fn fixtures() -> BTreeMap<String, Fixture> {
    let text = std::fs::read_to_string(folder().join("values.json")).expect("values.json");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let lists = |v: &serde_json::Value| -> Vec<Vec<f64>> {
        serde_json::from_value(v.clone()).expect("lists of numbers")
    };
    let all = json.as_object().expect("an object").iter().map(|(name, v)| {
        let [gradients, extents] = ["gradients", "extents"].map(|k| v.get(k).map(lists));
        let (inputs, values) = (lists(&v["inputs"]), lists(&v["values"]));
        (name.clone(), Fixture { inputs, values, gradients, extents })
    });
    all.collect()
}

fn imported(name: &str) -> Module {
    let text = std::fs::read_to_string(folder().join(format!("{name}.mlir"))).expect("a program");
    stablehlo(&text, &ImportOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}")).module
}

/// The function at the extents of the fixture's arguments, where it has symbols.
fn main_of(module: &Module, fixture: &Fixture) -> Function {
    let f = module.find("main").expect("main");
    let Some(extents) = &fixture.extents else { return f.clone() };
    specialize(f, &symbols(f, extents)).expect("extents that fit")
}

/// The extents of symbols, read off those of arguments.
fn symbols(f: &Function, extents: &[Vec<f64>]) -> BTreeMap<Symbol, u64> {
    let types = f.param_types();
    let axes = types.iter().zip(extents).flat_map(|(ty, dims)| ty.shape.iter().zip(dims));
    let bound = axes.filter_map(|(d, &n)| match d {
        Dim::Sym(s) => Some((*s, n as u64)),
        Dim::Const(_) => None,
    });
    bound.collect()
}

fn arguments(f: &Function, inputs: &[Vec<f64>]) -> Vec<Array> {
    let each = f.param_types().into_iter().zip(inputs);
    each.map(|(ty, v)| {
        Array::from_f64s(ty.dtype, &ty.dims().expect("extents"), v).expect("an array")
    })
    .collect()
}

/// Off by at most 2e-5 of the largest magnitude of the array, or of 1.
fn assert_near(name: &str, what: &str, got: &Array, wanted: &[f64]) {
    let size = wanted.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    let got = got.to_f64s();
    assert_eq!(got.len(), wanted.len(), "{name}, {what}");
    for (k, (a, b)) in got.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= 2e-5 * size, "{name}, {what}: element {k} is {a}, not {b}");
    }
}

#[test]
fn values_are_those_of_jax() {
    for (name, fixture) in fixtures() {
        let module = imported(&name);
        let f = &main_of(&module, &fixture);
        let args = arguments(f, &fixture.inputs);
        let on_reference = reference::run(&module, f, &args, &mut reference::Silent).expect("runs");
        let on_cpu = Cpu::default().compile(&module, f).and_then(|c| c.run(&args));
        for results in [on_reference, on_cpu.unwrap_or_else(|e| panic!("{name}: {e}"))] {
            assert_eq!(results.len(), fixture.values.len(), "{name}");
            for (k, (got, wanted)) in results.iter().zip(&fixture.values).enumerate() {
                assert_near(&name, &format!("result {k}"), got, wanted);
            }
        }
    }
}

#[test]
fn gradients_are_those_of_jax() {
    for (name, fixture) in fixtures() {
        let Some(gradients) = &fixture.gradients else { continue };
        let module = imported(&name);
        let f = &main_of(&module, &fixture);
        let is_float = |k: &usize| f.param_types()[*k].dtype.is_float();
        let wrt: Vec<usize> = (0..f.params().len()).filter(is_float).collect();
        let made =
            value_and_grad_has_aux(&module, f, &wrt).unwrap_or_else(|e| panic!("{name}: {e}"));
        let args = arguments(f, &fixture.inputs);
        let module = Module::single(made);
        let made = module.funcs.values().next().expect("a function");
        let results = Cpu::default().compile(&module, made).and_then(|c| c.run(&args));
        let results = results.unwrap_or_else(|e| panic!("{name}: {e}"));
        let first = results.len() - gradients.len();
        for (k, (got, wanted)) in results[first..].iter().zip(gradients).enumerate() {
            assert_near(&name, &format!("gradient {k}"), got, wanted);
        }
    }
}

/// The ops of all functions.
fn ops(module: &Module) -> Vec<Op> {
    let mut found = Vec::new();
    for f in module.funcs.values() {
        f.walk(&mut |f, i| found.push(f.op(i)));
    }
    found
}

#[test]
fn loops_of_scans_are_scans_and_counting_ones_fori() {
    for (name, wanted, gone) in [
        ("lstm", Op::Scan, Op::DynamicSlice),
        ("lstm", Op::Scan, Op::DynamicUpdateSlice),
        ("backward_scan", Op::Scan, Op::DynamicSlice),
        ("backward_scan", Op::Scan, Op::While),
        ("vmap_scan", Op::Scan, Op::While),
        ("fori", Op::Fori, Op::While),
        ("sampling", Op::Fori, Op::While),
        ("sort", Op::Sort, Op::SortKeyVal),
        ("argmax_pick", Op::Argmax, Op::Scan),
        ("while_loop", Op::While, Op::Fori),
    ] {
        let ops = ops(&imported(name));
        assert!(ops.contains(&wanted), "{name} has no {wanted}");
        assert!(!ops.contains(&gone), "{name} has {gone}");
    }
}

/// Axes have the names that JAX gave them; those that it says are equal are one symbol. At extents that are given, the program
/// is that of constants.
#[test]
fn symbols_are_those_of_jax() {
    for (name, wanted) in [
        ("symbolic_mlp", &["rows"][..]),
        ("symbolic_words", &["b", "t"]),
        ("symbolic_scan", &["b"]),
    ] {
        let fixture = &fixtures()[name];
        let module = imported(name);
        let f = module.find("main").expect("main");
        let found: Vec<&str> = f.symbols.iter().map(Symbol::as_str).collect();
        assert_eq!(found, wanted, "{name}");
        let bound = symbols(f, fixture.extents.as_deref().expect("extents"));
        let bound: Vec<(&str, u64)> = bound.iter().map(|(s, &n)| (s.as_str(), n)).collect();
        let module = stablehlo_at(name, &bound);
        let f = module.find("main").expect("main");
        assert!(f.symbols.is_empty(), "{name}");
        let args = arguments(f, &fixture.inputs);
        let results = reference::run(&module, f, &args, &mut reference::Silent).expect("runs");
        for (k, (got, wanted)) in results.iter().zip(&fixture.values).enumerate() {
            assert_near(name, &format!("result {k} at extents"), got, wanted);
        }
    }
    let ops = ops(&stablehlo_at("symbolic_scan", &[("b", 3)]));
    assert!(ops.contains(&Op::Fori) && ops.contains(&Op::DynamicSlice), "slices at known extents");
}

fn stablehlo_at(name: &str, extents: &[(&str, u64)]) -> Module {
    let text = std::fs::read_to_string(folder().join(format!("{name}.mlir"))).expect("a program");
    let options =
        extents.iter().fold(ImportOptions::default(), |options, (s, n)| options.extent(s, *n));
    stablehlo(&text, &options).unwrap_or_else(|e| panic!("{name}: {e}")).module
}

/// JAX's calls of LAPACK for `qr` are `qr`, which has a rule: no step of its loops is kept.
#[test]
fn reflections_of_jax_are_qr() {
    for name in ["qr", "wide_qr"] {
        let ops = ops(&imported(name));
        assert!(ops.contains(&Op::Qr) && !ops.contains(&Op::Householder), "{name}: {ops:?}");
        assert!(!ops.contains(&Op::HouseholderProduct), "{name}");
    }
}
