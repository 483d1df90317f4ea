//! Fusion: which instructions share a kernel.
//!
//! [`part`] says what is legal, and gives a reason where it refuses. [`group`](mod@group) takes instructions in order and lets
//! each join the part it may; [`merge`] joins parts that share an operand (horizontal fusion); [`inline`] finds what is
//! cheaper to rematerialize in its readers than to store. [`greedy`] makes a plan of the result.

pub(crate) mod greedy;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod inline;
pub(crate) mod merge;
pub(crate) mod operand_axes;
pub(crate) mod part;
mod tile_order;
