//! Chooses how much to shrink each weight of a regression: `cargo run --release -p adfuse-examples --example implicit`.
//!
//! The weights are the root of a gradient, which a loop finds. How the error on other data depends on the amounts of shrinking follows by
//! the implicit function theorem (`custom_root`): no derivative goes through the loop. Differences confirm it.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;

use adfuse::prelude::*;
use adfuse::sample::rng;
use adfuse::transform::{custom_root, grad, jit, value_and_grad, while_loop};
use clap::Parser;
use rand::Rng;
use std::error::Error;

/// The number of features. The targets depend on the first `TELLING`.
const FEATURES: usize = 12;
const TELLING: usize = 3;
const ROWS: usize = 20;

/// The weights that fit targets `y` to rows `x` with a penalty for each weight: `mean (x w - y)^2 + sum sigmoid(shrink) w^2` is least there.
fn fitted(x: &Tensor, y: &Tensor, shrink: &Tensor) -> Tensor {
    let loss =
        |w: &Tensor| (x.dot(w) - y).square().mean(..) + (shrink.sigmoid() * w.square()).sum(..);
    let slope = grad(loss);
    let descent =
        |w: Tensor| while_loop(w, |w| slope(&w).abs().gt(1e-13).any(..), |w| &w - slope(&w) * 0.1);
    custom_root(shrink.zeros_like(), descent, |w| slope(&w))
}

/// Rows of random features, and targets with noise.
fn drawn(seed: u64, stream: u64) -> Result<(Array, Array), Diagnostic> {
    let mut random = rng(seed, stream);
    let mut number = || random.random_range(-1.0..1.0f64);
    let x: Vec<f64> = (0..ROWS * FEATURES).map(|_| number()).collect();
    let target = |row: &[f64]| row[..TELLING].iter().sum::<f64>() + 0.5 * number();
    let y: Vec<f64> = x.chunks(FEATURES).map(target).collect();
    Ok((Array::from_vec(x, [ROWS as u64, FEATURES as u64])?, Array::from(y)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = common::ExampleFlags::parse();
    type Rows = (Tensor, Tensor);
    let error = jit(|(shrink, (x, y), (other, due)): (Tensor, Rows, Rows)| {
        let missed = |shrink: &Tensor| other.dot(&fitted(&x, &y, shrink)).mse(&due);
        value_and_grad(missed)(&shrink)
    });
    let error = error.on(flags.device()?);
    let (train, valid) = (drawn(flags.seed, 0)?, drawn(flags.seed, 1)?);
    let at = |shrink: &[f64]| -> Result<(f64, Vec<f64>), Diagnostic> {
        let shrink = Array::from(shrink);
        let (error, slope) = error.call(&(shrink, train.clone(), valid.clone()))?;
        Ok((error.item()?, slope.to_f64s()))
    };

    let mut shrink = vec![-3.0; FEATURES];
    let (first, slope) = at(&shrink)?;
    let mut off = 0.0f64;
    for k in 0..FEATURES {
        let moved = |by: f64| {
            let mut moved = shrink.clone();
            moved[k] += by;
            Ok::<f64, Diagnostic>(at(&moved)?.0)
        };
        let difference = (moved(1e-4)? - moved(-1e-4)?) / 2e-4;
        off = off.max((slope[k] - difference).abs());
    }
    println!("gradients and differences differ by {off:.1e} at most");

    let steps = flags.steps(200, 20);
    println!("error on other data: {first:.5} at first");
    for _ in 0..steps {
        let (_, slope) = at(&shrink)?;
        shrink.iter_mut().zip(&slope).for_each(|(s, by)| *s -= 20.0 * by);
    }
    println!("error on other data: {:.5} after {steps} steps", at(&shrink)?.0);
    let mean =
        |of: &[f64]| of.iter().map(|s| 1.0 / (1.0 + (-s).exp())).sum::<f64>() / of.len() as f64;
    let (telling, others) = shrink.split_at(TELLING);
    println!(
        "penalty of features that matter: {:.3}, of others: {:.3}",
        mean(telling),
        mean(others)
    );
    Ok(())
}
