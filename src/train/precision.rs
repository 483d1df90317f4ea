//! Mixed precision: which type the model computes in while its parameters stay `f32`, and the scale of the loss that 16-bit
//! gradients need.

use crate::ir::{DType, TensorType};
use crate::nn::ParamRole;
use crate::optim::OptimizerState;
use crate::trace::Tensor;

/// The precision of a step: the model computes in 16 bits, and what is trained is `f32`.
///
/// The parameters of the state and what the optimizer keeps stay `f32` (the masters). The loss is given each `f32` parameter and each `f32`
/// tensor of the batch in 16 bits, and gradients are `f32` again before anything is added to them. Running statistics are left as they are.
///
/// ```
/// use adfuse::nn::Linear;
/// use adfuse::optim::Adam;
/// use adfuse::prelude::*;
/// use adfuse::train::MixedPrecision;
///
/// let loss = |net: &Linear, (x, y): (Tensor, Tensor)| net.apply(x).mse(&y);
/// let step = adfuse::train_step(Adam::w(0.05), Linear::new(2, 1), loss).mixed_precision(MixedPrecision::bf16());
/// let mut state = step.init(Device::cpu(), 0)?;
/// let batch = (Array::from_f32s(&[2, 2], &[1.0, 0.0, 0.0, 1.0])?, Array::from_f32s(&[2, 1], &[1.0, -1.0])?);
/// let first = state.step(&batch)?;
/// let last = (1..60).map(|_| state.step(&batch)).last().transpose()?;
/// assert!(last < Some(first / 4.0));
/// assert_eq!(state.params()?.weight.ty().dtype, DType::F32);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MixedPrecision {
    dtype: DType,
    scale: Option<LossScale>,
}

/// How the loss is scaled, so that gradients are numbers that the type has.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LossScale {
    /// The scale of the first step.
    first: f64,
    /// After how many steps with finite gradients the scale doubles; `None` where it never changes.
    interval: Option<u64>,
}

impl MixedPrecision {
    /// In `bf16`, which has the range of `f32`, so that no loss is scaled.
    pub fn bf16() -> MixedPrecision {
        MixedPrecision { dtype: DType::BF16, scale: None }
    }

    /// In `f16`, with a scaled loss: by 32,768 at first, half of that after every step whose gradients are not finite, twice that after 2,000
    /// steps with finite ones. A step whose gradients are not finite changes neither parameters nor what the optimizer keeps.
    pub fn f16() -> MixedPrecision {
        let scale = LossScale { first: 32768.0, interval: Some(2000) };
        MixedPrecision { dtype: DType::F16, scale: Some(scale) }
    }

    /// With the loss scaled by one number, which never changes.
    #[must_use]
    pub fn loss_scale(self, scale: f64) -> MixedPrecision {
        MixedPrecision { scale: Some(LossScale { first: scale, interval: None }), ..self }
    }

    /// With the loss scaled by a number that halves after each step whose gradients are not finite, and doubles after `interval` steps with
    /// finite ones.
    #[must_use]
    pub fn dynamic_loss_scale(self, first: f64, interval: u64) -> MixedPrecision {
        let interval = Some(interval.max(1));
        MixedPrecision { scale: Some(LossScale { first, interval }), ..self }
    }

    /// A parameter or a tensor of the batch as the loss is given it.
    pub(super) fn computed(&self, t: &Tensor, role: ParamRole) -> Tensor {
        match t.dtype() == DType::F32 && role != ParamRole::Running {
            true => t.convert(self.dtype),
            false => t.clone(),
        }
    }

    /// What a scaled loss keeps from step to step: the scale, the steps with finite gradients since it changed, and the steps that changed
    /// nothing.
    pub(super) fn state(&self) -> Vec<OptimizerState> {
        let Some(scale) = &self.scale else { return Vec::new() };
        let kept = |name: &str, dtype, fill| OptimizerState {
            name: format!("loss_scale.{name}"),
            ty: TensorType::scalar(dtype),
            fill,
        };
        vec![
            kept("scale", DType::F32, scale.first),
            kept("finite", DType::I64, 0.0),
            kept("skipped", DType::I64, 0.0),
        ]
    }

    /// What is kept of the loss's scale after a step whose gradients were finite, or not.
    pub(super) fn next_state(&self, kept: &[Tensor], finite: &Tensor) -> Vec<Tensor> {
        let (Some(rule), [scale, count, skipped]) = (&self.scale, kept) else { return Vec::new() };
        let skipped = finite.select(skipped, &(skipped + 1.0));
        let Some(interval) = rule.interval else {
            return vec![scale.clone(), count.clone(), skipped];
        };
        let counted = count + 1.0;
        let due = counted.ge(interval as f64);
        let zero = count * 0.0;
        let grown = due.select(&(scale * 2.0), scale);
        let next = finite.select(&grown, &(scale * 0.5).max(1.0));
        let counted = finite.select(&due.select(&zero, &counted), &zero);
        vec![next, counted, skipped]
    }
}

/// Whether all elements of all gradients are finite, a scalar `bool`; `None` without gradients.
pub(super) fn all_finite(gradients: &[Tensor]) -> Option<Tensor> {
    let each = gradients.iter().map(|g| g.is_finite().all(..));
    each.reduce(|a, b| a & b)
}
