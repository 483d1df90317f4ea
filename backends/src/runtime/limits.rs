//! How far a program may go before running it is an error.

use adfuse_ir::{At, Diagnostic, Kind};

/// How far a program may go before it is stopped with an error of class `limit`.
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

impl RunLimits {
    /// Refuses a loop of this many steps, if it may not take them.
    pub(crate) fn check(self, op: &str, trips: u64) -> Result<(), Diagnostic> {
        match trips <= self.max_trips {
            true => Ok(()),
            false => Err(too_many_steps(op, trips, self.max_trips)),
        }
    }
}

/// The error of a loop that knows how many steps it has.
pub(crate) fn too_many_steps(op: &str, trips: u64, most: u64) -> Diagnostic {
    let m = format!("`{op}` takes {trips} steps, the limit is {most}");
    Diagnostic::new(At::default(), Kind::Limit, m)
}

/// The error of a loop whose test still holds after the most steps that it may take.
pub(crate) fn loop_too_long(most: u64) -> Diagnostic {
    let m = format!("`while` takes more than {most} steps");
    let d = Diagnostic::new(At::default(), Kind::Limit, m);
    d.hint("its condition may hold for ever; `max_trips` is the limit")
}
