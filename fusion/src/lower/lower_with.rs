//! What a plan is lowered for and from.

use super::group_memo::LoweringMemo;
use crate::plan::machine_model::MachineModel;

/// What lowering has beside a function and its plan: the machine, and what was lowered before.
#[derive(Clone, Copy)]
pub(crate) struct LowerWith<'a> {
    pub(crate) device: &'a MachineModel,
    pub(crate) memo: Option<&'a LoweringMemo>,
    /// Whether buffers have the names of values.
    pub(crate) is_named: bool,
}

impl<'a> LowerWith<'a> {
    /// What is lowered to be measured, with groups of a memo, needs no names.
    pub(crate) fn measured(
        device: &'a MachineModel,
        memo: Option<&'a LoweringMemo>,
    ) -> LowerWith<'a> {
        LowerWith { device, memo, is_named: memo.is_none() }
    }
}
