//! Programs with loops as users write them: a recurrent network, fitted and adaptive integration, roots, nested
//! optimization, sphere tracing.
//!
//! Tests run them on every engine, and `benches/peers/loop_peers.py` has the same programs for JAX. `*.ir` in this
//! folder are those that `adfuse bench` runs at the sizes of `docs/performance/loops.md`.

mod dynamics;
mod march;
mod nested;
mod recurrent;
mod roots;

pub(crate) use dynamics::{adaptive, fit};
pub(crate) use march::{image, rendered};
pub(crate) use nested::{outer_descent, ridge};
pub(crate) use recurrent::{lstm, tanh_steps};
pub(crate) use roots::{equilibrium_by_root, equilibrium_by_steps};

use adfuse::prelude::*;

/// A scalar of `f64`.
fn scalar() -> TensorType {
    f64s([])
}

/// Numbers in [-1, 1] of 20 binary digits, the same in every language: `sin(.7 k + seed)`, rounded.
pub(crate) fn wave(count: usize, seed: f64) -> Vec<f64> {
    let unit = f64::from(1 << 20);
    (0..count).map(|k| ((0.7 * k as f64 + seed).sin() * unit).round() / unit).collect()
}

/// As [`wave`], scaled and moved: an input of a program.
pub(crate) fn input(dims: &[u64], seed: f64, scale: f64, offset: f64) -> Array {
    let count = dims.iter().product::<u64>() as usize;
    let values: Vec<f64> = wave(count, seed).iter().map(|x| offset + scale * x).collect();
    Array::from_f64s(DType::F64, dims, &values).expect("as many values as elements")
}

/// A program of one scalar result, with the inputs at which it is run.
pub(crate) struct LoopProgram {
    /// Its name, which is that of the function.
    pub(crate) name: &'static str,
    /// The function and what it calls.
    pub(crate) traced: Traced,
    /// Its inputs.
    pub(crate) inputs: Vec<Array>,
    /// The parameters to differentiate with respect to.
    pub(crate) wrt: Vec<usize>,
}

impl LoopProgram {
    fn new(traced: Result<Traced, Diagnostic>, wrt: &[usize], inputs: Vec<Array>) -> LoopProgram {
        let traced = traced.unwrap_or_else(|d| panic!("{d}"));
        let name = NAMES.iter().find(|name| **name == traced.function().name);
        let name = name.unwrap_or_else(|| panic!("@{} is not listed", traced.function().name));
        LoopProgram { name, traced, inputs, wrt: wrt.to_vec() }
    }
}

/// All programs, in the order of [`all`].
pub(crate) const NAMES: [&str; 9] = [
    "lstm",
    "tanh_steps",
    "fit",
    "adaptive",
    "equilibrium_by_steps",
    "equilibrium_by_root",
    "ridge",
    "outer_descent",
    "image",
];

/// The programs at the sizes and inputs of the tests.
pub(crate) fn all() -> Vec<LoopProgram> {
    let one = |x: f64| input(&[], 0.0, 0.0, x);
    let equilibrium = || vec![input(&[4, 4], 1.0, 0.2, 0.0), input(&[4], 2.0, 0.9, 0.1)];
    let regression = || {
        let data = [(&[8, 3][..], 1.0), (&[8], 2.0), (&[6, 3], 3.0), (&[6], 4.0)];
        let mut inputs: Vec<Array> =
            data.into_iter().map(|(dims, seed)| input(dims, seed, 1.0, 0.0)).collect();
        inputs.extend([one(0.05), one(0.3)]);
        inputs
    };
    let programs = vec![
        LoopProgram::new(
            lstm(DType::F64, 2, 3, 1000),
            &[0, 1, 2],
            vec![
                input(&[3, 12], 1.0, 0.6, 0.0),
                input(&[3, 12], 2.0, 0.6, 0.0),
                input(&[12], 3.0, 0.5, 0.5),
                input(&[1000, 2, 3], 4.0, 1.0, 0.0),
            ],
        ),
        LoopProgram::new(
            tanh_steps(DType::F64, 5, 200),
            &[0, 1, 2],
            vec![
                input(&[5, 5], 1.0, 0.5, 0.0),
                input(&[5], 2.0, 1.0, 0.0),
                input(&[200, 5], 3.0, 1.0, 0.0),
            ],
        ),
        LoopProgram::new(
            fit(40),
            &[0, 1],
            vec![
                Array::from_f64s(DType::F64, &[4], &[1.4, 0.8, 0.5, 1.2]).expect("four"),
                Array::from_f64s(DType::F64, &[2], &[1.0, 1.5]).expect("two"),
                input(&[40, 2], 5.0, 0.3, 1.5),
            ],
        ),
        LoopProgram::new(adaptive(), &[0, 1], vec![one(1.2), input(&[2], 1.0, 0.5, 1.0)]),
        LoopProgram::new(equilibrium_by_steps(), &[0, 1], equilibrium()),
        LoopProgram::new(equilibrium_by_root(), &[0, 1], equilibrium()),
        LoopProgram::new(ridge(30), &[0, 1, 2, 4, 5], regression()),
        LoopProgram::new(outer_descent(20, 4), &[4, 5], regression()),
        LoopProgram::new(
            image([4, 6]),
            &[0, 1],
            vec![one(0.9), input(&[3], 1.0, 0.2, 0.1), input(&[24], 7.0, 0.3, 0.5)],
        ),
    ];
    assert!(programs.iter().map(|p| p.name).eq(NAMES), "the list of names is that of programs");
    programs
}
