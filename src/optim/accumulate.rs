//! Gradient accumulation: several steps make one update.

use super::{Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated};
use crate::trace::Tensor;

/// An optimizer that updates every few steps, by the mean of their gradients. Schedules count updates.
///
/// ```
/// use adfuse::nn::{Init, Param};
/// use adfuse::optim::{Accumulate, Optimizer, Sgd};
/// use adfuse::prelude::*;
///
/// let optimizer: Accumulate<Sgd> = Sgd::new(1.0).accumulate(2);
/// let step = adfuse::train_step(optimizer, Param::new([], Init::Zeros), |p: &Tensor, slope: Tensor| p * slope);
/// let mut state = step.init(Device::cpu(), 0)?;
/// for (slope, due) in [(1f32, 0.0), (3.0, -2.0), (5.0, -2.0), (5.0, -7.0)] {
///     state.step(&Array::from_vec(vec![slope], [])?)?;
///     assert_eq!(state.params()?.to_f64s(), [due]);
/// }
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Accumulate<O> {
    optimizer: O,
    every: u32,
}

impl<O> Accumulate<O> {
    /// An update every `every` steps, at least one.
    pub fn new(optimizer: O, every: u32) -> Accumulate<O> {
        Accumulate { optimizer, every: every.max(1) }
    }
}

impl<O: Optimizer> Optimizer for Accumulate<O> {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        let mut state: Vec<OptimizerState> =
            params.iter().map(|p| OptimizerState::zeros("sum", p)).collect();
        state.extend(self.optimizer.state(params));
        state
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        let (sums, kept) = at.state.split_at(at.params.len());
        let sums: Vec<Tensor> =
            sums.iter().zip(at.gradients).map(|(s, g)| s + g.convert(s.ty().dtype)).collect();
        let every = f64::from(self.every);
        let number = (&at.step / every).floor();
        let due = (&number * every).eq(&at.step);
        let t = at.step.tracer();
        let update = || {
            let means: Vec<Tensor> = sums.iter().map(|s| s / every).collect();
            let step = number.clone();
            let context = UpdateContext { step, gradients: &means, state: kept, ..at.clone() };
            let updated = self.optimizer.update(&context);
            let empty: Vec<Tensor> = sums.iter().map(|s| t.full(s.ty(), 0.0)).collect();
            (updated.params, empty, updated.state)
        };
        let wait = || (at.values.to_vec(), sums.clone(), kept.to_vec());
        let (params, mut state, kept) = t.cond(&due, update, wait);
        state.extend(kept);
        Updated { params, state }
    }
}
