//! Two times convolution, batch norm, relu and pool, then a dense layer; a batch of 64 of 1 x 8 x 8, Adam.

use crate::{floats, labels};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::relu;
use std::error::Error;

#[derive(Module, Debug)]
struct Cnn {
    c1: Conv2d,
    bn1: BatchNorm,
    c2: Conv2d,
    bn2: BatchNorm,
    pool: MaxPool2d,
    out: Linear,
}

fn conv(channels: [usize; 2], device: &Device) -> Conv2d {
    Conv2dConfig::new(channels, [3, 3])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .init(device)
}

impl Cnn {
    fn new(device: &Device) -> Self {
        Self {
            c1: conv([1, 16], device),
            bn1: BatchNormConfig::new(16).init(device),
            c2: conv([16, 32], device),
            bn2: BatchNormConfig::new(32).init(device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            out: LinearConfig::new(128, 10).init(device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = self.pool.forward(relu(self.bn1.forward(self.c1.forward(x))));
        let x = self.pool.forward(relu(self.bn2.forward(self.c2.forward(x))));
        self.out.forward(x.flatten(1, 3))
    }
}

pub fn train(device: &Device) -> Result<(), Box<dyn Error>> {
    let x = floats([64, 1, 8, 8], 1, device);
    let y = labels([64], 10, 2, device);
    let loss_of = CrossEntropyLossConfig::new().init(device);
    let mut net = Cnn::new(device);
    let mut optimizer = AdamConfig::new().init();
    peer_measure::run(|| {
        let loss = loss_of.forward(net.forward(x.clone()), y.clone());
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(1e-3, net.clone(), grads);
        Ok::<f32, Box<dyn Error>>(loss.into_scalar::<f32>())
    })
}
