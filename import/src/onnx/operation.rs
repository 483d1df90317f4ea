//! A node as rows of the table see it: its inputs, its attributes, and which outputs are wanted.

use super::proto::{AttributeProto, GraphProto, OperationProto, TensorProto};
use crate::emit::Val;
use crate::emit::refusal::{Unlowered, refuse};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A node whose inputs are lowered.
pub(crate) struct OnnxOperation<'m> {
    pub(crate) proto: &'m OperationProto<'m>,
    /// `None` for an input that is left out.
    pub(crate) inputs: Vec<Option<Val>>,
    /// Those of the node; what refers to one of the function around it has that one's value.
    pub(crate) attributes: Vec<(&'m str, &'m AttributeProto<'m>)>,
    /// The version of its domain.
    pub(crate) version: i64,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'m> OnnxOperation<'m> {
    pub(crate) fn new(
        proto: &'m OperationProto<'m>,
        inputs: Vec<Option<Val>>,
        attributes: Vec<(&'m str, &'m AttributeProto<'m>)>,
        version: i64,
    ) -> OnnxOperation<'m> {
        OnnxOperation { proto, inputs, attributes, version, read: RefCell::default() }
    }

    /// The attribute of this name. It counts as read.
    pub(crate) fn attribute(&self, name: &'static str) -> Option<&'m AttributeProto<'m>> {
        self.read.borrow_mut().insert(name);
        self.attributes.iter().find(|a| a.0 == name).map(|a| a.1)
    }

    /// Attributes that say nothing about values.
    pub(crate) fn ignore(&self, names: &[&'static str]) {
        self.read.borrow_mut().extend(names);
    }

    /// The first attribute that nothing has read.
    pub(crate) fn unread(&self) -> Option<&'m str> {
        let read = self.read.borrow();
        self.attributes.iter().map(|a| a.0).find(|name| !read.contains(name))
    }

    pub(crate) fn has(&self, name: &'static str) -> bool {
        self.attribute(name).is_some()
    }

    pub(crate) fn int(&self, name: &'static str, default: i64) -> i64 {
        self.attribute(name).and_then(|a| a.i).unwrap_or(default)
    }

    pub(crate) fn flag(&self, name: &'static str, default: bool) -> bool {
        self.int(name, default.into()) != 0
    }

    pub(crate) fn float(&self, name: &'static str, default: f32) -> f64 {
        f64::from(self.attribute(name).and_then(|a| a.f).unwrap_or(default))
    }

    pub(crate) fn text(&self, name: &'static str, default: &'static str) -> &'m str {
        let text = self.attribute(name).and_then(|a| a.s);
        text.and_then(|s| std::str::from_utf8(s).ok()).unwrap_or(default)
    }

    pub(crate) fn ints(&self, name: &'static str) -> Option<&'m [i64]> {
        let found = self.attribute(name)?;
        Some(&found.ints)
    }

    pub(crate) fn floats(&self, name: &'static str) -> Option<Vec<f64>> {
        let found = self.attribute(name)?;
        let of = |c: &[u8]| f64::from(f32::from_le_bytes([c[0], c[1], c[2], c[3]]));
        Some(found.floats.chunks_exact(4).map(of).collect())
    }

    pub(crate) fn texts(&self, name: &'static str) -> Option<Vec<&'m str>> {
        let found = self.attribute(name)?;
        found.strings.iter().map(|s| std::str::from_utf8(s).ok()).collect()
    }

    pub(crate) fn tensor(&self, name: &'static str) -> Option<&'m TensorProto<'m>> {
        self.attribute(name)?.t.as_deref()
    }

    pub(crate) fn graph(&self, name: &'static str) -> Result<&'m GraphProto<'m>, Unlowered> {
        match self.attribute(name).and_then(|a| a.g.as_deref()) {
            Some(graph) => Ok(graph),
            None => refuse(format!("without the graph `{name}`")),
        }
    }

    /// An input that must be there.
    pub(crate) fn input(&self, k: usize) -> Result<Val, Unlowered> {
        match self.optional(k) {
            Some(v) => Ok(v),
            None => refuse(format!("input {k} is missing")),
        }
    }

    pub(crate) fn optional(&self, k: usize) -> Option<Val> {
        self.inputs.get(k).copied().flatten()
    }

    /// All inputs, none of which may be left out.
    pub(crate) fn all(&self) -> Result<Vec<Val>, Unlowered> {
        (0..self.inputs.len()).map(|k| self.input(k)).collect()
    }

    /// Whether something reads an output.
    pub(crate) fn wants(&self, k: usize) -> bool {
        self.proto.outputs.get(k).is_some_and(|name| !name.is_empty())
    }
}
