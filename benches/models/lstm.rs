//! An LSTM of width 64 over 50 steps of 8 inputs, a batch of 32, mean squared error of one output, Adam.

use crate::{floats, measure};
use adfuse::nn::{Linear, Lstm};
use adfuse::optim::Adam;
use adfuse::prelude::*;
use adfuse::train_step;
use std::error::Error;

#[derive(Params, Clone)]
struct Net<T = Tensor> {
    lstm: Lstm<T>,
    out: Linear<T>,
}

pub(crate) fn train() -> Result<(), Box<dyn Error>> {
    let batch = (floats(&[32, 50, 8], 1)?, floats(&[32, 1], 2)?);
    let net = Net { lstm: Lstm::new(8, 64), out: Linear::new(64, 1) };
    let step = train_step(Adam::new(1e-3), net, |net: &Net, (x, y): (Tensor, Tensor)| {
        let (_, (h, _)) = net.lstm.apply(x);
        net.out.apply(h).mse(&y)
    });
    let mut state = step.init(Device::cpu(), 0)?;
    measure::run(|| state.step(&batch))
}
