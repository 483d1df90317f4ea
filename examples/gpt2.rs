//! Trains GPT-2 of any size in mixed precision, and prints tokens a second, memory and loss:
//! `cargo run --release -p adfuse-examples --example gpt2 -- --device gpu --batch 16 --steps 50 [--mem-budget 6GiB] [--layers 24 ..] [TEXT]`.
//!
//! On the two GPUs of a host, in 16 sequences each: `adfuse launch -n 2 -- gpt2 --device gpu --batch 32 --leaves 2`.
//!
//! Without a text it reads Shakespeare's sonnets, byte by byte, or as tokens of a `tokenizer.json`. Weights are random at first.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;
mod text_model;
mod tokenizer;

use adfuse::nn::{Embedding, Init, LayerNorm, Linear, Param, TransformerBlock, trained_elements};
use adfuse::optim::{Adam, LearningRate, Optimizer};
use adfuse::prelude::*;
use adfuse::train::{MixedPrecision, OptimizerSharding, data_parallel};
use adfuse::train_step;
use clap::{Parser, ValueEnum};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;
use text_model::{TextModelFlags, TextModelSize};

#[derive(Parser)]
struct Gpt2Flags {
    #[command(flatten)]
    shared: common::ExampleFlags,
    #[command(flatten)]
    text: TextModelFlags,
    /// In how many parts the gradients of a batch are computed.
    #[arg(long, default_value_t = 1)]
    micro_batches: u64,
    /// Into how many parts a batch is divided, which ranks share: a power of two.
    #[arg(long, default_value_t = 1)]
    leaves: u32,
    /// Whether ranks divide the optimizer's state among them: `auto` where --mem-budget asks for it.
    #[arg(long, value_enum, default_value_t = ShardOptimizer::Auto)]
    shard_optimizer: ShardOptimizer,
    /// Of how many tokens the scores are in memory at a time.
    #[arg(long, default_value_t = 4096)]
    score_rows: u64,
    /// Prints the loss of every N-th step, and of the last; by default of every tenth part of the steps.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// Writes the first weights and all batches to a safetensors file, for a comparison with other programs, and ends.
    #[arg(long)]
    export: Option<PathBuf>,
    /// Prints the program of a step, which `adfuse plan` and `adfuse bench` read, and ends.
    #[arg(long)]
    print_step: bool,
    /// What the model computes in; parameters are `f32`.
    #[arg(long, value_enum, default_value_t = Precision::Bf16)]
    precision: Precision,
    /// The highest learning rate.
    #[arg(long, value_parser = common::rate, default_value = "6e-4")]
    rate: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum ShardOptimizer {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, ValueEnum)]
enum Precision {
    Bf16,
    F16,
    F32,
}

#[derive(Params, Clone)]
struct Gpt2<T = Tensor> {
    /// Of tokens; the last layer multiplies by it too.
    wte: Embedding<T>,
    /// Of places.
    wpe: Embedding<T>,
    blocks: Vec<TransformerBlock<T>>,
    norm: LayerNorm<T>,
}

impl Gpt2<Param> {
    fn new(size: TextModelSize) -> Gpt2<Param> {
        let normal = |std: f64| move |linear: Linear<Param>| linear.init(Init::Normal(std));
        let (inner, residual) = (normal(0.02), normal(0.02 / (2.0 * size.layers as f64).sqrt()));
        let mut block = TransformerBlock::new(size.features, size.heads).causal().tanh_gelu();
        for linear in [&mut block.attn.q, &mut block.attn.k, &mut block.attn.v, &mut block.up] {
            *linear = inner(linear.clone());
        }
        for linear in [&mut block.attn.out, &mut block.down] {
            *linear = residual(linear.clone());
        }
        let table = |rows: u64| Embedding::new(rows, size.features).init(Init::Normal(0.02));
        Gpt2 {
            wte: table(size.vocabulary),
            wpe: table(size.time),
            blocks: vec![block.dropout(size.dropout); size.layers],
            norm: LayerNorm::new(size.features),
        }
    }
}

impl Gpt2 {
    /// The loss of pieces of text, `i32[batch, time + 1]`: each token is scored by those before it. Scores of `rows` tokens are in memory at a
    /// time.
    fn loss(&self, pieces: &Tensor, rows: u64) -> Tensor {
        let x = self.wte.apply(pieces.slice((.., ..-1))) + &self.wpe.weight;
        let x = self.blocks.iter().fold(x, |x, block| block.apply(x));
        self.norm.apply(x).linear_cross_entropy(&self.wte.weight, &pieces.slice((.., 1..)), rows)
    }
}

