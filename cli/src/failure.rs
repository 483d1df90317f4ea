//! Errors of commands, and their exit statuses.

use super::render;
use super::source::SourceText;
use adfuse::ir::{At, Diagnostic, Kind};
use serde_json::Value;
use std::io;
use std::process::ExitCode;

/// Why a command stops.
#[derive(Debug)]
pub(super) enum Failure {
    /// The command line, or a file it names, cannot be used.
    Usage(Diagnostic),
    /// A file beside the program, such as a plan, cannot be used.
    File(SourceText, Vec<Diagnostic>),
    /// The program is wrong, or cannot be run or differentiated.
    Program(SourceText, Vec<Diagnostic>),
}

impl Failure {
    /// The command line, or a file it names, cannot be used.
    pub(super) fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(Diagnostic::new(At::default(), Kind::Usage, message))
    }

    /// The same with something that may help.
    pub(super) fn hint(self, hint: Option<String>) -> Failure {
        match self {
            Failure::Usage(mut d) => {
                d.hint = hint.or(d.hint);
                Failure::Usage(d)
            }
            other => other,
        }
    }

    /// The message for standard error.
    pub(super) fn render(&self, color: bool) -> String {
        match self {
            Failure::Usage(d) => render::report(None, std::slice::from_ref(d), color),
            Failure::File(source, errors) | Failure::Program(source, errors) => {
                render::report(Some(source), errors, color)
            }
        }
    }

    /// The errors as JSON.
    pub(super) fn json(&self) -> Value {
        match self {
            Failure::Usage(d) => render::json(None, std::slice::from_ref(d)),
            Failure::File(source, errors) | Failure::Program(source, errors) => {
                render::json(Some(source), errors)
            }
        }
    }

    /// Whether it is of this class.
    pub(super) fn is(&self, kind: Kind) -> bool {
        match self {
            Failure::Usage(d) => d.kind == kind,
            Failure::File(_, errors) | Failure::Program(_, errors) => {
                errors.iter().any(|d| d.kind == kind)
            }
        }
    }

    /// The exit status.
    pub(super) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) | Failure::File(..) => 2,
            Failure::Program(..) => 1,
        })
    }
}

/// Errors of the standard streams: files are wrapped with their names where they are used.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::usage(format!("cannot write to standard output: {e}"))
    }
}

/// "did you mean `..`?"
pub(super) fn mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    sigil: &str,
) -> Option<String> {
    adfuse::ir::diag::did_you_mean(name, known).map(|near| format!("did you mean `{sigil}{near}`?"))
}
