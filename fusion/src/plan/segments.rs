//! The ends of checkpoint segments, as plans name them.

use std::fmt;

/// The ends of segments of one level, in the order of the function, each by the name of a value without `%`: a segment
/// ends with the instruction that computes the value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CheckpointEnds {
    /// The names. There is at least one.
    pub names: Vec<String>,
}

/// `%a, %b`
impl fmt::Display for CheckpointEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, name) in self.names.iter().enumerate() {
            write!(f, "{}%{name}", if k > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl CheckpointEnds {
    /// Reads one level; `None` where the text is none.
    pub(crate) fn parse(text: &str) -> Option<CheckpointEnds> {
        let name = |text: &str| {
            let name = text.trim().strip_prefix('%')?;
            (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| name.to_owned())
        };
        Some(CheckpointEnds { names: text.split(',').map(name).collect::<Option<_>>()? })
    }
}
