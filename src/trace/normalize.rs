//! Normalizations over axes: softmax, and layers without their parameters.

use super::math::example;
use super::{Axes, Tensor};
use crate::ir::Op;

impl Tensor {
    example! {
        { pub fn softmax(&self, axes: impl Axes) -> Tensor {
            match self.axes_of(&axes, "softmax") {
                Some(at) if self.has_floats("softmax") => {
                    let e = self.compute().below_maximum(&at).exp();
                    let sum = e.fold(Op::ReduceSum, &at).spread_at(&at, &e);
                    (e / sum).stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "`e^x / sum(e^x)` over axes, shifted by the maximum so that nothing overflows.",
        "t.constant([1000.0, 1000.0]).softmax(-1)", "[0.5, 0.5]";

        { pub fn log_softmax(&self, axes: impl Axes) -> Tensor {
            match self.axes_of(&axes, "log_softmax") {
                Some(at) if self.has_floats("log_softmax") => {
                    let shifted = self.compute().below_maximum(&at);
                    let sum = shifted.exp().fold(Op::ReduceSum, &at);
                    (&shifted - sum.log().spread_at(&at, &shifted)).stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "`log(softmax(x))` over axes, shifted by the maximum so that nothing overflows.",
        "t.constant([1000.0, 0.0]).log_softmax(-1)", "[0.0, -1000.0]";

        { pub fn layer_norm(&self, axes: impl Axes, epsilon: f64) -> Tensor {
            match self.axes_of(&axes, "layer_norm") {
                Some(at) if self.has_floats("layer_norm") => {
                    let x = self.compute();
                    let (centred, var) = x.var_at(&at);
                    (centred * (var + epsilon).rsqrt().spread_at(&at, &x)).stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "`(x - mean) / sqrt(var + epsilon)` over axes. Types of 16 bits are summed in `f32`.",
        "t.constant([1.0, 3.0]).layer_norm(-1, 0.0)", "[-1.0, 1.0]";

        { pub fn rms_norm(&self, axes: impl Axes, epsilon: f64) -> Tensor {
            match self.axes_of(&axes, "rms_norm") {
                Some(at) if self.has_floats("rms_norm") => {
                    let x = self.compute();
                    let mean = x.square().mean_at(&at);
                    (&x * (mean + epsilon).rsqrt().spread_at(&at, &x)).stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "`x / sqrt(mean(x^2) + epsilon)` over axes. Types of 16 bits are summed in `f32`.",
        "t.constant([3.0, -3.0]).rms_norm(-1, 0.0)", "[1.0, -1.0]";

        { pub fn l2_normalize(&self, axes: impl Axes, epsilon: f64) -> Tensor {
            match self.axes_of(&axes, "l2_normalize") {
                Some(at) if self.has_floats("l2_normalize") => {
                    let x = self.compute();
                    let sum = x.square().fold(Op::ReduceSum, &at);
                    (&x * (sum + epsilon).rsqrt().spread_at(&at, &x)).stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "`x / sqrt(sum(x^2) + epsilon)` over axes.",
        "t.constant([2.0, 0.0]).l2_normalize(-1, 0.0)", "[1.0, 0.0]";
    }

    /// The distance from the maximum over axes, through which no derivative goes.
    #[track_caller]
    fn below_maximum(&self, at: &[usize]) -> Tensor {
        let top = self.fold(Op::ReduceMax, at).stop_gradient();
        self - top.spread_at(at, self)
    }
}
