//! Plans of the blocks of loops and branches.

use super::bundles::bundled;
use super::fastest::fastest;
use crate::memory::engine::AnyEngine;
use crate::plan::blocks::{block_function, blocks};
use crate::plan::options::PlanOptions;
use crate::plan::{Plan, graph_hash};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Diagnostic, Function};

/// The fastest plans of the blocks of a function that are made without a search.
///
/// # Errors
/// As [`plan`](crate::plan()), at the loop or the branch.
pub(crate) fn block_plans(f: &Function, options: &PlanOptions) -> Result<Vec<Plan>, Diagnostic> {
    let mut plans: Vec<Plan> = Vec::new();
    for (i, region) in blocks(f) {
        let block = block_function(f, i, region).func;
        let graph = graph_hash(&block);
        if plans.iter().all(|known| known.graph != graph) {
            let made = block_plans(&block, options)
                .and_then(|inner| fastest(&block, options, &inner, &AnyEngine))
                .map(|plan| bundled(&block, plan, options, &AnyEngine))
                .map_err(|d| Diagnostic { at: at_inst(f, i), ..d })?;
            plans.push(made);
        }
    }
    Ok(plans)
}
