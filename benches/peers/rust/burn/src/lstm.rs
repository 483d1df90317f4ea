//! An LSTM of width 64 over 50 steps of 8 inputs, a batch of 32, mean squared error of one output, Adam.

use crate::floats;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use std::error::Error;

#[derive(Module, Debug)]
struct Net {
    lstm: Lstm,
    out: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        Self {
            lstm: LstmConfig::new(8, 64, true).with_batch_first(false).init(device),
            out: LinearConfig::new(64, 1).init(device),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<2> {
        let (_, last) = self.lstm.forward(x, None);
        self.out.forward(last.hidden)
    }
}

pub fn train(device: &Device) -> Result<(), Box<dyn Error>> {
    let x = floats([50, 32, 8], 1, device);
    let y = floats([32, 1], 2, device);
    let mut net = Net::new(device);
    let mut optimizer = AdamConfig::new().init();
    peer_measure::run(|| {
        let loss = MseLoss::new().forward(net.forward(x.clone()), y.clone(), Reduction::Mean);
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(1e-3, net.clone(), grads);
        Ok::<f32, Box<dyn Error>>(loss.into_scalar::<f32>())
    })
}
