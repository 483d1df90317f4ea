//! Trains a character model on a text and writes some: `cargo run --release -p adfuse-examples --example gpt -- [FILE] [--mem-budget 8MiB]`.
//!
//! Without a file it reads Shakespeare's sonnets.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;

use adfuse::nn::{Embedding, Init, LayerNorm, Linear, Param, TransformerBlock, trained_elements};
use adfuse::optim::{Adam, LearningRate, Optimizer};
use adfuse::prelude::*;
use adfuse::{eval_step, train_step};
use clap::Parser;
use std::error::Error;
use std::path::PathBuf;

/// How many characters the model sees.
const SEEN: usize = 64;
const BATCH: usize = 16;

#[derive(Parser)]
struct GptFlags {
    #[command(flatten)]
    shared: common::ExampleFlags,
    /// The text.
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/sonnets.txt"))]
    file: PathBuf,
    /// How many characters it writes.
    #[arg(long, default_value_t = 300)]
    length: usize,
    /// Lower ones make likely characters more likely.
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
}

#[derive(Params, Clone)]
struct CharGpt<T = Tensor> {
    characters: Embedding<T>,
    blocks: Vec<TransformerBlock<T>>,
    norm: LayerNorm<T>,
    out: Linear<T>,
}

impl CharGpt<Param> {
    fn new(characters: u64, features: u64, blocks: usize) -> CharGpt<Param> {
        let mut block = TransformerBlock::new(features, 4).causal();
        block.attn = block.attn.rope();
        CharGpt {
            characters: Embedding::new(characters, features).init(Init::Normal(0.1)),
            blocks: vec![block; blocks],
            norm: LayerNorm::new(features),
            out: Linear::new(features, characters),
        }
    }
}

impl CharGpt {
    /// Of `i32[batch, time]`, scores of the characters that follow each: `[batch, time, characters]`.
    fn apply(&self, text: &Tensor) -> Tensor {
        let x = self.characters.apply(text);
        let x = self.blocks.iter().fold(x, |x, block| block.apply(x));
        self.out.apply(self.norm.apply(x))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = GptFlags::parse();
    let shared = &flags.shared;
    let text: Vec<char> = std::fs::read_to_string(&flags.file)?.chars().collect();
    let mut known = text.clone();
    known.sort_unstable();
    known.dedup();
    let number = |c: &char| known.binary_search(c).map_or(0, |k| k as i32);
    let text: Vec<i32> = text.iter().map(number).collect();
    // Overlapping pieces of the text, each with the character that follows.
    let pieces: Vec<i32> = text.windows(SEEN + 1).step_by(SEEN / 4).flatten().copied().collect();
    let rows = (pieces.len() / (SEEN + 1)) as u64;
    let pieces = data::Dataset::new(Array::from_vec(pieces, [rows, SEEN as u64 + 1])?)?;

    let steps = shared.steps(1000, 60);
    let (features, blocks) = if shared.small { (32, 1) } else { (96, 3) };
    let model = CharGpt::new(known.len() as u64, features, blocks);
    println!("{} characters, {} of them different", text.len(), known.len());
    println!("{} parameters", trained_elements(&model));

    let rate = LearningRate::warmup(steps / 20, 2e-3).cosine(steps, 1e-4);
    let optimizer = Adam::new(rate).weight_decay(0.1).clip_global_norm(1.0);
    let step = train_step(optimizer, model, |net: &CharGpt, piece: Tensor| {
        net.apply(&piece.slice((.., ..-1))).cross_entropy(&piece.slice((.., 1..)))
    });
    let temperature = flags.temperature;
    let next = eval_step(move |net: &CharGpt, (text, seed): (Tensor, Tensor)| {
        let scores = net.apply(&text).slice((0, -1)) / temperature;
        Key::new(&seed).categorical(&scores)
    });

    let mut state = step.init(shared.device()?, shared.seed)?;
    let epochs =
        (0..).map(|epoch| pieces.shuffled(shared.seed).epoch(epoch).batches(BATCH).drop_last());
    for (k, batch) in (1..=steps).zip(epochs.flatten()) {
        let loss = state.step(&batch)?;
        if k == 1 || k % (steps / 10).max(1) == 0 {
            println!("step {k:5}, loss {loss:.4}");
        }
    }
    println!("a step takes {} KiB", state.peak_bytes() >> 10);

    let mut written = text[..SEEN].to_vec();
    for k in 0..flags.length {
        let seen = Array::from_slice(&written[k..], [1, SEEN as u64])?;
        let next = state.eval(&next, &(seen, Array::from(k as i64)))?;
        written.push(next.item()?);
    }
    let written: String = written[SEEN..].iter().map(|&k| known[k as usize]).collect();
    println!("---\n{written}");
    Ok(())
}
