//! Output streams.

use super::render::visible;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

/// Standard output and standard error of a command.
pub(super) struct Streams<'a> {
    /// Results.
    pub(super) out: &'a mut dyn Write,
    /// Everything else.
    pub(super) err: &'a mut dyn Write,
    /// Whether data are printed as JSON.
    pub(super) json: bool,
    /// The file that the result goes to. A command that takes it writes the file itself; otherwise it gets what is written
    /// to `out`.
    pub(super) output: Option<PathBuf>,
}

/// Passes text on without the control bytes that a terminal would act on: texts of programs are not trusted.
pub(super) struct VisibleWriter<'a>(pub(super) &'a mut dyn Write);

impl Write for VisibleWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let acts = |b: u8| b.is_ascii_control() && b != b'\n' && b != b'\t';
        let shown: Vec<u8> = bytes.iter().map(|&b| if acts(b) { b'?' } else { b }).collect();
        self.0.write_all(&shown).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Streams<'_> {
    /// Tells the user something that is not a result. A closed standard error stops nothing.
    pub(super) fn note(&mut self, message: impl std::fmt::Display) {
        let _ = writeln!(self.err, "note: {}", visible(&message.to_string()));
    }
}

/// A buffered stream whose reader may leave: what is written after that is dropped silently, since
/// `adfuse .. | head` is no error.
pub(super) struct PipeWriter<W: Write> {
    inner: BufWriter<Leaving<W>>,
}

impl<W: Write> PipeWriter<W> {
    /// Writes to `inner`.
    pub(super) fn new(inner: W) -> PipeWriter<W> {
        PipeWriter { inner: BufWriter::new(Leaving { inner, closed: false }) }
    }
}

impl<W: Write> Write for PipeWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

struct Leaving<W> {
    inner: W,
    closed: bool,
}

impl<W: Write> Write for Leaving<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        match self.inner.write(bytes) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(bytes.len())
            }
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.inner.flush() {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}
