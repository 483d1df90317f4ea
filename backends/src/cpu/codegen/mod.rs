//! Code generation before instructions are chosen: the loop IR of a sweep ([`loop_ir`]) and its passes.
//!
//! [`loop_nest`] plans a sweep: which loops there are, in which order, how each operand is read. [`access_ranges`] says
//! where guards hold, [`vector_width`] how wide vectors may be; the emitter is chosen by [`machine_code`](super::machine_code).

pub(crate) mod access_ranges;
pub(crate) mod affine_form;
pub(crate) mod constants;
pub(crate) mod fold;
pub(crate) mod listing;
pub(crate) mod loop_ir;
pub(crate) mod loop_nest;
pub(crate) mod loop_order;
pub(crate) mod vector_width;
