//! Gradients that are clipped before an optimizer is given them.

use super::{Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated, like, wide};
use crate::trace::Tensor;

/// An optimizer on gradients that are scaled together so that their norm over all parameters is at most a number (Pascanu et al. 2013).
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

/// The square root of the sum of the squares of all elements, a scalar; `None` without gradients.
pub(super) fn global_norm(gradients: &[Tensor]) -> Option<Tensor> {
    let squares = |g: &Tensor| {
        let axes: Vec<usize> = (0..g.ty().rank()).collect();
        let g = g.convert(wide(g.ty().dtype));
        (&g * &g).sum(&axes)
    };
    gradients.iter().map(squares).reduce(|a, b| a + b).map(|sum| sum.sqrt())
}

impl<O: Optimizer> Optimizer for ClipGlobalNorm<O> {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        self.optimizer.state(params)
    }

    fn update(
        &self,
        at: &UpdateContext<'_>,
        values: &[Tensor],
        gradients: &[Tensor],
        state: &[Tensor],
    ) -> Updated {
        let Some(norm) = global_norm(gradients) else {
            return self.optimizer.update(at, values, gradients, state);
        };
        let most = norm.tracer().full(norm.ty(), self.most);
        let factor = (&most / norm.max(&most)).max(0.0);
        let clipped: Vec<Tensor> = gradients.iter().map(|g| g * like(&factor, g)).collect();
        self.optimizer.update(at, values, &clipped, state)
    }
}

/// An optimizer on gradients whose elements are cut to an interval around 0.
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

    fn update(
        &self,
        at: &UpdateContext<'_>,
        values: &[Tensor],
        gradients: &[Tensor],
        state: &[Tensor],
    ) -> Updated {
        let cut = |g: &Tensor| g.max(-self.most).min(self.most);
        let clipped: Vec<Tensor> = gradients.iter().map(cut).collect();
        self.optimizer.update(at, values, &clipped, state)
    }
}
