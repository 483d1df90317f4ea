//! The syntax of decisions as text: lines of a name and of fields `key=value`, with the place of each.
//!
//! What the lines mean is said where each decision is defined, by [`DecisionLine::write`] and [`DecisionLine::read`].

use adfuse_ir::{At, Diagnostic, Kind, Span};
use std::fmt::{Display, Write as _};

/// A choice of a schedule that people can read and edit.
pub(crate) trait DecisionLine: Sized {
    /// Adds its lines.
    fn write(&self, to: &mut Writer);

    /// Reads the same lines.
    fn read(from: &mut Reader<'_>) -> Result<Self, Diagnostic>;
}

/// Lines that are being written.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) text: String,
}

impl Writer {
    /// Adds a line.
    pub(crate) fn line(&mut self, name: &str, fields: &[(&str, &dyn Display)]) {
        // Writing to a string does not fail.
        let _ = write!(self.text, "    {name}");
        for (key, value) in fields {
            let _ = write!(self.text, " {key}={value}");
        }
        self.text.push('\n');
    }
}

/// A list as fields have it.
pub(crate) fn listed<T: Display>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|x| x.to_string()).collect();
    format!("[{}]", all.join(","))
}

/// Two numbers as fields have them.
pub(crate) fn pair([a, b]: [i64; 2]) -> String {
    format!("{a}x{b}")
}

/// A line: its name and its fields.
#[derive(Clone, Debug)]
pub(crate) struct Line<'t> {
    pub(crate) span: Span,
    pub(crate) name: &'t str,
    fields: Vec<(&'t str, &'t str, Span)>,
}

/// The largest number that a field may have.
const MOST: i64 = 1 << 40;

/// An error in a text, with its place.
pub(crate) fn wrong(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(At::span(span), Kind::Syntax, message)
}

impl<'t> Line<'t> {
    /// Reads a line that begins at this byte of the text; `None` where it is empty but for a comment.
    pub(crate) fn of(text: &'t str, at: usize) -> Result<Option<Line<'t>>, Diagnostic> {
        let text = text.split("//").next().unwrap_or_default();
        let mut words = words(text, at);
        let Some((name, span)) = words.next() else { return Ok(None) };
        let mut fields = Vec::new();
        for (word, place) in words {
            let Some((key, value)) =
                word.split_once('=').filter(|(k, v)| !k.is_empty() && !v.is_empty())
            else {
                return Err(wrong(place, format!("`{word}` is no field `key=value`")));
            };
            if fields.iter().any(|&(k, _, _)| k == key) {
                return Err(wrong(place, format!("the field `{key}` is there twice")));
            }
            fields.push((key, value, place));
        }
        Ok(Some(Line { span, name, fields }))
    }

    /// The value of a field.
    pub(crate) fn word(&self, key: &str) -> Result<(&'t str, Span), Diagnostic> {
        let found = self.fields.iter().find(|&&(k, _, _)| k == key);
        let none = || wrong(self.span, format!("`{}` has no field `{key}`", self.name));
        found.map(|&(_, value, span)| (value, span)).ok_or_else(none)
    }

    /// A field that is a number.
    pub(crate) fn int(&self, key: &str) -> Result<i64, Diagnostic> {
        let (value, span) = self.word(key)?;
        number(value, span)
    }

    /// A field that is two numbers.
    pub(crate) fn pair(&self, key: &str) -> Result<[i64; 2], Diagnostic> {
        let (value, span) = self.word(key)?;
        let parts = value.split_once('x');
        let (a, b) = parts.ok_or_else(|| wrong(span, format!("`{value}` is no pair `AxB`")))?;
        Ok([number(a, span)?, number(b, span)?])
    }

    /// The entries of a field that is a list.
    pub(crate) fn list(&self, key: &str) -> Result<Vec<(&'t str, Span)>, Diagnostic> {
        let (value, span) = self.word(key)?;
        let inner = value.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
        let inner = inner.ok_or_else(|| wrong(span, format!("`{value}` is no list `[a,b]`")))?;
        Ok(inner.split(',').filter(|w| !w.is_empty()).map(|w| (w, span)).collect())
    }

    /// Errs for fields that are none of these.
    pub(crate) fn only(&self, keys: &[&str]) -> Result<(), Diagnostic> {
        match self.fields.iter().find(|(key, _, _)| !keys.contains(key)) {
            None => Ok(()),
            Some(&(key, _, span)) => {
                let m = format!("`{}` has no field `{key}`", self.name);
                Err(wrong(span, m).hint(format!("its fields are {}", keys.join(", "))))
            }
        }
    }
}

/// The words of a line, each with its place.
pub(crate) fn words(text: &str, at: usize) -> impl Iterator<Item = (&str, Span)> {
    text.split_whitespace().map(move |word| {
        let begin = word.as_ptr() as usize - text.as_ptr() as usize + at;
        let place = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (word, Span { start: place(begin), end: place(begin + word.len()) })
    })
}

/// A number that is not negative.
pub(crate) fn number(text: &str, span: Span) -> Result<i64, Diagnostic> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let found = text.parse().ok().filter(|n| digits && (0..=MOST).contains(n));
    found.ok_or_else(|| wrong(span, format!("`{text}` is no number from 0 to {MOST}")))
}

/// The number of an entity, which is written as a letter and its number.
pub(crate) fn entity(text: &str, letter: char, span: Span) -> Result<u32, Diagnostic> {
    let none = || wrong(span, format!("`{text}` is no `{letter}` with a number"));
    let digits = text.strip_prefix(letter).ok_or_else(none)?;
    // The largest number stands for no entity.
    let known = |n: &u32| *n < u32::MAX;
    number(digits, span).ok().and_then(|n| u32::try_from(n).ok()).filter(known).ok_or_else(none)
}

/// The decisions of one piece of work, which are read one after the other.
#[derive(Debug)]
pub(crate) struct Reader<'t> {
    /// Where they begin.
    pub(crate) head: Span,
    lines: Vec<Line<'t>>,
    at: usize,
}

impl<'t> Reader<'t> {
    /// Of the lines below a head.
    pub(crate) fn new(head: Span) -> Reader<'t> {
        Reader { head, lines: Vec::new(), at: 0 }
    }

    /// Adds a line.
    pub(crate) fn push(&mut self, line: Line<'t>) {
        self.lines.push(line);
    }

    /// The name of the next line.
    pub(crate) fn next(&self) -> Option<&'t str> {
        self.lines.get(self.at).map(|line| line.name)
    }

    /// The next line, which has this name and no fields but these.
    pub(crate) fn line(&mut self, name: &str, keys: &[&str]) -> Result<Line<'t>, Diagnostic> {
        let found = self.lines.get(self.at);
        let Some(line) = found.filter(|line| line.name == name) else {
            let span = found.map_or(self.head, |line| line.span);
            return Err(wrong(span, format!("a line `{name}` is missing")));
        };
        line.only(keys)?;
        self.at += 1;
        Ok(line.clone())
    }

    /// Errs where lines are left.
    pub(crate) fn end(&self) -> Result<(), Diagnostic> {
        match self.lines.get(self.at) {
            None => Ok(()),
            Some(line) => {
                Err(wrong(line.span, format!("nothing here reads a line `{}`", line.name)))
            }
        }
    }
}
