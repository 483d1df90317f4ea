//! Requests to a program that stays: a line each on standard input, and a line each in answer.

use super::failure::Failure;
use super::json;
use adfuse::ir::Kind;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// A line of standard input.
#[derive(Debug, PartialEq)]
pub(super) struct ServeRequest {
    /// The file with the inputs.
    pub(super) given: PathBuf,
    /// The file to write.
    pub(super) made: PathBuf,
}

impl ServeRequest {
    fn parse(line: &str) -> Result<ServeRequest, Failure> {
        match line.split_once('\t') {
            Some((given, made)) if !made.contains('\t') => {
                Ok(ServeRequest { given: given.into(), made: made.into() })
            }
            _ => Err(Failure::usage("a request is two names of files with a tab between")),
        }
    }
}

/// Answers requests until there are no more. What is wrong with one does not end the program, unless a rank is lost: nothing
/// that exchanges with it runs again.
pub(super) fn serve(
    requests: impl BufRead,
    out: &mut dyn Write,
    mut answer: impl FnMut(&ServeRequest) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    for line in requests.lines() {
        let line = line.map_err(|e| Failure::usage(format!("cannot read a request: {e}")))?;
        match ServeRequest::parse(&line).and_then(|request| answer(&request)) {
            Ok(()) => writeln!(out, "ok")?,
            Err(failure) => {
                writeln!(out, "error {}", json::quoted(&failure.render(false)))?;
                if failure.is(Kind::LostRank) {
                    out.flush()?;
                    return Err(failure);
                }
            }
        }
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse::ir::{At, Diagnostic};

    #[test]
    fn each_request_is_answered_by_a_line() {
        let mut out = Vec::new();
        let answer = |request: &ServeRequest| match request.given.to_str() {
            Some("a b.npz") if request.made.as_os_str() == "c.npz" => Ok(()),
            _ => Err(Failure::usage("two\nlines")),
        };
        let requests: &[u8] = b"a b.npz\tc.npz\nd\te\na b.npz\na b.npz\tc.npz";
        serve(requests, &mut out, answer).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!([lines[0], lines[3]], ["ok", "ok"]);
        assert!(lines[1].starts_with("error \"") && lines[1].contains("two\\nlines"));
        assert!(lines[2].contains("a tab between"));
    }

    #[test]
    fn a_lost_rank_ends_the_program() {
        let mut out = Vec::new();
        let gone =
            || Failure::Usage(Diagnostic::new(At::default(), Kind::LostRank, "rank 1 is lost"));
        let ended = serve(&b"a\tb\nc\td\n"[..], &mut out, |_| Err(gone()));
        assert!(ended.is_err_and(|failure| failure.is(Kind::LostRank)));
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 1);
    }
}
