//! A classifier of images with two convolutions, which examples share.

// No example uses all of it.
#![allow(dead_code, unreachable_pub)]

use adfuse::nn::{BatchNorm, Conv2d, Dropout, Linear, Param};
use adfuse::prelude::*;

/// With `Param` leaves it describes the network, with `Tensor` leaves it is part of a trace, and with `Array` leaves it has values.
#[derive(Params, Clone)]
pub struct ConvNet<T = Tensor> {
    conv1: Conv2d<T>,
    norm1: BatchNorm<T>,
    conv2: Conv2d<T>,
    norm2: BatchNorm<T>,
    dropout: Dropout,
    out: Linear<T>,
}

impl ConvNet<Param> {
    /// A network with this many features behind the first convolution, for images of `side` by `side` pixels.
    pub fn new(features: u64, side: u64) -> ConvNet<Param> {
        ConvNet {
            conv1: Conv2d::same(1, features, 3).no_bias(),
            norm1: BatchNorm::new(features),
            conv2: Conv2d::same(features, 2 * features, 3).no_bias(),
            norm2: BatchNorm::new(2 * features),
            dropout: Dropout::new(0.3),
            out: Linear::new(2 * features * (side / 2) * (side / 2), 10),
        }
    }
}

impl ConvNet {
    /// Scores of ten classes for images `[batch, 1, side, side]`.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let x = self.norm1.apply(self.conv1.apply(x)).relu();
        let x = self.norm2.apply(self.conv2.apply(x)).relu().max_pool2d(2);
        self.out.apply(self.dropout.apply(x.flatten(1..)))
    }
}
