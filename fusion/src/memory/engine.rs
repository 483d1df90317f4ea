//! What an engine needs in addition to the buffers of a program.

use super::Memory;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::Program;

/// What an engine knows that a plan depends on.
pub trait EngineModel {
    /// Bytes that each step of a program needs beside the buffers while it runs.
    ///
    /// # Errors
    /// For a program that the engine does not run.
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        Ok(program.steps.iter().map(|s| program.scratch(s)).collect())
    }

    /// The parameters that the caller gives up, by position: plans use their memory.
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

/// No engine in particular: steps need what the program says.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyEngine;

impl EngineModel for AnyEngine {}
