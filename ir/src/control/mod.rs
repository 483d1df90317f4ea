//! What region ops mean to passes: where values flow from operands through regions into results.
//!
//! A row of the op table says which kind of control an op is ([`Control`](crate::op::Control)); everything a
//! pass needs follows from that here, so that no pass matches on opcodes. [`LoopRoles`] names operands, region
//! parameters and results by what they are, [`signature()`] types regions, [`reach`] follows dependences,
//! [`Liveness`] finds what is needed and [`Liveness::copy`] leaves out the rest, [`outline()`] makes a function of a
//! region, and [`LoopBuilder`] places a loop.

mod flow;
mod liveness;
mod outline;
mod place;
mod prune;

pub use crate::captures::{captures, reads};
pub use crate::op::{Entered, LoopRoles, Signature, Trips, element, signature, stacked};
pub use flow::{Follow, reach, reach_where};
pub use liveness::Liveness;
pub use outline::{Outlined, outline};
pub use place::{LoopBuilder, branch, while_loop};
pub use prune::{prune, prune_by};
