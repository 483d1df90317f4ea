//! Teaches an LSTM to add two marked numbers of a sequence: `cargo run --release -p adfuse-examples --example lstm`.
//!
//! The adding problem of Hochreiter and Schmidhuber (1997): each step has a random number and a mark, which is 1 at one step of each half
//! of the sequence and 0 elsewhere. What is asked for at the end is the sum of the two marked numbers. Who always answers 1 misses by
//! 1/6 in the mean square.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;

use adfuse::nn::{Linear, Lstm, Param};
use adfuse::optim::{Adam, Optimizer};
use adfuse::prelude::*;
use adfuse::{eval_step, train_step};
use clap::Parser;
use std::error::Error;

const BATCH: u64 = 64;

#[derive(Params, Clone)]
struct AddingNet<T = Tensor> {
    lstm: Lstm<T>,
    out: Linear<T>,
}

impl AddingNet<Param> {
    fn new(hidden: u64) -> AddingNet<Param> {
        AddingNet { lstm: Lstm::new(2, hidden), out: Linear::new(hidden, 1) }
    }
}

impl AddingNet {
    /// Of sequences `[batch, time, 2]`, a number each: `[batch]`.
    fn apply(&self, x: &Tensor) -> Tensor {
        let (_, (last, _)) = self.lstm.apply(x);
        self.out.apply(last).squeeze(-1)
    }
}

/// Random sequences `[batch, time, 2]` and their sums `[batch]`, drawn where the step runs.
fn sequences(seed: &Tensor, time: u64) -> (Tensor, Tensor) {
    let [numbers, first, second] = Key::new(seed).split();
    let numbers = numbers.uniform(f32s([BATCH, time]));
    let half = time as i64 / 2;
    let first = first.integers(0..half, i32s([BATCH]));
    let second = second.integers(half..time as i64, i32s([BATCH]));
    let marks = first.one_hot(time, DType::F32) + second.one_hot(time, DType::F32);
    (Tensor::stack(&[&numbers, &marks], -1), (numbers * marks).sum(-1))
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = common::ExampleFlags::parse();
    let time = if flags.small { 8 } else { 40 };
    let steps = flags.steps(2000, 600);
    let optimizer = Adam::new(5e-3).clip_global_norm(1.0);
    let step = train_step(optimizer, AddingNet::new(32), move |net: &AddingNet, seed: Tensor| {
        let (x, y) = sequences(&seed, time);
        net.apply(&x).mse(&y)
    });
    let answers = eval_step(move |net: &AddingNet, seed: Tensor| {
        let (x, y) = sequences(&seed, time);
        (net.apply(&x), y)
    });

    let mut state = step.init(flags.device()?, flags.seed)?;
    for k in 1..=steps {
        let loss = state.step(&Array::from((flags.seed + k) as i64))?;
        if k == 1 || k % (steps / 10).max(1) == 0 {
            println!("step {k:5}, loss {loss:.5}");
        }
    }

    // Sequences that it has not seen: their seed is below zero.
    let (found, due) = state.eval(&answers, &Array::from(-1i64))?;
    let (found, due) = (found.to_f64s(), due.to_f64s());
    for (found, due) in found.iter().zip(&due).take(4) {
        println!("{due:.3}, answered {found:.3}");
    }
    let near = found.iter().zip(&due).filter(|(f, d)| (*f - *d).abs() < 0.1).count();
    println!("{near} of {} answers within 0.1", due.len());
    Ok(())
}
