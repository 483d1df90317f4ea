//! What was decided about a function before it was planned.

use super::inverse::InverseChoice;
use super::loop_choice::LoopChoice;
use super::segments::CheckpointEnds;

/// The rewrites that made the function of a plan from the prepared one, in their order. Lossy copies, which come after the
/// inverses, are part of the function itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rewrites {
    /// The levels of checkpoint segments, the outermost first.
    pub segments: Vec<CheckpointEnds>,
    /// What later phases recover from answers ([`recover_operands`](crate::recover_operands())).
    pub inverses: Vec<InverseChoice>,
    /// What was decided for the ways back over loops ([`decide_loops`](crate::decide_loops())).
    pub loops: Vec<LoopChoice>,
}
