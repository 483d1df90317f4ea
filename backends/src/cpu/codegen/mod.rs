//! Loop nests of a kernel, before instructions are chosen.

pub(crate) mod access_ranges;
pub(crate) mod affine_form;
pub(crate) mod constants;
pub(crate) mod fold;
pub(crate) mod listing;
pub(crate) mod loop_ir;
pub(crate) mod loop_nest;
pub(crate) mod loop_order;
pub(crate) mod vector_width;
