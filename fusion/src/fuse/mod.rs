//! Which instructions share a kernel.

pub(crate) mod greedy;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod inline;
pub(crate) mod merge;
pub(crate) mod operand_axes;
pub(crate) mod part;
