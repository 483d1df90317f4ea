//! Tests that go over the whole op table: a new row is tested by them without a line of its own.

mod attention_forms;
mod batches;
mod cases;
mod closed;
mod conformance;
pub(crate) mod derivatives;
mod evaluation;
mod folded_norms;
mod forms;
mod gradients;
mod limits;
mod product_sums;
mod rewrites;
mod rows;
mod rules;
mod sorting;
mod stable;
mod structure;
mod verifier;
mod windows;
