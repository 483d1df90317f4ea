//! Rewriting by output: the values that later phases recover from an answer.

use std::fmt;

/// A value that later phases do not read: they compute it again from the answer of an op that read it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InverseChoice {
    /// The value's name in the function before, without `%`.
    pub of: String,
    /// The name of the answer.
    pub from: String,
}

/// `%a from %y`
impl fmt::Display for InverseChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{} from %{}", self.of, self.from)
    }
}

impl InverseChoice {
    /// Reads one; `None` where the text is none.
    pub(crate) fn parse(text: &str) -> Option<InverseChoice> {
        let (of, from) = text.split_once(" from ")?;
        let name = |text: &str| Some(text.trim().strip_prefix('%')?.to_owned());
        Some(InverseChoice { of: name(of)?, from: name(from)? })
    }
}
