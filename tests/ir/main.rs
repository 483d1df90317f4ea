//! What programs mean: transformations of random programs, every row of the op table, functions over
//! batches, tracing from Rust.

mod accepted;
mod collectives;
#[path = "../common/mod.rs"]
mod common;
mod compose;
mod control;
mod lanes;
mod ops;
mod programs;
mod sharding;
mod trace;
mod vmap;
