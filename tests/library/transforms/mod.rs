//! Transformations of Rust functions: the values are those of the transformations of modules and of difference
//! quotients, at any nesting, with what closures capture and with rules.

mod composed;
mod errors;
mod jitted;
mod models;
mod rules;
mod single;

use adfuse::autodiff::Derived;
use adfuse::prelude::*;
use adfuse::trace::Traced;
use adfuse::tree::leaves;

/// Numbers that are not special, as many as asked for.
fn numbers(n: usize, seed: f64) -> Vec<f64> {
    (0..n).map(|k| ((k as f64 + 1.0) * (seed + 0.7)).sin() * 0.9 + 0.05).collect()
}

fn array(dims: &[u64], seed: f64) -> Array {
    let n = dims.iter().product::<u64>() as usize;
    Array::from_f64s(DType::F64, dims, &numbers(n, seed)).expect("as many as the extents say")
}

fn scalar(x: f64) -> Array {
    Array::from_f64s(DType::F64, &[], &[x]).expect("one number")
}

/// The results of a traced function, by the reference engine.
fn run_traced(f: &Traced, args: &[Array]) -> Vec<Array> {
    let module = Module::single(f.clone());
    verify(&module).unwrap_or_else(|e| panic!("{e:?}\n{f}"));
    run(&module, f, args, &mut Silent).unwrap_or_else(|e| panic!("{e}\n{f}"))
}

/// A function of one tensor of these extents, traced.
fn of_one<R: Params<Tensor>>(dims: &[u64], f: impl FnOnce(Tensor) -> R) -> Traced {
    let ty = TensorType::of(DType::F64, dims);
    trace("f", |t| f(t.input("x", ty))).unwrap_or_else(|e| panic!("{e:?}"))
}

/// What a chain of transformations of the module gives.
fn chained(
    f: &Traced,
    args: &[Array],
    chain: impl FnOnce(Derived) -> Result<Derived, Diagnostic>,
) -> Vec<Array> {
    let module = Module::single(f.clone());
    let made = chain(Derived::new(&module, f)).and_then(Derived::finish);
    let made = made.unwrap_or_else(|e| panic!("{e}\n{f}"));
    run(&Module::single(made.clone()), &made, args, &mut Silent)
        .unwrap_or_else(|e| panic!("{e}\n{made}"))
}

/// All numbers of a tree of arrays.
fn flat(arrays: &[Array]) -> Vec<f64> {
    arrays.iter().flat_map(Array::to_f64s).collect()
}

/// Errs beyond a tolerance relative to the numbers' size.
#[track_caller]
fn near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{found:?}\n{expected:?}");
    for (k, (a, b)) in found.iter().zip(expected).enumerate() {
        let off = (a - b).abs() / b.abs().max(1.0);
        assert!(off <= tolerance, "number {k}: {a} and {b}\n{found:?}\n{expected:?}");
    }
}

/// The Jacobian of a traced function by its first argument, by central differences of two widths (Richardson's
/// extrapolation): rows are numbers of the results.
fn differences(f: &Traced, args: &[Array]) -> Vec<f64> {
    let step = 1e-5;
    let at = args[0].to_f64s();
    let column = |k: usize| -> Vec<f64> {
        let side = |h: f64| {
            let mut x = at.clone();
            x[k] += h;
            let mut all = args.to_vec();
            all[0] = Array::from_f64s(DType::F64, args[0].dims(), &x).expect("the same extents");
            flat(&run_traced(f, &all))
        };
        let quotient = |h: f64| -> Vec<f64> {
            side(h).iter().zip(side(-h)).map(|(a, b)| (a - b) / (2.0 * h)).collect()
        };
        let (wide, narrow) = (quotient(2.0 * step), quotient(step));
        narrow.iter().zip(wide).map(|(n, w)| (4.0 * n - w) / 3.0).collect()
    };
    let columns: Vec<Vec<f64>> = (0..at.len()).map(column).collect();
    let rows = columns.first().map_or(0, Vec::len);
    (0..rows).flat_map(|r| columns.iter().map(move |c| c[r])).collect()
}

/// The arrays of a tree.
fn arrays(tree: &impl Params<Array>) -> Vec<Array> {
    leaves(tree)
}
