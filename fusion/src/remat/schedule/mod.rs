//! Schedules under a memory budget: which values are kept, and which are recomputed.
//!
//! A [`CostGraph`] has operations with a time, the bytes of a result and what they read; it knows
//! nothing of tensors. A [`OpSchedule`] runs them in order, some more than once: that is
//! rematerialization. [`evaluate`] gives the peak and the time of a schedule, [`frontier`] finds schedules that
//! trade memory for time, and [`residuals`] bounds the time of every schedule from below.
//!
//! ```
//! use adfuse_fusion::remat::schedule::{CostGraph, FrontierOptions, Operation, frontier};
//!
//! let mut g = CostGraph::new();
//! let x = g.push(Operation::source("x", 8))?;
//! let a = g.push(Operation::new("a", 5, 64).reads(&[x]))?;
//! let b = g.push(Operation::new("b", 5, 64).reads(&[a]))?;
//! let c = g.push(Operation::new("c", 5, 64).reads(&[b]))?;
//! let db = g.push(Operation::new("db", 5, 8).reads(&[c, b]).phase(1))?;
//! g.push(Operation::new("da", 5, 8).reads(&[db, a]).phase(1).output())?;
//! let frontier = frontier(&g, &FrontierOptions::default());
//! assert_eq!(frontier.fastest().peak, 8 + 3 * 64 + 8);
//! // Within less, `a` is computed again.
//! let point = frontier.at(8 + 2 * 64 + 8)?;
//! assert_eq!(point.time, 25 + 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod bound;
pub(crate) mod chain_dp;
pub(crate) mod cost_graph;
pub(crate) mod dead_steps;
pub(crate) mod equal_segments;
pub(crate) mod fill;
pub(crate) mod frontier;
pub(crate) mod json;
pub(crate) mod liveness;
pub(crate) mod local_search;
pub(crate) mod moves;
pub(crate) mod peak_tree;
pub(crate) mod residuals;
pub(crate) mod results;
pub(crate) mod segments;
pub(crate) mod steps;
pub(crate) mod sweep;

pub use bound::least_time;
pub use cost_graph::{CostGraph, GraphError, GraphErrorKind, OpId, OpRole, Operation};
pub use equal_segments::{SegmentLength, equal_segments};
pub use frontier::{Frontier, FrontierOptions, FrontierPoint, Infeasible, frontier};
pub use json::JsonError;
pub use residuals::{Hull, Residuals, residuals};
pub use steps::{Evaluation, OpSchedule, ScheduleError, StepId, evaluate};
