//! Trains a convolutional network with batch norm on handwritten digits: `cargo run --release -p adfuse-examples --example digits`.
//!
//! The last 297 rows of the data are held back. They are of other writers than the rest.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;
mod convnet;

use adfuse::optim::{Adam, LearningRate};
use adfuse::prelude::*;
use adfuse::train::{Trainer, eval_step, train_step};
use clap::Parser;
use convnet::ConvNet;
use std::error::Error;

const TRAINED: usize = 1500;
const BATCH: usize = 25;

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
        ConvNet::new(16, 8),
        |net: &ConvNet, (pixels, labels): (Tensor, Tensor)| {
            net.apply(&blurred(&pixels)).cross_entropy(&labels)
        },
    );
    // The share of labels that are found, and how many rows of each label are read as what.
    let tested = eval_step(|net: &ConvNet, (pixels, labels): (Tensor, Tensor)| {
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
