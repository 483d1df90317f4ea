//! An LSTM of width 64 over 50 steps of 8 inputs, a batch of 32, mean squared error of one output, Adam.

use crate::floats;
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::rnn::{LSTM, LSTMConfig, RNN, lstm};
use candle_nn::{AdamW, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, linear, loss};
use std::error::Error;

struct Net {
    lstm: LSTM,
    out: Linear,
}

impl Net {
    fn new(vb: VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            lstm: lstm(8, 64, LSTMConfig::default(), vb.pp("lstm"))?,
            out: linear(64, 1, vb.pp("out"))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let states = self.lstm.seq(x)?;
        self.out.forward(states[states.len() - 1].h())
    }
}

pub fn train(device: &Device) -> std::result::Result<(), Box<dyn Error>> {
    let x = floats((32, 50, 8), 1, device)?;
    let y = floats((32, 1), 2, device)?;
    let vars = VarMap::new();
    let net = Net::new(VarBuilder::from_varmap(&vars, DType::F32, device))?;
    let adam = ParamsAdamW { weight_decay: 0.0, ..Default::default() };
    let mut optimizer = AdamW::new(vars.all_vars(), adam)?;
    peer_measure::run(|| {
        let loss = loss::mse(&net.forward(&x)?, &y)?;
        optimizer.backward_step(&loss)?;
        loss.to_scalar::<f32>()
    })
}
