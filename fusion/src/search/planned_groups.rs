//! What planning a function has found on the way: the program of its plan is put together from the groups that were lowered, and
//! its memory is packed as it was when plans were compared.

use crate::lower::group_memo::LoweringMemo;
use crate::lower::{LowerWith, lower, placed};
use crate::memory::{KnownPackings, Memory, memory_knowing};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::Effort;
use adfuse_ir::kernel::Program;
use adfuse_ir::{Diagnostic, Function};
use std::sync::Arc;

/// What is known of a function once it has been planned: the hash of its text, what its groups are lowered to, and how the memory
/// of its plans is packed.
#[derive(Clone, Debug)]
pub struct PlannedGroups {
    graph: String,
    memo: Arc<LoweringMemo>,
    packings: Arc<KnownPackings>,
}

impl PlannedGroups {
    /// Of a function with this hash.
    pub(super) fn new(
        graph: &str,
        memo: Arc<LoweringMemo>,
        packings: Arc<KnownPackings>,
    ) -> PlannedGroups {
        PlannedGroups { graph: graph.to_owned(), memo, packings }
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

    /// As [`memory_apart`](crate::memory_apart()): the same memory, sooner for the program of the plan.
    ///
    /// # Errors
    /// As there.
    pub fn memory_apart(
        &self,
        program: &Program,
        effort: Effort,
        scratch: &[u64],
        reads_again: &[bool],
    ) -> Result<Memory, Diagnostic> {
        memory_knowing(&self.packings, program, effort, (scratch, reads_again))
    }
}
