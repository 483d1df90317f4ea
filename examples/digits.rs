//! Trains a 64-128-10 relu network on handwritten digits: `cargo run --release --example digits`.
//!
//! The loss is traced from Rust, differentiated, and turned into one function that does a whole step
//! of stochastic gradient descent: parameters in, loss and new parameters out.

use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::prelude::*;
use adfuse::sample::{rng, sample};
use flate2::read::GzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use std::io::Read;

const BATCH: usize = 10;
const EPOCHS: u64 = 80;
const RATE: f64 = 0.2;
const HELD: usize = 297;
const HIDDEN: u64 = 128;

/// Scores of the ten classes for rows of 64 pixels; `params` are w1, b1, w2, b2.
fn network(x: &Tensor, params: &[Tensor]) -> Tensor {
    let [w1, b1, w2, b2] = params else { unreachable!("four parameters") };
    let h = x.dot(w1);
    let h = (&h + b1.broadcast_like(&h)).relu();
    let y = h.dot(w2);
    &y + b2.broadcast_like(&y)
}

fn parameters(t: &Tracer) -> Vec<Tensor> {
    let shape = |name, ty| t.input(name, ty);
    vec![
        shape("w1", f32s([64, HIDDEN])),
        shape("b1", f32s([HIDDEN])),
        shape("w2", f32s([HIDDEN, 10])),
        shape("b2", f32s([10])),
    ]
}

/// Mean cross entropy of a batch; `labels` is one-hot.
fn loss() -> Result<Function, Diagnostic> {
    trace("loss", |t| {
        let params = parameters(t);
        let x = t.input("x", f32s([BATCH as u64, 64]));
        let labels = t.input("labels", f32s([BATCH as u64, 10]));
        let picked = network(&x, &params).log_softmax() * labels;
        -(picked.sum(&[0, 1]) / BATCH as f64)
    })
}

/// `(params.., x, labels, rate) -> (loss, new params..)`.
fn step() -> Result<Function, Diagnostic> {
    let loss = loss()?;
    let names = ["w1", "b1", "w2", "b2"].map(String::from);
    let wrt = differentiable(&loss, Some(&names))?;
    let gradient = value_and_grad(&Module::single(loss.clone()), &loss, &wrt)?;
    trace("step", |t| {
        let params = parameters(t);
        let x = t.input("x", f32s([BATCH as u64, 64]));
        let labels = t.input("labels", f32s([BATCH as u64, 10]));
        let rate = t.input("rate", f32s([]));
        let mut args: Vec<&Tensor> = params.iter().collect();
        args.extend([&x, &labels]);
        let mut out = t.call(&gradient, &args);
        let gradients = out.split_off(1);
        out.extend(params.iter().zip(gradients).map(|(p, g)| p - &g * rate.broadcast_like(&g)));
        out
    })
}

struct Digits {
    pixels: Vec<[f32; 64]>,
    labels: Vec<usize>,
}

/// UCI "Optical recognition of handwritten digits": 64 pixels of 0..=16 and the label, a row each.
fn read() -> Result<Digits, Box<dyn Error>> {
    let packed = include_bytes!("data/digits.csv.gz");
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text)?;
    let mut digits = Digits { pixels: Vec::new(), labels: Vec::new() };
    for line in text.lines() {
        let row: Vec<u8> = line.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let (label, pixels) = row.split_last().ok_or("an empty row")?;
        let pixels: &[u8; 64] = pixels.try_into()?;
        digits.pixels.push(pixels.map(|p| f32::from(p) / 16.0));
        digits.labels.push((*label).into());
    }
    Ok(digits)
}

/// An image blended with itself moved by up to one pixel: writers of the held rows differ from
/// those of the training rows, and a network that has seen blurred positions minds less.
fn blend(image: &[f32; 64], rng: &mut impl Rng) -> [f32; 64] {
    let (dx, dy) = (rng.random_range(-1..=1i32), rng.random_range(-1..=1i32));
    let share = rng.random_range(0.0..0.6f32);
    std::array::from_fn(|i| {
        let (x, y) = (i as i32 % 8 + dx, i as i32 / 8 + dy);
        let inside = (0..8).contains(&x) && (0..8).contains(&y);
        let moved = if inside { image[(y * 8 + x) as usize] } else { 0.0 };
        (1.0 - share) * image[i] + share * moved
    })
}

impl Digits {
    fn batch(
        &self,
        rows: &[usize],
        rng: Option<&mut ChaCha8Rng>,
    ) -> Result<[Array; 2], Diagnostic> {
        let n = rows.len() as u64;
        let pixels: Vec<f32> = match rng {
            Some(rng) => rows.iter().flat_map(|&r| blend(&self.pixels[r], rng)).collect(),
            None => rows.iter().flat_map(|&r| self.pixels[r]).collect(),
        };
        let one_hot = |&r: &usize| (0..10).map(move |c| f32::from(c == self.labels[r]));
        let labels: Vec<f32> = rows.iter().flat_map(one_hot).collect();
        Ok([Array::from_f32s(&[n, 64], &pixels)?, Array::from_f32s(&[n, 10], &labels)?])
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let digits = read()?;
    let train = digits.labels.len() - HELD;
    let step = step()?;
    let module = Module::single(step.clone());

    let mut noise = rng(1, 0);
    // He's initialization for a relu layer; small for the last one.
    let mut start = |dims: &[u64], spread: f64| {
        let ty = TensorType::of(DType::F32, dims);
        sample(&ty, Domain::Uniform(-spread, spread), &mut noise)
    };
    let mut params = vec![
        start(&[64, HIDDEN], (6.0 / 64.0f64).sqrt())?,
        start(&[HIDDEN], 1e-3)?,
        start(&[HIDDEN, 10], 0.3 * (6.0 / HIDDEN as f64).sqrt())?,
        start(&[10], 1e-3)?,
    ];

    let mut order: Vec<usize> = (0..train).collect();
    let mut shuffle = rng(2, 0);
    let bar = ProgressBar::new(EPOCHS * (train / BATCH) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} ({eta} left)")?);
    for epoch in 1..=EPOCHS {
        let rate = RATE * (1.0 - (epoch - 1) as f64 / EPOCHS as f64);
        order.shuffle(&mut shuffle);
        for rows in order.chunks_exact(BATCH) {
            let mut args = std::mem::take(&mut params);
            args.extend(digits.batch(rows, Some(&mut shuffle))?);
            args.push(Array::from_f64s(DType::F32, &[], &[rate])?);
            let mut out = run(&module, &step, &args, &mut Silent)?;
            params = out.split_off(1);
            bar.set_message(format!("epoch {epoch}, loss {:.4}", out[0].get(0).to_f64()));
            bar.inc(1);
        }
    }
    bar.finish();

    let scores = trace("scores", |t| {
        let params = parameters(t);
        network(&t.input("x", f32s([HELD as u64, 64])), &params)
    })?;
    let held: Vec<usize> = (train..train + HELD).collect();
    let [x, _] = digits.batch(&held, None)?;
    params.push(x);
    let out = run(&Module::single(scores.clone()), &scores, &params, &mut Silent)?;
    let scores = out[0].to_f64s();
    let best = |row: &[f64]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    let right =
        held.iter().zip(scores.chunks(10)).filter(|(r, s)| best(s) == Some(digits.labels[**r]));
    let right = right.count();
    let mut out = std::io::stdout().lock();
    std::io::Write::write_fmt(
        &mut out,
        format_args!(
            "test accuracy: {:.2}% ({right} of {HELD})\n",
            100.0 * right as f64 / HELD as f64
        ),
    )?;
    Ok(())
}
