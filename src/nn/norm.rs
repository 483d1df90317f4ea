//! Normalization layers.

use super::{Init, Param, ParamRole, accepts, extent};
use crate::ir::Kind;
use crate::trace::Tensor;
use crate::tree::Params;
use std::borrow::Borrow;

/// The values without their mean and with variance 1 over the last axis, scaled and shifted (Ba et al. 2016).
///
/// ```
/// use adfuse::nn::{self, LayerNorm};
/// use adfuse::prelude::*;
///
/// let norm = nn::init(&LayerNorm::new(2).eps(0.0), 0)?;
/// let f = adfuse::eval_step(|n: &LayerNorm, x: Tensor| n.apply(x));
/// let y = f.run(&Device::cpu(), &norm, &Array::from_vec(vec![1f32, 3.0, 8.0, 6.0], [2, 2])?)?;
/// assert_eq!(y.as_slice::<f32>()?, [-1.0, 1.0, 1.0, -1.0]);
/// # Ok::<(), Diagnostic>(())
/// ```
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
        let x = x.borrow();
        if !accepts_rows(x, "a layer norm", &self.weight) {
            return x.clone();
        }
        let y = x.layer_norm(-1, self.eps) * &self.weight;
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}

/// The values divided by the root of the mean of their squares over the last axis, scaled (Zhang and Sennrich 2019).
///
/// ```
/// use adfuse::nn::{self, RmsNorm};
/// use adfuse::prelude::*;
///
/// let norm = nn::init(&RmsNorm::new(2).eps(0.0), 0)?;
/// let f = adfuse::eval_step(|n: &RmsNorm, x: Tensor| n.apply(x));
/// let y = f.run(&Device::cpu(), &norm, &Array::from_vec(vec![2f32, -2.0], [1, 2])?)?;
/// assert_eq!(y.as_slice::<f32>()?, [1.0, -1.0]);
/// # Ok::<(), Diagnostic>(())
/// ```
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

    /// With another epsilon.
    #[must_use]
    pub fn eps(self, eps: f64) -> RmsNorm<Param> {
        RmsNorm { eps, ..self }
    }
}

impl RmsNorm {
    /// Of `[.., features]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        if !accepts_rows(x, "an RMS norm", &self.weight) {
            return x.clone();
        }
        x.rms_norm(-1, self.eps) * &self.weight
    }
}

/// As a layer norm over groups of channels and all that follows them (Wu and He 2018): of `[batch, channel, ..]`.
///
/// ```
/// use adfuse::nn::{self, GroupNorm};
/// use adfuse::prelude::*;
///
/// // Two groups of one channel with two elements each.
/// let norm = nn::init(&GroupNorm::new(2, 2).eps(0.0), 0)?;
/// let f = adfuse::eval_step(|n: &GroupNorm, x: Tensor| n.apply(x));
/// let y = f.run(&Device::cpu(), &norm, &Array::from_vec(vec![1f32, 3.0, 8.0, 6.0], [1, 2, 2])?)?;
/// assert_eq!(y.as_slice::<f32>()?, [-1.0, 1.0, 1.0, -1.0]);
/// # Ok::<(), Diagnostic>(())
/// ```
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

    /// With another epsilon.
    #[must_use]
    pub fn eps(self, eps: f64) -> GroupNorm<Param> {
        GroupNorm { eps, ..self }
    }
}

impl GroupNorm {
    /// Of `[batch, channel, ..]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        if !accepts_channels(x, "a group norm", &self.weight) {
            return x.clone();
        }
        let shape = x.ty().shape;
        let own = shape[1].known().filter(|n| self.groups > 0 && n % self.groups == 0);
        let Some(own) = own.map(|n| n / self.groups) else {
            let m = format!(
                "{} groups of a group norm do not divide the channels of {}",
                self.groups,
                x.ty()
            );
            return x.refused(Kind::Shape, m);
        };
        let mut grouped = vec![shape[0], self.groups.into(), own.into()];
        grouped.extend_from_slice(&shape[2..]);
        let axes: Vec<i64> = (2..grouped.len() as i64).collect();
        let y = x.reshape(grouped).layer_norm(axes.as_slice(), self.eps);
        let y = y.reshape(shape.to_vec());
        let rank = y.rank();
        y * channels(&self.weight, rank) + channels(&self.bias, rank)
    }
}

