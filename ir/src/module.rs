//! Modules: functions that call each other by name.

use crate::entity::Func;
use crate::function::Function;
use cranelift_entity::{EntityRef, PrimaryMap};
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Index;

/// Functions that may call each other by name.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// The functions, in the order of the text.
    pub funcs: Functions,
}

impl Module {
    /// The module of one function, and of those that come with it where it is more than a [`Function`].
    pub fn single(f: impl Into<Module>) -> Module {
        f.into()
    }

    /// The functions that `f` calls, or that are rules of those, to any depth, in the order of the module; `f`
    /// itself if it has a rule, since it is then differentiated as a call of it.
    pub fn reached(&self, f: &Function) -> Module {
        let names = self.reached_names(f);
        let mut out = Module::default();
        for g in self.funcs.values().filter(|g| names.contains(&g.name)) {
            out.funcs.push(g.clone());
        }
        out
    }

    /// The names that `f` calls, or that are rules of those, to any depth; as [`Module::reached`].
    pub fn reached_names(&self, f: &Function) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut open = vec![f];
        while let Some(g) = open.pop() {
            let own = g.rule.as_ref().map(|_| g.name.clone());
            for name in g.callees().into_iter().chain(own) {
                if names.insert(name.clone()) {
                    open.extend(self.find(&name));
                }
            }
        }
        names
    }

    /// The function of this name (without `@`).
    pub fn find(&self, name: &str) -> Option<&Function> {
        self.funcs.named(name).map(|k| &self.funcs[k])
    }
}

impl From<Function> for Module {
    fn from(f: Function) -> Module {
        let mut m = Module::default();
        m.funcs.push(f);
        m
    }
}

/// Functions in order, found by name.
///
/// A function is not changed once it is in here, so that the names it is found by stay right; a changed
/// module is made of changed copies.
#[derive(Clone, Default)]
pub struct Functions {
    all: PrimaryMap<Func, Function>,
    /// Of several with one name, which no verified module has, the first.
    by_name: HashMap<String, Func>,
}

impl Functions {
    /// Adds a function after the others.
    pub fn push(&mut self, f: Function) -> Func {
        let k = self.all.next_key();
        self.by_name.entry_ref(f.name.as_str()).or_insert(k);
        self.all.push(f)
    }

    /// The first function of this name.
    pub fn named(&self, name: &str) -> Option<Func> {
        self.by_name.get(name).copied()
    }

    /// The functions in order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Function> + ExactSizeIterator {
        self.all.values()
    }

    /// The functions in order, with their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Func, &Function)> + ExactSizeIterator {
        self.values().enumerate().map(|(k, f)| (Func::new(k), f))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = Func> + ExactSizeIterator + use<> {
        (0..self.all.len()).map(Func::new)
    }
}

impl Index<Func> for Functions {
    type Output = Function;

    fn index(&self, k: Func) -> &Function {
        &self.all[k]
    }
}

/// Without the index, whose order is not that of the text.
impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}
