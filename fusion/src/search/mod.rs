//! Search: small changes of a plan, as long as they make it better.
//!
//! A [`Space`] is a function with what its plans are made for. A [`State`] is a plan of it as data, a
//! [`Move`] a small change that can be taken back, and [`Features`] are the numbers by which one might
//! choose among moves. [`search`] walks from a plan by moves that a [`Policy`] chooses and keeps the best
//! plan on its way: it is never worse than the one it began with, and equal seeds give equal plans.
//!
//! What a move leads to is lowered and priced as any plan is. So nothing here decides what is legal: a
//! state is a plan if it lowers to a program that the verifier accepts.

mod apply;
mod features;
mod moves;
mod policy;
mod price;
mod state;
mod walk;
mod window;

pub use apply::Undo;
pub use features::{EdgeFeatures, Features, GroupFeatures};
pub use moves::Move;
pub use policy::{Policy, Uniform};
pub use price::{Measure, Predicted, Price};
pub use state::{Seat, Slot, State};
pub use walk::{Found, SearchOptions, search};

pub(crate) use walk::searched;

use crate::facts::{Class, Facts};
use crate::joint::Engine;
use crate::plan::{Options, Plan, graph_hash};
use crate::range::Ranges;
use adfuse_ir::{Diagnostic, Function, Value};
use cranelift_entity::EntitySet;

/// A function, and what its plans are made for and measured by.
pub struct Space<'f> {
    facts: Facts<'f>,
    options: &'f Options,
    engine: &'f dyn Engine,
    measure: &'f dyn Measure,
    results: EntitySet<Value>,
    ranges: Ranges,
    /// What all plans say of themselves.
    head: Plan,
}

impl<'f> Space<'f> {
    /// The plans of a [prepared](crate::prepare()) function.
    ///
    /// # Errors
    /// As [`plan`](crate::plan()).
    pub fn new(
        f: &'f Function,
        options: &'f Options,
        engine: &'f dyn Engine,
        measure: &'f dyn Measure,
    ) -> Result<Space<'f>, Diagnostic> {
        let facts = Facts::of(f, true)?;
        let mut results = EntitySet::new();
        results.extend(f.results().iter().copied());
        let head = Plan {
            name: f.name.clone(),
            graph: graph_hash(f),
            device: options.device.name.clone(),
            fp: options.fp,
            donated: engine.donated().to_vec(),
            inline: Vec::new(),
            groups: Vec::new(),
            storage: Vec::new(),
        };
        let ranges = Ranges::of(&facts);
        Ok(Space { facts, options, engine, measure, results, ranges, head })
    }

    /// The function.
    pub fn function(&self) -> &'f Function {
        self.facts.f
    }

    fn is_constant(&self, v: Value) -> bool {
        self.maker(v).is_some_and(|i| self.facts.class[i] == Class::Constant)
    }
}
