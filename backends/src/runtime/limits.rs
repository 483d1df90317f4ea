//! How far a program may go before running it is an error.

/// RunLimits of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunLimits {
    /// The steps that one loop may take each time it is entered.
    pub max_trips: u64,
}

impl Default for RunLimits {
    /// Loops of up to 2^40 steps: a loop that never ends is not waited for forever, and no other is stopped.
    fn default() -> RunLimits {
        RunLimits { max_trips: 1 << 40 }
    }
}
