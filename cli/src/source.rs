//! Source texts that messages point into.

use std::path::Path;
use std::rc::Rc;

/// A program's text and the name it has in messages.
#[derive(Clone, Debug)]
pub(super) struct SourceText {
    /// The file's name, or `<stdin>`.
    pub(super) name: String,
    /// The text.
    pub(super) text: Rc<str>,
}

/// Whether the path stands for standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
