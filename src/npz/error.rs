//! What is wrong with a NumPy file.

use std::fmt;
use std::io;

/// Why an array cannot be read, and of which entry of an archive that is said.
#[derive(Debug)]
pub struct Error {
    /// The entry of the archive, with its suffix `.npy`; `None` where the file as a whole is meant.
    pub entry: Option<String>,
    /// What is wrong.
    pub why: Why,
}

/// What can be wrong with a NumPy file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Why {
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

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Io(e) => e.fmt(f),
            Why::Short => f.write_str("it ends too early"),
            Why::NoNumpy => f.write_str("it is no NumPy file"),
            Why::Version(v) => write!(f, "version {v} of the format is not known"),
            Why::LongHeader(bytes) => write!(f, "its header has {bytes} bytes"),
            Why::Header(due) => write!(f, "its header is malformed: expected {due}"),
            Why::NoKey(key) => write!(f, "its header is malformed: missing key `{key}`"),
            Why::ElementType(descr) => write!(f, "elements of type {descr} are not supported"),
            Why::TooLarge(why) => f.write_str(why),
            Why::Surplus => f.write_str("there is more in it than its header says"),
            Why::Directory(what) => write!(f, "it is no zip archive: {what}"),
            Why::SeveralDisks => f.write_str("archives in several parts are not supported"),
            Why::NoEntry => f.write_str("the archive has no such entry"),
            Why::Encrypted => f.write_str("encrypted entries are not supported"),
            Why::Method(method) => write!(
                f,
                "compression by method {method} is not supported: entries are stored (0) or deflated (8)"
            ),
            Why::Deflate => f.write_str("its compressed data is damaged"),
            Why::Checksum => f.write_str("its data does not have the checksum of the directory"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(entry) => write!(f, "entry `{entry}`: {}", self.why),
            None => self.why.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            Why::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<Why> for Error {
    fn from(why: Why) -> Error {
        Error { entry: None, why }
    }
}

impl From<io::Error> for Why {
    fn from(e: io::Error) -> Why {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Why::Short,
            _ => Why::Io(e),
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Why::from(e).into()
    }
}

impl Why {
    /// The same, said of an entry.
    pub(super) fn of(self, entry: &str) -> Error {
        Error { entry: Some(entry.to_string()), why: self }
    }
}
