//! Optimizers: rules that make parameters of gradients, as part of the compiled step.
//!
//! An optimizer is traced like the loss, so its arithmetic is fused with the backward pass and its state stays where the parameters are.
//!
//! ```
//! use adfuse::optim::{Adam, LearningRate, Optimizer};
//!
//! let rate = LearningRate::warmup(100, 1e-3).cosine(10_000, 1e-5);
//! let optimizer = Adam::new(rate).weight_decay(0.01).clip_global_norm(1.0);
//! # let _: &dyn Optimizer = &optimizer;
//! ```

mod accumulate;
mod adam;
mod clip;
mod lion;
mod muon;
mod rate;
mod sgd;

pub use accumulate::Accumulate;
pub use adam::Adam;
pub use clip::{ClipGlobalNorm, ClipValue};
pub use lion::Lion;
pub use muon::Muon;
pub use rate::LearningRate;
pub use sgd::Sgd;

use crate::ir::TensorType;
use crate::trace::Tensor;

/// A parameter that is trained.
#[derive(Clone, Debug)]
pub struct TrainedParam {
    /// The path in the model.
    pub path: String,
    /// The type.
    pub ty: TensorType,
}

/// A tensor that an optimizer keeps from step to step.
#[derive(Clone, Debug)]
pub struct OptimizerState {
    /// Its name; those of one parameter begin with what they are, such as `m.layers.0.weight`.
    pub name: String,
    /// The type.
    pub ty: TensorType,
    /// The number that it is filled with at first.
    pub fill: f64,
}

impl OptimizerState {
    /// A tensor of a parameter's shape that begins with zeros. Parameters of two bytes keep theirs in `f32`.
    pub fn zeros(name: &str, of: &TrainedParam) -> OptimizerState {
        let ty = of.ty.with_dtype(of.ty.dtype.compute());
        OptimizerState { name: format!("{name}.{}", of.path), ty, fill: 0.0 }
    }
}

/// A step as an optimizer sees it.
#[derive(Clone, Debug)]
pub struct UpdateContext<'a> {
    /// The number of this step, from 1 on: a scalar `f64`.
    pub step: Tensor,
    /// The parameters.
    pub params: &'a [TrainedParam],
    /// Their values, in their order.
    pub values: &'a [Tensor],
    /// Their gradients, in their order. Each is of its parameter's type; those of two bytes may be `f32`, where an optimizer around this one has
    /// changed them.
    pub gradients: &'a [Tensor],
    /// What the optimizer keeps, in the order of [`Optimizer::state`].
    pub state: &'a [Tensor],
}

/// What a step makes of parameters and of the optimizer's state, in their order.
#[derive(Debug)]
pub struct Updated {
    /// The parameters.
    pub params: Vec<Tensor>,
    /// The state.
    pub state: Vec<Tensor>,
}

/// A rule that makes parameters of gradients. It is asked in a trace: what it gives is part of the compiled step.
///
/// ```
/// use adfuse::nn::{Init, Param};
/// use adfuse::optim::{Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated};
/// use adfuse::prelude::*;
///
/// /// Adagrad (Duchi et al. 2011): a rate for each element, by the squares of its gradients so far.
/// struct Adagrad(f64);
///
/// impl Optimizer for Adagrad {
///     fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
///         params.iter().map(|p| OptimizerState::zeros("squares", p)).collect()
///     }
///
///     fn update(&self, at: &UpdateContext<'_>) -> Updated {
///         let squares = at.state.iter().zip(at.gradients).map(|(s, g)| s + g.square());
///         let state: Vec<Tensor> = squares.collect();
///         let next = |((p, g), s): ((&Tensor, &Tensor), &Tensor)| p - g * self.0 / (s.sqrt() + 1e-10);
///         let params = at.values.iter().zip(at.gradients).zip(&state).map(next).collect();
///         Updated { params, state }
///     }
/// }
///
/// let step = adfuse::train_step(Adagrad(0.5), Param::new([2], Init::Ones), |p: &Tensor, by: Tensor| (p * by).sum(..));
/// let mut state = step.init(Device::cpu(), 0)?;
/// state.step(&Array::from_vec(vec![2f32, -3.0], [2])?)?;
/// assert_eq!(state.params()?.to_f64s(), [0.5, 1.5]);
/// # Ok::<(), Diagnostic>(())
/// ```
pub trait Optimizer: Send + Sync {
    /// What it keeps from step to step.
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState>;

    /// The next parameters and the next state, of the types and in the order of those in the context.
    fn update(&self, at: &UpdateContext<'_>) -> Updated;

    /// The same on gradients whose norm over all parameters is at most `most`: they are scaled together.
    fn clip_global_norm(self, most: f64) -> ClipGlobalNorm<Self>
    where
        Self: Sized,
    {
        ClipGlobalNorm::new(self, most)
    }

    /// The same on gradients whose elements are cut to `±most`.
    fn clip_value(self, most: f64) -> ClipValue<Self>
    where
        Self: Sized,
    {
        ClipValue::new(self, most)
    }

    /// Updates every `every` steps, by the mean of their gradients. The steps between leave the parameters as they are.
    fn accumulate(self, every: u32) -> Accumulate<Self>
    where
        Self: Sized,
    {
        Accumulate::new(self, every)
    }
}

/// Optimizers that are chosen when the program runs.
///
/// ```
/// use adfuse::optim::{Adam, Optimizer, Sgd};
///
/// let chosen = |name: &str| -> Box<dyn Optimizer> {
///     if name == "adam" { Box::new(Adam::new(1e-3)) } else { Box::new(Sgd::new(0.1)) }
/// };
/// let _ = chosen("adam").clip_value(1.0);
/// ```
impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        (**self).state(params)
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        (**self).update(at)
    }
}

/// Updates each parameter by itself: `rule` is given the parameter, its value and gradient in the type in which arithmetic on them runs, at least `f32`, and its
/// `count` tensors of state; it gives the next value and state.
pub(crate) fn each(
    at: &UpdateContext<'_>,
    count: usize,
    mut rule: impl FnMut(&TrainedParam, &Tensor, &Tensor, &[Tensor]) -> (Tensor, Vec<Tensor>),
) -> Updated {
    let mut updated = Updated { params: Vec::new(), state: Vec::new() };
    let all = at.params.iter().zip(at.values).zip(at.gradients).enumerate();
    for (k, ((param, value), gradient)) in all {
        let own = at.state.get(k * count..(k + 1) * count).unwrap_or_default();
        let (next, kept) = rule(param, &value.compute(), &gradient.compute(), own);
        updated.params.push(next.convert(param.ty.dtype));
        updated.state.extend(kept);
    }
    updated
}

/// A scalar as a tensor like another.
pub(crate) fn like(scalar: &Tensor, other: &Tensor) -> Tensor {
    scalar.convert(other.dtype()).broadcast_like(other)
}
