//! Checkpoint regions in text: the policy of a function, and the regions around an instruction.

use super::ast::CheckpointAst;
use super::errors::{Errors, shown};
use super::lexer::{Tok, unescape};
use super::parser::{Parsed, Parser};
use crate::builder::Builder;
use crate::checkpoint::{CheckpointPath, CheckpointPolicy, CheckpointScope, ScopeKind};
use crate::diag::Kind;

impl Parser<'_, '_> {
    /// `checkpoint(remat)`, `checkpoint(save)` or `checkpoint(names = ["h"])`, which no function with a rule has.
    pub(super) fn checkpoint(&mut self, ruled: bool) -> Parsed<Option<CheckpointAst>> {
        if !self.at_word("checkpoint") {
            return Ok(None);
        }
        if ruled {
            let m = "a function with a custom rule has no checkpoint policy: its rule says what is kept";
            return Err(self.errors.add(self.tok.span, Kind::Usage, m));
        }
        self.bump();
        self.expect_punct(b'(')?;
        let mut names = Vec::new();
        let policy = if self.at_word("save") {
            self.bump();
            CheckpointPolicy::Save
        } else if self.at_word("remat") {
            self.bump();
            CheckpointPolicy::Remat
        } else if self.at_word("names") {
            self.bump();
            self.expect_punct(b'=')?;
            self.expect_punct(b'[')?;
            let limit = self.limits.list;
            let all = self.items(b']', "names", limit, |p| {
                let span = p.expect(Tok::Str, "the name of a value, as `\"h\"`")?;
                Ok((unescape(p.text(span)).unwrap_or_default(), span))
            })?;
            let (words, spans) = all.into_iter().unzip();
            names = spans;
            CheckpointPolicy::Names(words)
        } else {
            return Err(self.unexpected("`save`, `remat` or `names = [..]`"));
        };
        self.expect_punct(b')')?;
        Ok(Some(CheckpointAst { policy, names }))
    }

    /// ` in remat(0) save(1)` after an instruction; no region where nothing is written.
    pub(super) fn path(&mut self) -> Parsed<CheckpointPath> {
        if self.tok.first || !self.at_word("in") {
            return Ok(CheckpointPath::default());
        }
        self.bump();
        let mut scopes = Vec::new();
        loop {
            if scopes.len() >= self.limits.nesting {
                return Err(self.too_many("checkpoint regions", self.limits.nesting));
            }
            let Some(kind) = ScopeKind::ALL.into_iter().find(|k| self.at_word(k.word())) else {
                return Err(self.unexpected("`remat(..)`, `save(..)`, `named(..)` or `again(..)`"));
            };
            self.bump();
            self.expect_punct(b'(')?;
            let span = self.expect(Tok::Int, "the number of a region")?;
            let Ok(number) = self.text(span).parse() else {
                let m = format!("{} is no number of a region", shown(self.text(span)));
                return Err(self.errors.add(span, Kind::Literal, m));
            };
            self.expect_punct(b')')?;
            scopes.push(CheckpointScope { kind, number });
            let more = ScopeKind::ALL.into_iter().any(|k| self.at_word(k.word()));
            if self.tok.first || !more {
                return Ok(CheckpointPath::of(&scopes));
            }
        }
    }
}

/// Gives a function whose values have all been read its policy; names that none of them has are reported.
pub(super) fn set_policy(ast: Option<&CheckpointAst>, b: &mut Builder, errors: &mut Errors) {
    let Some(ast) = ast else { return };
    if let CheckpointPolicy::Names(names) = &ast.policy {
        for ((name, found), &span) in names.iter().zip(b.func().computes(names)).zip(&ast.names) {
            if !found {
                let m = format!("the function computes no value {}", shown(&format!("%{name}")));
                errors.add(span, Kind::UnknownName, m);
            }
        }
    }
    b.func_mut().checkpoint = Some(ast.policy.clone());
}
