//! What region ops mean to passes: where values flow from operands through regions into results.
//!
//! A row of the op table says which kind of control an op is ([`Control`](crate::op::Control)); everything a
//! pass needs follows from that here, so that no pass matches on opcodes. [`roles`] names operands, region
//! parameters and results by what they are, [`signature`] types regions, [`reach`] follows dependences,
//! [`Liveness`] finds what is needed and [`Liveness::copy`] leaves out the rest, [`outline`] makes a function of a
//! region, and [`Loop`] places a loop.

mod flow;
mod liveness;
mod outline;
mod place;
mod prune;
mod roles;
mod signature;

pub use flow::{Follow, reach};
pub use liveness::Liveness;
pub(crate) use liveness::has_effect;
pub use outline::{Outlined, captures, outline};
pub use place::{Loop, Params, branch, while_loop};
pub use prune::prune;
pub use roles::{Entered, LoopRoles, Trips};
pub use signature::{Signature, element, signature, stacked};
