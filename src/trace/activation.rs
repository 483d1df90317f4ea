//! Activations that are not ops: a few ops each, with derivatives of every order.

use super::math::example;
use super::record::apply;
use super::{AxisIndex, Tensor, TensorOperand, number};
use crate::ir::attrs::Attrs;
use crate::ir::{Kind, Number, Op};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

impl Tensor {
    example! {
        { pub fn softplus(&self) -> Tensor {
            self.logaddexp(0.0)
        } }
        "`log(1 + e^x)`, without overflow.", "t.constant([1000.0]).softplus()", "[1000.0]";

        { pub fn sigmoid(&self) -> Tensor {
            self.logistic()
        } }
        "`1 / (1 + e^-x)`, the op [`Tensor::logistic`].", "t.constant([0.0]).sigmoid()", "[0.5]";

        { pub fn log_sigmoid(&self) -> Tensor {
            -(-self).softplus()
        } }
        "`log(sigmoid(x))`, without overflow.", "t.constant([-1000.0]).log_sigmoid()", "[-1000.0]";

        { pub fn relu6(&self) -> Tensor {
            let (low, high) = (number(self, Number::Int(0)), number(self, Number::Int(6)));
            apply(&self.state, Op::Clamp, &[&low, self, &high], Attrs::none(), None)
        } }
        "`min(max(x, 0), 6)`, with derivative 0 at 0 and at 6.",
        "t.constant([-1.0, 2.0, 9.0]).relu6()", "[0.0, 2.0, 6.0]";

        { pub fn leaky_relu(&self, slope: f64) -> Tensor {
            self.gt(0.0).select(self, self * slope)
        } }
        "`x` above 0, elsewhere `slope * x`, with derivative `slope` at 0.",
        "t.constant([-2.0, 3.0]).leaky_relu(0.5)", "[-1.0, 3.0]";

        { pub fn prelu(&self, slope: impl TensorOperand) -> Tensor {
            self.gt(0.0).select(self, self * slope.beside(self))
        } }
        "As [`Tensor::leaky_relu`], with slopes that are learnt.",
        "t.constant([-2.0, 3.0]).prelu(t.constant([0.25, 1.0]))", "[-0.5, 3.0]";

        { pub fn elu(&self, alpha: f64) -> Tensor {
            // Choosing the operand too keeps what overflows out of the derivatives.
            let below = self.min(0.0).expm1() * alpha;
            self.gt(0.0).select(self, below)
        } }
        "`x` above 0, elsewhere `alpha * (e^x - 1)`.",
        "t.constant([-1000.0, 3.0]).elu(1.0)", "[-1.0, 3.0]";

        { pub fn selu(&self) -> Tensor {
            self.elu(SELU_ALPHA) * SELU_SCALE
        } }
        "The self-normalizing [`Tensor::elu`]: its alpha and scale keep mean 0 and variance 1.",
        "t.constant([0.0]).selu()", "[0.0]";

        { pub fn celu(&self, alpha: f64) -> Tensor {
            let below = (self.min(0.0) / alpha).expm1() * alpha;
            self.gt(0.0).select(self, below)
        } }
        "`x` above 0, elsewhere `alpha * (e^(x / alpha) - 1)`: its derivative is continuous.",
        "t.constant([-1000.0, 3.0]).celu(2.0)", "[-2.0, 3.0]";

        { pub fn gelu(&self) -> Tensor {
            self * 0.5 * ((self * FRAC_1_SQRT_2).erf() + 1.0)
        } }
        "`x` times the normal distribution's cumulative function at x, by the error function.",
        "t.constant([0.0, 10.0]).gelu()", "[0.0, 10.0]";

        { pub fn gelu_tanh(&self) -> Tensor {
            let inner = (self + self.powi(3) * 0.044715) * (2.0 / PI).sqrt();
            self * 0.5 * (inner.tanh() + 1.0)
        } }
        "[`Tensor::gelu`] as it is approximated by the hyperbolic tangent.",
        "t.constant([0.0, 10.0]).gelu_tanh()", "[0.0, 10.0]";

        { pub fn silu(&self) -> Tensor {
            self * self.logistic()
        } }
        "`x sigmoid(x)`, also called swish.", "t.constant([0.0]).silu()", "[0.0]";

        { pub fn hard_sigmoid(&self) -> Tensor {
            (self + 3.0).relu6() / 6.0
        } }
        "`relu6(x + 3) / 6`.", "t.constant([-5.0, 0.0, 5.0]).hard_sigmoid()", "[0.0, 0.5, 1.0]";

        { pub fn hardswish(&self) -> Tensor {
            self * self.hard_sigmoid()
        } }
        "`x relu6(x + 3) / 6`.", "t.constant([-5.0, 0.0, 5.0]).hardswish()", "[-0.0, 0.0, 5.0]";

        { pub fn hard_tanh(&self) -> Tensor {
            self.clamp(-1.0, 1.0)
        } }
        "`min(max(x, -1), 1)`.", "t.constant([-5.0, 0.5, 5.0]).hard_tanh()", "[-1.0, 0.5, 1.0]";

        { pub fn softsign(&self) -> Tensor {
            self / (self.abs() + 1.0)
        } }
        "`x / (1 + |x|)`.", "t.constant([-1.0, 3.0]).softsign()", "[-0.5, 0.75]";

        { pub fn glu(&self, axis: impl AxisIndex) -> Tensor {
            let [value, gate] = self.halves(axis, "glu");
            value * gate.logistic()
        } }
        "The first half of an axis times the sigmoid of the second.",
        "t.constant([6.0, 0.0]).glu(-1)", "[3.0]";

        { pub fn swiglu(&self, axis: impl AxisIndex) -> Tensor {
            let [gate, value] = self.halves(axis, "swiglu");
            gate.silu() * value
        } }
        "[`Tensor::silu`] of the first half of an axis, times the second.",
        "t.constant([0.0, 2.0]).swiglu(-1)", "[0.0]";

        { pub fn mish(&self) -> Tensor {
            // Beyond these bounds, in every float type, the result has long rounded to -0, or to x.
            let beyond = self.abs().gt(BEYOND_ROUNDING);
            let far = self.lt(0.0).select(number(self, Number::Float(-0.0)), self);
            // Choosing the operand too keeps 0 * inf out of the derivatives.
            let inside = beyond.select(number(self, Number::Int(0)), self);
            let within = &inside * inside.softplus().tanh();
            beyond.select(&far, within)
        } }
        "`x tanh(softplus(x))`; the infinities give their limits, -0 with derivative 0 and inf with derivative 1.",
        "t.constant([0.0, 2000.0]).mish()", "[0.0, 2000.0]";
    }

    /// The two halves of an axis of even extent.
    #[track_caller]
    fn halves(&self, axis: impl AxisIndex, what: &str) -> [Tensor; 2] {
        let Some(at) = self.axis_of(axis, what) else { return [self.clone(), self.clone()] };
        match self.ty.shape[at].known() {
            Some(n) if n % 2 == 0 => self
                .split(&[n / 2; 2], at)
                .try_into()
                .unwrap_or_else(|_| [self.clone(), self.clone()]),
            _ => {
                let m = format!(
                    "`{what}` takes two halves: axis {at} of {} has no even extent",
                    self.ty
                );
                self.fail(Kind::Shape, m);
                [self.clone(), self.clone()]
            }
        }
    }
}

const BEYOND_ROUNDING: f64 = 1000.0;
/// Klambauer et al., "Self-normalizing neural networks", 2017.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
