//! What a text uses, and what of it cannot be imported.

use adfuse_ir::{At, Diagnostic, Kind, SourceLine, Span};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One instruction, or a function's signature, that cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    /// The op, with the name of a custom call.
    pub op: String,
    /// What of it cannot be imported.
    pub what: String,
    /// Where it stands.
    pub span: Span,
    /// The line of the program that was traced, where the text tells it.
    pub line: Option<Arc<SourceLine>>,
    /// The node, where it stands in no text.
    pub node: Option<String>,
}

impl Issue {
    /// The error that says so at the first of these places.
    fn diagnostic(&self, times: usize) -> Diagnostic {
        let again = if times > 1 { format!(" ({times} times)") } else { String::new() };
        let m = format!("`{}` cannot be imported: {}{again}", self.op, self.what);
        let at = match &self.node {
            Some(_) => At { inst: self.node.as_deref().map(Into::into), ..At::default() },
            None => At { line: self.line.clone(), ..At::span(self.span) },
        };
        Diagnostic::new(at, Kind::Unsupported, m)
    }
}

/// An error for each reason of each op, at its first place, with a count.
pub(crate) fn diagnostics(issues: &[Issue]) -> Vec<Diagnostic> {
    let mut places: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for (k, issue) in issues.iter().enumerate() {
        places.entry((&issue.op, &issue.what)).or_insert((k, 0)).1 += 1;
    }
    let mut firsts: Vec<(usize, usize)> = places.into_values().collect();
    firsts.sort_unstable();
    firsts.into_iter().map(|(k, times)| issues[k].diagnostic(times)).collect()
}

/// How often each op occurs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage(BTreeMap<String, usize>);

impl Usage {
    pub(crate) fn count(&mut self, op: &str, symbol: Option<&str>) {
        let name = match symbol.filter(|_| op.ends_with("custom_call")) {
            Some(symbol) => format!("{op} @{symbol}"),
            None => op.to_string(),
        };
        *self.0.entry(name).or_insert(0) += 1;
    }

    /// The ops in alphabetical order, each with how often it occurs.
    pub fn counts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(op, &count)| (op.as_str(), count))
    }
}

/// What a text uses, and what of it cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// How often each op occurs.
    pub usage: Usage,
    /// What cannot be imported, in the order of the text.
    pub issues: Vec<Issue>,
    /// Parameters whose values must be given, since a shape depends on them.
    pub needed: Vec<String>,
}

impl Coverage {
    /// Whether all of it can be imported.
    pub fn is_complete(&self) -> bool {
        self.issues.is_empty()
    }
}

/// A table: each op, how often it occurs, how often it is refused, and why first.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut refused: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for issue in &self.issues {
            refused.entry(&issue.op).or_insert((0, &issue.what)).0 += 1;
        }
        let names = self.usage.0.keys().map(String::as_str).chain(refused.keys().copied());
        let width = names.map(str::len).max().unwrap_or(0).max("op".len());
        writeln!(f, "{:width$}  {:>7}  {:>7}  why", "op", "uses", "refused")?;
        for (op, uses) in &self.usage.0 {
            let (count, why) = refused.remove(op.as_str()).unwrap_or((0, ""));
            writeln!(f, "{}", format!("{op:width$}  {uses:7}  {count:7}  {why}").trim_end())?;
        }
        for (op, (count, why)) in refused {
            writeln!(f, "{op:width$}  {:7}  {count:7}  {why}", "")?;
        }
        Ok(())
    }
}
