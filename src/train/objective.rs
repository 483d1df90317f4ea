//! What the closure of a step returns: a loss, alone or with other values.

use crate::backends::Array;
use crate::trace::Tensor;
use crate::tree::Params;

/// What a training closure returns: a scalar loss, or a pair of it and a tree of values that are reported with it and not differentiated.
pub trait Objective {
    /// The other values.
    type Aux: Params<Tensor>;
    /// What a step gives the caller: the loss as a number, and the other values as arrays.
    type Report;

    /// The loss and the others.
    fn parts(self) -> (Tensor, Self::Aux);

    /// The loss of a report.
    fn loss(report: &Self::Report) -> f64;

    /// The report of a step.
    fn report(loss: f64, aux: AuxArrays<Self>) -> Self::Report;
}

/// The other values of an objective, as arrays.
pub type AuxArrays<R> = <<R as Objective>::Aux as Params<Tensor>>::With<Array>;

impl Objective for Tensor {
    type Aux = ();
    type Report = f64;

    fn parts(self) -> (Tensor, ()) {
        (self, ())
    }

    fn loss(report: &f64) -> f64 {
        *report
    }

    fn report(loss: f64, (): ()) -> f64 {
        loss
    }
}

impl<A: Params<Tensor>> Objective for (Tensor, A) {
    type Aux = A;
    type Report = (f64, A::With<Array>);

    fn parts(self) -> (Tensor, A) {
        self
    }

    fn loss(report: &Self::Report) -> f64 {
        report.0
    }

    fn report(loss: f64, aux: A::With<Array>) -> Self::Report {
        (loss, aux)
    }
}
