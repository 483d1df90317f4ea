//! Source texts that messages point into.

use adfuse::backends::Array;
use adfuse::ir::Symbol;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A program's text and the name it has in messages.
#[derive(Clone, Debug)]
pub(super) struct SourceText {
    /// The file's name, or `<stdin>`.
    pub(super) name: String,
    /// The text.
    pub(super) text: Rc<str>,
    /// Values of parameters that come with the program.
    pub(super) weights: ProgramWeights,
    /// Extents that the program is imported at, since symbols do not express it.
    pub(super) bound: Rc<[(Symbol, u64)]>,
}

/// Values of parameters that come with a program.
#[derive(Clone, Debug, Default)]
pub(super) enum ProgramWeights {
    /// There are none.
    #[default]
    None,
    /// Those of the model that the program was imported from.
    Model(Rc<Vec<(String, Array)>>),
    /// Those in a file that has the program's name.
    Beside(PathBuf),
}

/// Whether the path stands for standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
