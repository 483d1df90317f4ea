//! A cursor over tokens, and the small phrases of the grammar.

use crate::builder::Number;
use crate::diag::{At, Diagnostic, Kind, Span};
use crate::dtype::DType;
use crate::kernel::buffer::Extents;
use crate::literal::Literal;
use crate::text::lexer::{Lexer, Tok, Token};

/// What reading gives: the first error ends it.
pub(super) type ParseResult<T> = Result<T, Diagnostic>;

/// A place in the text.
pub(super) struct Cursor<'s> {
    lexer: Lexer<'s>,
    token: Token,
}

impl<'s> Cursor<'s> {
    /// The beginning of a text.
    pub(super) fn new(source: &'s str) -> Cursor<'s> {
        let mut lexer = Lexer::with_arithmetic(source);
        let token = lexer.next();
        Cursor { lexer, token }
    }

    /// The class of the token that is next.
    pub(super) fn kind(&self) -> Tok {
        self.token.kind
    }

    /// The place of the token that is next.
    pub(super) fn span(&self) -> Span {
        self.token.span
    }

    /// The text of the token that is next.
    pub(super) fn text(&self) -> &'s str {
        self.lexer.text(self.token.span)
    }

    /// Takes the token.
    pub(super) fn next(&mut self) -> &'s str {
        let text = self.text();
        self.token = self.lexer.next();
        text
    }

    /// The error that what is next is not what must come here.
    pub(super) fn wrong(&self, wanted: &str) -> Diagnostic {
        let text: String = self.text().chars().take(40).collect();
        let found = match self.kind() {
            Tok::Eof => "the end".to_string(),
            _ => format!("`{text}`"),
        };
        self.error(self.span(), Kind::Syntax, format!("expected {wanted}, found {found}"))
    }

    /// An error at a place.
    pub(super) fn error(&self, span: Span, kind: Kind, message: String) -> Diagnostic {
        Diagnostic::new(At::span(span), kind, message)
    }

    /// Whether this punctuation, or this word, is next.
    pub(super) fn is(&self, text: &str) -> bool {
        matches!(self.kind(), Tok::Punct(_) | Tok::Ident) && self.text() == text
    }

    /// Takes this punctuation, or this word, if it is next.
    pub(super) fn accept(&mut self, text: &str) -> bool {
        let found = self.is(text);
        if found {
            self.next();
        }
        found
    }

    /// Takes this punctuation, or this word.
    pub(super) fn expect(&mut self, text: &str) -> ParseResult<()> {
        match self.accept(text) {
            true => Ok(()),
            false => Err(self.wrong(&format!("`{text}`"))),
        }
    }

    /// Takes a token of this class.
    pub(super) fn take(&mut self, kind: Tok, wanted: &str) -> ParseResult<&'s str> {
        match self.kind() == kind {
            true => Ok(self.next()),
            false => Err(self.wrong(wanted)),
        }
    }

    /// The number of the name that is next, if it is this letter with a number.
    pub(super) fn numbered(&self, letter: char) -> Option<u32> {
        let digits = self.text().strip_prefix(letter).filter(|_| self.kind() == Tok::Ident)?;
        let canonical = digits == "0" || !digits.starts_with('0');
        let number = digits.bytes().all(|b| b.is_ascii_digit()) && canonical;
        // The greatest is what entities keep for themselves.
        number.then(|| digits.parse().ok()).flatten().filter(|&n: &u32| n < u32::MAX)
    }

    /// Takes a name that is this letter with a number.
    pub(super) fn number_of(&mut self, letter: char) -> ParseResult<u32> {
        let n = self.numbered(letter);
        let n = n.ok_or_else(|| self.wrong(&format!("`{letter}` with a number")))?;
        self.next();
        Ok(n)
    }

    /// Takes a name that is this letter with this number: definitions are in order.
    pub(super) fn defines(&mut self, letter: char, number: usize) -> ParseResult<()> {
        match self.numbered(letter) {
            Some(n) if n as usize == number => {
                self.next();
                Ok(())
            }
            _ => Err(self.wrong(&format!("`{letter}{number}`"))),
        }
    }

    /// An integer.
    pub(super) fn int(&mut self) -> ParseResult<i64> {
        let wanted = "an integer of 64 bits";
        let n = self.text().parse().ok().filter(|_| self.kind() == Tok::Int);
        let n = n.ok_or_else(|| self.wrong(wanted))?;
        self.next();
        Ok(n)
    }

    /// Items in brackets, separated by commas.
    pub(super) fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        if self.accept(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.accept(close) {
                return Ok(items);
            }
            self.expect(",")?;
        }
    }

    /// `[2, 3]`
    pub(super) fn extents(&mut self) -> ParseResult<Extents> {
        Ok(self.list("[", "]", Self::int)?.into_iter().collect())
    }

    /// An element type.
    pub(super) fn dtype(&mut self) -> ParseResult<DType> {
        let dtype = self.text().parse().ok().filter(|_| self.kind() == Tok::Ident);
        let dtype = dtype.ok_or_else(|| self.wrong("an element type"))?;
        self.next();
        Ok(dtype)
    }

    /// A constant of this type.
    pub(super) fn literal(&mut self, dtype: DType) -> ParseResult<Literal> {
        let text = self.text();
        let number = match (self.kind(), text) {
            (Tok::Int, _) => text.parse().ok().map(Number::Int),
            (Tok::Float, _) | (Tok::Ident, "inf" | "nan") => text.parse().ok().map(Number::Float),
            (Tok::Ident, "true" | "false") => Some(Number::Bool(text == "true")),
            _ => None,
        };
        let literal = number.and_then(|n| n.typed(dtype));
        let literal = literal.ok_or_else(|| self.wrong(&format!("a constant of type {dtype}")))?;
        self.next();
        Ok(literal)
    }
}
