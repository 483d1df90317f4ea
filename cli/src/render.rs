//! Errors as text: the source line, a caret below it, and a hint.

use super::source::SourceText;
use adfuse::ir::{Diagnostic, Kind, Span};
use codespan_reporting::diagnostic::{Diagnostic as Report, Label};
use codespan_reporting::files::SimpleFile;
use codespan_reporting::term::termcolor::Buffer;
use codespan_reporting::term::{Chars, Config, Styles, StylesWriter, emit_to_write_style};
use serde_json::{Value, json};
use std::borrow::Cow;

/// The errors, one after another, and how many there are if there are several.
pub(super) fn report(source: Option<&SourceText>, errors: &[Diagnostic], color: bool) -> String {
    let (name, text) = source.map_or(("", ""), |s| (s.name.as_str(), &*s.text));
    let (name, text) = (visible(name), visible(text));
    let file = SimpleFile::new(&*name, &*text);
    let config = Config { chars: Chars::ascii(), ..Config::default() };
    let styles = Styles::default();
    let mut out = String::new();
    for (k, d) in errors.iter().enumerate() {
        if k > 0 {
            out.push('\n');
        }
        let mut buffer = if color { Buffer::ansi() } else { Buffer::no_color() };
        let mut writer = StylesWriter::new(&mut buffer, &styles);
        match emit_to_write_style(&mut writer, &config, &file, &described(source, d)) {
            Ok(()) => out.push_str(String::from_utf8_lossy(buffer.as_slice()).trim_end()),
            // Places are checked before; this keeps the message if one is wrong after all.
            Err(_) => out.push_str(&format!("error: {d}")),
        }
        out.push('\n');
    }
    if errors.len() > 1 {
        out.push_str(&format!("\n{} errors in `{name}`\n", errors.len()));
    }
    out
}

/// The errors as a list: of each its class, message, file, line, column, the function and instruction, the line of the
/// program that was traced, and the hint.
pub(super) fn json(source: Option<&SourceText>, errors: &[Diagnostic]) -> Value {
    let of = |d: &Diagnostic| {
        let place = source.zip(d.at.span).and_then(|(s, span)| SnippetSpan::of(s, span));
        json!({
            "class": code(d.kind),
            "message": d.message,
            "file": source.map(|s| &s.name),
            "line": place.as_ref().map(|p| p.line),
            "column": place.as_ref().map(|p| p.column),
            "function": d.at.func,
            "instruction": d.at.inst,
            "from": d.at.line.as_ref().map(ToString::to_string),
            "hint": d.hint,
        })
    };
    errors.iter().map(of).collect()
}

/// The text with marks, of as many bytes, in place of what a terminal would act on: control characters, and those that
/// change the direction of text.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    let acts = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || c.is_control() && !matches!(c, '\n' | '\t' | '\r')
    };
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mark = |c: char| match c.len_utf8() {
        _ if !acts(c) => c,
        1 => '?',
        2 => '\u{bf}',
        _ => '\u{fffd}',
    };
    Cow::Owned(text.chars().map(mark).collect())
}

fn described(source: Option<&SourceText>, d: &Diagnostic) -> Report<()> {
    let mut report = Report::error().with_message(visible(&d.message));
    if d.kind != Kind::Usage {
        report = report.with_code(code(d.kind));
    }
    let mut notes = Vec::new();
    let place = source.zip(d.at.span).and_then(|(s, span)| SnippetSpan::of(s, span));
    match place {
        Some(SnippetSpan { range, narrow: true, .. }) => {
            report = report.with_label(Label::primary((), range));
        }
        Some(place) => notes.push(visible(&place.position).into_owned()),
        None => {
            notes.extend(d.at.func.iter().map(|f| format!("in @{}", visible(f))));
            notes.extend(d.at.inst.iter().map(|i| format!("at `{}`", visible(&shortened(i)))));
        }
    }
    notes.extend(d.at.line.iter().map(|l| format!("from {}", visible(&l.to_string()))));
    notes.extend(d.hint.iter().map(|h| format!("help: {}", visible(h))));
    if d.kind == Kind::Internal {
        notes.push("this is a fault of adfuse, not of the program".into());
    }
    report.with_notes(notes)
}

/// A place in the text.
struct SnippetSpan {
    range: std::ops::Range<usize>,
    /// Whether its lines are short enough to show.
    narrow: bool,
    line: usize,
    column: usize,
    /// `file:line:column`.
    position: String,
}

