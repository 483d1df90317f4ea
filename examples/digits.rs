//! Trains a convolutional network with batch norm on handwritten digits: `cargo run --release -p adfuse-examples --example digits`.
//!
//! The last 297 rows of the data are held back. They are of other writers than the rest.

// What it finds is for people to read.
#![allow(clippy::print_stdout)]

mod common;

use adfuse::nn::{BatchNorm, Conv2d, Dropout, Linear, Param};
use adfuse::optim::{Adam, LearningRate};
use adfuse::prelude::*;
use adfuse::{eval_step, train_step};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::error::Error;
use std::time::Instant;

const TRAINED: usize = 1500;
const BATCH: usize = 50;

/// With `Param` leaves it describes the network, with `Tensor` leaves it is part of a trace, and with `Array` leaves it has values.
#[derive(Params, Clone)]
struct DigitsNet<T = Tensor> {
    conv1: Conv2d<T>,
    norm1: BatchNorm<T>,
    conv2: Conv2d<T>,
    norm2: BatchNorm<T>,
    dropout: Dropout,
    out: Linear<T>,
}

impl DigitsNet<Param> {
    fn new() -> DigitsNet<Param> {
        DigitsNet {
            conv1: Conv2d::same(1, 16, 3).no_bias(),
            norm1: BatchNorm::new(16),
            conv2: Conv2d::same(16, 32, 3).no_bias(),
            norm2: BatchNorm::new(32),
            dropout: Dropout::new(0.3),
            out: Linear::new(32 * 4 * 4, 10),
        }
    }
}

impl DigitsNet {
    /// Scores of ten classes for images `[batch, 1, 8, 8]`.
    fn apply(&self, x: &Tensor) -> Tensor {
        let x = self.norm1.apply(self.conv1.apply(x)).relu();
        let x = self.norm2.apply(self.conv2.apply(x)).relu().max_pool2d(2);
        self.out.apply(self.dropout.apply(x.flatten(1..)))
    }
}

/// Rows of the file are 64 pixels, from 0 to 16, and the label.
fn parts(rows: &Tensor) -> (Tensor, Tensor) {
    let pixels = rows.slice((.., ..64)).reshape([-1, 1, 8, 8]) / 16.0;
    (pixels, rows.slice((.., 64)).convert(DType::I32))
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = common::ExampleFlags::parse();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits.csv.gz");
    let (_, table) = data::read_arrays(file)?.remove(0);
    let (train, test) = data::Dataset::new(table)?.split_at(TRAINED)?;
    let epochs = flags.steps(20, 4);
    let batches = train.batches(BATCH).len() as u64;

    let rate = LearningRate::constant(3e-3).cosine(epochs * batches, 1e-4);
    let step = train_step(Adam::new(rate), DigitsNet::new(), |net: &DigitsNet, rows: Tensor| {
        let (pixels, labels) = parts(&rows);
        net.apply(&pixels).cross_entropy(&labels)
    });
    let guess = eval_step(|net: &DigitsNet, rows: Tensor| {
        let (pixels, labels) = parts(&rows);
        (net.apply(&pixels).argmax(-1), labels)
    });

    let mut state = step.init(flags.device()?, flags.seed)?;
    let bar = ProgressBar::new(epochs * batches);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} ({eta} left)")?);
    let begun = Instant::now();
    for epoch in 0..epochs {
        let mut loss = 0.0;
        for rows in train.shuffled(flags.seed).epoch(epoch).batches(BATCH) {
            loss += state.step(&rows)? / batches as f64;
            bar.inc(1);
        }
        bar.set_message(format!("epoch {}, loss {loss:.4}", epoch + 1));
        if epoch + 1 == epochs {
            println!(
                "loss {loss:.4} after {epochs} epochs in {:.1} s",
                begun.elapsed().as_secs_f64()
            );
        }
    }
    bar.finish();

    let (guesses, labels) = state.eval(&guess, &test.all())?;
    let mut table = [[0; 10]; 10];
    for (guess, label) in guesses.to_vec::<i32>()?.into_iter().zip(labels.to_vec::<i32>()?) {
        table[label as usize][guess as usize] += 1;
    }
    let right: usize = (0..10).map(|k| table[k][k]).sum();
    println!(
        "test accuracy: {:.2}% ({right} of {})",
        100.0 * right as f64 / test.len() as f64,
        test.len()
    );
    println!("label   0   1   2   3   4   5   6   7   8   9  (read as)");
    for (label, row) in table.iter().enumerate() {
        let counts: String = row.iter().map(|n| format!("{n:4}")).collect();
        println!("{label:5}{counts}");
    }
    Ok(())
}
