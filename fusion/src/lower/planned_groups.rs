//! The groups that planning a function has lowered: the program of its plan is put together from these.

use super::group_memo::LoweringMemo;
use super::{LowerWith, lower, placed};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use adfuse_ir::kernel::Program;
use adfuse_ir::{Diagnostic, Function};
use std::sync::Arc;

/// What is known of a function once it has been planned: the hash of its text, and what its groups are lowered to.
#[derive(Clone, Debug)]
pub struct PlannedGroups {
    graph: String,
    memo: Arc<LoweringMemo>,
}

impl PlannedGroups {
    /// Of a function with this hash.
    pub(crate) fn new(graph: &str, memo: Arc<LoweringMemo>) -> PlannedGroups {
        PlannedGroups { graph: graph.to_owned(), memo }
    }

    /// As [`lower`], for the function that was planned: the same program, sooner.
    ///
    /// # Errors
    /// As there.
    pub fn lower(
        &self,
        f: &Function,
        plan: &Plan,
        device: &MachineModel,
    ) -> Result<Program, Diagnostic> {
        if plan.graph != self.graph {
            return lower(f, plan, device);
        }
        let with = LowerWith { device, memo: Some(&self.memo), is_named: true };
        Ok(placed(f, plan, with)?.program)
    }
}
