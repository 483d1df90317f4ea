//! Attributes: numbers, words, lists, dictionaries, element values.

use super::lexer::{Token, wrong};
use super::parser::Parser;
use super::tree::{Attr, Dense};
use adfuse_ir::Diagnostic;

impl<'a> Parser<'a> {
    /// An attribute value. `inner` ones, inside of brackets, may have a type behind them.
    pub(super) fn attribute(&mut self, inner: bool) -> Result<Attr<'a>, Diagnostic> {
        let first = self.single(inner)?;
        let mut several = Vec::new();
        loop {
            match self.here.token {
                Token::Ident("x") => {}
                Token::Arrow if matches!(first, Attr::List(_)) => {}
                _ => break,
            }
            self.advance()?;
            several.push(self.single(inner)?);
        }
        if several.is_empty() {
            return Ok(first);
        }
        several.insert(0, first);
        Ok(Attr::Several(several))
    }

    fn single(&mut self, inner: bool) -> Result<Attr<'a>, Diagnostic> {
        let lexed = self.here;
        Ok(match lexed.token {
            Token::Number(n) => {
                self.advance()?;
                self.number(n, inner)?
            }
            Token::Str(s) => {
                self.advance()?;
                if inner {
                    self.skip_type()?;
                }
                Attr::Str(s)
            }
            Token::Symbol(s) => {
                self.advance()?;
                Attr::Symbol(s)
            }
            Token::Punct(b'[') => self.list()?,
            Token::Punct(b'{') => Attr::Dict(self.dictionary()?),
            Token::Punct(b'<') => {
                self.advance()?;
                self.angled_entries()?
            }
            Token::Hash(_) => {
                self.advance()?;
                match self.here.token {
                    Token::Punct(b'<') if self.here.start == lexed.end => {
                        self.advance()?;
                        self.angled_entries()?
                    }
                    _ => Attr::Word(&self.lexer.text()[lexed.start..lexed.end]),
                }
            }
            Token::Ident("dense") => Attr::Dense(self.dense(inner)?),
            Token::Ident("array") => self.array()?,
            Token::Ident("tensor") | Token::Bang(_) | Token::Punct(b'(') => {
                Attr::Type(self.parse_type()?)
            }
            Token::Ident(word) => {
                self.advance()?;
                if self.is(b'<') && self.here.start == lexed.end {
                    self.raw_angled()?;
                }
                if inner {
                    self.skip_type()?;
                }
                Attr::Word(word)
            }
            _ => return Err(self.expected("an attribute")),
        })
    }

    /// A number, a range `0:4:2`, or a number with its type behind it.
    fn number(&mut self, first: &'a str, inner: bool) -> Result<Attr<'a>, Diagnostic> {
        let mut range = vec![first];
        while inner && self.is(b':') {
            self.advance()?;
            match self.here.token {
                Token::Number(n) => {
                    self.advance()?;
                    range.push(n);
                }
                _ => {
                    self.parse_type()?;
                    break;
                }
            }
        }
        Ok(if range.len() == 1 { Attr::Number(first) } else { Attr::Range(range) })
    }

    fn skip_type(&mut self) -> Result<(), Diagnostic> {
        if self.eat(b':')? {
            self.parse_type()?;
        }
        Ok(())
    }

    fn list(&mut self) -> Result<Attr<'a>, Diagnostic> {
        self.descend()?;
        self.expect(b'[')?;
        let mut items = Vec::new();
        while !self.eat(b']')? {
            items.push(self.attribute(true)?);
            if !self.eat(b',')? && !self.is(b']') {
                return Err(self.expected("`,` or `]`"));
            }
        }
        self.ascend();
        Ok(Attr::List(items))
    }

    /// `{key = value, flag}`; a key may be quoted.
    pub(super) fn dictionary(&mut self) -> Result<Vec<(&'a str, Attr<'a>)>, Diagnostic> {
        self.descend()?;
        self.expect(b'{')?;
        let mut entries = Vec::new();
        while !self.eat(b'}')? {
            let (Token::Ident(key) | Token::Str(key)) = self.here.token else {
                return Err(self.expected("an attribute's name"));
            };
            self.advance()?;
            let value = if self.eat(b'=')? { self.attribute(true)? } else { Attr::Word("true") };
            entries.push((key, value));
            if !self.eat(b',')? && !self.is(b'}') {
                return Err(self.expected("`,` or `}`"));
            }
        }
        self.ascend();
        Ok(entries)
    }

    /// What follows `<`, up to `>`: entries with names are a dictionary, others a list.
    fn angled_entries(&mut self) -> Result<Attr<'a>, Diagnostic> {
        self.descend()?;
        let (mut named, mut items) = (Vec::new(), Vec::new());
        while !self.eat(b'>')? {
            let item = self.attribute(true)?;
            match item {
                Attr::Word(key) if self.is(b'=') => {
                    self.advance()?;
                    let value = self.attribute(true)?;
                    named.push((key, value));
                }
                item => items.push(item),
            }
            self.eat(b',')?;
        }
        self.ascend();
        Ok(if items.is_empty() { Attr::Dict(named) } else { Attr::List(items) })
    }

    /// `array<i64: 1, 2>`.
    fn array(&mut self) -> Result<Attr<'a>, Diagnostic> {
        self.advance()?;
        self.expect(b'<')?;
        self.parse_type()?;
        let mut items = Vec::new();
        if self.eat(b':')? {
            while !self.is(b'>') {
                items.push(self.attribute(false)?);
                if !self.eat(b',')? && !self.is(b'>') {
                    return Err(self.expected("`,` or `>`"));
                }
            }
        }
        self.expect(b'>')?;
        Ok(Attr::List(items))
    }

    /// `dense<..>`, with its type behind it inside of brackets.
    fn dense(&mut self, inner: bool) -> Result<Dense<'a>, Diagnostic> {
        let start = self.advance()?.start;
        if !self.is(b'<') {
            return Err(wrong(start, self.here.end, "expected `<` behind `dense`"));
        }
        let payload = self.raw_angled()?;
        let ty = if inner && self.eat(b':')? { Some(self.parse_type()?) } else { None };
        Ok(Dense { payload, ty })
    }
}
