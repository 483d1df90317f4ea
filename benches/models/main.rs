//! Training steps of the models that `benches/peers/models.py` measures beside other libraries: `models MODEL SECONDS STARTED`.

mod bundle;
mod cnn;
mod gpt;
mod lstm;
mod measure;
mod mlp;

use adfuse::prelude::*;
use measure::{argument, classes, numbers};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    match argument(1)?.as_str() {
        "mlp" => mlp::train(),
        "cnn" => cnn::train(),
        "gpt" => gpt::train(),
        "lstm" => lstm::train(),
        "bundle" => bundle::evaluate(),
        other => Err(format!("there is no model {other}").into()),
    }
}

fn floats(dims: &[u64], seed: u64) -> Result<Array, Diagnostic> {
    Array::from_f32s(dims, &numbers(dims.iter().product::<u64>() as usize, seed))
}

fn labels(dims: &[u64], number: i32, seed: u64) -> Result<Array, Diagnostic> {
    let values = classes(dims.iter().product::<u64>() as usize, number, seed);
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    Array::from_f64s(DType::I32, dims, &values)
}
