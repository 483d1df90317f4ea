//! The small phrases of the grammar: operands, numbers, types, phases and attributes.

use super::ast::{AttrAst, AttrValue, DimAst, OperandAst, TypeAst};
use super::errors::shown;
use super::lexer::{Tok, unescape};
use super::parser::{Parsed, Parser};
use crate::builder::Number;
use crate::diag::{Kind, Span};
use crate::entity::Phase;
use crate::types::MAX_RANK;
use smallvec::SmallVec;

impl Parser<'_, '_> {
    /// At most `limit` operands separated by commas; none where the next token begins none.
    pub(super) fn operands(&mut self, limit: usize) -> Parsed<SmallVec<[OperandAst; 2]>> {
        let mut out = SmallVec::new();
        if !self.at_operand() || self.tok.kind == Tok::Value && self.begins_results() {
            return Ok(out);
        }
        loop {
            if out.len() >= limit {
                return Err(self.too_many("operands", limit));
            }
            out.push(self.operand()?);
            if !self.eat(b',') {
                break;
            }
        }
        if self.at_operand() && !self.tok.first && !self.begins_results() {
            return Err(self.unexpected("`,` between operands"));
        }
        Ok(out)
    }

    fn at_operand(&self) -> bool {
        match self.tok.kind {
            Tok::Value | Tok::Int | Tok::Float => true,
            Tok::Ident => word_number(self.text(self.tok.span)).is_some(),
            _ => false,
        }
    }

    /// Whether `%a, %b =` stands here, which begins the next instruction.
    fn begins_results(&self) -> bool {
        let mut ahead = self.lexer;
        let mut kind = self.tok.kind;
        while kind == Tok::Value {
            match ahead.next().kind {
                Tok::Punct(b',') => kind = ahead.next().kind,
                next => return next == Tok::Punct(b'='),
            }
        }
        false
    }

    fn operand(&mut self) -> Parsed<OperandAst> {
        if self.tok.kind == Tok::Value {
            return Ok(OperandAst::Value(self.bump().span));
        }
        let (number, span) = self.number("an operand")?;
        Ok(OperandAst::Number(number, span))
    }

    /// A number or truth value.
    fn number(&mut self, wanted: &str) -> Parsed<(Number, Span)> {
        let text = self.text(self.tok.span);
        let number = match self.tok.kind {
            Tok::Int => Some(Number::Int(self.int()?)),
            Tok::Float => match text.parse::<f64>() {
                Ok(x) if x.is_finite() || text == "-inf" => Some(Number::Float(x)),
                _ => {
                    let m = format!("{} is too large for f64", shown(text));
                    let hint = "infinity is written `inf`".to_string();
                    return Err(self.errors.add_hint(self.tok.span, Kind::Literal, m, Some(hint)));
                }
            },
            Tok::Ident => word_number(text),
            _ => None,
        };
        match number {
            Some(n) => Ok((n, self.bump().span)),
            None => Err(self.unexpected(wanted)),
        }
    }

    /// The integer that the current token is; the token stays.
    fn int(&mut self) -> Parsed<i64> {
        if self.tok.kind != Tok::Int {
            return Err(self.unexpected("an integer"));
        }
        let text = self.text(self.tok.span);
        text.parse().map_err(|_| {
            let m = format!("{} does not fit in 64 bits", shown(text));
            self.errors.add(self.tok.span, Kind::Literal, m)
        })
    }

    /// `()` or types separated by commas, after the colon.
    pub(super) fn types(&mut self) -> Parsed<SmallVec<[TypeAst; 1]>> {
        let mut out = SmallVec::new();
        if self.eat(b'(') {
            self.expect_punct(b')')?;
            return Ok(out);
        }
        loop {
            if out.len() >= self.limits.operands {
                return Err(self.too_many("result types", self.limits.operands));
            }
            out.push(self.ty()?);
            if !self.eat(b',') {
                return Ok(out);
            }
        }
    }

