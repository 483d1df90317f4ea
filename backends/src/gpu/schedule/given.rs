//! Decisions that were read from a text, before it is known that they fit a program.

use super::concurrency::ConcurrentSteps;
use super::text::Reader;
use std::collections::VecDeque;

/// Decisions that were read: of each piece of work its name and its lines, in their order.
pub(crate) type Given<'t> = VecDeque<(&'t str, Reader<'t>)>;

/// All decisions of a program that were read: those of what comes before the first step, of each step and of what comes
/// after the last, and for each step those of the programs in it, by what they are to it.
#[derive(Default)]
pub(crate) struct GivenProgram<'t> {
    pub(crate) sections: Vec<Given<'t>>,
    pub(crate) blocks: Vec<Vec<(&'t str, GivenProgram<'t>)>>,
    /// Which steps run side by side.
    pub(crate) concurrent: Vec<ConcurrentSteps>,
}
