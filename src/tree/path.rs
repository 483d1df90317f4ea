//! Paths of leaves: the names of fields and the numbers of elements on the way to a leaf.

use std::fmt;

/// The way to a leaf, as `layers.3.attn.q.weight`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    text: String,
    /// What was marked on the way to all leaves so far.
    marks: String,
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

    /// Notes what a tree has here that paths of leaves do not show: the variant of an enum, the length of a list.
    pub fn mark(&mut self, what: impl fmt::Display) {
        self.marks.push_str(&format!("{}={what};", self.text));
    }

    /// What has been marked.
    pub(super) fn marks(&self) -> &str {
        &self.marks
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
