//! Multilayer perceptrons.

use super::Weights;
use adfuse::prelude::*;

/// The loss of a perceptron with `layers` square layers of `width`: the sum of squared errors. `activation` follows each layer.
///
/// # Errors
/// As [`trace`].
pub fn perceptron(
    [layers, batch, width]: [u64; 3],
    activation: fn(&Tensor) -> Tensor,
) -> Result<Traced, Diagnostic> {
    trace("perceptron", |t| {
        let w = Weights::new(t, DType::F32);
        let (mut h, target) = (w.data("x", [batch, width]), w.data("target", [batch, width]));
        for _ in 0..layers {
            h = activation(&w.linear(&h, [width, width]));
        }
        (h - target).square().sum(..)
    })
}
