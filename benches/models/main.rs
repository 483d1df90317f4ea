//! Training steps of the models that `benches/peers/models.py` measures beside other libraries: `models MODEL SECONDS STARTED`.

mod bundle;
mod measure;

use adfuse::nn::Param;
use adfuse::prelude::*;
use adfuse_benches::steps::{StepState, cnn, gpt, lstm, mlp};
use measure::argument;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    match argument(1)?.as_str() {
        "mlp" => train(mlp::state()?),
        "cnn" => train(cnn::state()?),
        "gpt" => train(gpt::state()?),
        "lstm" => train(lstm::state()?),
        "bundle" => bundle::evaluate(),
        other => Err(format!("there is no model {other}").into()),
    }
}

fn train<M: Params<Param>>((mut state, batch): StepState<M>) -> Result<(), Box<dyn Error>> {
    measure::run(|| state.step(&batch))
}
