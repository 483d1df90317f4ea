//! Activations that are not ops: a few ops each, with derivatives of every order.

use super::{Tensor, apply, number};
use crate::ir::Op;
use crate::ir::attrs::Attrs;

impl Tensor {
    /// `log(1 + e^x)`, without overflow.
    #[track_caller]
    #[must_use]
    pub fn softplus(&self) -> Tensor {
        self.logaddexp(0.0)
    }

    /// `min(max(x, 0), 6)`, with derivative 0 at 0 and at 6.
    #[track_caller]
    #[must_use]
    pub fn relu6(&self) -> Tensor {
        let (low, high) = (number(self, 0.0), number(self, 6.0));
        apply(&self.state, Op::Clamp, &[&low, self, &high], Attrs::none(), None)
    }

    /// `x tanh(softplus(x))`; the infinities give their limits, -0 with derivative 0 and inf with
    /// derivative 1.
    #[track_caller]
    #[must_use]
    pub fn mish(&self) -> Tensor {
        // Beyond these bounds, in every float type, the result has long rounded to -0, or to x.
        let beyond = self.abs().gt(FAR);
        let far = self.lt(0.0).select(&number(self, -0.0), self);
        // Choosing the operand too keeps 0 * inf out of the derivatives.
        let inside = beyond.select(&number(self, 0.0), self);
        let within = &inside * inside.softplus().tanh();
        beyond.select(&far, within)
    }
}

const FAR: f64 = 1000.0;
