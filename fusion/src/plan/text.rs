//! The text of plans.
//!
//! ```text
//! plan @loss {
//!   graph 6b86b273ff34fce19d6b804eff5a3f57
//!   device cpu
//!   fp strict
//!   segments %3, %6
//!   inverse %4 from %7
//!   lossy %8 as bf16
//!   loop checkpoints 32
//!   donate %w
//!   inline %1, %2
//!   group %0, %3, %5
//!   group %7; %9, %10
//!   store %5 as b1
//!   plan @loss.step {
//!     ..
//!   }
//! }
//! ```
//!
//! Values have the names of the function's text that is planned, those at the ends of segments of the text before it is divided. The parts of a group are separated by `;`. Lossy copies are
//! part of the function ([`crate::prepass::lossy`]); they are repeated here so that the function can be made from one
//! without copies; and so are segments, inverses and decisions about the ways back over loops. The plans of the blocks of loops and branches follow at the end.

use super::inverse::InverseChoice;
use super::loop_choice::LoopChoice;
use super::lossy::{LossyCopy, Narrow, lossy_copies};
use super::segments::CheckpointEnds;
use super::{Group, Plan, graph_hash, short_hash};
use crate::plan::blocks::{block_function, blocks};
use crate::plan::layout::Layout;
use adfuse_ir::kernel::Storage;
use adfuse_ir::text::Names;
use adfuse_ir::{At, Diagnostic, Fp, Function, Inst, Kind, Span, Value, ValueDef};
use hashbrown::HashMap;
use std::fmt::Write;

/// The plan's text.
pub(crate) fn print(plan: &Plan, f: &Function, names: &Names) -> String {
    let list = |insts: &[Inst]| {
        let name = |i: &Inst| format!("%{}", names.get(f.inst_results(*i)[0]));
        insts.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let mut out = format!("plan @{} {{\n", plan.name);
    let mut line = |text: String| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "  {text}");
    };
    line(format!("graph {}", plan.graph));
    line(format!("device {}", plan.device));
    line(format!("fp {}", plan.fp.name()));
    if plan.layout != Layout::default() {
        line(format!("layout {}", plan.layout.name()));
    }
    for ends in &plan.rewrites.segments {
        line(format!("segments {ends}"));
    }
    for choice in &plan.rewrites.inverses {
        line(format!("inverse {choice}"));
    }
    for LossyCopy { of, narrow, .. } in lossy_copies(f) {
        line(format!("lossy %{} as {}", names.get(of), narrow.name()));
    }
    for choice in &plan.rewrites.loops {
        line(format!("loop {choice}"));
    }
    if !plan.donated.is_empty() {
        let given = plan.donated.iter().filter_map(|&k| f.params().get(k));
        let all: Vec<String> = given.map(|&p| format!("%{}", names.get(p))).collect();
        line(format!("donate {}", all.join(", ")));
    }
    if !plan.inline.is_empty() {
        line(format!("inline {}", list(&plan.inline)));
    }
    for group in &plan.groups {
        let parts: Vec<String> = group.parts.iter().map(|p| list(p)).collect();
        line(format!("group {}", parts.join("; ")));
    }
    for (v, storage) in &plan.storage {
        line(format!("store %{} as {}", names.get(*v), form(*storage)));
    }
    let functions = block_functions(f);
    for block in &plan.blocks {
        if let Some((_, func)) = functions.iter().find(|(graph, _)| *graph == block.graph) {
            block.text(func).lines().for_each(|text| line(text.into()));
        }
    }
    out.push_str("}\n");
    out
}

/// The functions of the blocks of a function, with their hashes.
fn block_functions(f: &Function) -> Vec<(String, Function)> {
    let func = |(i, region)| block_function(f, i, region).func;
    blocks(f).map(func).map(|func| (graph_hash(&func), func)).collect()
}

fn form(storage: Storage) -> String {
    match storage {
        Storage::Plain => "plain".into(),
        Storage::Packed(1) => "b1".into(),
        Storage::Packed(bits) => format!("u{bits}"),
    }
}

