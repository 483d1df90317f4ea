//! Muon: momentum whose matrices are orthogonalized.

use super::adam::Adam;
use super::{LearningRate, Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated, like};
use crate::trace::Tensor;
use std::fmt;
use std::sync::Arc;

/// Which paths are picked.
type PathFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Muon (Jordan 2024): for matrices `m <- momentum m + g` and `p <- p - rate * scale * orthogonalized(g + momentum m)`, where five steps of Newton
/// and Schulz's iteration bring all singular values near 1 and `scale = sqrt(max(1, rows / columns))`. Parameters with another number of axes,
/// and those with `embed` in their path, are left to [`Adam`]; [`Muon::only`] leaves more of them.
///
/// ```
/// use adfuse::nn::{self, Linear};
/// use adfuse::optim::{Adam, Muon};
/// use adfuse::prelude::*;
///
/// // The output layer is left to Adam, as its author says.
/// let muon = Muon::new(0.02, Adam::new(1e-3)).only(|path| !path.starts_with("1."));
/// let net = (Linear::new(8, 16), Linear::new(16, 1));
/// let step = adfuse::train_step(muon, net, |net: &(Linear, Linear), x: Tensor| {
///     net.1.apply(net.0.apply(x).relu()).square().mean(..)
/// });
/// let mut state = step.init(Device::cpu(), 0)?;
/// let x = Array::from_vec((0..32).map(|k| (k % 7) as f32).collect(), [4, 8])?;
/// let first = state.step(&x)?;
/// assert!(state.step(&x)? < first);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone)]
pub struct Muon {
    rate: LearningRate,
    momentum: f64,
    decay: f64,
    others: Adam,
    picks: Option<PathFilter>,
}

impl Muon {
    /// With a momentum of .95. `others` updates what is no matrix.
    pub fn new(rate: impl Into<LearningRate>, others: Adam) -> Muon {
        Muon { rate: rate.into(), momentum: 0.95, decay: 0.0, others, picks: None }
    }

    /// With another momentum.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Muon {
        Muon { momentum, ..self }
    }

    /// With decoupled decay of weights.
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Muon {
        Muon { decay, ..self }
    }

    /// With those matrices alone whose paths the function picks. The others are left to [`Adam`], as those of the output layer should be.
    #[must_use]
    pub fn only(self, picks: impl Fn(&str) -> bool + Send + Sync + 'static) -> Muon {
        Muon { picks: Some(Arc::new(picks)), ..self }
    }

    /// Whether a parameter is a matrix of a layer, and no table of embeddings.
    fn accepts(&self, p: &TrainedParam) -> bool {
        let known = |n: usize| p.ty.shape.get(n).and_then(|d| d.known()).is_some();
        let picked = self.picks.as_ref().is_none_or(|picks| picks(&p.path));
        p.ty.rank() == 2 && known(0) && known(1) && !p.path.contains("embed") && picked
    }

    fn others_of<T: Clone>(&self, params: &[TrainedParam], all: &[T]) -> Vec<T> {
        let others = params.iter().zip(all).filter(|(p, _)| !self.accepts(p));
        others.map(|(_, t)| t.clone()).collect()
    }
}

impl fmt::Debug for Muon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Muon");
        all.field("rate", &self.rate).field("momentum", &self.momentum);
        all.field("decay", &self.decay).field("others", &self.others).finish_non_exhaustive()
    }
}

/// The matrix with singular values near 1 and the same singular vectors: five steps of `x <- a x + b (x x^T) x + c (x x^T)^2 x`.
fn orthogonalized(m: &Tensor) -> Tensor {
    let [a, b, c] = [3.4445, -4.7750, 2.0315];
    let ty = m.ty();
    let tall = ty.shape[0].known() > ty.shape[1].known();
    let x = if tall { m.transpose(&[1, 0]) } else { m.clone() };
    let norm = ((&x * &x).sum(&[0, 1]) + 1e-14).sqrt();
    let mut x = &x / like(&norm, &x);
    for _ in 0..5 {
        let square = x.dot(&x.transpose(&[1, 0]));
        let by = &square * b + square.dot(&square) * c;
        x = &x * a + by.dot(&x);
    }
    if tall { x.transpose(&[1, 0]) } else { x }
}

impl Optimizer for Muon {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        let matrices = params.iter().filter(|p| self.accepts(p));
        let mut state: Vec<OptimizerState> =
            matrices.map(|p| OptimizerState::zeros("momentum", p)).collect();
        state.extend(self.others.state(&self.others_of(params, params)));
        state
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        let rate = self.rate.at(&at.step);
        let matrices = at.params.iter().filter(|p| self.accepts(p)).count();
        let (momenta, kept) = at.state.split_at(matrices);
        let params = self.others_of(at.params, at.params);
        let [values, gradients] =
            [at.values, at.gradients].map(|all| self.others_of(at.params, all));
        let others = self.others.update(&UpdateContext {
            step: at.step.clone(),
            params: &params,
            values: &values,
            gradients: &gradients,
            state: kept,
        });
        let mut updated = Updated { params: Vec::new(), state: Vec::new() };
        let (mut momenta, mut rest) = (momenta.iter(), others.params.into_iter());
        for ((param, value), gradient) in at.params.iter().zip(at.values).zip(at.gradients) {
            let Some(m) = (if self.accepts(param) { momenta.next() } else { None }) else {
                updated.params.extend(rest.next());
                continue;
            };
            let own = value.ty().dtype;
            let (value, gradient) = (value.compute(), gradient.compute());
            let m = m * self.momentum + &gradient;
            let [rows, columns] = [0, 1].map(|k| param.ty.shape[k].known().unwrap_or(1) as f64);
            let by = orthogonalized(&(gradient + &m * self.momentum));
            let mut by = by * (rows / columns).max(1.0).sqrt();
            if self.decay != 0.0 {
                by += &value * self.decay;
            }
            updated.params.push((&value - by * like(&rate, &value)).convert(own));
            updated.state.push(m);
        }
        updated.state.extend(others.state);
        updated
    }
}
