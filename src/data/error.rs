//! What is wrong with a file of arrays.

use crate::ir::{At, Diagnostic, Kind};
use crate::npz::NpzError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file of arrays cannot be read or written.
pub struct DataError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub why: DataErrorKind,
}

/// What can be wrong with a file of arrays.
#[derive(Debug)]
#[non_exhaustive]
pub enum DataErrorKind {
    /// The file cannot be read or written.
    Io(io::Error),
    /// It is of no format that is known here.
    UnknownFormat,
    /// A NumPy file is wrong.
    Numpy(NpzError),
    /// A text of numbers is wrong.
    Csv {
        /// The line, counted from 1.
        line: u64,
        /// The field in the line, counted from 1; 0 where the whole line is meant.
        column: u64,
        /// What is wrong there.
        what: String,
    },
    /// The file has fewer bytes than it says.
    Short,
    /// The file has more bytes than it says.
    Surplus,
    /// What the file says of its arrays cannot be: which part, and why.
    Header(String),
    /// Elements of a type that adfuse has not, by the name that the format has for it.
    ElementType(String),
    /// An array that no tensor can be: too many axes, or too large.
    TooLarge(String),
    /// What cannot be written in this format.
    Unwritable(String),
}

impl DataErrorKind {
    /// The same, said of a file.
    pub(super) fn of(self, path: &Path) -> DataError {
        DataError { path: path.to_path_buf(), why: self }
    }
}

/// As it is displayed: what a `main` that fails prints.
impl fmt::Debug for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DataErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataErrorKind::Io(e) => e.fmt(f),
            DataErrorKind::UnknownFormat => f.write_str(
                "unknown format: known are .safetensors, .npz, .npy, .csv, .tsv and .idx, and these with .gz",
            ),
            DataErrorKind::Numpy(e) => e.fmt(f),
            DataErrorKind::Csv { line, column: 0, what } => write!(f, "line {line}: {what}"),
            DataErrorKind::Csv { line, column, what } => {
                write!(f, "line {line}, column {column}: {what}")
            }
            DataErrorKind::Short => f.write_str("it ends too early"),
            DataErrorKind::Surplus => f.write_str("there is more in it than its header says"),
            DataErrorKind::Header(what) => write!(f, "its header is malformed: {what}"),
            DataErrorKind::ElementType(name) => {
                write!(f, "elements of type {name} are not supported")
            }
            DataErrorKind::TooLarge(why) | DataErrorKind::Unwritable(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for DataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            DataErrorKind::Io(e) => Some(e),
            DataErrorKind::Numpy(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for DataErrorKind {
    fn from(e: io::Error) -> DataErrorKind {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => DataErrorKind::Short,
            _ => DataErrorKind::Io(e),
        }
    }
}

impl From<NpzError> for DataErrorKind {
    fn from(e: NpzError) -> DataErrorKind {
        DataErrorKind::Numpy(e)
    }
}

impl From<DataError> for Diagnostic {
    fn from(e: DataError) -> Diagnostic {
        Diagnostic::new(At::default(), Kind::Usage, e.to_string())
    }
}
