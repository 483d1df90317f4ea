//! Plans of the blocks of loops and branches.

use super::bundles::bundled;
use super::fastest::fastest;
use crate::lower::linked::LinkBase;
use crate::memory::engine::{EngineModel, MemoEngine};
use crate::plan::blocks::{block_function, blocks};
use crate::plan::options::PlanOptions;
use crate::plan::{Plan, graph_hash};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Diagnostic, Function};

/// The fastest plans of the blocks of a function that are made without a search. They are no engine's in particular, and
/// are made once for all functions that are planned with one memo.
///
/// # Errors
/// As [`plan`](crate::plan()), at the loop or the branch.
pub(crate) fn block_plans(
    f: &Function,
    options: &PlanOptions,
    engine: &dyn EngineModel,
) -> Result<Vec<Plan>, Diagnostic> {
    let mut found = blocks(f).peekable();
    if found.peek().is_none() {
        return Ok(Vec::new());
    }
    let engine = MemoEngine::new(engine, &options.device).of_blocks();
    plans_of(f, options, &engine)
}

fn plans_of(
    f: &Function,
    options: &PlanOptions,
    engine: &MemoEngine<'_>,
) -> Result<Vec<Plan>, Diagnostic> {
    let mut plans: Vec<Plan> = Vec::new();
    for (i, region) in blocks(f) {
        let block = block_function(f, i, region).func;
        let graph = graph_hash(&block);
        if plans.iter().any(|known| known.graph == graph) {
            continue;
        }
        let make = || {
            let inner = plans_of(&block, options, engine)?;
            let base = LinkBase::of(&block)?;
            let plan = fastest(&block, options, &inner, (base.as_ref(), engine))?;
            Ok(bundled(base.as_ref(), (&block, plan), options, engine))
        };
        let made = match engine.memo() {
            Some(memo) => memo.block_plan((&graph, options), make),
            None => make(),
        };
        plans.push(made.map_err(|d| Diagnostic { at: at_inst(f, i), ..d })?);
    }
    Ok(plans)
}
