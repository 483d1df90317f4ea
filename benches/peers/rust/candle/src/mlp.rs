//! Three dense layers, 784 to 10, a batch of 128, SGD.

use crate::{floats, labels};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Linear, Module, Optimizer, SGD, VarBuilder, VarMap, linear, loss};
use std::error::Error;

struct Mlp {
    l1: Linear,
    l2: Linear,
    l3: Linear,
}

impl Mlp {
    fn new(vb: VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            l1: linear(784, 1024, vb.pp("l1"))?,
            l2: linear(1024, 1024, vb.pp("l2"))?,
            l3: linear(1024, 10, vb.pp("l3"))?,
        })
    }
}

impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.l1.forward(x)?.relu()?;
        let x = self.l2.forward(&x)?.relu()?;
        self.l3.forward(&x)
    }
}

pub fn train(device: &Device) -> std::result::Result<(), Box<dyn Error>> {
    let x = floats((128, 784), 1, device)?;
    let y = labels(128, 10, 2, device)?;
    let vars = VarMap::new();
    let net = Mlp::new(VarBuilder::from_varmap(&vars, DType::F32, device))?;
    let mut optimizer = SGD::new(vars.all_vars(), 0.01)?;
    peer_measure::run(|| {
        let loss = loss::cross_entropy(&net.forward(&x)?, &y)?;
        optimizer.backward_step(&loss)?;
        loss.to_scalar::<f32>()
    })
}
