//! Writes reports of several plans and a page that leads to them: `cargo run --release -p adfuse-examples --example gallery -- FOLDER`.
//!
//! Nothing is trained, and nothing runs: each is a plan of a training step.

#![allow(clippy::print_stdout)] // What it writes is for people to find.

mod convnet;

use adfuse::engine::ReportRequest;
use adfuse::nn::{Embedding, Init, LayerNorm, Linear, Lstm, Param, TransformerBlock};
use adfuse::optim::{Adam, Sgd};
use adfuse::prelude::*;
use adfuse::report::{GalleryEntry, GallerySummary, Report, ValueKind, gallery, page};
use adfuse::train::{TrainStep, train_step};
use clap::Parser;
use convnet::ConvNet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Parser)]
struct GalleryFlags {
    /// Where to write the pages; it is made where it is not there.
    folder: PathBuf,
    /// StableHLO text of a function, such as what JAX exports.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/gpt.mlir"))]
    jax: PathBuf,
    /// A page that is in the folder already, such as one with what was measured on a GPU: its name and its file.
    #[arg(long, value_names = ["NAME", "FILE"], num_args = 2)]
    also: Option<Vec<String>>,
    /// Small models, within a few seconds.
    #[arg(long)]
    small: bool,
}

/// Two dense layers.
#[derive(Params, Clone)]
struct DigitsMlp<T = Tensor> {
    hidden: Linear<T>,
    out: Linear<T>,
}

/// A recurrent net that goes over a sequence by a scan.
#[derive(Params, Clone)]
struct SequenceNet<T = Tensor> {
    lstm: Lstm<T>,
    out: Linear<T>,
}

/// The spread of heat over a plate, in many steps, by a conductivity of each place that is fitted.
#[derive(Params, Clone)]
struct HeatedPlate<T = Tensor> {
    conductivity: T,
}

impl HeatedPlate {
    /// The mean squared error of the heat after some steps from `f32[side, side]`.
    fn error(&self, heat: &Tensor, (found, steps): (&Tensor, i64)) -> Tensor {
        let spread = |_: Tensor, heat: Tensor| {
            let near = |axis: usize, forward: bool| {
                let parts = match (axis, forward) {
                    (0, true) => [heat.slice((1.., ..)), heat.slice((..1, ..))],
                    (0, false) => [heat.slice((-1.., ..)), heat.slice((..-1, ..))],
                    (_, true) => [heat.slice((.., 1..)), heat.slice((.., ..1))],
                    (_, false) => [heat.slice((.., -1..)), heat.slice((.., ..-1))],
                };
                Tensor::concat(&[&parts[0], &parts[1]], axis as i64)
            };
            let around = near(0, true) + near(0, false) + near(1, true) + near(1, false);
            // A hot place radiates.
            (&heat + (around - &heat * 4.0) * &self.conductivity * 0.1 - heat.powi(4) * 1e-3).tanh()
        };
        heat.tracer().fori(0..steps, heat.clone(), spread).mse(found)
    }
}

fn simulation(device: &Device, small: bool) -> Result<Report, Diagnostic> {
    let (side, steps) = if small { (8, 40) } else { (64, 400) };
    let model = HeatedPlate { conductivity: Param::new([side, side], Init::Constant(0.5)) };
    let step: PixelStep<HeatedPlate<Param>> =
        train_step(Sgd::new(1e-2), model, move |net: &HeatedPlate, (x, y): (Tensor, Tensor)| {
            net.error(&x, (&y, steps))
        });
    let plate = || Array::splat(&[side, side], adfuse::ir::Literal::zero(DType::F32));
    step.report(device, &(plate()?, plate()?))
}

/// A transformer that says which word follows.
#[derive(Params, Clone)]
struct WordGpt<T = Tensor> {
    words: Embedding<T>,
    places: Embedding<T>,
    blocks: Vec<TransformerBlock<T>>,
    norm: LayerNorm<T>,
}

