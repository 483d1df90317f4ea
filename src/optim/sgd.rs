//! Stochastic gradient descent, with momentum.

use super::{
    LearningRate, Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated, each, like,
};

/// `p <- p - rate * g`. With momentum `m <- momentum * m + g` and `p <- p - rate * m`; by Nesterov `p <- p - rate * (g + momentum * m)`
/// (Sutskever et al. 2013, as PyTorch has it).
///
/// ```
/// use adfuse::nn::{Init, Param};
/// use adfuse::optim::Sgd;
/// use adfuse::prelude::*;
///
/// let sgd = Sgd::new(0.5).momentum(0.5);
/// let step = adfuse::train_step(sgd, Param::new([], Init::Ones), |p: &Tensor, by: Tensor| p * by);
/// let mut state = step.init(Device::cpu(), 0)?;
/// let slope = Array::from_vec(vec![1f32], [])?;
/// state.step(&slope)?;
/// state.step(&slope)?;
/// // The second step is by 1 and half of the first.
/// assert_eq!(state.params()?.to_f64s(), [1.0 - 0.5 - 0.75]);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sgd {
    rate: LearningRate,
    momentum: f64,
    nesterov: bool,
    decay: f64,
}

impl Sgd {
    /// Without momentum.
    pub fn new(rate: impl Into<LearningRate>) -> Sgd {
        Sgd { rate: rate.into(), momentum: 0.0, nesterov: false, decay: 0.0 }
    }

    /// With momentum.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Sgd {
        Sgd { momentum, ..self }
    }

    /// With Nesterov's momentum.
    #[must_use]
    pub fn nesterov(self, momentum: f64) -> Sgd {
        Sgd { momentum, nesterov: true, ..self }
    }

    /// With `decay * p` added to the gradient.
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Sgd {
        Sgd { decay, ..self }
    }
}

impl Optimizer for Sgd {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        match self.momentum == 0.0 {
            true => Vec::new(),
            false => params.iter().map(|p| OptimizerState::zeros("momentum", p)).collect(),
        }
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        let rate = self.rate.at(&at.step);
        let count = usize::from(self.momentum != 0.0);
        each(at, count, |_, p, g, state| {
            let g = if self.decay == 0.0 { g.clone() } else { g + p * self.decay };
            let (by, kept) = match state.first() {
                None => (g, Vec::new()),
                Some(m) => {
                    let m = m * self.momentum + &g;
                    (if self.nesterov { g + &m * self.momentum } else { m.clone() }, vec![m])
                }
            };
            (p - by * like(&rate, p), kept)
        })
    }
}
