//! Lion.

use super::{
    LearningRate, Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated, each, like,
};

/// Lion (Chen et al. 2023): `p <- p - rate * (sign(b1 m + (1 - b1) g) + decay * p)`, `m <- b2 m + (1 - b2) g`.
///
/// Every element moves by the rate, so that rates are a third to a tenth of those of [`Adam`](super::Adam), and decay is as much greater.
///
/// ```
/// use adfuse::nn::{Init, Param};
/// use adfuse::optim::Lion;
/// use adfuse::prelude::*;
///
/// let step = adfuse::train_step(Lion::new(0.25), Param::new([2], Init::Ones), |p: &Tensor, by: Tensor| {
///     (p * by).sum(..)
/// });
/// let mut state = step.init(Device::cpu(), 0)?;
/// state.step(&Array::from_vec(vec![3f32, -0.1], [2])?)?;
/// assert_eq!(state.params()?.to_f64s(), [0.75, 1.25]);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lion {
    rate: LearningRate,
    betas: [f64; 2],
    decay: f64,
}

impl Lion {
    /// With betas .9 and .99.
    pub fn new(rate: impl Into<LearningRate>) -> Lion {
        Lion { rate: rate.into(), betas: [0.9, 0.99], decay: 0.0 }
    }

    /// With other betas.
    #[must_use]
    pub fn betas(self, first: f64, second: f64) -> Lion {
        Lion { betas: [first, second], ..self }
    }

    /// With decoupled decay of weights, for parameters with two axes or more.
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Lion {
        Lion { decay, ..self }
    }
}

impl Optimizer for Lion {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        params.iter().map(|p| OptimizerState::zeros("m", p)).collect()
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        let rate = self.rate.at(&at.step);
        let [first, second] = self.betas;
        each(at, 1, |param, p, g, state| {
            let mut by = (&state[0] * first + g * (1.0 - first)).sign();
            if self.decay != 0.0 && param.ty.rank() >= 2 {
                by += p * self.decay;
            }
            let m = &state[0] * second + g * (1.0 - second);
            (p - by * like(&rate, p), vec![m])
        })
    }
}