fn storage(word: &str) -> Option<Storage> {
    match word {
        "plain" => Some(Storage::Plain),
        "b1" => Some(Storage::Packed(1)),
        "u2" => Some(Storage::Packed(2)),
        "u4" => Some(Storage::Packed(4)),
        "u8" => Some(Storage::Packed(8)),
        _ => None,
    }
}

/// A word as messages quote it.
fn short(word: &str) -> String {
    const MOST: usize = 60;
    match word.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}..", &word[..end]),
        None => word.into(),
    }
}

/// The lines of a plan's text between its first line and the plans of blocks, each with its place, its first word and the
/// rest of it. What is no plan has whatever lines it has.
pub(crate) fn plan_lines(text: &str) -> impl Iterator<Item = (Span, &str, &str)> {
    let mut next = 0;
    let lines = text.split_inclusive('\n').map(move |line| {
        let start = next + (line.len() - line.trim_start().len());
        next += line.len();
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        (Span::new(start, start + line.len()), word, rest)
    });
    let own = lines.filter(|(span, ..)| span.start < span.end).skip(1);
    own.take_while(|(_, word, _)| *word != "plan")
}

/// The most bytes of a plan's text.
const MOST: usize = 64 << 20;

/// Reads a plan.
pub(crate) fn parse(text: &str, f: &Function, names: &Names) -> Result<Plan, Diagnostic> {
    let mut values: HashMap<String, Value> = HashMap::new();
    for &i in f.body_insts() {
        for &v in f.inst_results(i) {
            values.insert(names.get(v), v);
        }
    }
    let params = f.params().iter().map(|&p| names.get(p)).collect();
    let mut reader = PlanReader { f, values, params, at: 0, len: 0 };
    if text.len() > MOST {
        return reader.fail(Kind::Limit, format!("a plan has at most {MOST} bytes"));
    }
    reader.plan(text)
}

/// Lines that a plan has once at most.
const ONCE: [&str; 5] = ["graph", "device", "fp", "layout", "donate"];

struct PlanReader<'f> {
    f: &'f Function,
    values: HashMap<String, Value>,
    params: Vec<String>,
    /// Where the line that is read begins, and its length.
    at: usize,
    len: usize,
}

