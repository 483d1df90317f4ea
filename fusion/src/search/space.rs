//! The plans of a function, with their options and their cost.

use super::blocks::block_plans;
use super::measure::Measure;
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::analysis::value_range::ValueRanges;
use crate::memory::engine::EngineModel;
use crate::plan::layout::Layout;
use crate::plan::options::PlanOptions;
use crate::plan::rewrites::Rewrites;
use crate::plan::{Plan, graph_hash};
use adfuse_ir::{Diagnostic, Function, Value};
use cranelift_entity::EntitySet;

/// A function, and what its plans are made for and measured by.
pub struct PlanSpace<'f> {
    pub(crate) facts: Facts<'f>,
    pub(crate) options: &'f PlanOptions,
    pub(crate) engine: &'f dyn EngineModel,
    pub(crate) measure: &'f dyn Measure,
    pub(crate) results: EntitySet<Value>,
    pub(crate) ranges: ValueRanges,
    /// What all plans say of themselves.
    pub(crate) head: Plan,
}

impl<'f> PlanSpace<'f> {
    /// The plans of a [prepared](crate::prepare()) function.
    ///
    /// # Errors
    /// As [`plan`](crate::plan()).
    pub fn new(
        f: &'f Function,
        options: &'f PlanOptions,
        engine: &'f dyn EngineModel,
        measure: &'f dyn Measure,
    ) -> Result<PlanSpace<'f>, Diagnostic> {
        let facts = Facts::of(f, true)?;
        let mut results = EntitySet::new();
        results.extend(f.results().iter().copied());
        let head = Plan {
            name: f.name.clone(),
            graph: graph_hash(f),
            device: options.device.identity(),
            fp: options.fp,
            layout: Layout::default(),
            donated: engine.donated().to_vec(),
            inline: Vec::new(),
            groups: Vec::new(),
            storage: Vec::new(),
            rewrites: Rewrites::default(),
            blocks: block_plans(f, options, engine)?,
        };
        let ranges = ValueRanges::of(&facts);
        Ok(PlanSpace { facts, options, engine, measure, results, ranges, head })
    }

    /// Those of a layout.
    pub(crate) fn laid_out(mut self, layout: Layout) -> PlanSpace<'f> {
        self.head.layout = layout;
        self
    }

    /// The prepared function whose plans are searched.
    pub fn function(&self) -> &'f Function {
        self.facts.f
    }

    pub(crate) fn is_constant(&self, v: Value) -> bool {
        self.maker(v).is_some_and(|i| self.facts.class[i] == InstClass::Constant)
    }
}