    /// A type.
    pub(super) fn ty(&mut self) -> Parsed<TypeAst> {
        let dtype = self.expect(Tok::Ident, "a type, as `f32[2,3]`")?;
        let mut dims = None;
        if self.eat(b'[') {
            let list = self.items(b']', "axes", MAX_RANK, |p| p.dim())?;
            dims = Some(list.into_iter().collect());
        }
        Ok(TypeAst { dtype, dims, span: Span { start: dtype.start, end: self.last_end } })
    }

    fn dim(&mut self) -> Parsed<DimAst> {
        let span = self.tok.span;
        match self.tok.kind {
            Tok::Ident => Ok(DimAst::Sym(self.bump().span)),
            Tok::Int => match u64::try_from(self.int()?) {
                Ok(n) => {
                    self.bump();
                    Ok(DimAst::Const(n))
                }
                Err(_) => {
                    let m = format!("an extent is not negative, found {}", shown(self.text(span)));
                    Err(self.errors.add(span, Kind::Shape, m))
                }
            },
            _ => Err(self.unexpected("an extent: a number or a symbol")),
        }
    }

    /// `@p1`; phase 0 where none is written.
    pub(super) fn phase(&mut self) -> Parsed<Phase> {
        if self.tok.kind != Tok::Func {
            return Ok(Phase::PRIMAL);
        }
        let digits = self.text(self.tok.span).strip_prefix("@p").unwrap_or_default();
        // `parse` alone would take a sign.
        let number = if digits.bytes().all(|b| b.is_ascii_digit()) { digits } else { "" };
        match number.parse() {
            Ok(n) => {
                self.bump();
                Ok(Phase(n))
            }
            Err(_) => Err(self.unexpected("a phase, `@p0` to `@p255`")),
        }
    }

    /// `{name = value, ..}`
    pub(super) fn attrs(&mut self) -> Parsed<Vec<AttrAst>> {
        self.in_attrs = true;
        self.bump();
        let out = self.items(b'}', "attributes", self.limits.attrs, |p| {
            let name = p.expect(Tok::Ident, "an attribute's name")?;
            p.expect_punct(b'=')?;
            let start = p.tok.span;
            let value = p.attr_value()?;
            Ok(AttrAst { name, value, span: Span { start: start.start, end: p.last_end } })
        })?;
        self.in_attrs = false;
        Ok(out)
    }

    fn attr_value(&mut self) -> Parsed<AttrValue> {
        Ok(match self.tok.kind {
            Tok::Int => {
                let n = self.int()?;
                self.bump();
                AttrValue::Int(n)
            }
            Tok::Punct(b'[') => {
                let first = self.ints()?;
                if self.at_word("x") {
                    self.bump();
                    AttrValue::Pair(first, self.ints()?)
                } else {
                    AttrValue::Ints(first)
                }
            }
            Tok::Str => {
                let span = self.bump().span;
                match unescape(self.text(span)) {
                    Ok(s) => AttrValue::Str(s),
                    Err(escape) => {
                        let m = format!("no escape {}", shown(&escape));
                        let hint = r#"escapes are \" \\ \n \t \r \u{..}"#.to_string();
                        let kind = Kind::Syntax;
                        return Err(self.errors.add_hint(span, kind, m, Some(hint)));
                    }
                }
            }
            Tok::Func => {
                self.bump();
                AttrValue::Func
            }
            Tok::Ident if self.at_word("dense") && self.peek() == Tok::Punct(b'[') => {
                self.bump();
                self.bump();
                let list = self.items(b']', "element values", self.limits.list, |p| {
                    p.number("an element value")
                })?;
                AttrValue::Dense(list)
            }
            Tok::Ident => {
                self.bump();
                AttrValue::Word
            }
            _ => return Err(self.unexpected("an attribute's value")),
        })
    }

    fn ints(&mut self) -> Parsed<Vec<i64>> {
        self.expect_punct(b'[')?;
        self.items(b']', "integers in a list", self.limits.list, |p| {
            let n = p.int()?;
            p.bump();
            Ok(n)
        })
    }
}

/// The number that a word stands for.
fn word_number(word: &str) -> Option<Number> {
    match word {
        "true" => Some(Number::Bool(true)),
        "false" => Some(Number::Bool(false)),
        "inf" => Some(Number::Float(f64::INFINITY)),
        "nan" => Some(Number::Float(f64::NAN)),
        _ => None,
    }
}
