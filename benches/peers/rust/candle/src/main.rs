//! Training steps of candle on the CPU: `peer-candle MODEL SECONDS STARTED`.

mod cnn;
mod gpt;
mod lstm;
mod mlp;

use candle_core::{Device, Result, Shape, Tensor};
use peer_measure::{argument, classes, numbers};
use std::error::Error;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let device = Device::Cpu;
    match argument(1)?.as_str() {
        "mlp" => mlp::train(&device),
        "cnn" => cnn::train(&device),
        "gpt" => gpt::train(&device),
        "lstm" => lstm::train(&device),
        other => Err(format!("candle has no model {other}").into()),
    }
}

fn floats(shape: impl Into<Shape>, seed: u64, device: &Device) -> Result<Tensor> {
    let shape = shape.into();
    Tensor::from_vec(numbers(shape.elem_count(), seed), shape, device)
}

fn labels(shape: impl Into<Shape>, number: u32, seed: u64, device: &Device) -> Result<Tensor> {
    let shape = shape.into();
    Tensor::from_vec(classes(shape.elem_count(), number, seed), shape, device)
}
