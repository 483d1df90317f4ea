//! Two times convolution, batch norm, relu and pool, then a dense layer; a batch of 64 of 1 x 8 x 8, Adam.

use crate::{floats, labels};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{
    AdamW, BatchNorm, Conv2d, Conv2dConfig, Linear, Module, ModuleT, Optimizer, ParamsAdamW,
    VarBuilder, VarMap, batch_norm, conv2d_no_bias, linear, loss,
};
use std::error::Error;

struct Cnn {
    c1: Conv2d,
    bn1: BatchNorm,
    c2: Conv2d,
    bn2: BatchNorm,
    out: Linear,
}

impl Cnn {
    fn new(vb: VarBuilder<'_>) -> Result<Self> {
        let padded = Conv2dConfig { padding: 1, ..Default::default() };
        Ok(Self {
            c1: conv2d_no_bias(1, 16, 3, padded, vb.pp("c1"))?,
            bn1: batch_norm(16, 1e-5, vb.pp("bn1"))?,
            c2: conv2d_no_bias(16, 32, 3, padded, vb.pp("c2"))?,
            bn2: batch_norm(32, 1e-5, vb.pp("bn2"))?,
            out: linear(128, 10, vb.pp("out"))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.bn1.forward_t(&self.c1.forward(x)?, true)?.relu()?.max_pool2d(2)?;
        let x = self.bn2.forward_t(&self.c2.forward(&x)?, true)?.relu()?.max_pool2d(2)?;
        self.out.forward(&x.flatten_from(1)?)
    }
}

pub fn train(device: &Device) -> std::result::Result<(), Box<dyn Error>> {
    let x = floats((64, 1, 8, 8), 1, device)?;
    let y = labels(64, 10, 2, device)?;
    let vars = VarMap::new();
    let net = Cnn::new(VarBuilder::from_varmap(&vars, DType::F32, device))?;
    let adam = ParamsAdamW { weight_decay: 0.0, ..Default::default() };
    let mut optimizer = AdamW::new(vars.all_vars(), adam)?;
    peer_measure::run(|| {
        let loss = loss::cross_entropy(&net.forward(&x)?, &y)?;
        optimizer.backward_step(&loss)?;
        loss.to_scalar::<f32>()
    })
}
