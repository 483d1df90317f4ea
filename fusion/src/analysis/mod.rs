//! Facts about a function before planning: extents, loop axes, classes, value ranges.

pub(crate) mod axes;
pub(crate) mod class;
pub(crate) mod contraction_operands;
pub(crate) mod facts;
pub(crate) mod float_range;
mod gather;
pub(crate) mod index_columns;
pub(crate) mod inlinable;
pub(crate) mod leaves;
pub(crate) mod min_cut;
pub(crate) mod phases;
pub(crate) mod recomputation;
pub(crate) mod shifts;
pub(crate) mod value_range;
pub(crate) mod views;
pub(crate) mod weight;
