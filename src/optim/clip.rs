//! Gradients that are clipped before an optimizer is given them.

use super::{Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated, like};
use crate::trace::Tensor;

/// An optimizer on gradients that are scaled together so that their norm over all parameters is at most a number (Pascanu et al. 2013).
///
/// ```
/// use adfuse::optim::{ClipGlobalNorm, Optimizer, Sgd};
///
/// let _: ClipGlobalNorm<Sgd> = Sgd::new(0.1).clip_global_norm(1.0);
/// ```
#[derive(Clone, Debug)]
pub struct ClipGlobalNorm<O> {
    optimizer: O,
    most: f64,
}

impl<O> ClipGlobalNorm<O> {
    /// On gradients of a norm of at most `most`.
    pub fn new(optimizer: O, most: f64) -> ClipGlobalNorm<O> {
        ClipGlobalNorm { optimizer, most }
    }
}

/// The square root of the sum of the squares of all elements, a scalar; `None` without gradients. The squares of each are summed in its own
/// type, at least `f32`, and the sums of different types in the widest.
pub(super) fn global_norm(gradients: &[Tensor]) -> Option<Tensor> {
    let squares = |g: &Tensor| {
        let axes: Vec<usize> = (0..g.ty().rank()).collect();
        let g = g.compute();
        (&g * &g).sum(&axes)
    };
    let sums: Vec<Tensor> = gradients.iter().map(squares).collect();
    let widest = sums.iter().map(|s| s.ty().dtype).max_by_key(|d| d.bytes())?;
    let sum = sums.iter().map(|s| s.convert(widest)).reduce(|a, b| a + b);
    sum.map(|sum| sum.sqrt())
}

impl<O: Optimizer> Optimizer for ClipGlobalNorm<O> {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        self.optimizer.state(params)
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        let Some(norm) = global_norm(at.gradients) else { return self.optimizer.update(at) };
        let most = norm.tracer().full(norm.ty(), self.most);
        let factor = &most / norm.max(&most);
        // A factor of 16 bits would miss the norm by a fraction of a percent.
        let scaled = |g: Tensor| &g * like(&factor, &g);
        let clipped: Vec<Tensor> = at.gradients.iter().map(|g| scaled(g.compute())).collect();
        self.optimizer.update(&UpdateContext { gradients: &clipped, ..at.clone() })
    }
}

/// An optimizer on gradients whose elements are cut to an interval around 0.
///
/// ```
/// use adfuse::optim::{ClipValue, Optimizer, Sgd};
///
/// let _: ClipValue<Sgd> = Sgd::new(0.1).clip_value(1.0);
/// ```
#[derive(Clone, Debug)]
pub struct ClipValue<O> {
    optimizer: O,
    most: f64,
}

impl<O> ClipValue<O> {
    /// On elements within `±most`.
    pub fn new(optimizer: O, most: f64) -> ClipValue<O> {
        ClipValue { optimizer, most }
    }
}

impl<O: Optimizer> Optimizer for ClipValue<O> {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        self.optimizer.state(params)
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        let cut = |g: &Tensor| g.compute().max(-self.most).min(self.most);
        let clipped: Vec<Tensor> = at.gradients.iter().map(cut).collect();
        self.optimizer.update(&UpdateContext { gradients: &clipped, ..at.clone() })
    }
}
