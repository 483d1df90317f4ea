//! Decisions about the ways back over loops.

use std::fmt;

/// What residuals are chosen for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackGoal {
    /// The least time: what is dear to compute again is stacked.
    Time,
    /// The fewest bytes: all is computed again that saves a stack.
    Bytes,
}

/// How the way back over a loop gets what it needs of each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopChoice {
    /// Residuals of all steps are stacked, for the least time.
    Stack,
    /// Residuals of all steps are stacked, for the fewest bytes: little but carries.
    StackLeast,
    /// The carries are kept at this many steps at a time, and the steps between are computed again.
    Checkpoints(u64),
}

/// `stack`, `stack least`, or `checkpoints 32`
impl fmt::Display for LoopChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoopChoice::Stack => f.write_str("stack"),
            LoopChoice::StackLeast => f.write_str("stack least"),
            LoopChoice::Checkpoints(n) => write!(f, "checkpoints {n}"),
        }
    }
}

impl LoopChoice {
    /// What residuals are stacked for, where they are.
    pub fn goal(self) -> Option<StackGoal> {
        match self {
            LoopChoice::Stack => Some(StackGoal::Time),
            LoopChoice::StackLeast => Some(StackGoal::Bytes),
            LoopChoice::Checkpoints(_) => None,
        }
    }

    /// Reads one; `None` where the text is none.
    pub(crate) fn parse(text: &str) -> Option<LoopChoice> {
        match text.split_once(' ') {
            None => (text == "stack").then_some(LoopChoice::Stack),
            Some(("stack", "least")) => Some(LoopChoice::StackLeast),
            Some(("checkpoints", n)) => n.trim().parse().ok().map(LoopChoice::Checkpoints),
            Some(_) => None,
        }
    }
}

/// Bytes of checkpoints up to which a loop of known length keeps all its states where there is no budget.
const PLENTY_BYTES: u64 = 64 << 20;

/// The same of a loop of unknown length, whose checkpoints are there however few steps it takes.
const PLENTY_BYTES_UNKNOWN: u64 = 1 << 20;

/// Checkpoints of a way back where no budget says how many, for a state of this many bytes: one for each step, as far as
/// steps are known and there is room, at least 32.
pub(crate) fn plenty_of_checkpoints(state: u64, trips: Option<u64>) -> u64 {
    let fit = |bytes: u64| (bytes / state.max(1)).max(32);
    match trips {
        Some(trips) => trips.min(fit(PLENTY_BYTES)).max(1),
        None => fit(PLENTY_BYTES_UNKNOWN),
    }
}
