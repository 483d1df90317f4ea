//! An LSTM of width 64 over 50 steps of 8 inputs, a batch of 32, mean squared error of one output, Adam.

use super::{StepState, floats};
use adfuse::nn::{Linear, Lstm, Param};
use adfuse::optim::Adam;
use adfuse::prelude::*;
use adfuse::train_step;

/// The parameters.
#[derive(Params, Clone, Debug)]
pub struct Net<T = Tensor> {
    lstm: Lstm<T>,
    out: Linear<T>,
}

/// The state before the first step, and the batch.
///
/// # Errors
/// Those of the initial values.
pub fn state() -> Result<StepState<Net<Param>>, Diagnostic> {
    let batch = (floats(&[32, 50, 8], 1)?, floats(&[32, 1], 2)?);
    let net = Net { lstm: Lstm::new(8, 64), out: Linear::new(64, 1) };
    let step = train_step(Adam::new(1e-3), net, |net: &Net, (x, y): (Tensor, Tensor)| {
        let (_, (h, _)) = net.lstm.apply(x);
        net.out.apply(h).mse(&y)
    });
    Ok((step.init(Device::cpu(), 0)?, batch))
}
