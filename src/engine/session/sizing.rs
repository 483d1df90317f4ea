//! Programs that are sized before they are compiled, as the backend of a session runs them.

use super::{Session, arena_layout, verified};
use crate::backends::backend::{Backend, Parallelism, Prepared, StepSizing};
use crate::fusion::{self, Memory, SizedProgram, StepSizes};
use crate::ir::kernel::Program;
use crate::ir::{At, Diagnostic, Fp, Kind};

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

    fn window_prologues(&self, fp: Fp) -> bool {
        self.attention().multiplies_windows(fp)
    }

    fn step_sizes(&self) -> Option<Box<dyn StepSizes + '_>> {
        Some(Box::new(BackendSizes(self.backend.step_sizing()?)))
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

/// The sizes of steps on a backend.
struct BackendSizes<'a>(&'a dyn StepSizing);

impl StepSizes for BackendSizes<'_> {
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        self.0.scratch(program)
    }

    fn peak(&self, buffers: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        self.0.peak(buffers, &arena_layout(memory))
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
            Some(_) => prepared.peak(&arena_layout(&session.memory(&**prepared, None)?)),
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

/// The sizes of steps on the backend of a session that is made for them.
pub(in crate::engine) struct OwnSizes<B: ?Sized>(Session<B>);

impl<B: Backend + ?Sized> OwnSizes<B> {
    /// Those of a session; `None` where its backend sizes programs as wholes.
    pub(in crate::engine) fn of(session: Session<B>) -> Option<Self> {
        session.backend.step_sizing().is_some().then_some(OwnSizes(session))
    }

    fn sizing(&self) -> Result<&dyn StepSizing, Diagnostic> {
        let none = || Diagnostic::new(At::default(), Kind::Internal, "steps are not sized alone");
        self.0.backend.step_sizing().ok_or_else(none)
    }
}

impl<B: Backend + ?Sized> StepSizes for OwnSizes<B> {
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        self.sizing()?.scratch(program)
    }

    fn peak(&self, buffers: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        self.sizing()?.peak(buffers, &arena_layout(memory))
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
