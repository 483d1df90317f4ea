//! Modules, functions and regions.

use super::lexer::{Lexed, MlirLexer, MlirToken, wrong};
use super::locations::Locations;
use super::tree::{Attribute, FunctionTree, Instruction, ParamTree, RegionTree};
use adfuse_ir::{At, Diagnostic, Kind, Span};

/// Levels of regions, lists and dictionaries inside of each other.
const MOST_NESTED: usize = 64;

/// Instructions of a text.
const MOST_INSTRUCTIONS: usize = 1_000_000;

/// A text that is being read: the token that is looked at, and what follows.
pub(super) struct MlirParser<'a> {
    pub(super) lexer: MlirLexer<'a>,
    pub(super) here: Lexed<'a>,
    /// Where the token before ended.
    pub(super) before: usize,
    locations: Locations<'a>,
    depth: usize,
    instructions: usize,
}

/// The functions of a module, or the function, that stands in the generic form.
fn generic<'a>(
    inst: Instruction<'a>,
    functions: &mut Vec<FunctionTree<'a>>,
) -> Result<(), Diagnostic> {
    if inst.op == "builtin.module" {
        let insts = inst.regions.into_iter().flat_map(|r| r.insts);
        return insts.filter(|i| !i.op.starts_with("sdy.")).try_for_each(|i| generic(i, functions));
    }
    let at = |m: &str| Diagnostic::new(At::span(inst.span), Kind::Syntax, m);
    let text = |name: &str| match inst.attr(name) {
        Some(Attribute::Str(text)) => Some(*text),
        _ => None,
    };
    let name = text("sym_name").filter(|_| inst.op == "func.func");
    let name = name.ok_or_else(|| at("expected a function with its name"))?;
    let private = text("sym_visibility") == Some("private");
    let span = inst.span;
    let body = inst.regions.into_iter().next();
    let body = body.ok_or_else(|| {
        Diagnostic::new(At::span(span), Kind::Syntax, "expected the function's body")
    })?;
    // Its type says no more than what it returns.
    let results = body.insts.last().and_then(|ret| ret.operand_types.clone()).unwrap_or_default();
    functions.push(FunctionTree { name, private, results, body, span });
    Ok(())
}

/// The functions of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<FunctionTree<'_>>, Diagnostic> {
    let mut lexer = MlirLexer::new(text);
    let here = lexer.next()?;
    let locations = Locations::default();
    let mut p = MlirParser { lexer, here, before: 0, locations, depth: 0, instructions: 0 };
    let mut functions = Vec::new();
    while p.here.token != MlirToken::End {
        p.top_level(&mut functions)?;
    }
    p.locations.attach(&mut functions);
    Ok(functions)
}

