//! What is outside of a program, and its steps call: the user's functions, the other ranks.

use crate::runtime::functions::Registry;
use crate::runtime::ranks::RankGroup;

/// What is outside of a program, which its steps call.
#[derive(Clone, Copy)]
pub(super) struct HostServices<'a> {
    /// The user's functions.
    pub(super) functions: &'a Registry,
    /// The ranks that run the program.
    pub(super) ranks: &'a RankGroup,
    /// Whether the program is made to be read alone.
    pub(super) listed: bool,
}

impl<'a> HostServices<'a> {
    /// For a program that runs.
    pub(super) fn of(functions: &'a Registry, ranks: &'a RankGroup) -> HostServices<'a> {
        HostServices { functions, ranks, listed: false }
    }

    /// For a program that is read alone.
    pub(super) fn listed(functions: &'a Registry, ranks: &'a RankGroup) -> HostServices<'a> {
        HostServices { functions, ranks, listed: true }
    }
}
