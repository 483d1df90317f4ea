//! Trains BERT of any size to find masked tokens, in mixed precision:
//! `cargo run --release -p adfuse-examples --example bert -- --device gpu --fp fast [--mem-budget 3GiB] [--layers 24 ..] [TEXT]`.
//!
//! Without a text it reads Shakespeare's sonnets, byte by byte, or as tokens of a `tokenizer.json`. Weights are random at first.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;
mod text_model;
mod throughput;
mod tokenizer;

use adfuse::nn::{Dropout, Embedding, Init, LayerNorm, Linear, MultiHeadAttention, Param};
use adfuse::optim::{Adam, LearningRate, Optimizer};
use adfuse::prelude::*;
use adfuse::train::MixedPrecision;
use adfuse::train_step;
use clap::Parser;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use text_model::{TextModelFlags, TextModelSize};
use throughput::Throughput;

#[derive(Parser)]
struct BertFlags {
    #[command(flatten)]
    shared: common::ExampleFlags,
    #[command(flatten)]
    text: TextModelFlags,
    /// Prints the program of a step, which `adfuse plan` and `adfuse bench` read, and ends.
    #[arg(long)]
    print_step: bool,
    /// Computes in `f32` throughout, not in `bf16` with parameters in `f32`.
    #[arg(long)]
    full_precision: bool,
    /// The highest learning rate.
    #[arg(long, value_parser = common::rate)]
    rate: Option<f64>,
}

/// A layer with norms after its parts (Devlin et al. 2018).
#[derive(Params, Clone)]
struct Layer<T = Tensor> {
    attn: MultiHeadAttention<T>,
    norm1: LayerNorm<T>,
    up: Linear<T>,
    down: Linear<T>,
    norm2: LayerNorm<T>,
    dropout: Dropout,
}

impl Layer<Param> {
    fn new(size: TextModelSize) -> Layer<Param> {
        let mut attn = MultiHeadAttention::new(size.features, size.heads).dropout(size.dropout);
        for linear in [&mut attn.q, &mut attn.k, &mut attn.v, &mut attn.out] {
            *linear = small(linear.clone());
        }
        Layer {
            attn,
            norm1: LayerNorm::new(size.features),
            up: small(Linear::new(size.features, 4 * size.features)),
            down: small(Linear::new(4 * size.features, size.features)),
            norm2: LayerNorm::new(size.features),
            dropout: Dropout::new(size.dropout),
        }
    }
}

impl Layer {
    /// Of `[batch, time, features]`, the same shape.
    fn apply(&self, x: &Tensor) -> Tensor {
        let x = self.norm1.apply(x + self.dropout.apply(self.attn.apply(x)));
        let y = self.down.apply(gelu(&self.up.apply(&x)));
        self.norm2.apply(x + self.dropout.apply(y))
    }
}

/// With weights as BERT begins them.
fn small(linear: Linear<Param>) -> Linear<Param> {
    linear.init(Init::TruncatedNormal(0.02))
}

/// The gelu, computed in `f32`.
fn gelu(x: &Tensor) -> Tensor {
    x.convert(DType::F32).gelu().convert(x.dtype())
}

#[derive(Params, Clone)]
struct Bert<T = Tensor> {
    /// Of tokens; the last layer multiplies by it too.
    words: Embedding<T>,
    /// Of places, and of the first segment: all that these texts have.
    places: Embedding<T>,
    norm: LayerNorm<T>,
    layers: Vec<Layer<T>>,
    head: Linear<T>,
    head_norm: LayerNorm<T>,
    /// `[vocabulary]`.
    bias: T,
}

impl Bert<Param> {
    fn new(size: TextModelSize) -> Bert<Param> {
        let table = |rows| Embedding::new(rows, size.features).init(Init::TruncatedNormal(0.02));
        Bert {
            words: table(size.vocabulary),
            places: table(size.time),
            norm: LayerNorm::new(size.features),
            layers: vec![Layer::new(size); size.layers],
            head: small(Linear::new(size.features, size.features)),
            head_norm: LayerNorm::new(size.features),
            bias: Param::new([size.vocabulary], Init::Zeros),
        }
    }
}

