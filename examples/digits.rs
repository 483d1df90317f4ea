//! Trains a 64-128-10 relu network on handwritten digits: `cargo run --release -p adfuse-examples --example digits`.
//!
//! The loss is traced from Rust, differentiated, and turned into one function that does a whole step
//! of stochastic gradient descent: parameters in, loss and new parameters out. It is compiled once, and
//! run in memory that is there from the start. With `-- --figures` it says how long things took.

use adfuse::ir::op::Domain;
use adfuse::prelude::*;
use adfuse::sample::{rng, sample};
use flate2::read::GzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

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
fn loss() -> Result<Traced, Diagnostic> {
    trace("loss", |t| {
        let params = parameters(t);
        let x = t.input("x", f32s([BATCH as u64, 64]));
        let labels = t.input("labels", f32s([BATCH as u64, 10]));
        let picked = network(&x, &params).log_softmax(-1) * labels;
        -(picked.sum(&[0, 1]) / BATCH as f64)
    })
}

/// `(params.., x, labels, rate) -> (loss, new params..)`.
fn step() -> Result<Traced, Diagnostic> {
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
    /// Writes the pixels of these rows, and their labels, one-hot.
    fn batch(&self, rows: &[usize], mut rng: Option<&mut ChaCha8Rng>, to: &mut [Vec<u8>; 2]) {
        let [pixels, labels] = to;
        pixels.clear();
        labels.clear();
        for &r in rows {
            let image = match &mut rng {
                Some(rng) => blend(&self.pixels[r], *rng),
                None => self.pixels[r],
            };
            pixels.extend(image.iter().flat_map(|p| p.to_le_bytes()));
            let one_hot = (0..10).map(|c| f32::from(c == self.labels[r]));
            labels.extend(one_hot.flat_map(f32::to_le_bytes));
        }
    }
}

/// How long things took.
struct Figures {
    start: Instant,
    compiled: Duration,
    first: Option<Duration>,
    stepping: Duration,
    steps: u32,
}

impl Figures {
    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        writeln!(out, "compiling the step: {:.2} ms", ms(self.compiled))?;
        let first = self.first.unwrap_or_default();
        writeln!(out, "from the start of main to the first gradient: {:.2} ms", ms(first))?;
        let step = self.stepping / self.steps.max(1);
        writeln!(out, "a step: {:.2} us", ms(step) * 1e3)?;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        writeln!(out, "peak resident memory: {}", peak.map_or("not known here", str::trim))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let wanted = std::env::args().any(|a| a == "--figures");
    let digits = read()?;
    let train = digits.labels.len() - HELD;
    let step = step()?;
    let begun = Instant::now();
    let step = Cpu::default().compile(&Module::single(step.clone()), &step)?.executable;
    let compiled = begun.elapsed();
    let mut figures = Figures { start, compiled, first: None, stepping: Duration::ZERO, steps: 0 };

    let mut noise = rng(1, 0);
    // He's initialization for a relu layer; small for the last one.
    let mut begin = |dims: &[u64], spread: f64| {
        let ty = TensorType::of(DType::F32, dims);
        let start = sample(&ty, Domain::Uniform(-spread, spread), &mut noise)?;
        Ok::<Vec<u8>, Diagnostic>(start.bytes().to_vec())
    };
    let mut params = [
        begin(&[64, HIDDEN], (6.0 / 64.0f64).sqrt())?,
        begin(&[HIDDEN], 1e-3)?,
        begin(&[HIDDEN, 10], 0.3 * (6.0 / HIDDEN as f64).sqrt())?,
        begin(&[10], 1e-3)?,
    ];
    // A step reads these and writes those, which are the next one's.
    let mut next = params.clone();

    let mut order: Vec<usize> = (0..train).collect();
    let mut shuffle = rng(2, 0);
    let mut batch = [Vec::new(), Vec::new()];
    let bar = ProgressBar::new(EPOCHS * (train / BATCH) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} ({eta} left)")?);
    for epoch in 1..=EPOCHS {
        let rate = (RATE * (1.0 - (epoch - 1) as f64 / EPOCHS as f64)) as f32;
        let mut loss = [0u8; 4];
        order.shuffle(&mut shuffle);
        for rows in order.chunks_exact(BATCH) {
            digits.batch(rows, Some(&mut shuffle), &mut batch);
            let ([w1, b1, w2, b2], [x, labels], rate) = (&params, &batch, rate.to_le_bytes());
            let [v1, c1, v2, c2] = &mut next;
            let begun = Instant::now();
            step.run_into(&[w1, b1, w2, b2, x, labels, &rate], &mut [&mut loss, v1, c1, v2, c2])?;
            figures.stepping += begun.elapsed();
            figures.steps += 1;
            figures.first.get_or_insert_with(|| figures.start.elapsed());
            std::mem::swap(&mut params, &mut next);
            bar.inc(1);
        }
        bar.set_message(format!("epoch {epoch}, loss {:.4}", f32::from_le_bytes(loss)));
    }
    bar.finish();

    let scores = trace("scores", |t| {
        let params = parameters(t);
        network(&t.input("x", f32s([HELD as u64, 64])), &params)
    })?;
    let scores = Cpu::default().compile(&Module::single(scores.clone()), &scores)?.executable;
    let held: Vec<usize> = (train..train + HELD).collect();
    digits.batch(&held, None, &mut batch);
    let ([w1, b1, w2, b2], [x, _]) = (&params, &batch);
    let mut out = vec![0u8; HELD * 10 * 4];
    scores.run_into(&[w1, b1, w2, b2, x], &mut [&mut out])?;
    let scores: Vec<f32> =
        out.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let best = |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    let right =
        held.iter().zip(scores.chunks(10)).filter(|(r, s)| best(s) == Some(digits.labels[**r]));
    let right = right.count();
    let mut out = std::io::stdout().lock();
    let share = 100.0 * right as f64 / HELD as f64;
    writeln!(out, "test accuracy: {share:.2}% ({right} of {HELD})")?;
    if wanted {
        figures.print(&mut out)?;
    }
    Ok(())
}