/// A step of AdamW on pieces of text, each with the token that follows.
fn step(
    flags: &Gpt2Flags,
    model: Gpt2<Param>,
    steps: u64,
) -> adfuse::train::TrainStep<Gpt2<Param>, Tensor, Tensor> {
    let rate =
        LearningRate::warmup((steps / 20).max(1), flags.rate).cosine(steps, flags.rate / 10.0);
    let optimizer = Adam::w(rate).betas(0.9, 0.95).weight_decay(0.1).clip_global_norm(1.0);
    let rows = flags.score_rows;
    let step =
        train_step(optimizer, model, move |net: &Gpt2, pieces: Tensor| net.loss(&pieces, rows));
    let step = data_parallel(step.micro_batches(flags.micro_batches), flags.leaves);
    let step = step.optimizer_sharding(match flags.shard_optimizer {
        ShardOptimizer::Auto => OptimizerSharding::Auto,
        ShardOptimizer::Always => OptimizerSharding::Always,
        ShardOptimizer::Never => OptimizerSharding::Never,
    });
    match flags.precision {
        Precision::F32 => step,
        Precision::Bf16 => step.mixed_precision(MixedPrecision::bf16()),
        Precision::F16 => step.mixed_precision(MixedPrecision::f16()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = Gpt2Flags::parse();
    let shared = &flags.shared;
    let (tokenizer, tokens) = flags.text.tokens()?;
    let size = flags.text.size(tokenizer.vocabulary(), 1024, shared.small)?;
    let (time, batch) =
        (size.time as usize, flags.text.batch.unwrap_or(if shared.small { 4 } else { 16 }));
    let pieces: Vec<i32> =
        tokens.windows(time + 1).step_by((time / 4).max(1)).flatten().copied().collect();
    let rows = (pieces.len() / (time + 1)) as u64;
    if rows < batch {
        return Err(format!("{} tokens are less than a batch", tokens.len()).into());
    }
    let pieces = data::Dataset::new(Array::from_vec(pieces, [rows, size.time + 1])?)?;

    let steps = shared.steps(100, 30);
    let model = Gpt2::new(size);
    let device = shared.device_of_rank()?;
    // Rank 0 alone prints.
    let tells = device.group().rank() == 0;
    if tells {
        println!("{} tokens, {} parameters", tokens.len(), trained_elements(&model));
    }
    let step = step(&flags, model, steps);
    let mut state = step.init(device, shared.seed)?;
    if flags.print_step {
        let empty = vec![0i32; (batch * (size.time + 1)) as usize];
        let empty = Array::from_vec(empty, [batch, size.time + 1])?;
        println!("{}", state.traced(&empty)?.function());
        return Ok(());
    }
    let epochs = (0..)
        .map(|epoch| pieces.shuffled(shared.seed).epoch(epoch).batches(batch as usize).drop_last());
    let batches = (1..=steps).zip(epochs.flatten());
    if let Some(path) = &flags.export {
        let mut arrays = adfuse::tree::named_leaves(&state.params()?);
        arrays.extend(batches.map(|(k, piece)| (format!("batch.{k}"), piece)));
        let named = arrays.iter().map(|(name, array)| (name.as_str(), array));
        return Ok(data::safetensors::write(path, named, &Default::default())?);
    }
    let every = flags.every.unwrap_or((steps / 10).max(1));
    let mut since = Instant::now();
    for (k, piece) in batches {
        let step = state.queue(&piece)?;
        let due = k == 1 || k % every == 0 || k == steps;
        // Ranks wait for each other in the step itself.
        if !due {
            continue;
        }
        let loss = step.report()?;
        if !tells {
            continue;
        }
        if k == 1 {
            println!(
                "step     1, loss {loss:.4}, compiled in {:.2} s",
                since.elapsed().as_secs_f64()
            );
            report_memory(&flags, state.peak_bytes());
            if let Some(report) = state.sharding() {
                println!("{report}");
            }
            since = Instant::now();
        } else {
            let rate = ((k - 1) * batch * size.time) as f64 / since.elapsed().as_secs_f64();
            println!("step {k:5}, loss {loss:.4}, {rate:.0} tokens/s");
        }
        if k == steps {
            println!("the last loss is {loss}");
        }
    }
    Ok(())
}

/// Prints the memory that a step takes, and the budget if there is one.
fn report_memory(flags: &Gpt2Flags, peak: u64) {
    match flags.shared.mem_budget() {
        Some(budget) => println!("a step takes {} KiB of {} KiB", peak >> 10, budget >> 10),
        None => println!("a step takes {} KiB", peak >> 10),
    }
}
