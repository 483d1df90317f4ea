//! Measured times in place of predicted ones.

use crate::plan::Plan;
use adfuse_ir::Function;
use adfuse_ir::kernel::Program;

/// A source of times for plans.
pub trait Measure {
    /// Seconds that the program of a plan takes; `None` where that is not known, and the cost model is
    /// asked.
    fn seconds(&self, f: &Function, plan: &Plan, program: &Program) -> Option<f64>;

    /// Whether the second of two plans is no slower than the first, by times that are taken for this
    /// question; a search asks it before it takes what it found. `None` where nothing is measured.
    fn confirms(
        &self,
        f: &Function,
        before: (&Plan, &Program),
        after: (&Plan, &Program),
    ) -> Option<bool>;
}

/// Nothing is measured: times are the cost model's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Predicted;

impl Measure for Predicted {
    fn seconds(&self, _: &Function, _: &Plan, _: &Program) -> Option<f64> {
        None
    }

    fn confirms(&self, _: &Function, _: (&Plan, &Program), _: (&Plan, &Program)) -> Option<bool> {
        None
    }
}
