//! Whole training steps, loss to update, of models as users write them: what `peers/models.py` measures beside other libraries.

pub mod cnn;
pub mod gpt;
pub mod lstm;
pub mod mlp;

use crate::numbers::{classes, numbers};
use adfuse::nn::Param;
use adfuse::prelude::*;
use adfuse::train::TrainState;

/// The state of training on the engine `cpu`, and the batch of inputs and targets of every step.
pub type StepState<M> = (TrainState<M, (Tensor, Tensor), Tensor>, (Array, Array));

/// The function of a step.
///
/// # Errors
/// Those of the trace.
pub fn traced<M: Params<Param>>(state: StepState<M>) -> Result<Traced, Diagnostic> {
    let (state, batch) = state;
    state.traced(&batch)
}

fn floats(dims: &[u64], seed: u64) -> Result<Array, Diagnostic> {
    Array::from_f32s(dims, &numbers(dims.iter().product::<u64>() as usize, seed))
}

fn labels(dims: &[u64], number: i32, seed: u64) -> Result<Array, Diagnostic> {
    let values = classes(dims.iter().product::<u64>() as usize, number, seed);
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    Array::from_f64s(DType::I32, dims, &values)
}
