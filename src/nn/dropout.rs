//! Dropout layers.

use crate::trace::Tensor;
use std::borrow::Borrow;

/// In training, elements are 0 with a probability and divided by the rest otherwise (Srivastava et al. 2014); outside of training nothing
/// happens.
///
/// Draws are functions of the seed, the number of the step and the layer's place in the program, so a step that is computed again, or resumed,
/// drops the same.
///
/// ```
/// use adfuse::nn::{Dropout, Init, Param};
/// use adfuse::optim::Sgd;
/// use adfuse::prelude::*;
///
/// let step = adfuse::train_step(Sgd::new(0.0), Param::new([8], Init::Ones), |x: &Tensor, (): ()| {
///     let y = Dropout::new(0.5).apply(x);
///     (y.sum(..), y)
/// });
/// let (_, y) = step.init(Device::cpu(), 0)?.step(&())?;
/// assert!(y.to_f64s().iter().all(|&y| y == 0.0 || y == 2.0));
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dropout {
    /// The probability of 0.
    pub p: f64,
}

impl Dropout {
    /// With this probability of 0, from 0 to below 1.
    pub fn new(p: f64) -> Dropout {
        Dropout { p }
    }

    /// The same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        if self.p == 0.0 {
            return x.clone();
        }
        match x.next_key() {
            None => x.clone(),
            Some(key) => x.dropout(&key, self.p),
        }
    }
}
