//! Text to tokens, one at a time: a position in the source, cheap to copy for looking ahead.

use crate::diag::Span;
use crate::words::{MAX_NAME, is_name, is_name_start};

/// The class of a token; its text is the source at its span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tok {
    /// `name`
    Ident,
    /// `%name` or `%12`
    Value,
    /// `@name`
    Func,
    /// `-12`
    Int,
    /// `1.5`, `-2e-3`, `-inf`; `inf` and `nan` alone are `Ident`.
    Float,
    /// `"text"`, with its quotes.
    Str,
    /// One of `( ) < > { } [ ] , : = |`, and of `+ - * / %` where those are asked for.
    Punct(u8),
    /// `->`
    Arrow,
    /// Text that is no token.
    Bad(Bad),
    /// The end of the text.
    Eof,
}

/// Why text is no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bad {
    /// A character that begins nothing.
    Char,
    /// `%` or `@` without a name.
    Sigil,
    /// Digits that run into something else.
    Number,
    /// A string without its closing quote on the same line.
    Str,
    /// A name longer than [`MAX_NAME`].
    Name,
}

/// A token and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    /// Its class.
    pub(crate) kind: Tok,
    /// Its place.
    pub(crate) span: Span,
    /// Whether only blanks and comments precede it on its line.
    pub(crate) first: bool,
}

/// A position in the source; a copy of it looks ahead.
#[derive(Clone, Copy)]
pub(crate) struct Lexer<'s> {
    source: &'s str,
    at: usize,
    fresh_line: bool,
    arithmetic: bool,
}

impl<'s> Lexer<'s> {
    /// Starts at the beginning.
    pub(crate) fn new(source: &'s str) -> Lexer<'s> {
        Lexer { source, at: 0, fresh_line: true, arithmetic: false }
    }

    /// The same with `+ - * / %` as punctuation, where they begin no number, name or comment.
    pub(crate) fn with_arithmetic(source: &'s str) -> Lexer<'s> {
        Lexer { arithmetic: true, ..Lexer::new(source) }
    }

    /// The text at a place.
    pub(crate) fn text(&self, span: Span) -> &'s str {
        self.source.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// The next token; `Eof` again and again at the end.
    pub(crate) fn next(&mut self) -> Token {
        self.skip_blanks();
        let start = self.at;
        let kind = self.scan();
        let first = std::mem::replace(&mut self.fresh_line, false);
        Token { kind, span: Span::new(start, self.at), first }
    }

    /// Leaves out the rest of the text.
    pub(crate) fn skip_to_end(&mut self) {
        self.at = self.source.len();
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.source.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.byte(0) {
                b'\n' => self.fresh_line = true,
                b' ' | b'\t' | b'\r' => {}
                b'/' if self.byte(1) == b'/' => {
                    let rest = &self.source.as_bytes()[self.at..];
                    // Stops before the newline, which the next turn of the loop sees.
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                    continue;
                }
                _ => return,
            }
            self.at += 1;
        }
    }

    fn scan(&mut self) -> Tok {
        let Some(c) = self.source.get(self.at..).and_then(|s| s.chars().next()) else {
            return Tok::Eof;
        };
        match c {
            'A'..='Z' | 'a'..='z' | '_' => self.name(0, Tok::Ident),
            '%' if self.byte(1).is_ascii_digit() => {
                let digits = self.run(1, |b| b.is_ascii_digit());
                self.name(digits, Tok::Value)
            }
            '%' if is_name_start(self.byte(1)) => self.name(1, Tok::Value),
            '@' if is_name_start(self.byte(1)) => self.name(1, Tok::Func),
            '+' | '-' | '*' | '/' | '%'
                if self.arithmetic && matches!(self.byte(1), b' ' | b'(') =>
            {
                self.take(1, Tok::Punct(c as u8))
            }
            '%' | '@' => self.take(1, Tok::Bad(Bad::Sigil)),
            '0'..='9' => self.number(),
            '-' if self.byte(1).is_ascii_digit() => self.number(),
            '-' if self.byte(1) == b'>' => self.take(2, Tok::Arrow),
            '-' if self.source[self.at + 1..].starts_with("inf") && !is_name(self.byte(4)) => {
                self.take(4, Tok::Float)
            }
            '"' => self.string(),
            '(' | ')' | '<' | '>' | '{' | '}' | '[' | ']' | ',' | ':' | '=' | '|' => {
                self.take(1, Tok::Punct(c as u8))
            }
            _ => self.take(c.len_utf8(), Tok::Bad(Bad::Char)),
        }
    }

    fn take(&mut self, len: usize, kind: Tok) -> Tok {
        self.at += len;
        kind
    }

    /// `from` plus the number of bytes there that satisfy `is`.
    fn run(&self, from: usize, is: fn(u8) -> bool) -> usize {
        let rest = self.source.as_bytes().get(self.at + from..).unwrap_or_default();
        from + rest.iter().position(|&b| !is(b)).unwrap_or(rest.len())
    }

    /// A name after `prefix` bytes. For `%12` the prefix holds the digits, and a letter that
    /// follows them makes it no token.
    fn name(&mut self, prefix: usize, kind: Tok) -> Tok {
        let end = self.run(prefix, is_name);
        let numeric = prefix > 1;
        self.at += end;
        match kind {
            _ if end > MAX_NAME => Tok::Bad(Bad::Name),
            _ if numeric && end > prefix => Tok::Bad(Bad::Number),
            kind => kind,
        }
    }

    fn number(&mut self) -> Tok {
        let mut end = self.run(1, |b| b.is_ascii_digit());
        let mut kind = Tok::Int;
        if self.byte(end) == b'.' {
            kind = Tok::Float;
            end = self.run(end + 1, |b| b.is_ascii_digit());
        }
        if matches!(self.byte(end), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(end + 1), b'+' | b'-'));
            let digits = self.run(end + 1 + sign, |b| b.is_ascii_digit());
            if digits > end + 1 + sign {
                kind = Tok::Float;
                end = digits;
            }
        }
        let full = self.run(end, is_name);
        self.take(full, if full > end { Tok::Bad(Bad::Number) } else { kind })
    }

    fn string(&mut self) -> Tok {
        let bytes = &self.source.as_bytes()[self.at..];
        let mut end = 1;
        while end < bytes.len() && bytes[end] != b'\n' {
            match bytes[end] {
                b'"' => return self.take(end + 1, Tok::Str),
                // The byte after a backslash is part of the escape, unless it ends the line.
                b'\\' if end + 1 < bytes.len() && bytes[end + 1] != b'\n' => end += 2,
                _ => end += 1,
            }
        }
        // A newline or the end: either is a boundary of characters, wherever escapes were cut.
        self.take(end, Tok::Bad(Bad::Str))
    }
}

