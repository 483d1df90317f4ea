//! Decisions about the ways back over loops.

use std::fmt;

/// How the way back over a loop gets what it needs of each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopChoice {
    /// Residuals of all steps are stacked.
    Stack,
    /// The carries are kept at this many steps at a time, and the steps between are computed again.
    Checkpoints(u64),
}

/// `stack`, or `checkpoints 32`
impl fmt::Display for LoopChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoopChoice::Stack => f.write_str("stack"),
            LoopChoice::Checkpoints(n) => write!(f, "checkpoints {n}"),
        }
    }
}

impl LoopChoice {
    /// Reads one; `None` where the text is none.
    pub(crate) fn parse(text: &str) -> Option<LoopChoice> {
        match text.split_once(' ') {
            None => (text == "stack").then_some(LoopChoice::Stack),
            Some(("checkpoints", n)) => n.trim().parse().ok().map(LoopChoice::Checkpoints),
            Some(_) => None,
        }
    }
}
