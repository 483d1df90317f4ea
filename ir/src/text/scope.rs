//! Which value names mean what, at one place of a function.

use crate::entity::Value;
use hashbrown::HashMap;

/// How many visible names are searched for a near one; the latest are the likely ones.
const NEAR: usize = 1000;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Binding {
    /// This value.
    Value(Value),
    /// A result of an instruction that is still being read.
    Pending,
    /// A value whose definition is in error, which is reported already.
    Poison,
}

/// The visible names, innermost region last. Names are not shadowed.
#[derive(Default)]
pub(super) struct Scope<'s> {
    bindings: HashMap<&'s str, Binding>,
    order: Vec<&'s str>,
}

impl<'s> Scope<'s> {
    /// What `name` stands for here.
    pub(super) fn get(&self, name: &str) -> Option<Binding> {
        self.bindings.get(name).copied()
    }

    /// Defines a name; false when it is visible already, and then it keeps its meaning.
    pub(super) fn define(&mut self, name: &'s str, binding: Binding) -> bool {
        if self.bindings.contains_key(name) {
            return false;
        }
        self.bindings.insert(name, binding);
        self.order.push(name);
        true
    }

    /// Gives a defined name another meaning.
    pub(super) fn set(&mut self, name: &'s str, binding: Binding) {
        self.bindings.insert(name, binding);
    }

    /// A mark to return to when the region that begins here ends.
    pub(super) fn mark(&self) -> usize {
        self.order.len()
    }

    /// Forgets the names defined since the mark.
    pub(super) fn close(&mut self, mark: usize) {
        for name in self.order.drain(mark..) {
            self.bindings.remove(name);
        }
    }

    /// The latest visible names.
    pub(super) fn near(&self) -> impl Iterator<Item = &'s str> {
        self.order.iter().rev().take(NEAR).copied()
    }
}