/// The string that a `Str` token with its quotes means, or the escape that is wrong in it.
pub(crate) fn unescape(token: &str) -> Result<String, String> {
    let inner = token.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(token);
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(c @ ('"' | '\\')) => out.push(c),
            Some('u') => out.push(unicode(&mut chars)?),
            Some(c) => return Err(format!("\\{c}")),
            None => return Err("\\".into()),
        }
    }
    Ok(out)
}

/// The character of `{hex}`, as it follows `\u`.
fn unicode(chars: &mut std::str::Chars<'_>) -> Result<char, String> {
    let rest = chars.as_str();
    let hex = rest.strip_prefix('{').and_then(|r| r.split_once('}')).map(|(hex, _)| hex);
    let digits = hex.filter(|h| h.len() <= 6 && h.bytes().all(|b| b.is_ascii_hexdigit()));
    let c = digits.and_then(|h| u32::from_str_radix(h, 16).ok()).and_then(char::from_u32);
    let (Some(c), Some(hex)) = (c, hex) else { return Err("\\u".into()) };
    *chars = rest[hex.len() + 2..].chars();
    Ok(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Tok> {
        let mut lexer = Lexer::new(source);
        std::iter::from_fn(|| Some(lexer.next().kind)).take_while(|k| *k != Tok::Eof).collect()
    }

    #[test]
    fn tokens_have_their_class() {
        use Tok::*;
        assert_eq!(kinds("a.b %x %12 @f -> "), [Ident, Value, Value, Func, Arrow]);
        assert_eq!(
            kinds("1 -2 1. 1.5 -2e-3 4E+7 -inf"),
            [Int, Int, Float, Float, Float, Float, Float]
        );
        assert_eq!(kinds("nan // x\n\"a\\\"b\""), [Ident, Str]);
        assert_eq!(kinds("[1]x[0]").len(), 7);
    }

    #[test]
    fn what_is_no_token_is_named() {
        for (text, bad) in [
            ("§", Bad::Char),
            ("%", Bad::Sigil),
            ("@1", Bad::Sigil),
            ("%1a", Bad::Number),
            ("1.5.2", Bad::Number),
            ("1e", Bad::Number),
            ("\"ab", Bad::Str),
            ("\"ab\\", Bad::Str),
            ("\"ab\\é", Bad::Str),
        ] {
            assert_eq!(kinds(text)[0], Tok::Bad(bad), "{text}");
        }
        assert_eq!(kinds(&"a".repeat(256)), [Tok::Bad(Bad::Name)]);
    }

    #[test]
    fn escapes_are_read_and_checked() {
        assert_eq!(unescape(r#""a\n\t\\\"\u{e9}""#).as_deref(), Ok("a\n\t\\\"é"));
        assert_eq!(unescape(r#""\q""#), Err("\\q".into()));
        assert_eq!(unescape(r#""\u{110000}""#), Err("\\u".into()));
    }
}
