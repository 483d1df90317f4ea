//! Fits the shape of an orbit to positions: `cargo run --release -p adfuse-examples --example orbit`.
//!
//! A position at a time follows from Kepler's equation, `E - e sin E = M`, which has no solution in closed form. A loop
//! solves it, in a number of steps that differs by position, and the gradient is that of the solution by the
//! implicit function theorem (`Tracer::custom_root`): no derivative goes through the loop.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

use adfuse::autodiff::{Batching, Derived, vmap};
use adfuse::prelude::*;

const POSITIONS: u64 = 64;
const STEPS: usize = 12;

/// The eccentric anomaly `E` of a mean anomaly `M` and an eccentricity `e`, by Newton steps.
fn anomaly(t: &Tracer, mean: &Tensor, e: &Tensor) -> Tensor {
    let kepler = |x: &Tensor| x - x.sin() * e - mean;
    let newton = |x: Tensor| {
        t.while_loop(x, |x| kepler(&x).abs().gt(1e-13), |x| &x - kepler(&x) / (1.0 - x.cos() * e))
    };
    t.custom_root(mean.clone(), newton, |x| kepler(&x))
}

fn numbers(x: &[f64]) -> Result<Array, Diagnostic> {
    Array::from_f64s(DType::F64, &[x.len() as u64], x)
}

fn main() -> Result<(), Diagnostic> {
    // The place along the orbit at one time, in units of the semi-major axis.
    let place = trace("place", |t| {
        let (mean, e) = (t.input("mean", f64s([])), t.input("e", f64s([])));
        anomaly(t, &mean, &e).cos() - e
    })?;
    let module = Module::single(place.clone());
    let all = Batching::new(POSITIONS, [Some(0), None]);
    let places = vmap(&module, &place, &all)?;
    let slopes = Derived::new(&module, &place).vmap(&all)?.jvp(&[1])?.finish()?;

    let means: Vec<f64> = (0..POSITIONS).map(|k| 0.1 * k as f64).collect();
    let means = numbers(&means)?;
    let at = |f: &Function, args: &[Array]| run(&Module::single(f.clone()), f, args, &mut Silent);
    let scalar = |x: f64| Array::from_f64s(DType::F64, &[], &[x]);
    let truth = 0.2056;
    let observed = at(&places, &[means.clone(), scalar(truth)?])?[0].to_f64s();

    // Least squares of one parameter: Gauss-Newton steps.
    let mut e = 0.6;
    for step in 0..STEPS {
        let out = at(&slopes, &[means.clone(), scalar(e)?, scalar(1.0)?])?;
        let (found, slope) = (out[0].to_f64s(), out[1].to_f64s());
        let errors: Vec<f64> = found.iter().zip(&observed).map(|(a, b)| a - b).collect();
        let square: f64 = errors.iter().map(|r| r * r).sum();
        println!("step {step:2}: e = {e:.12}, error {:.3e}", square.sqrt());
        let along: f64 = errors.iter().zip(&slope).map(|(r, s)| r * s).sum();
        let size: f64 = slope.iter().map(|s| s * s).sum();
        e -= along / size;
    }
    println!("e = {e:.12}, and was {truth}");
    Ok(())
}
