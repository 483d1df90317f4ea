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
