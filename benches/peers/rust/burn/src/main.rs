//! Training steps of burn on its `flex` backend: `peer-burn MODEL SECONDS STARTED`.

mod cnn;
mod gpt;
mod lstm;
mod mlp;

use burn::prelude::*;
use burn::tensor::TensorData;
use peer_measure::{argument, classes, numbers};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::flex().autodiff();
    match argument(1)?.as_str() {
        "mlp" => mlp::train(&device),
        "cnn" => cnn::train(&device),
        "gpt" => gpt::train(&device),
        "lstm" => lstm::train(&device),
        other => Err(format!("burn has no model {other}").into()),
    }
}

fn floats<const D: usize>(dims: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers(dims.iter().product(), seed), dims), device)
}

fn labels<const D: usize>(
    dims: [usize; D],
    number: u32,
    seed: u64,
    device: &Device,
) -> Tensor<D, Int> {
    let values = classes(dims.iter().product(), number, seed).into_iter().map(i64::from).collect();
    Tensor::from_data(TensorData::new::<i64, _>(values, dims), device)
}