impl WordGpt<Param> {
    fn new(words: u64, seen: u64, features: u64, heads: u64, blocks: usize) -> WordGpt<Param> {
        WordGpt {
            words: Embedding::new(words, features),
            places: Embedding::new(seen, features),
            blocks: vec![TransformerBlock::new(features, heads).causal(); blocks],
            norm: LayerNorm::new(features),
        }
    }
}

impl WordGpt {
    /// The mean cross entropy of each next word of `i32[batch, time]`.
    fn loss(&self, text: &Tensor) -> Tensor {
        let seen = text.slice((.., ..-1));
        let time = seen.ty().dims().map_or(0, |d| d[1]);
        let x = self.words.apply(&seen) + self.places.weight.slice(..time as i64);
        let x = self.blocks.iter().fold(x, |x, block| block.apply(x));
        let scores = self.norm.apply(x).matmul(&self.words.weight.t());
        scores.cross_entropy(&text.slice((.., 1..)))
    }
}

type PixelStep<M> = TrainStep<M, (Tensor, Tensor), Tensor>;
type WordStep = TrainStep<WordGpt<Param>, Tensor, Tensor>;

fn pixels(batch: u64, dims: &[u64]) -> Result<(Array, Array), Diagnostic> {
    let dims: Vec<u64> = std::iter::once(batch).chain(dims.iter().copied()).collect();
    let zero = |dtype| adfuse::ir::Literal::zero(dtype);
    Ok((Array::splat(&dims, zero(DType::F32))?, Array::splat(&[batch], zero(DType::I32))?))
}

fn digits(device: &Device) -> Result<Report, Diagnostic> {
    let model = DigitsMlp { hidden: Linear::new(64, 128), out: Linear::new(128, 10) };
    let step: PixelStep<_> =
        train_step(Adam::new(1e-3), model, |net: &DigitsMlp, (x, y): (Tensor, Tensor)| {
            net.out.apply(net.hidden.apply(&x).relu()).cross_entropy(&y)
        });
    step.report(device, &pixels(32, &[64])?)
}

fn convnet(device: &Device, small: bool) -> Result<Report, Diagnostic> {
    let (features, side) = if small { (4, 8) } else { (32, 28) };
    let step: PixelStep<_> = train_step(
        Adam::new(1e-3),
        ConvNet::new(features, side),
        |net: &ConvNet, (x, y): (Tensor, Tensor)| net.apply(&x).cross_entropy(&y),
    );
    step.report(device, &pixels(32, &[1, side, side])?)
}

fn lstm(device: &Device, small: bool) -> Result<Report, Diagnostic> {
    let (hidden, time) = if small { (8, 12) } else { (64, 96) };
    let model = SequenceNet { lstm: Lstm::new(8, hidden), out: Linear::new(hidden, 10) };
    let step: PixelStep<_> =
        train_step(Sgd::new(1e-2), model, |net: &SequenceNet, (x, y): (Tensor, Tensor)| {
            let (_, (last, _)) = net.lstm.apply(&x);
            net.out.apply(last).cross_entropy(&y)
        });
    step.report(device, &pixels(16, &[time, 8])?)
}

fn gpt_step(small: bool) -> (WordStep, Result<Array, Diagnostic>) {
    let (words, seen, features, heads, blocks, batch) =
        if small { (40, 16, 32, 4, 2, 2) } else { (50304, 1024, 768, 12, 12, 4) };
    let model = WordGpt::new(words, seen, features, heads, blocks);
    let step = train_step(Adam::new(1e-4), model, |net: &WordGpt, text: Tensor| net.loss(&text));
    let batch = Array::splat(&[batch, seen + 1], adfuse::ir::Literal::zero(DType::I32));
    (step, batch)
}

