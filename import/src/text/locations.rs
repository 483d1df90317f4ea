//! Locations: the lines of the program that was traced, and the names of its arguments, where a text has them.
//!
//! JAX writes them where it is asked to: `lowered.as_text(debug_info=True)`.

use super::tree::{FunctionTree, RegionTree};
use adfuse_ir::SourceLine;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Locations that are defined in terms of each other are followed this far.
const MOST_STEPS: usize = 64;

/// The most bytes of a location in which the name of an argument is looked for.
const LONGEST_NAME: usize = 1024;

/// What stands between the brackets of `#name = loc(..)`, by the name.
#[derive(Default)]
pub(super) struct Locations<'a> {
    named: BTreeMap<&'a str, &'a str>,
    /// The lines of the names that were looked up.
    lines: BTreeMap<&'a str, Option<Arc<SourceLine>>>,
}

impl<'a> Locations<'a> {
    /// Defines a name; the first definition counts.
    pub(super) fn define(&mut self, name: &'a str, text: &'a str) {
        self.named.entry(name).or_insert(text);
    }

    /// Gives instructions their lines and parameters their names.
    pub(super) fn attach(&mut self, functions: &mut [FunctionTree<'a>]) {
        functions.iter_mut().for_each(|f| self.attach_region(&mut f.body));
    }

    fn attach_region(&mut self, region: &mut RegionTree<'a>) {
        for param in &mut region.params {
            param.label = self.argument(param.location);
        }
        for inst in &mut region.insts {
            inst.line = self.line(inst.location, 0);
            // Regions are nested no deeper than the parser allows.
            inst.regions.iter_mut().for_each(|r| self.attach_region(r));
        }
    }

    /// The line of the location that a text begins with: of calls the innermost one, of several that became one the first.
    fn line(&mut self, text: &'a str, steps: usize) -> Option<Arc<SourceLine>> {
        if steps > MOST_STEPS {
            return None;
        }
        let text = text.trim_start();
        if let Some(name) = text.strip_prefix('#') {
            return self.line_of(word(name), steps);
        }
        if let Some(inner) = text.strip_prefix("callsite(").or_else(|| text.strip_prefix("loc(")) {
            return self.line(inner, steps + 1);
        }
        if let Some(rest) = text.strip_prefix("fused") {
            return self.line(rest.split_once('[')?.1, steps + 1);
        }
        let (name, rest) = quoted(text)?;
        if let Some(inner) = rest.strip_prefix('(') {
            return self.line(inner, steps + 1);
        }
        let (line, rest) = number(rest.strip_prefix(':')?)?;
        let (column, _) = number(rest.strip_prefix(':')?)?;
        Some(Arc::new(SourceLine::new(&unescaped(name), line, column)))
    }

    /// The line of what has a name, which is looked up once: many locations may lead to one long text.
    fn line_of(&mut self, name: &'a str, steps: usize) -> Option<Arc<SourceLine>> {
        if let Some(found) = self.lines.get(name) {
            return found.clone();
        }
        let text = *self.named.get(name)?;
        // Nothing is found through itself.
        self.lines.insert(name, None);
        let found = self.line(text, steps + 1);
        self.lines.insert(name, found.clone());
        found
    }

    /// The name of an argument, as JAX tells it: `params['w'][0]` is `params.w.0`.
    fn argument(&self, text: &'a str) -> Option<String> {
        let text = text.trim_start();
        let text = text.strip_prefix('#').map_or(Some(text), |n| self.named.get(word(n)).copied());
        let text = text?;
        let (name, rest) = quoted(&text[..text.floor_char_boundary(LONGEST_NAME)])?;
        // A line of the program is no name.
        (!name.is_empty() && !rest.starts_with(':')).then(|| words(&unescaped(name)))
    }
}

/// The characters of a name that a text begins with.
fn word(text: &str) -> &str {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_.$-".contains(c);
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// The string that a text begins with, escapes as they stand, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut escaped = false;
    let end = inner.bytes().position(|b| {
        let closes = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        closes
    })?;
    Some((&inner[..end], &inner[end + 1..]))
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// A string without its escapes: `\\`, `\"`, and bytes as `\5C`.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&b, after)) = rest.split_first() {
        rest = after;
        if b != b'\\' {
            out.push(b);
            continue;
        }
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.extend(after.first());
                rest = after.get(1..).unwrap_or_default();
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The words of a path into a tree, with dots between them.
fn words(path: &str) -> String {
    let parts = path.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locations() -> Locations<'static> {
        let mut all = Locations::default();
        for (name, text) in [
            ("loc", "unknown"),
            ("loc1", "\"params['blocks'][0]['w']\""),
            ("loc2", "\"/home/ada/net/src/gpt.py\":18:22 to :33"),
            ("loc3", "\"jit(loss)/mul\"(#loc2)"),
            ("loc4", "callsite(#loc3 at #loc5)"),
            ("loc5", "\"main.py\":3:1"),
            ("loc6", "fused<#sched>[#loc5, #loc2]"),
            ("round", "#round"),
        ] {
            all.define(name, text);
        }
        all
    }

    #[test]
    fn a_location_is_a_line_of_the_program_that_was_traced() {
        let mut all = locations();
        for (text, line) in [
            ("#loc", None),
            ("unknown", None),
            ("#loc1", None),
            ("#loc2", Some("net/src/gpt.py:18:22")),
            ("#loc3", Some("net/src/gpt.py:18:22")),
            ("#loc4", Some("net/src/gpt.py:18:22")),
            ("#loc6", Some("main.py:3:1")),
            ("callsite(\"a\\22b.py\":1:2 at #loc5)", Some("a\"b.py:1:2")),
            ("#round", None),
            ("#nowhere", None),
            ("\"open", None),
            ("\"f.py\":99999999999:1", None),
            ("", None),
        ] {
            let found = all.line(text, 0).map(|l| l.to_string());
            assert_eq!(found.as_deref(), line, "{text}");
        }
    }

    #[test]
    fn arguments_have_the_names_of_their_trees() {
        let all = locations();
        for (text, name) in [
            ("#loc1", Some("params.blocks.0.w")),
            ("\"x\"", Some("x")),
            ("\"state.opt_state[1].mu['w']\"", Some("state.opt_state.1.mu.w")),
            ("#loc2", None),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(all.argument(text).as_deref(), name, "{text}");
        }
    }
}