/// The channels without their means and with variance 1 over the batch, scaled and shifted (Ioffe and Szegedy 2015): of `[batch, channel, ..]`.
///
/// In training the statistics are the batch's, and running ones are kept, as PyTorch keeps them: `running <- (1 - momentum) running + momentum
/// batch`, with the unbiased variance. Outside of training the running statistics are used. Types of 16 bits are summed in `f32`.
///
/// ```
/// use adfuse::nn::{self, BatchNorm};
/// use adfuse::optim::Sgd;
/// use adfuse::prelude::*;
///
/// let step = adfuse::train_step(Sgd::new(0.1), BatchNorm::new(2), |norm: &BatchNorm, x: Tensor| {
///     norm.apply(x).square().sum(..)
/// });
/// let mut state = step.init(Device::cpu(), 0)?;
/// state.step(&Array::from_vec(vec![1f32, 5.0, 3.0, 7.0], [2, 2])?)?;
/// let norm = state.params()?;
/// assert_eq!(norm.running_mean.as_slice::<f32>()?, [0.2, 0.6]);
/// # Ok::<(), Diagnostic>(())
/// ```
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

    /// With another epsilon.
    #[must_use]
    pub fn eps(self, eps: f64) -> BatchNorm<Param> {
        BatchNorm { eps, ..self }
    }

    /// With another share of a batch in the running statistics.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> BatchNorm<Param> {
        BatchNorm { momentum, ..self }
    }
}

impl BatchNorm {
    /// Of `[batch, channel, ..]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        if !accepts_channels(x, "a batch norm", &self.weight) {
            return x.clone();
        }
        let (rank, stored) = (x.rank(), x.dtype());
        // Types of 16 bits are summed in `f32`.
        let wide = |t: &Tensor| t.convert(stored.compute());
        let (x, weight, bias) = (wide(x), wide(&self.weight), wide(&self.bias));
        let (centered, var) = if x.tracer().is_training() {
            self.of_batch(&x)
        } else {
            (&x - channels(&wide(&self.running_mean), rank), wide(&self.running_var))
        };
        let scale = (var + self.eps).rsqrt() * weight;
        (centered * channels(&scale, rank) + channels(&bias, rank)).convert(stored)
    }

    /// The distances from the batch's means, and its variances, of which the running statistics take their share.
    #[track_caller]
    fn of_batch(&self, x: &Tensor) -> (Tensor, Tensor) {
        let axes: Vec<i64> = (0..x.rank() as i64).filter(|&k| k != 1).collect();
        let axes = axes.as_slice();
        let mean = x.mean(axes);
        let centered = x - channels(&mean, x.rank());
        let var = centered.square().mean(axes);
        let count = x.count(axes).convert(var.dtype());
        let unbiased = (&count / (&count - 1.0).max(1.0)) * &var;
        self.update(&self.running_mean, &mean);
        self.update(&self.running_var, &unbiased);
        (centered, var)
    }

    /// Moves running statistics towards those of a batch.
    #[track_caller]
    fn update(&self, old: &Tensor, new: &Tensor) {
        let new = new.stop_gradient().convert(old.dtype());
        // A norm that is applied again in a step goes on from the statistics that it has left.
        let before = old.tracer().updated(old).unwrap_or_else(|| old.clone());
        old.update(&(before * (1.0 - self.momentum) + new * self.momentum));
    }
}

/// Whether a norm over the last axis takes a tensor; an error if not.
#[track_caller]
fn accepts_rows(x: &Tensor, layer: &str, weight: &Tensor) -> bool {
    let fits = x.rank() > 0 && x.ty().shape.last() == weight.ty().shape.first();
    accepts(x, (layer, weight), fits, &format!("[.., {}]", extent(weight, 0)))
}

/// Whether a norm of channels takes a tensor; an error if not.
#[track_caller]
fn accepts_channels(x: &Tensor, layer: &str, weight: &Tensor) -> bool {
    let fits = x.rank() >= 2 && x.ty().shape.get(1) == weight.ty().shape.first();
    accepts(x, (layer, weight), fits, &format!("[batch, {}, ..]", extent(weight, 0)))
}

/// A tensor `[channels]` as one of this rank with channels as its second axis.
fn channels(t: &Tensor, rank: usize) -> Tensor {
    let others: Vec<i64> = (0..rank as i64).filter(|&k| k != 1).collect();
    t.expand_dims(others.as_slice())
}
