//! `fmt`: rewrites programs in canonical form.

use super::failure::Failure;
use super::source::{SourceText, is_stdin};
use super::streams::Streams;
use super::whole;
use adfuse::import::is_stablehlo;
use adfuse::ir::text::parse;
use adfuse::ir::{At, Diagnostic, Kind};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints programs in their canonical form
///
/// The canonical form has no comments: --write refuses to lose any, unless --drop-comments is given.
#[derive(Args)]
pub(super) struct Fmt {
    /// The programs, or `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the names of files that are not canonical, comments aside, and exit with 1 if any is
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Replace the files
    #[arg(long, short)]
    write: bool,
    /// Let --write lose comments
    #[arg(long, requires = "write")]
    drop_comments: bool,
}

impl Fmt {
    /// Runs the command.
    pub(super) fn execute(self, streams: &mut Streams<'_>) -> Result<ExitCode, Failure> {
        if self.write && self.files.iter().any(|f| is_stdin(f)) {
            return Err(Failure::usage("--write needs a file, not standard input"));
        }
        if self.write && streams.output.is_some() {
            let m = "--write replaces the files, and --output names another";
            return Err(Failure::usage(m).hint(Some("leave out one of the two".into())));
        }
        let mut code = ExitCode::SUCCESS;
        let (mut printed, mut others): (Vec<(String, String)>, Vec<String>) = Default::default();
        let mut done: Vec<(&PathBuf, String)> = Vec::new();
        for path in &self.files {
            let source = SourceText::of_program(path)?;
            if is_stablehlo(&source.text) {
                let m = format!("`{}` is StableHLO, which has no canonical form here", source.name);
                return Err(
                    Failure::usage(m).hint(Some("`adfuse import` gives its `.ir` text".into()))
                );
            }
            let canonical = canonical(&source)?;
            let comments = Comments::of(&source.text);
            if !self.check && !self.write {
                if comments.count > 0 {
                    streams.note(format!("comments of `{}` are left out", source.name));
                }
                printed.push((source.name, canonical));
                continue;
            }
            let good = match self.drop_comments {
                true => *source.text == canonical,
                false => comments.aside_is(&source.text, &canonical),
            };
            if good {
                continue;
            }
            if self.check {
                others.push(source.name);
                code = ExitCode::FAILURE;
                continue;
            }
            if comments.count > 0 && !self.drop_comments {
                let m = format!(
                    "writing `{}` would lose its comments ({})",
                    source.name, comments.count
                );
                let hint = "--drop-comments allows that".to_string();
                return Err(Failure::usage(m).hint(Some(hint)));
            }
            done.push((path, canonical));
        }
        // Only when all can be written, is any.
        for (path, canonical) in &done {
            whole::write(path, |file| file.write_all(canonical.as_bytes()))?;
        }
        let text = || match self.check {
            true => others.iter().map(|name| format!("{name}\n")).collect(),
            false => printed.iter().map(|(_, text)| text.as_str()).collect(),
        };
        let one = |(file, text): &(String, String)| json!({ "file": file, "text": text });
        let json = || match (self.check, self.write) {
            (true, _) => json!({ "not_canonical": others }),
            (_, true) => {
                json!({ "written": done.iter().map(|(path, _)| path).collect::<Vec<_>>() })
            }
            _ => json!({ "files": printed.iter().map(one).collect::<Vec<_>>() }),
        };
        streams.print(text, json)?;
        Ok(code)
    }
}

/// The canonical text, which must mean the same.
fn canonical(source: &SourceText) -> Result<String, Failure> {
    let canonical = source.parse()?.to_string();
    match parse(&canonical) {
        Ok(again) if again.to_string() == canonical => Ok(canonical),
        _ => {
            let m = "the canonical form does not read back as itself";
            Err(source.wrong([Diagnostic::new(At::default(), Kind::Internal, m)]))
        }
    }
}

/// The comments of a text, and the text without them.
struct Comments {
    count: usize,
    rest: String,
}

impl Comments {
    fn of(text: &str) -> Comments {
        let mut comments = Comments { count: 0, rest: String::new() };
        for line in text.split_inclusive('\n') {
            let kept = match comment(line) {
                Some(at) => {
                    comments.count += 1;
                    line[..at].trim_end()
                }
                None => line.trim_end_matches('\n'),
            };
            comments.rest.push_str(kept);
            comments.rest.push('\n');
        }
        comments
    }

    /// Whether `text` is `canonical` but for its comments, and the empty lines that go with them.
    fn aside_is(&self, text: &str, canonical: &str) -> bool {
        let lines = |text: &str| -> Vec<String> {
            text.split('\n').filter(|l| !l.is_empty()).map(str::to_string).collect()
        };
        text == canonical || self.count > 0 && lines(&self.rest) == lines(canonical)
    }
}

/// Where the comment of a line begins. Strings end on the line they begin on.
fn comment(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let (mut at, mut quoted) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b'/' if !quoted && bytes.get(at + 1) == Some(&b'/') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_found_outside_of_strings() {
        assert_eq!(comment("a // b // c"), Some(2));
        assert_eq!(comment("\"http://x\" / 2"), None);
        assert_eq!(comment("\"a\\\"//\" // c"), Some(8));
        assert_eq!(comment("//"), Some(0));
    }

    #[test]
    fn comments_aside_texts_are_compared() {
        let of = |text: &str, canonical: &str| Comments::of(text).aside_is(text, canonical);
        assert!(of("// top\n\na\n  b // c\n", "a\n  b\n"));
        assert!(of("a\n\nb\n", "a\n\nb\n"));
        assert!(!of("// top\na\nb\n", "a\n  b\n"));
        assert!(!of("a\nb\n", "a\n\nb\n"));
        assert!(!of("a\r\n", "a\n"));
    }
}
