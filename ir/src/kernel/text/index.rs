//! Index expressions and guards.

use super::cursor::{Cursor, ParseResult};
use crate::diag::Kind;
use crate::index::{Guard, IndexExpr};
use crate::text::lexer::Tok;
use smallvec::SmallVec;

/// The most operations in one expression: it bounds how deep the code that walks it goes.
const MOST: usize = 512;

impl Cursor<'_> {
    /// `[d0, d1 + 1]`
    pub(super) fn index(&mut self) -> ParseResult<SmallVec<[IndexExpr; 4]>> {
        Ok(self.list("[", "]", Self::expr)?.into_iter().collect())
    }

    /// `when d0 - 1 in [0, 4) and d1 in [0, 2)`, or nothing.
    pub(super) fn guards(&mut self) -> ParseResult<SmallVec<[Guard; 2]>> {
        let mut guards = SmallVec::new();
        let mut more = self.accept("when");
        while more {
            let expr = self.expr()?;
            self.expect("in")?;
            self.expect("[")?;
            let start = self.int()?;
            self.expect(",")?;
            let end = self.int()?;
            self.expect(")")?;
            guards.push(Guard { expr, range: start..end });
            more = self.accept("and");
        }
        Ok(guards)
    }

    /// An expression.
    pub(super) fn expr(&mut self) -> ParseResult<IndexExpr> {
        self.sum(&mut 0)
    }

    fn sum(&mut self, operations: &mut usize) -> ParseResult<IndexExpr> {
        let mut e = self.product(operations)?;
        loop {
            if self.accept("+") {
                self.count(operations)?;
                e = IndexExpr::Add(Box::new(e), Box::new(self.product(operations)?));
            } else if self.is("-") {
                self.count(operations)?;
                self.next();
                let wrong = self.wrong("a number above 0");
                let c = self.int()?;
                let c = if c > 0 { -c } else { return Err(wrong) };
                e = IndexExpr::Add(Box::new(e), Box::new(IndexExpr::Const(c)));
            } else {
                return Ok(e);
            }
        }
    }

    fn product(&mut self, operations: &mut usize) -> ParseResult<IndexExpr> {
        let mut e = self.atom(operations)?;
        loop {
            let make = match self.text() {
                "*" => IndexExpr::Mul,
                "/" => IndexExpr::FloorDiv,
                "%" => IndexExpr::Mod,
                _ => return Ok(e),
            };
            if !matches!(self.kind(), Tok::Punct(_)) {
                return Ok(e);
            }
            self.count(operations)?;
            self.next();
            e = make(Box::new(e), self.int()?);
        }
    }

    fn atom(&mut self, operations: &mut usize) -> ParseResult<IndexExpr> {
        if self.kind() == Tok::Int {
            return self.int().map(IndexExpr::Const);
        }
        if let Some(a) = self.numbered('d').and_then(|a| u8::try_from(a).ok()) {
            self.next();
            return Ok(IndexExpr::Axis(a));
        }
        if self.accept("(") {
            self.count(operations)?;
            let e = self.sum(operations)?;
            self.expect(")")?;
            return Ok(e);
        }
        if !self.accept("clamp") {
            return Err(self.wrong("an index expression"));
        }
        self.expect("(")?;
        let param = self.number_of('p')?;
        self.expect(",")?;
        let lo = self.int()?;
        self.expect(",")?;
        let hi = self.int()?;
        self.expect(")")?;
        Ok(IndexExpr::Data { param, lo, hi })
    }

    fn count(&self, operations: &mut usize) -> ParseResult<()> {
        *operations += 1;
        match *operations <= MOST {
            true => Ok(()),
            false => {
                let m = format!("more than {MOST} operations in one index expression");
                Err(self.error(self.span(), Kind::Limit, m))
            }
        }
    }
}
