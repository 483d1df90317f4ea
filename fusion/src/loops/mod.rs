//! Loops before planning: residuals of loops, and loops that compute the same.
//!
//! Reverse mode makes an `adjoint` of a loop: a loop and its way back, which computes what it needs of a step again from
//! the carries that the step was entered with. Where the number of steps is known, [`stack_residuals`] makes two scans
//! of it: one that stacks residuals, one that goes back and reads them. [`merge_loops`] then joins the first with the
//! loop that was differentiated, so that no step is computed twice. All passes keep every bit.

mod adjoint_body;
mod hoist;
mod merge;
mod numbering;
mod refine;
mod residual_cut;
mod residuals;
mod scan_body;
mod slice;
mod stack;
mod trips;
mod uniform;

pub use merge::merge_loops;
pub use residuals::{LoopResidual, LoopResiduals, ResidualClass};
pub use stack::{loop_residuals, stack_residuals};
pub(crate) use trips::known_trips;
