//! Trains ResNet-50 on handwritten digits that are magnified to images of any size:
//! `cargo run --release -p adfuse-examples --example resnet -- --device gpu --fp fast [--batch 64] [--side 224] [--mem-budget 2GiB]`.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;
mod throughput;

use adfuse::nn::{BatchNorm, Conv2d, Linear, Param};
use adfuse::optim::{LearningRate, Sgd};
use adfuse::prelude::*;
use adfuse::train::MixedPrecision;
use adfuse::train_step;
use clap::Parser;
use std::error::Error;
use throughput::Throughput;

#[derive(Parser)]
struct ResNetFlags {
    #[command(flatten)]
    shared: common::ExampleFlags,
    /// The images of a batch.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
    /// Rows and columns of an image: a multiple of 8, since digits have 8.
    #[arg(long, value_parser = clap::value_parser!(u64).range(8..=1 << 16))]
    side: Option<u64>,
    /// Channels of the first stage.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    width: Option<u64>,
    /// The highest learning rate.
    #[arg(long, value_parser = common::rate, default_value = "0.05")]
    rate: f64,
    /// Computes in `bf16`, with parameters in `f32`.
    #[arg(long)]
    bf16: bool,
    /// Prints the program of a step, which `adfuse plan` and `adfuse bench` read, and ends.
    #[arg(long)]
    print_step: bool,
}

/// A convolution without a bias, and batch norm.
#[derive(Params, Clone)]
struct NormedConv<T = Tensor> {
    conv: Conv2d<T>,
    norm: BatchNorm<T>,
}

impl NormedConv<Param> {
    fn new([inputs, outputs]: [u64; 2], window: u64, stride: u64) -> NormedConv<Param> {
        let conv = Conv::padded(window as i64 / 2).stride(stride);
        NormedConv {
            conv: Conv2d::with(inputs, outputs, window, conv).no_bias(),
            norm: BatchNorm::new(outputs),
        }
    }
}

impl NormedConv {
    fn apply(&self, x: &Tensor) -> Tensor {
        self.norm.apply(self.conv.apply(x))
    }
}

/// A bottleneck of three convolutions beside a shortcut (He et al. 2015), with the stride at the second, as PyTorch's library has it.
#[derive(Params, Clone)]
struct Bottleneck<T = Tensor> {
    reduce: NormedConv<T>,
    middle: NormedConv<T>,
    expand: NormedConv<T>,
    /// Where extents change.
    shortcut: Option<NormedConv<T>>,
}

impl Bottleneck<Param> {
    fn new(inputs: u64, width: u64, stride: u64) -> Bottleneck<Param> {
        let outputs = 4 * width;
        let changes = stride != 1 || inputs != outputs;
        Bottleneck {
            reduce: NormedConv::new([inputs, width], 1, 1),
            middle: NormedConv::new([width, width], 3, stride),
            expand: NormedConv::new([width, outputs], 1, 1),
            shortcut: changes.then(|| NormedConv::new([inputs, outputs], 1, stride)),
        }
    }
}

impl Bottleneck {
    fn apply(&self, x: &Tensor) -> Tensor {
        let y = self.middle.apply(&self.reduce.apply(x).relu()).relu();
        let y = self.expand.apply(&y);
        let x = self.shortcut.as_ref().map_or_else(|| x.clone(), |shortcut| shortcut.apply(x));
        (y + x).relu()
    }
}

#[derive(Params, Clone)]
struct ResNet<T = Tensor> {
    stem: NormedConv<T>,
    blocks: Vec<Bottleneck<T>>,
    out: Linear<T>,
}

impl ResNet<Param> {
    /// For ten classes. Each stage has this number of blocks; the blocks of the first stage have `width` channels inside.
    fn new(stages: &[usize], width: u64) -> ResNet<Param> {
        let (mut channels, mut blocks) = (width, Vec::new());
        for (stage, &count) in stages.iter().enumerate() {
            let inner = width << stage;
            for block in 0..count {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                blocks.push(Bottleneck::new(channels, inner, stride));
                channels = 4 * inner;
            }
        }
        ResNet { stem: NormedConv::new([3, width], 7, 2), blocks, out: Linear::new(channels, 10) }
    }
}

impl ResNet {
    /// Scores of ten classes for images `[batch, 3, side, side]`.
    fn apply(&self, x: &Tensor) -> Tensor {
        let pool = Pool::new(3).stride(2).padding(Padding::Each(1));
        let x = self.stem.apply(x).relu().max_pool2d(pool);
        let x = self.blocks.iter().fold(x, |x, block| block.apply(&x));
        self.out.apply(x.mean(&[2, 3]))
    }
}

/// Digits `[batch, 1, 8, 8]` as images of three equal channels, `side` pixels wide.
fn magnified(digits: &Tensor, side: u64) -> Tensor {
    let batch = digits.ty().shape[0];
    let each = side / 8;
    let large = [batch, 3.into(), 8.into(), each.into(), 8.into(), each.into()];
    digits.reshape([batch, 8.into(), 8.into()]).broadcast(&[0, 2, 4], &large).reshape([
        batch,
        3.into(),
        side.into(),
        side.into(),
    ])
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = ResNetFlags::parse();
    let shared = &flags.shared;
    let usual = |full: u64, small: u64| if shared.small { small } else { full };
    let (batch, side) =
        (flags.batch.unwrap_or(usual(64, 20)), flags.side.unwrap_or(usual(224, 32)));
    if side % 8 != 0 {
        return Err(format!("--side {side} is no multiple of 8").into());
    }
    let (train, _) = data::digits()?.split_at(1500)?;
    if batch > 1500 {
        return Err(format!("--batch {batch}: there are 1500 images").into());
    }
    let steps = shared.steps(100, 30);
    let stages: &[usize] = if shared.small { &[1, 1] } else { &[3, 4, 6, 3] };
    let model = ResNet::new(stages, flags.width.unwrap_or(usual(64, 8)));
    let rate = LearningRate::warmup((steps / 20).max(1), flags.rate).cosine(steps, 0.0);
    let optimizer = Sgd::new(rate).momentum(0.9).weight_decay(1e-4);
    let step =
        train_step(optimizer, model, move |net: &ResNet, (digits, labels): (Tensor, Tensor)| {
            let scores = net.apply(&magnified(&digits, side));
            scores.convert(DType::F32).cross_entropy(&labels)
        });
    let step = if flags.bf16 { step.mixed_precision(MixedPrecision::bf16()) } else { step };
    let epochs =
        (0..).map(|k| train.shuffled(shared.seed).epoch(k).batches(batch as usize).drop_last());
    let run =
        Throughput { flags: shared, steps, items: ("images", batch), print_step: flags.print_step };
    Ok(run.run(&step, epochs.flatten())?)
}
