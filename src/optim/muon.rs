//! Muon: momentum whose matrices are orthogonalized.

use super::adam::Adam;
use super::{LearningRate, Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated, like};
use crate::ir::DType;
use crate::trace::Tensor;

/// Muon (Jordan 2024): for matrices `m <- momentum m + g` and `p <- p - rate * scale * orthogonalized(g + momentum m)`, where five steps of Newton
/// and Schulz's iteration bring all singular values near 1 and `scale = sqrt(max(1, rows / columns))`. Parameters with another number of axes,
/// and those of embeddings, are left to [`Adam`].
#[derive(Clone, Debug)]
pub struct Muon {
    rate: LearningRate,
    momentum: f64,
    decay: f64,
    others: Adam,
}

impl Muon {
    /// With a momentum of .95. `others` updates what is no matrix.
    pub fn new(rate: impl Into<LearningRate>, others: Adam) -> Muon {
        Muon { rate: rate.into(), momentum: 0.95, decay: 0.0, others }
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
}

/// Whether a parameter is a matrix of a layer, and no table of embeddings.
fn is_matrix(p: &TrainedParam) -> bool {
    let known = |n: usize| p.ty.shape.get(n).and_then(|d| d.known()).is_some();
    p.ty.rank() == 2 && known(0) && known(1) && !p.path.contains("embed")
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

impl Muon {
    fn others_of<T: Clone>(params: &[TrainedParam], all: &[T]) -> Vec<T> {
        let others = params.iter().zip(all).filter(|(p, _)| !is_matrix(p));
        others.map(|(_, t)| t.clone()).collect()
    }
}

impl Optimizer for Muon {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        let matrices = params.iter().filter(|p| is_matrix(p));
        let mut state: Vec<OptimizerState> =
            matrices.map(|p| OptimizerState::zeros("momentum", p)).collect();
        state.extend(self.others.state(&Muon::others_of(params, params)));
        state
    }

    fn update(
        &self,
        at: &UpdateContext<'_>,
        values: &[Tensor],
        gradients: &[Tensor],
        state: &[Tensor],
    ) -> Updated {
        let rate = self.rate.at(&at.step);
        let matrices = at.params.iter().filter(|p| is_matrix(p)).count();
        let (momenta, kept) = state.split_at(matrices);
        let params = Muon::others_of(at.params, at.params);
        let [others, slopes] = [values, gradients].map(|all| Muon::others_of(at.params, all));
        let context = UpdateContext { step: at.step.clone(), params: &params };
        let others = self.others.update(&context, &others, &slopes, kept);
        let mut updated = Updated { params: Vec::new(), state: Vec::new() };
        let (mut momenta, mut rest) = (momenta.iter(), others.params.into_iter());
        for ((param, value), gradient) in at.params.iter().zip(values).zip(gradients) {
            let Some(m) = (if is_matrix(param) { momenta.next() } else { None }) else {
                updated.params.extend(rest.next());
                continue;
            };
            let own = value.ty().dtype;
            let (value, gradient) = (value.convert(DType::F32), gradient.convert(DType::F32));
            let m = m * self.momentum + &gradient;
            let [rows, columns] = [0, 1].map(|k| param.ty.shape[k].known().unwrap_or(1) as f64);
            let by = orthogonalized(&(gradient + &m * self.momentum));
            let mut by = by * (rows / columns).max(1.0).sqrt();
            if self.decay != 0.0 {
                by = by + &value * self.decay;
            }
            updated.params.push((&value - by * like(&rate, &value)).convert(own));
            updated.state.push(m);
        }
        updated.state.extend(others.state);
        updated
    }
}
