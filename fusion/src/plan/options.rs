//! What plans are made for: the machine, the effort, the floating-point mode.

use super::machine_model::MachineModel;
use adfuse_ir::Fp;

/// What a plan is made for: the machine and the mode of floating point, and how much work planning may be.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanOptions {
    /// The machine.
    pub device: MachineModel,
    /// The effort.
    pub effort: Effort,
    /// The floating-point mode.
    pub fp: Fp,
}

/// How much effort planning spends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Effort {
    /// One kernel for each instruction: the baseline of every plan.
    Off,
    /// One pass over the instructions, and one more if recomputation pays.
    Quick,
    /// Repeated passes, as long as recomputation pays.
    #[default]
    Default,
    /// As default, followed by a search over small changes.
    Search,
}

impl Effort {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Effort::Off => "off",
            Effort::Quick => "quick",
            Effort::Default => "default",
            Effort::Search => "search",
        }
    }
}