impl SnippetSpan {
    fn of(source: &SourceText, span: Span) -> Option<SnippetSpan> {
        // Lines of tables of numbers run to megabytes.
        const WIDEST: usize = 300;
        let (start, end) = (span.start as usize, span.end as usize);
        let (before, inside) = (source.text.get(..start)?, source.text.get(start..end)?);
        let line_start = before.rfind('\n').map_or(0, |k| k + 1);
        let line_end = source.text[end..].find('\n').map_or(source.text.len(), |k| end + k);
        let widest = source.text[line_start..line_end].lines().map(str::len).max();
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        let position = format!("{}:{line}:{column}: `{}`", source.name, shortened(inside));
        Some(SnippetSpan {
            range: start..end,
            narrow: widest.unwrap_or(0) <= WIDEST,
            line,
            column,
            position,
        })
    }
}

/// The first line of a text, cut where it is long.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(160) {
        Some((k, _)) => format!("{}..", &line[..k]),
        None => line.to_string(),
    }
}

/// The name of a class of errors.
fn code(kind: Kind) -> &'static str {
    match kind {
        Kind::Syntax => "syntax",
        Kind::Limit => "limit",
        Kind::UnknownName => "unknown-name",
        Kind::UnknownOp => "unknown-op",
        Kind::Redefinition => "redefinition",
        Kind::Arity => "arity",
        Kind::Attribute => "attribute",
        Kind::DType => "dtype",
        Kind::Shape => "shape",
        Kind::Literal => "literal",
        Kind::Dominance => "dominance",
        Kind::Effect => "effect",
        Kind::CustomRule => "custom-rule",
        Kind::Derivative => "derivative",
        Kind::Bounds => "bounds",
        Kind::Overlap => "overlap",
        Kind::Usage => "usage",
        Kind::Unsupported => "unsupported",
        Kind::NoDevice => "no-device",
        Kind::LostRank => "lost-rank",
        Kind::Internal => "internal",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse::ir::At;

    fn source(text: &str) -> SourceText {
        SourceText {
            name: "a.ir".into(),
            text: text.into(),
            weights: Default::default(),
            bound: [].into(),
        }
    }

    fn wrong(start: usize, end: usize) -> Diagnostic {
        Diagnostic::new(At::span(Span::new(start, end)), Kind::Shape, "wrong").hint("a way out")
    }

    #[test]
    fn a_place_is_shown_with_a_caret() {
        let text = report(Some(&source("one\ntwo three\n")), &[wrong(8, 13)], false);
        assert_eq!(
            text,
            "error[shape]: wrong\n  --> a.ir:2:5\n  |\n2 | two three\n  |     ^^^^^\n  |\n  \
             = help: a way out\n"
        );
    }

    #[test]
    fn color_is_used_only_when_asked_for() {
        let s = source("one\n");
        assert!(report(Some(&s), &[wrong(0, 3)], true).contains('\x1b'));
        assert!(!report(Some(&s), &[wrong(0, 3)], false).contains('\x1b'));
    }

    #[test]
    fn a_place_out_of_the_text_is_left_out() {
        let at = At { func: Some("f".into()), ..wrong(7, 9).at };
        let d = Diagnostic { at, ..wrong(7, 9) };
        let text = report(Some(&source("é")), &[d], false);
        assert_eq!(text, "error[shape]: wrong\n = in @f\n = help: a way out\n");
    }

    #[test]
    fn ends_of_texts_and_characters_are_no_trouble() {
        let s = source("añb\r\n\tñ");
        for start in 0..=s.text.len() {
            for end in start..=s.text.len() {
                assert!(report(Some(&s), &[wrong(start, end)], false).contains("wrong"));
            }
        }
    }

    #[test]
    fn a_long_line_is_not_printed_whole() {
        let s = source(&format!("x\n{}", "12, ".repeat(100_000)));
        let text = report(Some(&s), &[wrong(6, 200_000)], false);
        assert!(text.len() < 500 && text.contains("a.ir:2:5: `12, "), "{text}");
    }

    #[test]
    fn what_a_terminal_acts_on_is_marked_in_place() {
        let s = source("a\x1b[31mb\u{9b}c\u{202e}d\r\n");
        let d = Diagnostic { message: "no `\x1b[0m`".into(), ..wrong(0, 1) };
        let text = report(Some(&s), &[d], false);
        assert!(text.contains("a?[31mb\u{bf}c\u{fffd}d") && text.contains("no `?[0m`"), "{text}");
        assert_eq!(visible(&s.text).len(), s.text.len());
        assert_eq!(visible("é\tñ\n"), "é\tñ\n");
    }

    #[test]
    fn json_has_places() {
        let found = json(Some(&source("one\ntwo three\n")), &[wrong(8, 13)]);
        let due = json!({
            "class": "shape", "message": "wrong", "file": "a.ir", "line": 2, "column": 5,
            "function": null, "instruction": null, "from": null, "hint": "a way out",
        });
        assert_eq!(found, json!([due]));
    }

    #[test]
    fn several_errors_are_counted() {
        let text = report(Some(&source("one\n")), &[wrong(0, 1), wrong(1, 2)], false);
        assert!(text.ends_with("2 errors in `a.ir`\n"), "{text}");
    }
}
