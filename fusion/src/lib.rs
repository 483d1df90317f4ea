//! From a function over tensors to a program of kernels.
//!
//! So far there is one way: every instruction becomes a step of its own, which is what every grouping
//! is measured against and must agree with to the bit.

mod indirect;
mod lower;
mod reduce;
mod step;

pub use lower::lower;
