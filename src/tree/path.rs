//! Paths of leaves: the names of fields and the numbers of elements on the way to a leaf.

use std::fmt;

/// The way to a leaf, as `layers.3.attn.q.weight`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    text: String,
}

impl Path {
    /// The way to the whole tree.
    pub fn root() -> Path {
        Path::default()
    }

    /// What the function gives for the path that has a segment more.
    pub fn within<R>(&mut self, segment: impl fmt::Display, f: impl FnOnce(&mut Path) -> R) -> R {
        let before = self.text.len();
        if before > 0 {
            self.text.push('.');
        }
        self.text.push_str(&segment.to_string());
        let out = f(self);
        self.text.truncate(before);
        out
    }

    /// The segments with points between them.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The last segment; empty for the whole tree.
    pub fn last(&self) -> &str {
        self.text.rsplit('.').next().unwrap_or_default()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
