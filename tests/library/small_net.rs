//! A net with a batch norm and dropout, small enough for tests that train it.

use adfuse::nn::{BatchNorm, Dropout, Linear, Param};
use adfuse::prelude::*;

#[derive(Params, Clone, Debug)]
pub(crate) struct Net<T = Tensor> {
    pub(crate) l1: Linear<T>,
    pub(crate) norm: BatchNorm<T>,
    pub(crate) drop: Dropout,
    pub(crate) l2: Linear<T>,
}

/// Rows of six numbers, and the class of each, one of three.
pub(crate) type Pair = (Tensor, Tensor);

pub(crate) fn net(hidden: u64, dropout: f64) -> Net<Param> {
    let (l1, l2) = (Linear::new(6, hidden), Linear::new(hidden, 3));
    Net { l1, norm: BatchNorm::new(hidden), drop: Dropout::new(dropout), l2 }
}

pub(crate) fn logits(net: &Net, x: &Tensor) -> Tensor {
    net.l2.apply(net.drop.apply(net.norm.apply(net.l1.apply(x)).gelu()))
}

pub(crate) fn loss(net: &Net, (x, y): Pair) -> Tensor {
    logits(net, &x).cross_entropy(&y)
}
