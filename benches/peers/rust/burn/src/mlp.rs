//! Three dense layers, 784 to 10, a batch of 128, SGD.

use crate::{floats, labels};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::activation::relu;
use std::error::Error;

#[derive(Module, Debug)]
struct Mlp {
    l1: Linear,
    l2: Linear,
    l3: Linear,
}

impl Mlp {
    fn new(device: &Device) -> Self {
        Self {
            l1: LinearConfig::new(784, 1024).init(device),
            l2: LinearConfig::new(1024, 1024).init(device),
            l3: LinearConfig::new(1024, 10).init(device),
        }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = relu(self.l1.forward(x));
        let x = relu(self.l2.forward(x));
        self.l3.forward(x)
    }
}

pub fn train(device: &Device) -> Result<(), Box<dyn Error>> {
    let x = floats([128, 784], 1, device);
    let y = labels([128], 10, 2, device);
    let loss_of = CrossEntropyLossConfig::new().init(device);
    let mut net = Mlp::new(device);
    let mut optimizer = SgdConfig::new().init();
    peer_measure::run(|| {
        let loss = loss_of.forward(net.forward(x.clone()), y.clone());
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(0.01, net.clone(), grads);
        Ok::<f32, Box<dyn Error>>(loss.into_scalar::<f32>())
    })
}
