//! A memory planner: live ranges with sizes and alignments in, offsets in one arena out.
//!
//! Buffers that are live at the same time must not overlap; those that are not may take the same
//! bytes. [`plan`] looks for offsets with the least peak, and [`check`] proves a result sound with code
//! of its own. The crate knows nothing of programs: time is a number, a buffer a size.
//!
//! ```
//! use adfuse_memplan::{BufferSpec, PackOptions, Problem, check, plan};
//!
//! let mut problem = Problem::new();
//! let input = problem.push(BufferSpec::new(0..3, 4096).with_align(64));
//! let output = problem.push(BufferSpec::new(2..9, 4096).with_align(64));
//! problem.push(BufferSpec::new(4..6, 1000));
//! // The output is computed in place of the input, which dies as it is born.
//! problem.may_share(output, input);
//!
//! let packing = plan(&problem, &PackOptions::default())?;
//! assert_eq!(packing.offsets[input], packing.offsets[output]);
//! assert_eq!(packing.peak, 5096);
//! assert!(packing.is_optimal());
//! check(&problem, &packing)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a plan is found
//!
//! A lower bound, what is live at the most crowded moment, ends the work as soon as it is reached. What reaches it most often
//! for its time comes first: the buffers by size with as many in place as may be, then best fit of the same. If neither
//! does, all greedy [`PlacementOrder`]s are tried, for up to [`MOST_ORDERED`] buffers, since they take time by the square; then best fit
//! by several rules, and one pass along time, for which there is always time. Then slots
//! that fit together exactly are joined to boxes, of which there are few, first with fillers where a packing at the
//! bound leaves something free, then with those fillers alone that are all but certain and with padding where slots nearly fit, and best fit and an exact search try to
//! place the boxes and the slots themselves at the bound and between it and the best peak so far. The
//! search follows the idea of canonical packings (Moffitt, *MiniMalloc*, ASPLOS 2023): only those where
//! nothing can sink need be looked at. It counts steps, not time, so that a plan depends on the problem
//! and [`PackOptions::effort`] alone. It goes level by level, each with more steps than the one before, and
//! no level depends on how much effort there is in all: more effort never gives a higher peak.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod best_fit;
mod bound;
mod boxes;
mod check;
pub mod csv;
mod error;
mod fillers;
mod fit;
mod free_bytes;
mod greedy_try;
mod instance;
mod joined;
mod limit;
mod orders;
mod packing;
mod padded_boxes;
mod plan;
mod problem;
mod refine;
mod rooms;
mod scatter;
mod search;
mod shape;
mod sharing;
mod skyline;
mod solve;
mod sweep;
mod validate;
mod words;

pub use check::{Violation, check, check_offsets};
pub use error::PlanError;
pub use packing::{Method, Packing, PlacementOrder};
pub use plan::{PackOptions, plan, plan_in_order, plan_in_orders};
pub use problem::{BufferId, BufferSpec, Gap, Offset, Problem, Share};
pub use rooms::{Location, RoomId, Rooms};
pub use solve::MOST_ORDERED;

/// The page of the package, whose example runs with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct MemplanPage;
