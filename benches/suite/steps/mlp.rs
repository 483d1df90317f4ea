//! Three dense layers, 784 to 10, a batch of 128, SGD.

use super::{StepState, floats, labels};
use adfuse::nn::{Linear, Param};
use adfuse::optim::Sgd;
use adfuse::prelude::*;
use adfuse::train_step;

/// The parameters.
#[derive(Params, Clone, Debug)]
pub struct Mlp<T = Tensor> {
    l1: Linear<T>,
    l2: Linear<T>,
    l3: Linear<T>,
}

/// The state before the first step, and the batch.
///
/// # Errors
/// Those of the initial values.
pub fn state() -> Result<StepState<Mlp<Param>>, Diagnostic> {
    let batch = (floats(&[128, 784], 1)?, labels(&[128], 10, 2)?);
    let net =
        Mlp { l1: Linear::new(784, 1024), l2: Linear::new(1024, 1024), l3: Linear::new(1024, 10) };
    let step = train_step(Sgd::new(0.01), net, |net: &Mlp, (x, y): (Tensor, Tensor)| {
        let h = net.l1.apply(x).relu();
        let h = net.l2.apply(h).relu();
        net.l3.apply(h).cross_entropy(&y)
    });
    Ok((step.init(Device::cpu(), 0)?, batch))
}
