//! Two times convolution, batch norm, relu and pool, then a dense layer; a batch of 64 of 1 x 8 x 8, Adam.

use super::{StepState, floats, labels};
use adfuse::nn::{BatchNorm, Conv2d, Linear, Param};
use adfuse::optim::Adam;
use adfuse::prelude::*;
use adfuse::train_step;

/// The parameters.
#[derive(Params, Clone, Debug)]
pub struct Cnn<T = Tensor> {
    c1: Conv2d<T>,
    bn1: BatchNorm<T>,
    c2: Conv2d<T>,
    bn2: BatchNorm<T>,
    out: Linear<T>,
}

/// The state before the first step, and the batch.
///
/// # Errors
/// Those of the initial values.
pub fn state() -> Result<StepState<Cnn<Param>>, Diagnostic> {
    let batch = (floats(&[64, 1, 8, 8], 1)?, labels(&[64], 10, 2)?);
    let net = Cnn {
        c1: Conv2d::same(1, 16, 3).no_bias(),
        bn1: BatchNorm::new(16),
        c2: Conv2d::same(16, 32, 3).no_bias(),
        bn2: BatchNorm::new(32),
        out: Linear::new(128, 10),
    };
    let step = train_step(Adam::new(1e-3), net, |net: &Cnn, (x, y): (Tensor, Tensor)| {
        let h = net.bn1.apply(net.c1.apply(x)).relu().max_pool2d(2);
        let h = net.bn2.apply(net.c2.apply(h)).relu().max_pool2d(2);
        net.out.apply(h.reshape([64, 128])).cross_entropy(&y)
    });
    Ok((step.init(Device::cpu(), 0)?, batch))
}
