//! The errors of one reading, counted, with the function they are in.

use crate::diag::{At, Diagnostic, Kind, Span};

/// An error was reported; what could not be made is left out.
#[derive(Debug)]
pub(super) struct Failed;

/// The errors found so far.
pub(super) struct Errors {
    list: Vec<Diagnostic>,
    most: usize,
    func: Option<String>,
}

impl Errors {
    /// None yet; at most `most` are kept.
    pub(super) fn new(most: usize) -> Errors {
        Errors { list: Vec::new(), most: most.max(1), func: None }
    }

    /// Errors to come are in this function.
    pub(super) fn enter(&mut self, func: Option<&str>) {
        self.func = func.map(Into::into);
    }

    /// Whether enough was found to stop reading.
    pub(super) fn full(&self) -> bool {
        self.list.len() >= self.most
    }

    /// How many were found.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// Adds an error.
    pub(super) fn add(&mut self, span: Span, kind: Kind, message: impl Into<String>) -> Failed {
        self.add_hint(span, kind, message, None)
    }

    /// Adds an error with a hint, if there is one.
    pub(super) fn add_hint(
        &mut self,
        span: Span,
        kind: Kind,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Failed {
        if !self.full() {
            let at = At { func: self.func.clone(), ..At::span(span) };
            self.list.push(Diagnostic { at, kind, message: message.into(), hint });
        }
        Failed
    }

    /// `made`, or the errors in the order of the text.
    pub(super) fn finish<T>(mut self, made: T) -> Result<T, Vec<Diagnostic>> {
        if self.list.is_empty() {
            return Ok(made);
        }
        self.list.sort_by_key(|d| d.at.span);
        Err(self.list)
    }
}

/// "did you mean `..`?"
pub(super) fn mean(near: Option<&str>) -> Option<String> {
    near.map(|n| format!("did you mean `{n}`?"))
}

/// `text` as messages quote it: cut where it is long, on one line.
pub(super) fn shown(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(60) {
        Some((cut, _)) => format!("`{}..`", &line[..cut]),
        None => format!("`{line}`"),
    }
}
