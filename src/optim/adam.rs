//! Adam and AdamW.

use super::{
    LearningRate, Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated, each, like,
};
use crate::trace::Tensor;

/// Adam (Kingma and Ba 2015); with [`Adam::weight_decay`] it is AdamW (Loshchilov and Hutter 2019):
/// `m <- b1 m + (1 - b1) g`, `v <- b2 v + (1 - b2) g^2`, `p <- p - rate * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * p)`.
///
/// ```
/// use adfuse::nn::Linear;
/// use adfuse::optim::{Adam, LearningRate};
/// use adfuse::prelude::*;
///
/// let rate = LearningRate::warmup(10, 1e-2).cosine(90, 0.0);
/// let adam = Adam::w(rate).betas(0.9, 0.95).weight_decay(0.1);
/// let step = adfuse::train_step(adam, Linear::new(2, 1), |net: &Linear, x: Tensor| {
///     (net.apply(&x) - x.sum(-1).expand_dims(-1)).square().mean(..)
/// });
/// let mut state = step.init(Device::cpu(), 0)?;
/// let x = Array::from_vec(vec![1f32, 0.0, 0.0, 1.0], [2, 2])?;
/// let first = state.step(&x)?;
/// let last = (1..100).map(|_| state.step(&x)).last().transpose()?;
/// assert!(last < Some(first / 2.0));
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adam {
    rate: LearningRate,
    betas: [f64; 2],
    eps: f64,
    decay: f64,
}

impl Adam {
    /// With betas .9 and .999 and an epsilon of 1e-8.
    pub fn new(rate: impl Into<LearningRate>) -> Adam {
        Adam { rate: rate.into(), betas: [0.9, 0.999], eps: 1e-8, decay: 0.0 }
    }

    /// AdamW: as [`Adam::new`], with a decay of weights of .01.
    pub fn w(rate: impl Into<LearningRate>) -> Adam {
        Adam::new(rate).weight_decay(0.01)
    }

    /// With other betas.
    #[must_use]
    pub fn betas(self, first: f64, second: f64) -> Adam {
        Adam { betas: [first, second], ..self }
    }

    /// With another epsilon.
    #[must_use]
    pub fn eps(self, eps: f64) -> Adam {
        Adam { eps, ..self }
    }

    /// With decoupled decay of weights. It is for parameters with two axes or more: biases and scales of norms keep their size.
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Adam {
        Adam { decay, ..self }
    }
}

/// `1 - beta^t`, without cancellation.
fn correction(beta: f64, step: &Tensor) -> Tensor {
    -(step * beta.ln()).expm1()
}

impl Optimizer for Adam {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        let both = |p| ["m", "v"].map(|name| OptimizerState::zeros(name, p));
        params.iter().flat_map(both).collect()
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        let [first, second] = self.betas;
        let rate = self.rate.at(&at.step);
        let by = [&rate / correction(first, &at.step), correction(second, &at.step)];
        each(at, 2, |param, p, g, state| {
            let m = &state[0] * first + g * (1.0 - first);
            let v = &state[1] * second + g * g * (1.0 - second);
            let root = (&v / like(&by[1], &v)).sqrt() + self.eps;
            let mut next = p - &m * like(&by[0], &m) / root;
            if self.decay != 0.0 && param.ty.rank() >= 2 {
                next -= p * like(&(&rate * self.decay), p);
            }
            (next, vec![m, v])
        })
    }
}
