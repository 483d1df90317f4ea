//! Types: tensors, and everything else as its text.

use super::lexer::{MlirToken, wrong};
use super::parser::MlirParser;
use super::tree::Type;
use adfuse_ir::Diagnostic;
use adfuse_ir::types::MAX_RANK;

impl<'a> MlirParser<'a> {
    /// One type.
    pub(super) fn parse_type(&mut self) -> Result<Type<'a>, Diagnostic> {
        let start = self.here.start;
        match self.here.token {
            MlirToken::Ident("tensor") => {
                self.advance()?;
                let inner = self.raw_angled()?;
                tensor(inner).map_err(|m| wrong(start, self.here.start, m))
            }
            MlirToken::Ident(_) | MlirToken::Bang(_) => {
                let end = self.here.end;
                self.advance()?;
                let end = match self.here.token {
                    MlirToken::Punct(b'<') if self.here.start == end => {
                        end + self.raw_angled()?.len() + 2
                    }
                    _ => end,
                };
                Ok(Type::Other(&self.lexer.text()[start..end]))
            }
            MlirToken::Punct(b'(') => {
                // A function's type stands as an attribute of generic forms alone.
                self.parse_type_list()?;
                self.expect_arrow()?;
                self.parse_types()?;
                Ok(Type::Other("function"))
            }
            _ => Err(self.expected("a type")),
        }
    }

    /// `(T, ..)`.
    pub(super) fn parse_type_list(&mut self) -> Result<Vec<Type<'a>>, Diagnostic> {
        self.descend()?;
        self.expect(b'(')?;
        let mut types = Vec::new();
        while !self.eat(b')')? {
            types.push(self.parse_type()?);
            self.annotations()?;
            if !self.eat(b',')? && self.here.token != MlirToken::Punct(b')') {
                return Err(self.expected("`,` or `)`"));
            }
        }
        self.ascend();
        Ok(types)
    }

    /// `T` or `(T, ..)`.
    pub(super) fn parse_types(&mut self) -> Result<Vec<Type<'a>>, Diagnostic> {
        match self.here.token {
            MlirToken::Punct(b'(') => self.parse_type_list(),
            _ => Ok(vec![self.parse_type()?]),
        }
    }
}

/// What stands in `tensor<..>`: extents, each with an `x` behind it, and the element type.
fn tensor(text: &str) -> Result<Type<'_>, String> {
    let mut rest = text.trim();
    let mut extents = Vec::new();
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unknown = usize::from(rest.starts_with('?'));
        let length = digits.max(unknown);
        if length == 0 {
            break;
        }
        let extent = match unknown {
            1 => None,
            _ => Some(
                rest[..digits]
                    .parse()
                    .map_err(|_| format!("the extent {} is too large", &rest[..digits]))?,
            ),
        };
        rest = rest[length..].strip_prefix('x').ok_or("an extent needs an `x` behind it")?;
        extents.push(extent);
        if extents.len() > MAX_RANK {
            return Err(format!("a tensor has at most {MAX_RANK} axes"));
        }
    }
    // What follows a comma is an encoding: it says how elements are stored elsewhere.
    let nested = rest.find('<').unwrap_or(rest.len());
    let end = match rest[..nested].find(',') {
        Some(comma) => comma,
        None => match rest.rfind('>') {
            Some(close) => close + 1,
            None => rest.len(),
        },
    };
    match rest[..end].trim() {
        "" => Err("a tensor needs an element type".into()),
        element => Ok(Type::Tensor(extents, element)),
    }
}
