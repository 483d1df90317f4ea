//! What is wrong with a NumPy file.

use std::fmt;
use std::io;

/// Why an array cannot be read, and of which entry of an archive that is said.
pub struct NpzError {
    /// The entry of the archive, with its suffix `.npy`; `None` where the file as a whole is meant.
    pub entry: Option<String>,
    /// What is wrong.
    pub why: NpzErrorKind,
}

/// What can be wrong with a NumPy file.
#[derive(Debug)]
#[non_exhaustive]
pub enum NpzErrorKind {
    /// The file cannot be read.
    Io(io::Error),
    /// The file, or an entry, has fewer bytes than it says.
    Short,
    /// It does not begin as `.npy` files do.
    NoNumpy,
    /// A version of the `.npy` format that is not known.
    Version(u8),
    /// A header of this many bytes, which is more than any array needs.
    LongHeader(usize),
    /// The header is no dictionary of literals; what was expected where it is not.
    Header(&'static str),
    /// The header has no such key.
    NoKey(&'static str),
    /// An element type, in NumPy's notation, that adfuse has not.
    ElementType(String),
    /// The array has too many axes or elements.
    TooLarge(String),
    /// There is more data than the header says.
    Surplus,
    /// The file is no zip archive, or a part of its directory is wrong; which.
    Directory(&'static str),
    /// The archive is divided into several files.
    SeveralDisks,
    /// The archive has no such entry.
    NoEntry,
    /// The entry is encrypted.
    Encrypted,
    /// The entry is compressed by a method other than 0 (stored) and 8 (deflated).
    Method(u16),
    /// The entry's data is no deflated stream.
    Deflate,
    /// The entry's data does not have the checksum of the directory.
    Checksum,
}

/// As it is displayed: what a `main` that fails prints.
impl fmt::Debug for NpzError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NpzErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NpzErrorKind::Io(e) => e.fmt(f),
            NpzErrorKind::Short => f.write_str("it ends too early"),
            NpzErrorKind::NoNumpy => f.write_str("it is no NumPy file"),
            NpzErrorKind::Version(v) => write!(f, "version {v} of the format is not known"),
            NpzErrorKind::LongHeader(bytes) => write!(f, "its header has {bytes} bytes"),
            NpzErrorKind::Header(due) => write!(f, "its header is malformed: expected {due}"),
            NpzErrorKind::NoKey(key) => write!(f, "its header is malformed: missing key `{key}`"),
            NpzErrorKind::ElementType(descr) => {
                write!(f, "elements of type {descr} are not supported")
            }
            NpzErrorKind::TooLarge(why) => f.write_str(why),
            NpzErrorKind::Surplus => f.write_str("there is more in it than its header says"),
            NpzErrorKind::Directory(what) => write!(f, "it is no zip archive: {what}"),
            NpzErrorKind::SeveralDisks => {
                f.write_str("archives in several parts are not supported")
            }
            NpzErrorKind::NoEntry => f.write_str("the archive has no such entry"),
            NpzErrorKind::Encrypted => f.write_str("encrypted entries are not supported"),
            NpzErrorKind::Method(method) => write!(
                f,
                "compression by method {method} is not supported: entries are stored (0) or deflated (8)"
            ),
            NpzErrorKind::Deflate => f.write_str("its compressed data is damaged"),
            NpzErrorKind::Checksum => {
                f.write_str("its data does not have the checksum of the directory")
            }
        }
    }
}

impl fmt::Display for NpzError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(entry) => write!(f, "entry `{entry}`: {}", self.why),
            None => self.why.fmt(f),
        }
    }
}

impl std::error::Error for NpzError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            NpzErrorKind::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<NpzErrorKind> for NpzError {
    fn from(why: NpzErrorKind) -> NpzError {
        NpzError { entry: None, why }
    }
}

impl From<io::Error> for NpzErrorKind {
    fn from(e: io::Error) -> NpzErrorKind {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => NpzErrorKind::Short,
            _ => NpzErrorKind::Io(e),
        }
    }
}

impl From<io::Error> for NpzError {
    fn from(e: io::Error) -> NpzError {
        NpzErrorKind::from(e).into()
    }
}

impl NpzErrorKind {
    /// The same, said of an entry.
    pub(super) fn of(self, entry: &str) -> NpzError {
        NpzError { entry: Some(entry.to_string()), why: self }
    }
}
