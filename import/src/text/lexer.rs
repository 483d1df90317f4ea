//! Tokens of MLIR text, on demand: payloads of types and of element values are taken raw by the parser.

use adfuse_ir::{At, Diagnostic, Kind, Span};

/// One token; texts are slices of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// `%name`, with the number of a result after `#`.
    Value(&'a str, Option<u32>),
    /// `@name` or `@"name"`.
    Symbol(&'a str),
    /// `stablehlo.add`, `dense`, `x`.
    Ident(&'a str),
    /// `^bb0`.
    Block(&'a str),
    /// `"text"` without its quotes, escapes as they stand.
    Str(&'a str),
    /// `12`, `-1.5e3`, `0xFF`.
    Number(&'a str),
    /// `#stablehlo.scatter`, `#loc`.
    Hash(&'a str),
    /// `!stablehlo.token`.
    Bang(&'a str),
    /// `->`.
    Arrow,
    /// A single character.
    Punct(u8),
    /// The end of the text.
    End,
}

/// A token with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexed<'a> {
    pub(super) token: Token<'a>,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether it is the first of its line.
    pub(super) leads: bool,
}

/// A position in the text.
#[derive(Clone, Copy)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

/// A syntax error at a place.
pub(super) fn wrong(start: usize, end: usize, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(At::span(Span::new(start, end)), Kind::Syntax, message)
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$')
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Goes on at byte `at`, which begins a character.
    pub(super) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    /// Skips blanks and comments; tells whether a line ended among them.
    fn blanks(&mut self) -> bool {
        let mut leads = self.at == 0;
        loop {
            match self.byte(self.at) {
                b'\n' => {
                    leads = true;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.byte(self.at + 1) == b'/' => {
                    let rest = &self.text.as_bytes()[self.at..];
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                _ => return leads,
            }
        }
    }

    fn word_end(&self, mut at: usize) -> usize {
        while is_word(self.byte(at)) {
            at += 1;
        }
        at
    }

    /// The end of a number: a hexadecimal one, or digits with a fraction and an exponent.
    fn number_end(&self, start: usize) -> usize {
        let mut at = start + usize::from(self.byte(start) == b'-');
        if self.byte(at) == b'0'
            && self.byte(at + 1) == b'x'
            && self.byte(at + 2).is_ascii_hexdigit()
        {
            at += 2;
            while self.byte(at).is_ascii_hexdigit() {
                at += 1;
            }
            return at;
        }
        let digits = |mut at: usize| {
            while self.byte(at).is_ascii_digit() {
                at += 1;
            }
            at
        };
        at = digits(at);
        if self.byte(at) == b'.' {
            at = digits(at + 1);
        }
        if matches!(self.byte(at), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(at + 1), b'+' | b'-'));
            if self.byte(at + 1 + sign).is_ascii_digit() {
                at = digits(at + 1 + sign);
            }
        }
        at
    }

    /// The end of the string whose opening quote is at `start`, past the closing one.
    fn string_end(&self, start: usize) -> Result<usize, Diagnostic> {
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        loop {
            match bytes.get(at) {
                None => return Err(wrong(start, start + 1, "this string does not end")),
                Some(b'"') => return Ok(at + 1),
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
            }
        }
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Result<Lexed<'a>, Diagnostic> {
        let leads = self.blanks();
        let start = self.at;
        let (token, end) = self.token(start)?;
        self.at = end;
        Ok(Lexed { token, start, end, leads })
    }

    fn token(&self, start: usize) -> Result<(Token<'a>, usize), Diagnostic> {
        let text = self.text;
        let named = |end: usize| &text[start + 1..end];
        let first = self.byte(start);
        Ok(match first {
            0 if start >= text.len() => (Token::End, start),
            b'%' => {
                let end = self.word_end(start + 1);
                let name = named(end);
                if self.byte(end) == b'#' && self.byte(end + 1).is_ascii_digit() {
                    let last = self.number_end(end + 1);
                    let result = text[end + 1..last].parse().ok();
                    let result =
                        result.ok_or_else(|| wrong(start, last, "no number of a result"))?;
                    (Token::Value(name, Some(result)), last)
                } else {
                    (Token::Value(name, None), end)
                }
            }
            b'@' if self.byte(start + 1) == b'"' => {
                let end = self.string_end(start + 1)?;
                (Token::Symbol(&text[start + 2..end - 1]), end)
            }
            b'@' => {
                let end = self.word_end(start + 1);
                (Token::Symbol(named(end)), end)
            }
            b'^' => {
                let end = self.word_end(start + 1);
                (Token::Block(named(end)), end)
            }
            b'#' | b'!' => {
                let end = self.word_end(start + 1);
                let name = named(end);
                (if first == b'#' { Token::Hash(name) } else { Token::Bang(name) }, end)
            }
            b'"' => {
                let end = self.string_end(start)?;
                (Token::Str(&text[start + 1..end - 1]), end)
            }
            b'-' if self.byte(start + 1) == b'>' => (Token::Arrow, start + 2),
            b'-' if self.byte(start + 1).is_ascii_digit() => {
                let end = self.number_end(start);
                (Token::Number(&text[start..end]), end)
            }
            b'0'..=b'9' => {
                let end = self.number_end(start);
                (Token::Number(&text[start..end]), end)
            }
            b if b.is_ascii_alphabetic() || b == b'_' => {
                let end = self.word_end(start);
                (Token::Ident(&text[start..end]), end)
            }
            b if b.is_ascii_graphic() => (Token::Punct(b), start + 1),
            _ => {
                let c = text[start..].chars().next().unwrap_or(' ');
                let end = start + c.len_utf8();
                return Err(wrong(start, end, format!("unexpected character {c:?}")));
            }
        })
    }

    /// The text from byte `start`, which lies behind `<`, to the `>` that closes it, which is not part of it.
    pub(super) fn angled(&self, start: usize) -> Result<&'a str, Diagnostic> {
        let bytes = self.text.as_bytes();
        let (mut at, mut depth) = (start, 1usize);
        while let Some(&b) = bytes.get(at) {
            match b {
                b'"' => {
                    at = self.string_end(at)?;
                    continue;
                }
                b'-' if bytes.get(at + 1) == Some(&b'>') => at += 1,
                b'<' => depth += 1,
                b'>' => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(&self.text[start..at]);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        Err(wrong(start.saturating_sub(1), start, "this `<` is not closed"))
    }
}