/// The gradient of what JAX exports, by its first parameter.
fn imported(device: &Device, path: &Path) -> Result<Report, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let module = adfuse::frontend::parse(&text)
        .map_err(|all| all.into_iter().next().map_or_else(String::new, |d| d.to_string()))?;
    let f = module.funcs.values().next().ok_or("the file has no functions")?;
    let made = adfuse::autodiff::forward_and_backward(&module, f, &[0])?;
    let results = made.results().len();
    let mut kinds = vec![ValueKind::Result; results];
    kinds[results - 1] = ValueKind::Gradient;
    let request = ReportRequest {
        origin: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        text,
        parameters: vec![ValueKind::Parameter],
        results: kinds,
        ..ReportRequest::default()
    };
    Ok(device.session(&[])?.report(&Module::single(made.clone()), &made, &request)?)
}

/// Writes pages, and keeps what the page of all says of each.
struct GalleryWriter {
    folder: PathBuf,
    entries: Vec<GalleryEntry>,
}

impl GalleryWriter {
    /// Makes a report, writes its page, and prints how long that took.
    fn add<E: Into<Box<dyn Error>>>(
        &mut self,
        (name, about): (&str, &str),
        make: impl FnOnce() -> Result<Report, E>,
    ) -> Result<u64, Box<dyn Error>> {
        let begin = Instant::now();
        let report = make().map_err(Into::into)?;
        let (text, took) = (page(&report), begin.elapsed().as_secs_f64());
        let file = format!("{}.html", name.to_lowercase().replace(", ", "-").replace(' ', "-"));
        std::fs::write(self.folder.join(&file), &text)?;
        println!("{name}, {took:.2} s, {} KiB: {}", text.len() >> 10, report.sentence);
        let shown = GallerySummary::from(&report);
        self.entries.push(GalleryEntry { name: name.into(), file, about: about.into(), shown });
        Ok(report.memory.held)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let GalleryFlags { folder, jax, also, small } = GalleryFlags::parse();
    std::fs::create_dir_all(&folder)?;
    let device = Device::cpu();
    let mut out = GalleryWriter { folder, entries: Vec::new() };
    let of = ("Digits", "Two dense layers on images of 8 by 8 pixels, with Adam.");
    out.add(of, || digits(&device))?;
    let of = ("Convnet", "Two convolutions with batch norm, dropout and Adam.");
    let held = out.add(of, || convnet(&device, small))?;
    let of =
        ("Convnet, less memory", "The same convolutions, within four fifths of what they take.");
    out.add(of, || convnet(&device.clone().mem_budget(held / 5 * 4), small))?;
    let of = ("LSTM", "A recurrent net over a sequence, by a scan, and its gradient.");
    out.add(of, || lstm(&device, small))?;
    let of = (
        "Simulation",
        "Heat that spreads over a plate in many steps, by a conductivity that is fitted.",
    );
    let held = out.add(of, || simulation(&device, small))?;
    let of = (
        "Simulation, half the memory",
        "The same steps within half: the backward pass has checkpoints.",
    );
    out.add(of, || simulation(&device.clone().mem_budget(held / 2), small))?;
    let of = ("GPT", "A transformer that says which word follows, with Adam.");
    out.add(of, || {
        let (step, batch) = gpt_step(small);
        step.report(&device, &batch?)
    })?;
    let of = ("JAX import", "The gradient of a function that JAX has exported.");
    out.add(of, || imported(&device, &jax))?;
    if let Some([name, file]) = also.as_deref() {
        let text = std::fs::read_to_string(out.folder.join(file))?;
        let shown = GallerySummary::of_page(&text).ok_or("--also names no report's page")?;
        let (name, file, about) = (name.clone(), file.clone(), "Made by the command line.".into());
        out.entries.push(GalleryEntry { name, file, about, shown });
    }
    let index = out.folder.join("index.html");
    std::fs::write(&index, gallery(&out.entries))?;
    println!("{}", index.display());
    Ok(())
}
