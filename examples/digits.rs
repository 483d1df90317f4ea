//! Trains a convolutional network with batch norm on handwritten digits: `cargo run --release -p adfuse-examples --example digits`.
//!
//! The last 297 rows of the data are held back. They are of other writers than the rest.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;

use adfuse::nn::{BatchNorm, Conv2d, Dropout, Linear, Param};
use adfuse::optim::{Adam, LearningRate};
use adfuse::prelude::*;
use adfuse::train::{Trainer, eval_step, train_step};
use clap::Parser;
use std::error::Error;

const TRAINED: usize = 1500;
const BATCH: usize = 25;

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

/// In training, images blended with themselves moved by up to one pixel: writers differ in where they write.
fn blurred(x: &Tensor) -> Tensor {
    let Some([place, share]) = x.next_key().map(|key| key.split()) else { return x.clone() };
    let places = place.integers(0..3, i32s([2]));
    let zero = places.slice(0).zeros_like();
    let starts = [&zero, &zero, &places.slice(0), &places.slice(1)];
    let around = x.pad(&[(0, 0), (0, 0), (1, 1), (1, 1)], 0.0);
    let moved = around.dynamic_slice(&starts, &x.ty().dims().unwrap_or_default());
    // A share for each image.
    let share = share.uniform(x.slice((.., ..1, ..1, ..1)).ty()) * 0.8;
    x + (moved - x) * share
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = common::ExampleFlags::parse();
    let (train, test) = data::digits()?.split_at(TRAINED)?;
    let epochs = flags.steps(20, 4);
    let batches = train.batches(BATCH).len() as u64;

    let rate = LearningRate::constant(3e-3).cosine(epochs * batches, 1e-4);
    let step = train_step(
        Adam::new(rate),
        DigitsNet::new(),
        |net: &DigitsNet, (pixels, labels): (Tensor, Tensor)| {
            net.apply(&blurred(&pixels)).cross_entropy(&labels)
        },
    );
    // The share of labels that are found, and how many rows of each label are read as what.
    let tested = eval_step(|net: &DigitsNet, (pixels, labels): (Tensor, Tensor)| {
        let guesses = net.apply(&pixels).argmax(-1);
        let table = labels.one_hot(10, DType::F32).t().dot(&guesses.one_hot(10, DType::F32));
        (guesses.eq(&labels).convert(DType::F32).mean(..), table)
    });

    let (mut state, held) = (step.init(flags.device()?, flags.seed)?, test.all());
    Trainer::new(epochs).run(
        &mut state,
        |epoch| train.shuffled(flags.seed).epoch(epoch).batches(BATCH),
        |state, metrics| {
            let (accuracy, _) = state.eval(&tested, &held)?;
            metrics.set("accuracy", accuracy.item::<f32>()?.into());
            Ok(())
        },
    )?;

    let (accuracy, table) = state.eval(&tested, &held)?;
    println!("test accuracy: {:.2}%", 100.0 * accuracy.item::<f32>()?);
    println!("label   0   1   2   3   4   5   6   7   8   9  (read as)");
    for (label, row) in table.as_slice::<f32>()?.chunks(10).enumerate() {
        let counts: String = row.iter().map(|n| format!("{n:4}")).collect();
        println!("{label:5}{counts}");
    }
    Ok(())
}
