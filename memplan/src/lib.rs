//! A memory planner.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod bound;
mod boxes;
mod check;
mod error;
mod fit;
mod instance;
mod limit;
mod orders;
mod packing;
mod plan;
mod problem;
mod refine;
mod search;
mod skyline;
mod solve;
mod validate;

pub use check::{Violation, check, check_offsets};
pub use error::PlanError;
pub use packing::{Method, Order, Packing};
pub use plan::{Options, plan, plan_in_order};
pub use problem::{Buffer, BufferId, Gap, Offset, Problem, Share};
