//! Normalization layers.

use super::{Init, Param, ParamRole};
use crate::ir::Kind;
use crate::trace::Tensor;
use crate::tree::Params;
use std::borrow::Borrow;

/// The values without their mean and with variance 1 over the last axis, scaled and shifted (Ba et al. 2016).
#[derive(Params, Clone, Debug)]
pub struct LayerNorm<T = Tensor> {
    /// `[features]`.
    pub weight: T,
    /// `[features]`.
    pub bias: Option<T>,
    /// What is added to the variance.
    pub eps: f64,
}

impl LayerNorm<Param> {
    /// Over rows of `features`, with an epsilon of 1e-5.
    pub fn new(features: u64) -> LayerNorm<Param> {
        LayerNorm {
            weight: Param::new([features], Init::Ones),
            bias: Some(Param::new([features], Init::Zeros)),
            eps: 1e-5,
        }
    }

    /// Without a bias.
    #[must_use]
    pub fn no_bias(self) -> LayerNorm<Param> {
        LayerNorm { bias: None, ..self }
    }

    /// With another epsilon.
    #[must_use]
    pub fn eps(self, eps: f64) -> LayerNorm<Param> {
        LayerNorm { eps, ..self }
    }
}

impl LayerNorm {
    /// Of `[.., features]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let y = x.borrow().layer_norm(-1, self.eps) * &self.weight;
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}

/// The values divided by the root of the mean of their squares over the last axis, scaled (Zhang and Sennrich 2019).
#[derive(Params, Clone, Debug)]
pub struct RmsNorm<T = Tensor> {
    /// `[features]`.
    pub weight: T,
    /// What is added to the mean of squares.
    pub eps: f64,
}

impl RmsNorm<Param> {
    /// Over rows of `features`, with an epsilon of 1e-6.
    pub fn new(features: u64) -> RmsNorm<Param> {
        RmsNorm { weight: Param::new([features], Init::Ones), eps: 1e-6 }
    }
}

impl RmsNorm {
    /// Of `[.., features]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        x.borrow().rms_norm(-1, self.eps) * &self.weight
    }
}

/// As a layer norm over groups of channels and all that follows them (Wu and He 2018): of `[batch, channel, ..]`.
#[derive(Params, Clone, Debug)]
pub struct GroupNorm<T = Tensor> {
    /// `[channels]`.
    pub weight: T,
    /// `[channels]`.
    pub bias: T,
    /// The number of groups, which divides the channels.
    pub groups: u64,
    /// What is added to the variance.
    pub eps: f64,
}

impl GroupNorm<Param> {
    /// Over `groups` groups of `channels` channels, with an epsilon of 1e-5.
    pub fn new(groups: u64, channels: u64) -> GroupNorm<Param> {
        GroupNorm {
            weight: Param::new([channels], Init::Ones),
            bias: Param::new([channels], Init::Zeros),
            groups,
            eps: 1e-5,
        }
    }
}

impl GroupNorm {
    /// Of `[batch, channel, ..]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let dims = x.ty().dims().unwrap_or_default();
        let fits = dims.len() >= 2 && self.groups > 0 && dims[1] % self.groups.max(1) == 0;
        if !fits {
            let m = format!("{} groups do not divide the channels of {}", self.groups, x.ty());
            return x.clone().refused(Kind::Shape, m);
        }
        let mut grouped = vec![dims[0], self.groups, dims[1] / self.groups];
        grouped.extend(&dims[2..]);
        let axes: Vec<i64> = (2..grouped.len() as i64).collect();
        let y = x.reshape(grouped).layer_norm(axes.as_slice(), self.eps).reshape(dims.to_vec());
        scaled(y, &self.weight, &self.bias)
    }
}

/// The channels without their means and with variance 1 over the batch, scaled and shifted (Ioffe and Szegedy 2015): of `[batch, channel, ..]`.
///
/// In training the statistics are the batch's, and running ones are kept, as PyTorch keeps them: `running <- (1 - momentum) running + momentum
/// batch`, with the unbiased variance. Outside of training the running statistics are used.
#[derive(Params, Clone, Debug)]
pub struct BatchNorm<T = Tensor> {
    /// `[channels]`.
    pub weight: T,
    /// `[channels]`.
    pub bias: T,
    /// `[channels]`, kept in training.
    pub running_mean: T,
    /// `[channels]`, kept in training.
    pub running_var: T,
    /// The share of a batch in the running statistics.
    pub momentum: f64,
    /// What is added to the variance.
    pub eps: f64,
}

impl BatchNorm<Param> {
    /// Over `channels` channels, with a momentum of .1 and an epsilon of 1e-5.
    pub fn new(channels: u64) -> BatchNorm<Param> {
        let running = |init| Param::new([channels], init).role(ParamRole::Running);
        BatchNorm {
            weight: Param::new([channels], Init::Ones),
            bias: Param::new([channels], Init::Zeros),
            running_mean: running(Init::Zeros),
            running_var: running(Init::Ones),
            momentum: 0.1,
            eps: 1e-5,
        }
    }
}

impl BatchNorm {
    /// Of `[batch, channel, ..]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let ty = x.ty();
        if ty.rank() < 2 || ty.shape.get(1) != self.weight.ty().shape.first() {
            let m = format!("a norm of {} channels takes no {ty}", self.weight.ty());
            return x.clone().refused(Kind::Shape, m);
        }
        let axes: Vec<i64> = (0..ty.rank() as i64).filter(|&k| k != 1).collect();
        let axes = axes.as_slice();
        if !x.tracer().is_training() {
            let y = x - channels(&self.running_mean, ty.rank());
            let scale = (&self.running_var + self.eps).rsqrt() * &self.weight;
            return y * channels(&scale, ty.rank()) + channels(&self.bias, ty.rank());
        }
        let mean = x.mean(axes);
        let centered = x - channels(&mean, ty.rank());
        let var = centered.square().mean(axes);
        let count = x.count(axes).convert(var.dtype());
        let unbiased = (&count / (&count - 1.0).max(1.0)) * &var;
        let toward = |old: &Tensor, new: &Tensor| {
            old.update(&(old * (1.0 - self.momentum) + new.stop_gradient() * self.momentum));
        };
        toward(&self.running_mean, &mean);
        toward(&self.running_var, &unbiased);
        let scale = (var + self.eps).rsqrt() * &self.weight;
        centered * channels(&scale, ty.rank()) + channels(&self.bias, ty.rank())
    }
}

/// A tensor `[channels]` as one of this rank with channels as its second axis.
fn channels(t: &Tensor, rank: usize) -> Tensor {
    let others: Vec<i64> = (0..rank as i64).filter(|&k| k != 1).collect();
    t.expand_dims(others.as_slice())
}

fn scaled(y: Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    let rank = y.rank();
    y * channels(weight, rank) + channels(bias, rank)
}
