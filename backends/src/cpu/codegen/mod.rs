//! Code generation before instruction selection: the loop IR of a sweep ([`loop_ir`]) and its passes.
//!
//! [`loop_nest`] builds the loops and the sources of each operand. [`access_ranges`] finds where guards hold, and
//! [`vector_width`] how wide vectors may be. [`machine_code`](super::machine_code) chooses the emitter.

pub(crate) mod access_ranges;
pub(crate) mod affine_form;
pub(crate) mod constants;
pub(crate) mod fold;
pub(crate) mod listing;
pub(crate) mod loop_ir;
pub(crate) mod loop_nest;
pub(crate) mod loop_order;
pub(crate) mod sweep_form;
pub(crate) mod vector_width;
