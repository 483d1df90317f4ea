//! Learning rates and their schedules, as functions of the number of the step.

use crate::trace::Tensor;
use std::fmt;
use std::sync::Arc;

/// A learning rate: a number, or a schedule of the number of the step.
///
/// The last step of a phase has the rate with which the phase ends: after `warmup(100, r)` the 100th step has the rate `r`, and
/// `.cosine(900, 0.0)` has 0 at the 1000th.
///
/// ```
/// use adfuse::optim::LearningRate;
/// use adfuse::prelude::*;
///
/// let rate = LearningRate::warmup(2, 1.0).hold(1).linear(2, 0.0);
/// let rates = evaluate(|t| {
///     let at = |step: f64| rate.at(&t.full(f32s([]), step));
///     Tensor::stack(&[&at(1.0), &at(2.0), &at(3.0), &at(4.0), &at(5.0), &at(9.0)], 0)
/// })?;
/// assert_eq!(rates.to_f64s(), [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone)]
pub struct LearningRate {
    phases: Vec<RatePhase>,
}

/// A part of a schedule.
#[derive(Clone)]
struct RatePhase {
    /// The steps that it takes; all that follow where it is the last.
    steps: u64,
    form: RateForm,
}

#[derive(Clone)]
enum RateForm {
    Constant(f64),
    /// From one rate to another on a line.
    Linear(f64, f64),
    /// From one rate to another along half a cosine.
    Cosine(f64, f64),
    /// A rate that is multiplied by a factor after a number of steps.
    Decay {
        rate: f64,
        factor: f64,
        every: u64,
    },
    Custom(Arc<dyn Fn(&Tensor) -> Tensor + Send + Sync>),
}

impl From<f64> for LearningRate {
    fn from(rate: f64) -> LearningRate {
        LearningRate::constant(rate)
    }
}

impl LearningRate {
    /// One rate for all steps.
    pub fn constant(rate: f64) -> LearningRate {
        LearningRate { phases: vec![RatePhase { steps: u64::MAX, form: RateForm::Constant(rate) }] }
    }

    /// From 0 to `rate` on a line within `steps` steps; what is appended follows, and the rate stays where nothing is.
    pub fn warmup(steps: u64, rate: f64) -> LearningRate {
        LearningRate { phases: Vec::new() }.then(steps, RateForm::Linear(0.0, rate))
    }

    /// Then from the present rate to `last` along half a cosine within `steps` steps (Loshchilov and Hutter 2017).
    #[must_use]
    pub fn cosine(self, steps: u64, last: f64) -> LearningRate {
        let from = self.last();
        self.then(steps, RateForm::Cosine(from, last))
    }

    /// Then from the present rate to `last` on a line within `steps` steps.
    #[must_use]
    pub fn linear(self, steps: u64, last: f64) -> LearningRate {
        let from = self.last();
        self.then(steps, RateForm::Linear(from, last))
    }

    /// Then the present rate, multiplied by `factor` after every `every` steps. It has no end: a phase that is appended takes its place.
    #[must_use]
    pub fn decay(self, factor: f64, every: u64) -> LearningRate {
        let rate = self.last();
        self.then(u64::MAX, RateForm::Decay { rate, factor, every: every.max(1) })
    }

    /// The present rate for `steps` steps more.
    #[must_use]
    pub fn hold(self, steps: u64) -> LearningRate {
        let rate = self.last();
        self.then(steps, RateForm::Constant(rate))
    }

    /// Any function of the number of the step, a scalar `f64` from 1 on. It has no end: a phase that is appended takes its place, and begins
    /// at a rate of 0.
    pub fn custom(rate: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> LearningRate {
        let form = RateForm::Custom(Arc::new(rate));
        LearningRate { phases: vec![RatePhase { steps: u64::MAX, form }] }
    }

    fn then(mut self, steps: u64, form: RateForm) -> LearningRate {
        // A rate without an end is where a schedule begins, and takes no steps itself.
        self.phases.retain(|p| p.steps < u64::MAX);
        self.phases.push(RatePhase { steps, form });
        self
    }

    /// The rate with which it ends.
    fn last(&self) -> f64 {
        match self.phases.last().map(|p| (&p.form, p.steps)) {
            Some((
                RateForm::Constant(rate) | RateForm::Linear(_, rate) | RateForm::Cosine(_, rate),
                _,
            )) => *rate,
            Some((RateForm::Decay { rate, .. }, _)) => *rate,
            Some((RateForm::Custom(_), _)) | None => 0.0,
        }
    }

    /// The rate at a step, a float scalar that counts from 1; the rate is of its type.
    pub fn at(&self, step: &Tensor) -> Tensor {
        let mut from = 0u64;
        let mut rate: Option<Tensor> = None;
        for phase in &self.phases {
            let own = phase.form.at(step, from, phase.steps);
            rate = Some(match rate {
                None => own,
                Some(before) => step.gt(from as f64).select(&own, &before),
            });
            from = from.saturating_add(phase.steps);
        }
        rate.unwrap_or_else(|| step * 0.0)
    }
}

impl RateForm {
    /// The rate at a step, in a phase that follows `from` steps and takes `steps`.
    fn at(&self, step: &Tensor, from: u64, steps: u64) -> Tensor {
        let constant = |rate: f64| step.tracer().full(step.ty(), rate);
        let share = || ((step - from as f64) / (steps.max(1) as f64)).max(0.0).min(1.0);
        match self {
            RateForm::Constant(rate) => constant(*rate),
            RateForm::Linear(first, last) => share() * (last - first) + *first,
            RateForm::Cosine(first, last) => {
                let half = (share() * std::f64::consts::PI).cos() * 0.5 + 0.5;
                half * (first - last) + *last
            }
            RateForm::Decay { rate, factor, every } => {
                let times = ((step - 1.0 - from as f64) / (*every as f64)).floor();
                constant(*factor).pow(&times) * *rate
            }
            RateForm::Custom(rate) => rate(step),
        }
    }
}

impl fmt::Debug for LearningRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a learning rate of {} phases", self.phases.len())
    }
}