impl Bert {
    /// The loss at the masked places of sequences, `i32[batch, time]`: where they are among all tokens of the batch and what stood there,
    /// `i32[batch, masked]` each.
    fn loss(&self, tokens: &Tensor, masked: &Tensor, labels: &Tensor) -> Tensor {
        let x = self.norm.apply(self.words.apply(tokens) + &self.places.weight);
        let x = self.layers.iter().fold(x, |x, layer| layer.apply(&x));
        let seen = x.flatten(..2).take(&masked.flatten(..), 0);
        let seen = self.head_norm.apply(gelu(&self.head.apply(seen)));
        let scores = self.words.attend(seen) + &self.bias;
        scores.convert(DType::F32).cross_entropy(&labels.flatten(..))
    }
}

/// Sequences of which some tokens are masked.
struct Masked {
    tokens: Vec<i32>,
    /// Which tokens are predicted: the number of each among all tokens of its batch.
    places: Vec<i32>,
    labels: Vec<i32>,
}

/// Of each sequence of a batch, 15 % of the tokens are to be found. Of these, 80 % are the mask's token, 10 % any, and 10 % as they were.
fn masked(pieces: &[&[i32]], mask: i32, rng: &mut ChaCha8Rng) -> Masked {
    let mut made = Masked { tokens: Vec::new(), places: Vec::new(), labels: Vec::new() };
    for piece in pieces {
        let begin = made.tokens.len();
        made.tokens.extend_from_slice(piece);
        let mut places: Vec<usize> = (0..piece.len()).collect();
        let (chosen, _) = places.partial_shuffle(rng, masked_tokens(piece.len()));
        chosen.sort_unstable();
        for &mut place in chosen {
            made.places.push((begin + place) as i32);
            made.labels.push(piece[place]);
            match rng.random_range(0..10) {
                0 => made.tokens[begin + place] = rng.random_range(0..mask),
                1 => {}
                _ => made.tokens[begin + place] = mask,
            }
        }
    }
    made
}

/// How many tokens of a sequence are to be found.
fn masked_tokens(time: usize) -> usize {
    (time * 15 / 100).max(1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = BertFlags::parse();
    let shared = &flags.shared;
    let (tokenizer, tokens) = flags.text.tokens()?;
    let size = flags.text.size(tokenizer.vocabulary() + 1, 512, shared.small)?;
    let mask = tokenizer.vocabulary() as i32;
    let (time, batch) =
        (size.time as usize, flags.text.batch.unwrap_or(if shared.small { 8 } else { 16 }));
    let mut pieces: Vec<&[i32]> = tokens.windows(time).step_by((time / 4).max(1)).collect();
    if (pieces.len() as u64) < batch {
        let (all, count) = (tokens.len(), pieces.len());
        let m = format!(
            "the text has {all} tokens, or {count} sequences of --time {time}: --batch {batch} is too many"
        );
        return Err(m.into());
    }

    let steps = shared.steps(100, 40);
    let most = flags.rate.unwrap_or(if shared.small { 1e-2 } else { 1e-4 });
    let rate = LearningRate::warmup((steps / 20).max(1), most).linear(steps, most / 10.0);
    let optimizer = Adam::w(rate).betas(0.9, 0.999).weight_decay(0.01).clip_global_norm(1.0);
    let step = train_step(
        optimizer,
        Bert::new(size),
        |net: &Bert, [tokens, places, labels]: [Tensor; 3]| net.loss(&tokens, &places, &labels),
    );
    let step = match flags.full_precision {
        true => step,
        false => step.mixed_precision(MixedPrecision::bf16()),
    };
    let mut rng = ChaCha8Rng::seed_from_u64(shared.seed);
    let shapes = [size.time, masked_tokens(time) as u64, masked_tokens(time) as u64];
    let mut batches = Vec::new();
    while (batches.len() as u64) < steps {
        pieces.shuffle(&mut rng);
        for piece in pieces.chunks_exact(batch as usize) {
            let Masked { tokens, places, labels } = masked(piece, mask, &mut rng);
            let [tokens, places, labels] = [(tokens, 0), (places, 1), (labels, 2)]
                .map(|(values, of)| Array::from_vec(values, [batch, shapes[of]]));
            batches.push([tokens?, places?, labels?]);
        }
    }
    let run = Throughput {
        flags: shared,
        steps,
        items: ("sequences", batch),
        print_step: flags.print_step,
    };
    Ok(run.run(&step, batches)?)
}
