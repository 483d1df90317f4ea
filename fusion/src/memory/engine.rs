//! What an engine needs in addition to the buffers of a program.

use super::{Memory, scratch};
use crate::cost::cost_with;
use crate::cost::step_cost::Cost;
use crate::plan::machine_model::MachineModel;
use crate::plan::options::Effort;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::Program;
use adfuse_ir::kernel::facts::KernelFacts;

/// What plans need to know about an engine.
pub trait EngineModel {
    /// The scratch memory of each step of a program, in bytes.
    ///
    /// # Errors
    /// For a program that the engine does not run.
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        scratch(program, Effort::Quick)
    }

    /// What the engine makes of each step of a program on a machine: which vectors its loops have, what it does one element
    /// at a time. `None` where it does not say, and the structure of the program says what a step costs.
    fn facts(&self, _program: &Program, _device: &MachineModel) -> Option<Vec<KernelFacts>> {
        None
    }

    /// What a program costs on a machine with this engine.
    fn cost(&self, program: &Program, device: &MachineModel) -> Cost {
        cost_with(program, device, &|program| self.facts(program, device))
    }

    /// The donated parameters, by position: plans reuse their memory.
    fn donated(&self) -> &[usize] {
        &[]
    }

    /// Bytes at the peak of a program whose memory is planned so: what a budget is compared with. An
    /// engine may hold more than is planned, where it takes whole lines of a cache.
    ///
    /// # Errors
    /// As [`EngineModel::scratch`].
    fn peak(&self, _program: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        Ok(memory.peak)
    }
}

/// No particular engine: steps need the scratch that the program states.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyEngine;

impl EngineModel for AnyEngine {}
