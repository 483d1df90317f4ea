//! Programs that are sized before they are compiled, as the backend of a session runs them.

use super::{Session, arena_layout, verified};
use crate::backends::backend::{Backend, Parallelism, Prepared};
use crate::fusion::{self, Memory, SizedProgram};
use crate::ir::Diagnostic;
use crate::ir::kernel::Program;

/// Frontiers count the memory of programs as the backend runs them.
impl<B: Backend + ?Sized> fusion::EngineModel for Session<B> {
    fn donated(&self) -> &[usize] {
        &self.settings.donated
    }

    fn facts(
        &self,
        program: &Program,
        device: &fusion::MachineModel,
    ) -> Option<Vec<fusion::KernelFacts>> {
        let machine = match device.is_gpu() {
            true => Parallelism::Threads,
            false => Parallelism::Vectors { lanes: device.lanes },
        };
        self.backend.facts(program, machine)
    }

    fn sized<'a>(&'a self, program: &'a Program) -> Result<Box<dyn SizedProgram + 'a>, Diagnostic> {
        let prepared = self.prepared(&verified(program.clone())?)?;
        let mut scratch = prepared.scratch().to_vec();
        if let Some(origin) = prepared.origin() {
            // Steps that one is divided into run one after the other.
            scratch = vec![0; program.steps.len()];
            for (&origin, &bytes) in origin.iter().zip(prepared.scratch()) {
                if let Some(most) = scratch.get_mut(origin) {
                    *most = bytes.max(*most);
                }
            }
        }
        Ok(Box::new(PreparedProgram { session: self, prepared, scratch }))
    }
}

/// A program that was prepared to be sized.
struct PreparedProgram<'a, B: Backend + ?Sized> {
    session: &'a Session<B>,
    prepared: Box<dyn Prepared<Executable = B::Executable> + 'a>,
    scratch: Vec<u64>,
}

impl<B: Backend + ?Sized> SizedProgram for PreparedProgram<'_, B> {
    fn scratch(&self) -> &[u64] {
        &self.scratch
    }

    fn peak(&self, memory: &Memory) -> Result<u64, Diagnostic> {
        let Self { session, prepared, .. } = self;
        match prepared.origin() {
            None => prepared.peak(&arena_layout(memory)),
            // What steps are divided into has buffers that the given program does not know of.
            Some(_) => prepared.peak(&arena_layout(&session.memory(&**prepared)?)),
        }
    }
}

/// A program of a session that is made for it.
pub(in crate::engine) struct OwnSession<'a, B: ?Sized> {
    session: Session<B>,
    program: &'a Program,
    scratch: Vec<u64>,
}

impl<'a, B: Backend + ?Sized> OwnSession<'a, B> {
    /// Sizes a program.
    ///
    /// # Errors
    /// As [`fusion::EngineModel::sized`].
    pub(in crate::engine) fn sized(
        session: Session<B>,
        program: &'a Program,
    ) -> Result<Self, Diagnostic> {
        let scratch = fusion::EngineModel::scratch(&session, program)?;
        Ok(OwnSession { session, program, scratch })
    }
}

impl<B: Backend + ?Sized> SizedProgram for OwnSession<'_, B> {
    fn scratch(&self) -> &[u64] {
        &self.scratch
    }

    fn peak(&self, memory: &Memory) -> Result<u64, Diagnostic> {
        fusion::EngineModel::sized(&self.session, self.program)?.peak(memory)
    }
}
