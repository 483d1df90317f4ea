//! Values in a person's words. One without a name is told by its op, what it is made of, its type and the source line.

use adfuse_ir::op::Body;
use adfuse_ir::text::Names;
use adfuse_ir::{Function, Inst, Value, ValueDef};
use std::cell::RefCell;

/// Names of values in sentences; it keeps in mind which were mentioned.
pub struct ValueWords<'a> {
    f: &'a Function,
    /// The text that the function was read from; empty where there is none.
    source: &'a str,
    names: Names,
    mentioned: RefCell<Vec<Value>>,
}

/// Ops that are nested where a value is told.
const DEPTH: u32 = 3;

impl<'a> ValueWords<'a> {
    /// Of a function; `source` is the text that it was read from, or empty.
    pub fn new(f: &'a Function, source: &'a str) -> ValueWords<'a> {
        ValueWords { f, source, names: Names::of(f), mentioned: RefCell::default() }
    }

    /// What a value is called: `%h`, or a number that is written.
    pub fn name(&self, v: Value) -> String {
        if let Some(l) = self.f.literal(v) {
            return l.to_string();
        }
        let mut mentioned = self.mentioned.borrow_mut();
        if !mentioned.contains(&v) {
            mentioned.push(v);
        }
        format!("%{}", self.names.get(v))
    }

    /// A line for each value without a name that was mentioned: `%7 is exp(%x): f32[2,3], line 4`.
    pub fn legend(&self) -> Vec<String> {
        let mentioned = self.mentioned.borrow();
        mentioned.iter().filter_map(|&v| self.told(v)).collect()
    }

    /// What a value without a name is; nothing for one that has a name.
    fn told(&self, v: Value) -> Option<String> {
        let (f, i) = (self.f, self.unnamed(v)?);
        let (name, made, ty) = (self.names.get(v), self.made_of(i, DEPTH), f.ty(v));
        let line = self.line(i).map_or_else(String::new, |line| format!(", {line}"));
        Some(format!("%{name} is {made}: {ty}{line}"))
    }

    /// The instruction that computes a value without a name.
    fn unnamed(&self, v: Value) -> Option<Inst> {
        match self.f.def(v) {
            ValueDef::Inst(i, _) if self.f.name_of(v).is_none() => Some(i),
            _ => None,
        }
    }

    /// An instruction as a formula.
    fn made_of(&self, i: Inst, depth: u32) -> String {
        let f = self.f;
        let of: Vec<String> = f.args(i).iter().map(|&a| self.formula(a, depth - 1)).collect();
        format!("{}({})", f.op(i).name(), of.join(", "))
    }

    fn formula(&self, v: Value, depth: u32) -> String {
        let f = self.f;
        match (f.literal(v), self.unnamed(v)) {
            (Some(l), _) => l.to_string(),
            // Where its elements lie is no part of what it is.
            (None, Some(i))
                if matches!(f.op(i).def().body, Body::View(_)) && f.args(i).len() == 1 =>
            {
                self.formula(f.args(i)[0], depth)
            }
            (None, Some(i)) if depth > 0 => self.made_of(i, depth),
            _ => format!("%{}", self.names.get(v)),
        }
    }

    /// The line that an instruction comes from: of the program that was traced, or of the text that was read.
    fn line(&self, i: Inst) -> Option<String> {
        if let Some(line) = self.f.source_line(i) {
            return Some(line.to_string());
        }
        let before = self.source.get(..self.f.span(i)?.start as usize)?;
        (!self.source.is_empty()).then(|| format!("line {}", before.matches('\n').count() + 1))
    }
}
