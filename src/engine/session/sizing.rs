//! Programs that are sized before they are compiled, as the backend of a session runs them.

use super::{Session, arena_layout, verified};
use crate::backends::backend::{self, Backend, Parallelism, Prepared, StepSizing};
use crate::fusion::{self, DividedSteps, Effort, Memory, SizedProgram, StepSizes};
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
        let (sizing, effort) = (self.backend.step_sizing()?, self.settings.plan.effort);
        Some(Box::new(BackendSizes { sizing, effort }))
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
struct BackendSizes<'a> {
    sizing: &'a dyn StepSizing,
    /// The effort of the session.
    effort: Effort,
}

impl StepSizes for BackendSizes<'_> {
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        self.sizing.scratch(program)
    }

    fn peak(&self, buffers: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        self.sizing.peak(buffers, &arena_layout(memory))
    }

    fn divides(&self) -> Option<Effort> {
        // As the memory of a program that is prepared is planned.
        self.sizing.divides().then_some(self.effort)
    }

    fn divided(&self, program: &Program) -> Result<Option<DividedSteps>, Diagnostic> {
        let found = self.sizing.divided(program)?;
        Ok(found.map(|backend::StepDivision { program, scratch, reads_again }| DividedSteps {
            program,
            scratch,
            reads_again,
        }))
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

    fn divided_peak(&self) -> Result<Option<u64>, Diagnostic> {
        let none = Memory::default();
        self.prepared.origin().map(|_| self.peak(&none)).transpose()
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

    fn sizes(&self) -> Result<BackendSizes<'_>, Diagnostic> {
        let none = || Diagnostic::new(At::default(), Kind::Internal, "steps are not sized alone");
        let sizing = self.0.backend.step_sizing().ok_or_else(none)?;
        Ok(BackendSizes { sizing, effort: self.0.settings.plan.effort })
    }
}

impl<B: Backend + ?Sized> StepSizes for OwnSizes<B> {
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        self.sizes()?.scratch(program)
    }

    fn peak(&self, buffers: &Program, memory: &Memory) -> Result<u64, Diagnostic> {
        self.sizes()?.peak(buffers, memory)
    }

    fn divides(&self) -> Option<Effort> {
        self.sizes().ok()?.divides()
    }

    fn divided(&self, program: &Program) -> Result<Option<DividedSteps>, Diagnostic> {
        self.sizes()?.divided(program)
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
