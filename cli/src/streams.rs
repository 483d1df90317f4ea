//! Output streams.

use super::failure::Failure;
use super::outputs::OutputFile;
use super::render::visible;
use serde_json::{Map, Value, json};
use std::io::{self, BufWriter, ErrorKind, Write};

/// Standard output and standard error of a command.
pub(super) struct Streams<'a> {
    /// Results.
    pub(super) out: &'a mut dyn Write,
    /// Everything else.
    pub(super) err: &'a mut Messages,
    /// Whether results are printed as JSON.
    pub(super) json: bool,
    /// The file that the result goes to. A command that takes it writes the file itself; otherwise it gets what is written
    /// to `out`.
    pub(super) output: Option<OutputFile>,
}

/// What a command says that is not its result. It goes to standard error as it comes, or, as JSON, in one object at the end.
pub(super) struct Messages {
    /// The notes so far, and what else was said, where these are JSON.
    kept: Option<(Vec<String>, Vec<u8>)>,
}

impl Messages {
    /// None yet.
    pub(super) fn new(json: bool) -> Messages {
        Messages { kept: json.then(Default::default) }
    }

    fn note(&mut self, message: &str) {
        match &mut self.kept {
            Some((notes, _)) => notes.push(message.to_owned()),
            // A closed standard error stops nothing.
            None => drop(writeln!(io::stderr(), "note: {}", visible(message))),
        }
    }

    /// The last message, if the command failed.
    pub(super) fn end(self, failure: Option<&Failure>, colors: bool) {
        let text = match (self.kept, failure) {
            (None, failure) => failure.map_or_else(String::new, |failure| failure.render(colors)),
            (Some((notes, printed)), failure) => {
                let mut all = Map::new();
                all.extend(failure.map(|failure| ("errors".to_string(), failure.json())));
                if !notes.is_empty() {
                    all.insert("notes".into(), json!(notes));
                }
                if !printed.is_empty() {
                    let lines = String::from_utf8_lossy(&printed);
                    all.insert("printed".into(), lines.lines().collect());
                }
                if all.is_empty() { String::new() } else { format!("{:#}\n", Value::Object(all)) }
            }
        };
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.kept {
            Some((_, printed)) => printed.write(bytes),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
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
    /// Tells the user something that is not a result.
    pub(super) fn note(&mut self, message: impl std::fmt::Display) {
        self.err.note(&message.to_string());
    }

    /// Prints the result: as text, or as JSON where that is asked for.
    pub(super) fn print(
        &mut self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
    ) -> io::Result<()> {
        let printed = if self.json { format!("{:#}\n", json()) } else { text() };
        self.out.write_all(printed.as_bytes())
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