impl PlanReader<'_> {
    fn fail<T>(&self, kind: Kind, message: impl Into<String>) -> Result<T, Diagnostic> {
        let place = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let span = Span { start: place(self.at), end: place(self.at + self.len) };
        Err(Diagnostic::new(At { span: Some(span), ..At::default() }, kind, message))
    }

    fn plan(&mut self, text: &str) -> Result<Plan, Diagnostic> {
        let mut plan = Plan::default();
        let (mut open, mut closed) = (false, false);
        // Where the plan of a block begins, and how many plans are open there.
        let mut inner: Option<(usize, usize)> = None;
        let mut lossy: Vec<(Value, Narrow)> = Vec::new();
        let mut said: Vec<&str> = Vec::new();
        let mut next = 0;
        for line in text.split_inclusive('\n') {
            let trimmed = line.trim();
            self.at = next + (line.len() - line.trim_start().len());
            self.len = trimmed.len();
            next += line.len();
            if trimmed.is_empty() {
                continue;
            }
            let (word, rest) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
            if open && !closed && (word == "plan" || inner.is_some()) {
                let (start, mut depth) = inner.unwrap_or((next - line.len(), 0));
                depth += usize::from(word == "plan");
                depth -= usize::from(trimmed == "}");
                inner = (depth > 0).then_some((start, depth));
                if inner.is_none() {
                    plan.blocks.push(self.block(&text[start..next], start)?);
                }
                continue;
            }
            match (open, closed, word) {
                (false, _, "plan") => {
                    plan.name = self.name(rest)?;
                    open = true;
                }
                (true, false, "}") if rest.is_empty() => closed = true,
                (true, false, _) if ONCE.contains(&word) && said.contains(&word) => {
                    return self.fail(Kind::Syntax, format!("a second line `{word}`"));
                }
                (true, false, _) => {
                    said.push(word);
                    self.entry(&mut plan, &mut lossy, (word, rest))?;
                }
                _ => return self.unexpected(word),
            }
        }
        if !closed {
            (self.at, self.len) = (text.len(), 0);
            return self.fail(Kind::Syntax, "the plan has no end");
        }
        let alike = |block: &Plan| block.fp == plan.fp && block.device == plan.device;
        if let Some(block) = plan.blocks.iter().find(|block| !alike(block)) {
            let m = format!("the plan of @{} is for another machine or mode", block.name);
            return self.fail(Kind::Usage, m);
        }
        let graphs: Vec<&str> = plan.blocks.iter().map(|block| block.graph.as_str()).collect();
        if (1..graphs.len()).any(|k| graphs[..k].contains(&graphs[k])) {
            return self.fail(Kind::Usage, "two plans of one block");
        }
        let copies: Vec<_> = lossy_copies(self.f).iter().map(|c| (c.of, c.narrow)).collect();
        if lossy != copies {
            let m = format!("the plan and @{} keep other values with losses", self.f.name);
            return self.fail(Kind::Usage, m);
        }
        Ok(plan)
    }

    /// Reads what follows `plan` in the first line: the name of the function.
    fn name(&self, rest: &str) -> Result<String, Diagnostic> {
        let name = rest.strip_suffix('{').map(str::trim).and_then(|n| n.strip_prefix('@'));
        match name {
            Some(name) if name == self.f.name => Ok(name.into()),
            Some(name) => {
                let m = format!("a plan of @{}, not of @{}", short(name), self.f.name);
                self.fail(Kind::Usage, m)
            }
            None => self.fail(Kind::Syntax, "expected `plan @name {`"),
        }
    }

    /// Reads the plan of a block, which begins at a place in the text.
    fn block(&mut self, text: &str, start: usize) -> Result<Plan, Diagnostic> {
        (self.at, self.len) = (start, text.len());
        let graph = text.lines().find_map(|line| line.trim().strip_prefix("graph "));
        let found = block_functions(self.f).into_iter().find(|(known, _)| Some(&**known) == graph);
        let Some((_, func)) = found else {
            let m = format!("@{} has no block that this is a plan of", self.f.name);
            return self.fail(Kind::Usage, m);
        };
        parse(text, &func, &Names::of(&func)).map_err(|mut d| {
            if let Some(span) = &mut d.at.span {
                let by = u32::try_from(start).unwrap_or(u32::MAX);
                span.start = span.start.saturating_add(by);
                span.end = span.end.saturating_add(by);
            }
            d
        })
    }

    /// Reads a line inside of the plan: its first word, and the rest of it.
    fn entry(
        &self,
        plan: &mut Plan,
        lossy: &mut Vec<(Value, Narrow)>,
        (word, rest): (&str, &str),
    ) -> Result<(), Diagnostic> {
        match word {
            "graph" => plan.graph = rest.into(),
            "device" => plan.device = rest.into(),
            "fp" => match Fp::ALL.iter().find(|(_, name)| *name == rest) {
                Some((fp, _)) => plan.fp = *fp,
                None => {
                    return self.fail(Kind::Syntax, format!("`{}` is no mode", short(rest)));
                }
            },
            "layout" => match Layout::ALL.into_iter().find(|layout| layout.name() == rest) {
                Some(layout) => plan.layout = layout,
                None => {
                    return self.fail(Kind::Syntax, format!("`{}` is no layout", short(rest)));
                }
            },
            "lossy" => {
                let Some((name, form)) = rest.split_once(" as ") else {
                    return self.fail(Kind::Syntax, "expected `lossy %value as type`");
                };
                let v = self.value(name)?;
                match Narrow::named(form.trim()) {
                    Some(narrow) => lossy.push((v, narrow)),
                    None => {
                        let m = format!("nothing is kept with losses as `{}`", short(form));
                        return self.fail(Kind::Syntax, m);
                    }
                }
            }
            "segments" => match CheckpointEnds::parse(rest) {
                Some(ends) => plan.rewrites.segments.push(ends),
                None => return self.fail(Kind::Syntax, "expected `segments %value, %value`"),
            },
            "inverse" => match InverseChoice::parse(rest) {
                Some(choice) => plan.rewrites.inverses.push(choice),
                None => {
                    return self.fail(Kind::Syntax, "expected `inverse %value from %answer`");
                }
            },
            "loop" => match LoopChoice::parse(rest) {
                Some(choice) => plan.rewrites.loops.push(choice),
                None => {
                    let m = format!("`{}` is no decision about a loop", short(rest));
                    return self.fail(Kind::Syntax, m);
                }
            },
            "donate" => {
                let given = rest.split(',').map(|name| self.param(name));
                let given: Vec<usize> = given.collect::<Result<_, _>>()?;
                if !given.is_sorted_by(|a, b| a < b) {
                    return self.fail(Kind::Usage, "parameters are listed in their order, once");
                }
                plan.donated = given;
            }
            "inline" => plan.inline.extend(self.insts(rest)?),
            "group" => {
                let parts = rest.split(';').map(|part| self.insts(part));
                plan.groups.push(Group { parts: parts.collect::<Result<_, _>>()? });
            }
            "store" => {
                let Some((name, form)) = rest.split_once(" as ") else {
                    return self.fail(Kind::Syntax, "expected `store %value as form`");
                };
                let v = self.value(name)?;
                match storage(form.trim()) {
                    Some(s) => plan.storage.push((v, s)),
                    None => {
                        return self.fail(Kind::Syntax, format!("`{}` is no form", short(form)));
                    }
                }
            }
            _ => return self.unexpected(word),
        }
        Ok(())
    }

    /// Fails at a line that cannot begin with this word.
    fn unexpected<T>(&self, word: &str) -> Result<T, Diagnostic> {
        self.fail(Kind::Syntax, format!("`{}` is not expected here", short(word)))
    }

    fn insts(&self, list: &str) -> Result<Vec<Inst>, Diagnostic> {
        list.split(',').map(|name| self.inst(name)).collect()
    }

    fn inst(&self, name: &str) -> Result<Inst, Diagnostic> {
        match self.f.def(self.value(name)?) {
            ValueDef::Inst(i, _) => Ok(i),
            _ => self.fail(Kind::Usage, format!("{} is not computed", name.trim())),
        }
    }

    /// The position of a parameter.
    fn param(&self, name: &str) -> Result<usize, Diagnostic> {
        let name = name.trim();
        let found = name.strip_prefix('%').and_then(|n| self.params.iter().position(|p| p == n));
        found.map_or_else(
            || {
                let m = format!("`{}` is no parameter of @{}", short(name), self.f.name);
                self.fail(Kind::UnknownName, m)
            },
            Ok,
        )
    }

    fn value(&self, name: &str) -> Result<Value, Diagnostic> {
        let name = name.trim();
        let found = name.strip_prefix('%').and_then(|n| self.values.get(n));
        match found {
            Some(&v) => Ok(v),
            None => self.fail(
                Kind::UnknownName,
                format!("`{}` is no instruction of @{}", short(name), self.f.name),
            ),
        }
    }
}

impl Plan {
    /// A hash of the plan.
    pub fn hash(&self, f: &Function) -> String {
        short_hash(&self.text(f))
    }

    /// The plan's text, with the names that values have in the function's.
    pub fn text(&self, f: &Function) -> String {
        print(self, f, &Names::of(f))
    }

    /// Reads a plan of a function.
    ///
    /// # Errors
    /// If the text is no plan, or not one of this function: the error has the place in the text.
    pub fn parse(text: &str, f: &Function) -> Result<Plan, Diagnostic> {
        parse(text, f, &Names::of(f))
    }
}
