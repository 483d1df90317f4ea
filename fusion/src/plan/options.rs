//! What plans are made for: the machine, the effort, the floating-point mode.

use super::machine_model::MachineModel;
use adfuse_ir::Fp;

/// What a plan is made for.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanOptions {
    /// The machine.
    pub device: MachineModel,
    /// How hard to look.
    pub effort: Effort,
    /// What may happen to numbers.
    pub fp: Fp,
}

/// How hard to look for a good plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Effort {
    /// A kernel an instruction: what every plan is measured against.
    Off,
    /// One pass over the instructions, and one more where recomputing pays.
    Quick,
    /// As long as recomputing pays.
    #[default]
    Default,
    /// As default, and from there on a search over small changes.
    Search,
}
