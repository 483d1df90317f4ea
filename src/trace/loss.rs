//! Losses: scalars, the mean over all that is compared.

use super::math::example;
use super::{Tensor, own_all};
use crate::ir::{DType, Dim, Kind, Op, TensorType};
use std::panic::Location;

impl Tensor {
    example! {
        { pub fn cross_entropy(&self, labels: &Tensor) -> Tensor {
            let own = own_all(&self.state, &[labels], Location::caller(), "`cross_entropy`");
            if !own || !self.has_floats("cross_entropy") {
                return self.clone();
            }
            let Some(last) = self.axis_of(-1, "cross_entropy") else { return self.clone() };
            let by_class = if labels.ty == self.ty {
                labels.compute()
            } else if labels.ty.dtype.is_int() && labels.ty.shape[..] == self.ty.shape[..last] {
                let labels = labels.numbering(self.ty.shape[last]);
                let places = TensorType { dtype: labels.ty.dtype, shape: self.ty.shape.clone() };
                let class = self.tracer().iota(places, last);
                class.eq(labels.spread_at(&[last], &class))
            } else {
                let m = format!(
                    "`cross_entropy` of {} takes integer labels of shape {:?}, or probabilities of its type, found {}",
                    self.ty, &self.ty.shape[..last], labels.ty
                );
                return self.refused(Kind::Shape, m);
            };
            let log = self.compute().log_softmax(last);
            let picked = match by_class.ty.dtype {
                // The loss reads every logit anyway, for its sum: a choice among them fuses, and a gather would not.
                DType::Bool => by_class.select(&log, 0.0),
                _ => by_class * log,
            };
            let each = -picked.fold(Op::ReduceSum, &[last]);
            each.mean(..).stored_as(self)
        } }
        "Mean over the batch of `-log(softmax(x))` at the label, where the last axis has a logit for each class. \
         Labels are integers, of one rank less (one that is no class adds nothing), or probabilities of this \
         tensor's type.",
        "t.constant([[0.0, 0.0], [0.0, -2000.0]]).cross_entropy(&t.constant([0, 1])).round()", "[1000.0]";

        { pub fn mse(&self, target: &Tensor) -> Tensor {
            (self - target).square().mean(..)
        } }
        "Mean of the squares of the differences.",
        "t.constant([1.0, 3.0]).mse(&t.constant([1.0, 1.0]))", "[2.0]";

        { pub fn mae(&self, target: &Tensor) -> Tensor {
            (self - target).abs().mean(..)
        } }
        "Mean of the magnitudes of the differences.",
        "t.constant([1.0, 3.0]).mae(&t.constant([1.0, 1.0]))", "[1.0]";

        { pub fn huber(&self, target: &Tensor, delta: f64) -> Tensor {
            let far = (self - target).abs();
            let near = far.min(delta);
            (&near * (far - &near * 0.5)).mean(..)
        } }
        "Mean of half the squares of the differences up to `delta`, and linear beyond.",
        "t.constant([1.0, 3.0]).huber(&t.constant([1.0, 0.0]), 1.0)", "[1.25]";

        { pub fn binary_cross_entropy_with_logits(&self, targets: &Tensor) -> Tensor {
            (self.softplus() - self * targets).mean(..)
        } }
        "Mean of `-y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x))` for targets y from 0 to 1, without overflow.",
        "t.constant([1000.0, -1000.0]).binary_cross_entropy_with_logits(&t.constant([1.0, 1.0]))", "[500.0]";
    }
}

impl Tensor {
    /// Labels in a type that has a number for each of this many classes: in one that has fewer, classes beyond would have the numbers of others.
    pub(super) fn numbering(&self, classes: Dim) -> Tensor {
        let most = match self.ty.dtype {
            DType::I8 => 127,
            DType::U8 => 255,
            _ => return self.clone(),
        };
        match classes.known() {
            Some(classes) if classes <= most => self.clone(),
            _ => self.convert(DType::I32),
        }
    }
}
