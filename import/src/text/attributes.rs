//! Attributes: numbers, words, lists, dictionaries, element values.

use super::lexer::{MlirToken, wrong};
use super::parser::MlirParser;
use super::tree::{Attribute, DenseText};
use adfuse_ir::Diagnostic;

impl<'a> MlirParser<'a> {
    /// An attribute value. `inner` ones, inside of brackets, may have a type behind them.
    pub(super) fn attribute(&mut self, inner: bool) -> Result<Attribute<'a>, Diagnostic> {
        let first = self.single(inner)?;
        let mut several = Vec::new();
        loop {
            match self.here.token {
                MlirToken::Ident("x") => {}
                MlirToken::Arrow if matches!(first, Attribute::List(_)) => {}
                _ => break,
            }
            self.advance()?;
            several.push(self.single(inner)?);
        }
        if several.is_empty() {
            return Ok(first);
        }
        several.insert(0, first);
        Ok(Attribute::Several(several))
    }

    fn single(&mut self, inner: bool) -> Result<Attribute<'a>, Diagnostic> {
        let lexed = self.here;
        Ok(match lexed.token {
            MlirToken::Number(n) => {
                self.advance()?;
                self.number(n, inner)?
            }
            MlirToken::Str(s) => {
                self.advance()?;
                if inner {
                    self.skip_type()?;
                }
                Attribute::Str(s)
            }
            MlirToken::Symbol(s) => {
                self.advance()?;
                Attribute::Symbol(s)
            }
            MlirToken::Punct(b'[') => self.list()?,
            MlirToken::Punct(b'{') => Attribute::Dict(self.dictionary()?),
            MlirToken::Punct(b'<') => {
                self.advance()?;
                self.angled_entries()?
            }
            // How operands are sharded has a grammar of its own.
            MlirToken::Hash(name) if name.starts_with("sdy.") => {
                self.advance()?;
                if self.is(b'<') {
                    self.raw_angled()?;
                }
                Attribute::Word(name)
            }
            MlirToken::Hash(_) => {
                self.advance()?;
                match self.here.token {
                    MlirToken::Punct(b'<') if self.here.start == lexed.end => {
                        self.advance()?;
                        self.angled_entries()?
                    }
                    _ => Attribute::Word(&self.lexer.text()[lexed.start..lexed.end]),
                }
            }
            MlirToken::Ident("dense") => Attribute::Dense(self.dense(inner)?),
            MlirToken::Ident("array") => self.array()?,
            MlirToken::Ident("tensor") | MlirToken::Bang(_) | MlirToken::Punct(b'(') => {
                Attribute::Type(self.parse_type()?)
            }
            MlirToken::Ident(word) => {
                self.advance()?;
                if self.is(b'<') && self.here.start == lexed.end {
                    self.raw_angled()?;
                }
                if inner {
                    self.skip_type()?;
                }
                Attribute::Word(word)
            }
            _ => return Err(self.expected("an attribute")),
        })
    }

    /// A number, a range `0:4:2`, or a number with its type behind it.
    fn number(&mut self, first: &'a str, inner: bool) -> Result<Attribute<'a>, Diagnostic> {
        let mut range = vec![first];
        while inner && self.is(b':') {
            self.advance()?;
            match self.here.token {
                MlirToken::Number(n) => {
                    self.advance()?;
                    range.push(n);
                }
                _ => {
                    self.parse_type()?;
                    break;
                }
            }
        }
        Ok(if range.len() == 1 { Attribute::Number(first) } else { Attribute::Range(range) })
    }

    fn skip_type(&mut self) -> Result<(), Diagnostic> {
        if self.eat(b':')? {
            self.parse_type()?;
        }
        Ok(())
    }

    fn list(&mut self) -> Result<Attribute<'a>, Diagnostic> {
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
        Ok(Attribute::List(items))
    }

    /// `{key = value, flag}`; a key may be quoted.
    pub(super) fn dictionary(&mut self) -> Result<Vec<(&'a str, Attribute<'a>)>, Diagnostic> {
        self.descend()?;
        self.expect(b'{')?;
        let mut entries = Vec::new();
        while !self.eat(b'}')? {
            let (MlirToken::Ident(key) | MlirToken::Str(key)) = self.here.token else {
                return Err(self.expected("an attribute's name"));
            };
            self.advance()?;
            let value =
                if self.eat(b'=')? { self.attribute(true)? } else { Attribute::Word("true") };
            entries.push((key, value));
            if !self.eat(b',')? && !self.is(b'}') {
                return Err(self.expected("`,` or `}`"));
            }
        }
        self.ascend();
        Ok(entries)
    }

    /// What follows `<`, up to `>`: entries with names are a dictionary, others a list.
    fn angled_entries(&mut self) -> Result<Attribute<'a>, Diagnostic> {
        self.descend()?;
        let (mut named, mut items) = (Vec::new(), Vec::new());
        while !self.eat(b'>')? {
            let item = self.attribute(true)?;
            match item {
                Attribute::Word(key) if self.is(b'=') => {
                    self.advance()?;
                    let value = self.attribute(true)?;
                    named.push((key, value));
                }
                item => items.push(item),
            }
            self.eat(b',')?;
        }
        self.ascend();
        Ok(if items.is_empty() { Attribute::Dict(named) } else { Attribute::List(items) })
    }

    /// `array<i64: 1, 2>`.
    fn array(&mut self) -> Result<Attribute<'a>, Diagnostic> {
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
        Ok(Attribute::List(items))
    }

    /// `dense<..>`, with its type behind it inside of brackets.
    fn dense(&mut self, inner: bool) -> Result<DenseText<'a>, Diagnostic> {
        let start = self.advance()?.start;
        if !self.is(b'<') {
            return Err(wrong(start, self.here.end, "expected `<` behind `dense`"));
        }
        let payload = self.raw_angled()?;
        let ty = if inner && self.eat(b':')? { Some(self.parse_type()?) } else { None };
        Ok(DenseText { payload, ty })
    }
}
