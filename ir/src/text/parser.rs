//! Tokens to functions: headers, blocks and regions, and how reading goes on after an error.
//!
//! An error inside an instruction gives up that instruction and goes on at the next line on the
//! same level of braces; an error in a header gives up the function.

use super::ast::{BlockAst, EndAst, FuncAst, InstAst, ParamAst, RegionAst, RuleAst};
use super::errors::{Errors, Failed, shown};
use super::lexer::{Bad, Lexer, Tok, Token};
use super::limits::Limits;
use super::op_names::OpNames;
use crate::diag::{Kind, Span};
use crate::words::MAX_NAME;

/// A piece of the tree, or an error that is reported already.
pub(super) type Parsed<T> = Result<T, Failed>;

/// Reads one function after the other.
pub(super) struct Parser<'s, 'a> {
    pub(super) lexer: Lexer<'s>,
    pub(super) tok: Token,
    pub(super) errors: Errors,
    pub(super) limits: &'a Limits,
    pub(super) ops: &'a OpNames,
    /// Where the last token ended.
    pub(super) last_end: u32,
    /// Inside the braces of attributes, which recovery does not wait for.
    pub(super) in_attrs: bool,
    /// Open braces.
    depth: usize,
    /// Open regions.
    nesting: usize,
    insts: usize,
    funcs: usize,
}

impl<'s, 'a> Parser<'s, 'a> {
    /// Starts at the beginning of the text.
    pub(super) fn new(source: &'s str, limits: &'a Limits, ops: &'a OpNames) -> Parser<'s, 'a> {
        let mut lexer = Lexer::new(source);
        let tok = lexer.next();
        Parser {
            lexer,
            tok,
            errors: Errors::new(limits.diagnostics),
            limits,
            ops,
            last_end: 0,
            in_attrs: false,
            depth: 0,
            nesting: 0,
            insts: 0,
            funcs: 0,
        }
    }

    /// The next function; `None` at the end of the text or after too many errors.
    pub(super) fn next_function(&mut self) -> Option<FuncAst> {
        while self.tok.kind != Tok::Eof && !self.errors.full() {
            self.errors.enter(None);
            self.depth = 0;
            self.nesting = 0;
            self.in_attrs = false;
            if !self.at_word("func") {
                self.unexpected("`func`");
                self.skip_to_function();
                continue;
            }
            match self.function() {
                Ok(func) => return Some(func),
                Err(Failed) => self.skip_to_function(),
            }
        }
        None
    }

    /// `params | instruction`, up to the end of the text.
    pub(super) fn example(&mut self) -> Parsed<(Vec<ParamAst>, InstAst)> {
        let params = self.params(b'|')?;
        let mut inst = InstAst::default();
        if self.tok.kind != Tok::Ident {
            return Err(self.unexpected("an op"));
        }
        self.inst(&mut inst)?;
        self.expect(Tok::Eof, "the end of the example")?;
        Ok((params, inst))
    }

