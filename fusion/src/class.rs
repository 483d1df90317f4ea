//! What instructions are to the planner, by their bodies.

use adfuse_ir::op::Monoid;

/// How an instruction takes part in groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Class {
    /// Written out wherever it is used: changes of index, generated values, small arithmetic whose
    /// result is only ever spread. It is in no group of its own.
    Free,
    /// An element at each point of the result.
    #[default]
    Point,
    /// Folds axes away.
    Reduce(Monoid),
    /// Folds along an axis.
    Scan(Monoid),
    /// Sums of products.
    Contract,
    /// Sums at computed places.
    Scatter,
    /// Places in order along an axis.
    Argsort,
    /// A function of the user's.
    Opaque,
    /// Values written in the program.
    Constant,
}

impl Class {
    /// Whether it is a step that nothing joins.
    pub(crate) fn is_alone(self) -> bool {
        matches!(self, Class::Scatter | Class::Argsort | Class::Opaque)
    }
}