impl<'a> MlirParser<'a> {
    pub(super) fn advance(&mut self) -> Result<Lexed<'a>, Diagnostic> {
        let old = self.here;
        self.before = old.end;
        self.here = self.lexer.next()?;
        Ok(old)
    }

    pub(super) fn expected(&self, what: &str) -> Diagnostic {
        let Lexed { token, start, end, .. } = self.here;
        let found = match token {
            MlirToken::End => "the end of the text".to_string(),
            _ => format!(
                "`{}`",
                &self.lexer.text()[start..end.min(start + 40).max(start)].escape_debug()
            ),
        };
        wrong(start, end, format!("expected {what}, found {found}"))
    }

    pub(super) fn is(&self, b: u8) -> bool {
        self.here.token == MlirToken::Punct(b)
    }

    pub(super) fn eat(&mut self, b: u8) -> Result<bool, Diagnostic> {
        let found = self.is(b);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, b: u8) -> Result<(), Diagnostic> {
        match self.eat(b)? {
            true => Ok(()),
            false => Err(self.expected(&format!("`{}`", b as char))),
        }
    }

    pub(super) fn expect_arrow(&mut self) -> Result<(), Diagnostic> {
        match self.here.token {
            MlirToken::Arrow => self.advance().map(|_| ()),
            _ => Err(self.expected("`->`")),
        }
    }

    pub(super) fn eat_ident(&mut self, word: &str) -> Result<bool, Diagnostic> {
        let found = self.here.token == MlirToken::Ident(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// One level deeper into brackets.
    pub(super) fn descend(&mut self) -> Result<(), Diagnostic> {
        self.depth += 1;
        match self.depth > MOST_NESTED {
            true => {
                let at = At::span(Span::new(self.here.start, self.here.end));
                let m = format!("more than {MOST_NESTED} levels of brackets");
                Err(Diagnostic::new(at, Kind::Limit, m))
            }
            false => Ok(()),
        }
    }

    pub(super) fn ascend(&mut self) {
        self.depth -= 1;
    }

    /// One instruction more.
    pub(super) fn count(&mut self) -> Result<(), Diagnostic> {
        self.instructions += 1;
        match self.instructions > MOST_INSTRUCTIONS {
            true => {
                let at = At::span(Span::new(self.here.start, self.here.end));
                let m = format!("more than {MOST_INSTRUCTIONS} instructions");
                Err(Diagnostic::new(at, Kind::Limit, m))
            }
            false => Ok(()),
        }
    }

    /// What stands between `<`, which is looked at, and the `>` that closes it.
    pub(super) fn raw_angled(&mut self) -> Result<&'a str, Diagnostic> {
        if !self.is(b'<') {
            return Err(self.expected("`<`"));
        }
        let start = self.here.end;
        let inner = self.lexer.angled(start)?;
        self.lexer.seek(start + inner.len() + 1);
        self.before = start + inner.len() + 1;
        self.here = self.lexer.next()?;
        Ok(inner)
    }

    /// Skips tokens up to the bracket that closes the one looked at.
    pub(super) fn skip_brackets(&mut self) -> Result<(), Diagnostic> {
        let (start, mut open) = (self.here, 0usize);
        loop {
            match self.advance()?.token {
                MlirToken::Punct(b'(' | b'[' | b'{' | b'<') => open += 1,
                MlirToken::Punct(b')' | b']' | b'}' | b'>') if open > 0 => {
                    open -= 1;
                    if open == 0 {
                        return Ok(());
                    }
                }
                _ if open == 0 => {
                    return Err(wrong(start.start, start.end, "expected an opening bracket"));
                }
                MlirToken::End => {
                    return Err(wrong(start.start, start.end, "this bracket is not closed"));
                }
                _ => {}
            }
        }
    }

    /// Skips `{..}` behind a type and takes `loc(..)`: neither changes what a program means.
    pub(super) fn annotations(&mut self) -> Result<&'a str, Diagnostic> {
        if self.is(b'{') {
            self.skip_brackets()?;
        }
        self.location()
    }

    /// What stands between the brackets of `loc(..)`; nothing where there is none.
    pub(super) fn location(&mut self) -> Result<&'a str, Diagnostic> {
        if !self.eat_ident("loc")? || !self.is(b'(') {
            return Ok("");
        }
        let start = self.here.end;
        self.skip_brackets()?;
        Ok(&self.lexer.text()[start..self.before - 1])
    }

    /// `#name = loc(..)`; what else has such a name says nothing of values.
    fn alias(&mut self, name: &'a str) -> Result<(), Diagnostic> {
        let mut ahead = self.lexer;
        let is_location = ahead.next()?.token == MlirToken::Punct(b'=')
            && ahead.next()?.token == MlirToken::Ident("loc");
        if !is_location {
            return self.skip_line();
        }
        self.advance()?;
        self.advance()?;
        let text = self.location()?;
        self.locations.define(name, text);
        Ok(())
    }

    /// Skips what says nothing of values: definitions of meshes, of aliases, and resources.
    fn skip_line(&mut self) -> Result<(), Diagnostic> {
        self.advance()?;
        while !self.here.leads && self.here.token != MlirToken::End {
            match self.here.token {
                MlirToken::Punct(b'(' | b'[' | b'{' | b'<') => self.skip_brackets()?,
                MlirToken::Punct(b'}') => return Ok(()),
                _ => {
                    self.advance()?;
                }
            }
        }
        Ok(())
    }

    fn top_level(&mut self, functions: &mut Vec<FunctionTree<'a>>) -> Result<(), Diagnostic> {
        match self.here.token {
            MlirToken::Ident("module" | "builtin.module") => {
                self.advance()?;
                if let MlirToken::Symbol(_) = self.here.token {
                    self.advance()?;
                }
                if self.eat_ident("attributes")? {
                    self.skip_brackets()?;
                }
                self.descend()?;
                self.expect(b'{')?;
                while !self.eat(b'}')? {
                    if self.here.token == MlirToken::End {
                        return Err(self.expected("`}`"));
                    }
                    self.top_level(functions)?;
                }
                self.ascend();
                self.location()?;
                Ok(())
            }
            MlirToken::Ident("func.func") => {
                functions.push(self.function()?);
                Ok(())
            }
            MlirToken::Ident(name) if name.starts_with("sdy.") => self.skip_line(),
            MlirToken::Hash(name) => self.alias(name),
            MlirToken::Str("builtin.module" | "func.func") => {
                let inst = self.instruction()?;
                generic(inst, functions)
            }
            _ => Err(self.expected("`module` or `func.func`")),
        }
    }

    fn function(&mut self) -> Result<FunctionTree<'a>, Diagnostic> {
        let start = self.advance()?.start;
        let private = match self.here.token {
            MlirToken::Ident(word @ ("private" | "public" | "nested")) => {
                self.advance()?;
                word == "private"
            }
            _ => false,
        };
        let MlirToken::Symbol(name) = self.here.token else {
            return Err(self.expected("a function's name"));
        };
        let end = self.advance()?.end;
        let mut body = RegionTree { params: self.params()?, insts: Vec::new() };
        let mut results = Vec::new();
        if self.here.token == MlirToken::Arrow {
            self.advance()?;
            results = self.parse_types()?;
        }
        if self.eat_ident("attributes")? {
            self.skip_brackets()?;
        }
        if !self.is(b'{') {
            return Err(self.expected("the function's body"));
        }
        self.block(&mut body)?;
        self.location()?;
        Ok(FunctionTree { name, private, results, body, span: Span::new(start, end) })
    }

    /// `(%a: T {..}, ..)`.
    pub(super) fn params(&mut self) -> Result<Vec<ParamTree<'a>>, Diagnostic> {
        self.expect(b'(')?;
        let mut params = Vec::new();
        while !self.eat(b')')? {
            let MlirToken::Value(name, None) = self.here.token else {
                return Err(self.expected("a parameter"));
            };
            self.advance()?;
            self.expect(b':')?;
            let ty = self.parse_type()?;
            let start = self.here.start;
            let location = self.annotations()?;
            let extent = extent_name(&self.lexer.text()[start..self.here.start]);
            params.push(ParamTree { name, ty, extent, location, label: None });
            if !self.eat(b',')? && !self.is(b')') {
                return Err(self.expected("`,` or `)`"));
            }
        }
        Ok(params)
    }

    /// `{ ^bb0(..): instructions }`.
    pub(super) fn region(&mut self) -> Result<RegionTree<'a>, Diagnostic> {
        let mut region = RegionTree::default();
        self.block(&mut region)?;
        Ok(region)
    }

    fn block(&mut self, region: &mut RegionTree<'a>) -> Result<(), Diagnostic> {
        self.descend()?;
        self.expect(b'{')?;
        if let MlirToken::Block(_) = self.here.token {
            self.advance()?;
            if self.is(b'(') {
                region.params = self.params()?;
            }
            self.expect(b':')?;
        }
        while !self.eat(b'}')? {
            if let MlirToken::Block(_) = self.here.token {
                let m = "a region of several blocks cannot be imported";
                return Err(wrong(self.here.start, self.here.end, m));
            }
            let inst = self.instruction()?;
            region.insts.push(inst);
        }
        self.ascend();
        Ok(())
    }
}

/// The name in `jax.global_constant = "name"`, which stands among the annotations of a parameter that is an extent.
fn extent_name(annotations: &str) -> Option<&str> {
    let (_, rest) = annotations.split_once("jax.global_constant")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    rest.split_once('"').map(|(name, _)| name)
}