    /// The text at a place.
    pub(super) fn text(&self, span: Span) -> &'s str {
        self.lexer.text(span)
    }

    /// Takes the current token.
    pub(super) fn bump(&mut self) -> Token {
        let token = self.tok;
        match token.kind {
            Tok::Punct(b'{') => self.depth += 1,
            Tok::Punct(b'}') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.last_end = token.span.end;
        self.tok = self.lexer.next();
        token
    }

    /// The class of the token after the current one.
    pub(super) fn peek(&self) -> Tok {
        let mut ahead = self.lexer;
        ahead.next().kind
    }

    /// Whether the current token is this one.
    pub(super) fn at(&self, punct: u8) -> bool {
        self.tok.kind == Tok::Punct(punct)
    }

    /// Whether the current token is this word.
    pub(super) fn at_word(&self, word: &str) -> bool {
        self.tok.kind == Tok::Ident && self.text(self.tok.span) == word
    }

    /// Takes the current token if it is this one.
    pub(super) fn eat(&mut self, punct: u8) -> bool {
        let here = self.at(punct);
        if here {
            self.bump();
        }
        here
    }

    /// Takes a token of this class, described by `wanted`.
    pub(super) fn expect(&mut self, kind: Tok, wanted: &str) -> Parsed<Span> {
        if self.tok.kind == kind { Ok(self.bump().span) } else { Err(self.unexpected(wanted)) }
    }

    /// Takes this punctuation mark.
    pub(super) fn expect_punct(&mut self, punct: u8) -> Parsed<Span> {
        if self.at(punct) {
            return Ok(self.bump().span);
        }
        Err(self.unexpected(&format!("`{}`", char::from(punct))))
    }

    /// Reports that `wanted` should stand here.
    pub(super) fn unexpected(&mut self, wanted: &str) -> Failed {
        self.unexpected_hint(wanted, None)
    }

    /// The same, with a hint.
    pub(super) fn unexpected_hint(&mut self, wanted: &str, hint: Option<String>) -> Failed {
        let span = self.tok.span;
        // Characters of other languages.
        let habit = match (&self.tok.kind, self.text(span)) {
            (Tok::Bad(Bad::Char), "#") => Some("comments begin with `//`"),
            (Tok::Bad(Bad::Char), ";") => Some("an instruction ends with its line"),
            _ => None,
        };
        let hint = hint.or_else(|| habit.map(str::to_string));
        let text = shown(self.text(span));
        let (kind, message) = match self.tok.kind {
            Tok::Bad(Bad::Name) => {
                (Kind::Limit, format!("a name has at most {MAX_NAME} bytes, found {text}"))
            }
            Tok::Bad(Bad::Char) => {
                (Kind::Syntax, format!("expected {wanted}, found the character {text}"))
            }
            Tok::Bad(Bad::Sigil) => (Kind::Syntax, format!("{text} without a name after it")),
            Tok::Bad(Bad::Number) => (Kind::Syntax, format!("malformed number {text}")),
            Tok::Bad(Bad::Str) => (Kind::Syntax, "a string without its closing `\"`".into()),
            Tok::Eof => (Kind::Syntax, format!("expected {wanted}, found the end of the text")),
            _ => (Kind::Syntax, format!("expected {wanted}, found {text}")),
        };
        self.errors.add_hint(span, kind, message, hint)
    }

    /// Reports that more than `limit` of `what` are written.
    pub(super) fn too_many(&mut self, what: &str, limit: usize) -> Failed {
        let m = format!("too many {what}: the limit is {limit}");
        self.errors.add(self.tok.span, Kind::Limit, m)
    }

    /// Items separated by commas up to `close`, which is taken.
    pub(super) fn items<T>(
        &mut self,
        close: u8,
        what: &str,
        limit: usize,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut out = Vec::new();
        if self.eat(close) {
            return Ok(out);
        }
        loop {
            if out.len() >= limit {
                return Err(self.too_many(what, limit));
            }
            out.push(item(self)?);
            if self.eat(close) {
                return Ok(out);
            }
            if !self.eat(b',') {
                return Err(self.unexpected(&format!("`,` or `{}`", char::from(close))));
            }
        }
    }

    /// `%name: type, ..` up to `close`, which is taken.
    fn params(&mut self, close: u8) -> Parsed<Vec<ParamAst>> {
        self.items(close, "parameters", self.limits.params, |p| {
            let name = p.expect(Tok::Value, "a parameter, as `%x: f32[2]`")?;
            p.expect_punct(b':')?;
            Ok(ParamAst { name, ty: p.ty()? })
        })
    }

    fn function(&mut self) -> Parsed<FuncAst> {
        self.bump();
        let name = self.expect(Tok::Func, "the function's name, as `@f`")?;
        self.errors.enter(Some(&self.text(name)[1..]));
        self.funcs += 1;
        if self.funcs > self.limits.functions {
            return Err(self.too_many("functions", self.limits.functions));
        }
        let symbols = if self.eat(b'<') {
            self.items(b'>', "symbols", self.limits.symbols, |p| p.expect(Tok::Ident, "a symbol"))?
        } else {
            Vec::new()
        };
        self.expect_punct(b'(')?;
        let params = self.params(b')')?;
        if self.tok.kind != Tok::Arrow {
            let hint = "a function without results is `-> ()`".to_string();
            return Err(self.unexpected_hint("`->` and the result types", Some(hint)));
        }
        self.bump();
        let results = if self.eat(b'(') {
            self.items(b')', "results", self.limits.params, |p| p.ty())?
        } else {
            vec![self.ty()?]
        };
        let rule = self.rule()?;
        let checkpoint = self.checkpoint(rule.is_some())?;
        let open = self.expect_punct(b'{')?;
        let body = self.block("return", open);
        Ok(FuncAst { name, symbols, params, results, rule, checkpoint, body })
    }

    fn rule(&mut self) -> Parsed<Option<RuleAst>> {
        let words = ["custom_jvp", "custom_vjp", "custom_root"];
        let Some(word) = words.into_iter().find(|word| self.at_word(word)) else {
            if self.tok.kind == Tok::Ident && !self.at_word("checkpoint") {
                let wanted = "`{`, `custom_jvp(..)`, `custom_vjp(..)`, `custom_root(..)` or `checkpoint(..)`";
                return Err(self.unexpected(wanted));
            }
            return Ok(None);
        };
        self.bump();
        self.expect_punct(b'(')?;
        let first = self.expect(Tok::Func, "the rule's function, as `@f`")?;
        let rule = match word {
            "custom_jvp" => RuleAst::Jvp(first),
            "custom_root" => RuleAst::Root(first),
            _ => {
                self.expect_punct(b',')?;
                RuleAst::Vjp(first, self.expect(Tok::Func, "the backward function, as `@f`")?)
            }
        };
        self.expect_punct(b')')?;
        Ok(Some(rule))
    }

    /// Statements up to the closing brace, which is taken; `end` is the word they end with.
    fn block(&mut self, end: &str, open: Span) -> BlockAst {
        let mut block = BlockAst::default();
        let base = self.depth;
        let errors_before = self.errors.count();
        let mut after_end = false;
        while !self.errors.full() {
            if self.at(b'}') {
                if block.end.is_none() && self.errors.count() == errors_before {
                    self.unexpected(&format!("an instruction or `{end}`"));
                }
                self.bump();
                return block;
            }
            if self.tok.kind == Tok::Eof || self.at_function() {
                if self.errors.count() == errors_before {
                    let hint =
                        format!("a `}}` is missing before {}", shown(self.text(self.tok.span)));
                    let hint = if self.tok.kind == Tok::Eof { None } else { Some(hint) };
                    let m = "`{` is never closed";
                    self.errors.add_hint(open, Kind::Syntax, m, hint);
                }
                return block;
            }
            let (place, first) = (self.tok.span.start, self.tok.span);
            if self.at_word("return") || self.at_word("yield") {
                if !self.at_word(end) {
                    self.unexpected(&format!("`{end}`, which ends this block"));
                }
                self.bump();
                match self.operands(self.limits.params) {
                    Ok(values) if block.end.is_none() => {
                        let span = first.to(Span { start: first.start, end: self.last_end });
                        block.end = Some(EndAst { values: values.into_vec(), span });
                    }
                    Ok(_) => {}
                    Err(Failed) => self.recover(base, place),
                }
                continue;
            }
            if block.end.is_some() && !after_end {
                after_end = true;
                let m = format!("an instruction after `{end}`");
                self.errors.add(first, Kind::Syntax, m);
            }
            self.insts += 1;
            if self.insts > self.limits.insts {
                // Nothing after this can be read: the rest of the text is given up.
                self.too_many("instructions", self.limits.insts);
                self.give_up();
                return block;
            }
            let mut inst = InstAst { span: first, ..InstAst::default() };
            if self.inst(&mut inst).is_err() {
                inst.broken = true;
                self.recover(base, place);
            }
            block.insts.push(inst);
        }
        block
    }

    /// One instruction, into `inst`, so that what was read before an error is kept.
    fn inst(&mut self, inst: &mut InstAst) -> Parsed<()> {
        let start = self.tok.span;
        while self.tok.kind == Tok::Value {
            if inst.results.len() >= self.limits.operands {
                return Err(self.too_many("results", self.limits.operands));
            }
            inst.results.push(self.bump().span);
            if self.eat(b'=') {
                break;
            }
            if !self.eat(b',') {
                return Err(self.unexpected("`=` or `,`"));
            }
            if self.tok.kind != Tok::Value {
                return Err(self.unexpected("a result name, as `%y`"));
            }
        }
        let wanted = if inst.results.is_empty() {
            "an instruction, `return`, `yield` or `}`"
        } else {
            "an op"
        };
        if ["return", "yield", "func"].iter().any(|word| self.at_word(word)) {
            return Err(self.unexpected(wanted));
        }
        inst.op = self.expect(Tok::Ident, wanted)?;
        inst.operands = self.operands(self.limits.operands)?;
        if self.at(b'{') {
            inst.attrs = self.attrs()?;
        }
        if self.eat(b':') {
            inst.types = Some(self.types()?);
        }
        inst.phase = self.phase()?;
        inst.path = self.path()?;
        inst.span = start.to(Span { start: start.start, end: self.last_end });
        while self.at_region(inst) {
            if inst.regions.len() >= self.limits.nesting {
                return Err(self.too_many("regions", self.limits.nesting));
            }
            let region = self.region()?;
            inst.regions.push(region);
        }
        let may_follow = matches!(self.tok.kind, Tok::Value | Tok::Ident | Tok::Eof)
            || self.at(b'}')
            || self.tok.first;
        if !may_follow {
            let late = self.at(b'{') && inst.attrs.is_empty() && inst.types.is_some();
            let hint = late.then(|| "attributes stand before the type".to_string());
            return Err(self.unexpected_hint("the end of the instruction", hint));
        }
        Ok(())
    }

    /// Whether a region of `inst` begins here: a word, then `{` or `(`. On a line of its own the
    /// word must be one that the op asks for, or no op.
    fn at_region(&self, inst: &InstAst) -> bool {
        if self.tok.kind != Tok::Ident
            || !matches!(self.peek(), Tok::Punct(b'{') | Tok::Punct(b'('))
        {
            return false;
        }
        let word = self.text(self.tok.span);
        let Some(op) = self.ops.get(self.text(inst.op)) else { return !self.tok.first };
        let wanted = op.def().regions;
        !self.tok.first
            || wanted.contains(&word)
            || inst.regions.len() < wanted.len() && self.ops.get(word).is_none()
    }

    fn region(&mut self) -> Parsed<RegionAst> {
        let name = self.bump().span;
        let params = if self.eat(b'(') { self.params(b')')? } else { Vec::new() };
        if self.nesting >= self.limits.nesting {
            let m = format!("regions nest deeper than {}", self.limits.nesting);
            return Err(self.errors.add(name, Kind::Limit, m));
        }
        let open = self.expect_punct(b'{')?;
        self.nesting += 1;
        let block = self.block("yield", open);
        self.nesting -= 1;
        Ok(RegionAst { name, params, block })
    }

    fn at_function(&self) -> bool {
        self.tok.first && self.at_word("func") && self.peek() == Tok::Func
    }

    /// Skips to the next line on brace level `base`, to the brace that closes that level, or to the
    /// next function; at least past `place`.
    fn recover(&mut self, base: usize, place: u32) {
        while self.tok.kind != Tok::Eof && !self.at_function() {
            if self.tok.first && self.in_attrs {
                // A missing brace of attributes must not swallow the lines that follow.
                self.depth = base;
                self.in_attrs = false;
            }
            let closes = self.at(b'}') && self.depth <= base;
            let next_line = self.tok.first && self.depth <= base && self.tok.span.start > place;
            if closes || next_line {
                break;
            }
            self.bump();
        }
        self.in_attrs = false;
    }

    fn skip_to_function(&mut self) {
        self.bump();
        while self.tok.kind != Tok::Eof && !self.at_function() {
            self.bump();
        }
    }

    fn give_up(&mut self) {
        self.lexer.skip_to_end();
        self.tok = self.lexer.next();
    }
}
