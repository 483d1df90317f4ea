//! Trains a deep network in ten memory budgets: `cargo run --release -p adfuse-examples --example budget`.
//!
//! What a budget has no room for is computed again in the backward pass. The losses keep their bits.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;

use adfuse::nn::{Linear, Param};
use adfuse::optim::Sgd;
use adfuse::prelude::*;
use adfuse::train::{TrainStep, train_step};
use clap::Parser;
use std::error::Error;
use std::time::{Duration, Instant};

const WIDTH: u64 = 64;

#[derive(Params, Clone)]
struct DeepNet<T = Tensor> {
    layers: Vec<Linear<T>>,
}

impl DeepNet {
    fn apply(&self, x: &Tensor) -> Tensor {
        self.layers.iter().fold(x.clone(), |x, layer| &x + layer.apply(&x).tanh() * 0.5)
    }
}

/// What a few steps took.
struct BudgetRun {
    peak: u64,
    fastest: Duration,
    losses: Vec<u64>,
}

fn measured(
    step: &TrainStep<DeepNet<Param>, Tensor, Tensor>,
    device: Device,
    batch: &Array,
    (steps, seed): (u64, u64),
) -> Result<BudgetRun, Diagnostic> {
    let mut state = step.init(device, seed)?;
    let mut losses = Vec::new();
    let mut fastest = Duration::MAX;
    for k in 0..steps {
        let begun = Instant::now();
        losses.push(state.step(batch)?.to_bits());
        // The first step plans and compiles.
        if k > 0 {
            fastest = fastest.min(begun.elapsed());
        }
    }
    Ok(BudgetRun { peak: state.peak_bytes(), fastest, losses })
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = common::ExampleFlags::parse();
    let (depth, rows) = if flags.small { (6, 1024) } else { (32, 4096) };
    let model = DeepNet { layers: vec![Linear::new(WIDTH, WIDTH); depth] };
    let step =
        train_step(Sgd::new(0.1), model, |net: &DeepNet, x: Tensor| net.apply(&x).mse(&x.rev(-1)));
    let values = (0..rows * WIDTH).map(|k| (k as f32 * 0.37).sin()).collect();
    let batch = Array::from_vec(values, [rows, WIDTH])?;
    let length = (flags.steps(6, 3).max(2), flags.seed);

    let free = measured(&step, flags.device()?, &batch, length)?;
    println!(
        "without a budget: peak {} KiB, {:.2} ms a step",
        free.peak >> 10,
        free.fastest.as_secs_f64() * 1e3
    );
    println!("{:>12}{:>12}{:>10}  loss", "budget KiB", "peak KiB", "ms");
    for share in (1..=10).rev() {
        let budget = free.peak * share / 10;
        let within = measured(&step, flags.device()?.mem_budget(budget), &batch, length);
        print!("{:>12}", budget >> 10);
        match within {
            Ok(run) => {
                let same = if run.losses == free.losses { "the same bits" } else { "DIFFERENT" };
                let ms = run.fastest.as_secs_f64() * 1e3;
                println!("{:>12}{ms:>10.2}  {same}", run.peak >> 10);
            }
            // It says what the least budget is.
            Err(refused) => println!("  {}", refused.message),
        }
    }
    Ok(())
}
