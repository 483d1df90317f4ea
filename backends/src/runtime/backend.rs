//! The interface of engines: a [`Backend`] prepares a verified program; the prepared program reports its scratch
//! memory, and becomes an [`Executable`] once its memory is planned.
//!
//! A backend has its own type of executables, which may have more methods than this interface. [`AnyBackend`] is a
//! backend whose executables have this interface only, for tables of engines; [`erased`] makes it.

use super::arena_layout::ArenaLayout;
use super::array::Array;
use super::functions::CallSide;
use super::report::{MemoryReport, StepReport};
use super::resident::Resident;
use super::trace::Trace;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::facts::KernelFacts;
use adfuse_ir::kernel::{Program, Verified};
use adfuse_ir::rewrite::AttentionSteps;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// What an engine supports; programs are rewritten (`legalize`) to need no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Which attention is a step; otherwise programs for this engine have what it is composed of.
    pub attention: AttentionSteps,
    /// The engine copies callers' arrays from and to packed or strided buffers; otherwise kernels do.
    pub any_layout: bool,
    /// Loops of kernels go as the schedules say; where they do not, kernels are rewritten so that their axes
    /// are those loops.
    pub schedules: bool,
    /// Which implementation of user functions it runs.
    pub functions: CallSide,
}

/// How a machine computes elements side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parallelism {
    /// By vectors.
    Vectors {
        /// Elements of 32 bits of a vector.
        lanes: u32,
    },
    /// By threads with places of their own, which share registers.
    Threads,
}

/// An engine.
pub trait Backend: Debug + Send + Sync {
    /// What runs.
    type Executable: Executable + ?Sized;

    /// The name that identifies plans for this engine.
    fn name(&self) -> &'static str;

    /// What it supports.
    fn capabilities(&self) -> Capabilities;

    /// Puts a tensor where this engine keeps the arguments of its executables. In host memory nothing is copied.
    ///
    /// # Errors
    /// [`Kind::Limit`](adfuse_ir::Kind::Limit) when a device has not enough memory.
    fn place(&self, array: &Array) -> Result<Resident, Diagnostic> {
        Ok(array.clone().into())
    }

    /// What it makes of each step of a program on a machine of this kind, whatever the host has; `None` where it does not
    /// say. Nothing is compiled.
    fn facts(&self, _program: &Program, _machine: Parallelism) -> Option<Vec<KernelFacts>> {
        None
    }

    /// The sizes of single steps, where what one needs, and what the engine divides it into, depends on it and its buffers
    /// alone; `None` where programs are sized as wholes.
    fn step_sizing(&self) -> Option<&dyn StepSizing> {
        None
    }

    /// A program as this engine runs it, before its memory is planned; `arrange` plans that of the programs in it.
    ///
    /// # Errors
    /// [`Kind::Unsupported`](adfuse_ir::Kind::Unsupported) for what the engine does not run, with the step.
    fn prepare<'a>(
        &'a self,
        program: &Verified<Program>,
        arrange: &Arrange<'_>,
    ) -> Result<Box<dyn Prepared<Executable = Self::Executable> + 'a>, Diagnostic>;
}

/// The sizes of steps, each by itself, whatever program it is in: what plans that have most steps in common are sized by.
pub trait StepSizing {
    /// Bytes of scratch memory that each step of a program needs beside its buffers. The verifier accepts the steps
    /// ([`verify_steps`](adfuse_ir::kernel::verify_steps)); the program need not be whole.
    ///
    /// # Errors
    /// As [`Backend::prepare`].
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic>;

    /// Bytes at the peak of a program with these buffers and results, whose layout has room for the scratch memory of all
    /// its steps: as [`Prepared::peak`]. The steps need not be there, and none runs other programs.
    ///
    /// # Errors
    /// As [`Prepared::peak`].
    fn peak(&self, buffers: &Program, layout: &ArenaLayout) -> Result<u64, Diagnostic>;

    /// Whether the engine divides steps. Then memory is planned for [`StepSizing::divided`].
    fn divides(&self) -> bool {
        false
    }

    /// The steps that the engine runs for those of a program, in their order, each divided by itself. `None` where it runs
    /// those that it is given.
    ///
    /// # Errors
    /// As [`Backend::prepare`], and where the steps are not divided as they would be in a whole program.
    fn divided(&self, _program: &Program) -> Result<Option<StepDivision>, Diagnostic> {
        Ok(None)
    }
}

/// What an engine runs for some steps.
#[derive(Clone, Debug)]
pub struct StepDivision {
    /// The steps. Buffers that only they have come after the given ones.
    pub program: Program,
    /// The scratch memory of each, in bytes.
    pub scratch: Vec<u64>,
    /// As [`Prepared::reads_again`].
    pub reads_again: Vec<bool>,
}

/// Plans the arena of a program whose steps need so much scratch memory, and of which some read again what they have
/// read ([`Prepared::reads_again`]). An engine asks it for the programs that loops and branches run: their arenas are
/// scratch memory of these steps.
pub type Arrange<'a> = dyn Fn(&Program, &[u64], &[bool]) -> Result<ArenaLayout, Diagnostic> + 'a;

/// A program that is prepared for an engine.
pub trait Prepared {
    /// What runs.
    type Executable: ?Sized;

    /// The program whose memory is planned: the one given, or what the engine divides it into.
    fn program(&self) -> &Verified<Program>;

    /// For each step of [`Prepared::program`], the number of the given program's step that it was made of;
    /// `None` where it is the given program.
    fn origin(&self) -> Option<&[usize]>;

    /// The scratch memory of each of its steps, in bytes.
    fn scratch(&self) -> &[u64];

    /// For each of its steps, whether it reads again what it has read when it has begun to write: nothing that
    /// it writes may share memory with what it reads. Steps that are not listed read first.
    fn reads_again(&self) -> Vec<bool>;

    /// Ranges of its steps that the engine runs at the same time where they touch no memory that one of them writes.
    fn concurrent(&self) -> &[Range<usize>] {
        &[]
    }

    /// Bytes at the peak of a run with this layout, as the engine holds them.
    ///
    /// # Errors
    /// [`Kind::Usage`](adfuse_ir::Kind::Usage) for a layout that does not fit;
    /// [`Kind::Limit`](adfuse_ir::Kind::Limit) for more than can be counted.
    fn peak(&self, layout: &ArenaLayout) -> Result<u64, Diagnostic>;

    /// The executable for this layout; the engine caches executables.
    ///
    /// # Errors
    /// As [`Prepared::peak`]; and `Usage` for a layout that puts two values into the same bytes at one time,
    /// `Limit` when memory is not enough.
    fn compile(&self, layout: &ArenaLayout) -> Result<Arc<Self::Executable>, Diagnostic>;
}

/// A compiled program.
pub trait Executable: Debug + Send + Sync {
    /// Runs it on arrays.
    ///
    /// # Errors
    /// [`Kind::Usage`](adfuse_ir::Kind::Usage) when the arguments do not have the inputs' types, or one is
    /// written to that is only lent; [`Kind::Limit`](adfuse_ir::Kind::Limit) when memory is not enough.
    fn run(&self, args: &[Array]) -> Result<Vec<Array>, Diagnostic>;

    /// Runs it on donated arrays: results may be in their memory, unless clones share it.
    ///
    /// # Errors
    /// As [`Executable::run`].
    fn run_donating(&self, args: Vec<Array>) -> Result<Vec<Array>, Diagnostic> {
        self.run(&args)
    }

    /// Puts a tensor where this engine keeps its arguments. In host memory nothing is copied.
    ///
    /// # Errors
    /// [`Kind::Limit`](adfuse_ir::Kind::Limit) when a device has not enough memory.
    fn place(&self, array: &Array) -> Result<Resident, Diagnostic> {
        Ok(array.clone().into())
    }

    /// Runs it on tensors where the engine keeps them, and leaves the results there. Where the plan writes to an input
    /// ([`ArenaLayout::in_donor`]), a handle that is the only one is written in place; otherwise the tensor is copied
    /// first, so that no other handle sees a change. Tensors that are elsewhere are placed first.
    ///
    /// # Errors
    /// As [`Executable::run`]; and [`Kind::Usage`](adfuse_ir::Kind::Usage) for tensors on another device.
    fn run_resident(&self, args: Vec<Resident>) -> Result<Vec<Resident>, Diagnostic> {
        let args = args.into_iter().map(Resident::into_array).collect::<Result<Vec<_>, _>>()?;
        Ok(self.run_donating(args)?.into_iter().map(Resident::from).collect())
    }

    /// Runs it once, and says when each step ran.
    ///
    /// # Errors
    /// As [`Executable::run`].
    fn trace(&self, args: &[Array]) -> Result<Trace, Diagnostic>;

    /// The steps, in the order in which they run.
    fn steps(&self) -> &[StepReport];

    /// Bytes that it holds, and those that a caller hands it.
    fn memory(&self) -> MemoryReport;

    /// Adds its functions to the map that profilers read for this process, and says where that is; `None`
    /// where it has no machine code of the host.
    ///
    /// # Errors
    /// When the file cannot be written.
    fn write_perf_map(&self) -> Option<io::Result<PathBuf>> {
        None
    }
}

/// A backend known by this interface alone.
pub type AnyBackend = dyn Backend<Executable = dyn Executable>;

/// A backend without the type of its executables.
pub fn erased<B>(backend: Arc<B>) -> Arc<AnyBackend>
where
    B: Backend + 'static,
    B::Executable: Sized + 'static,
{
    Arc::new(Erased(backend))
}

#[derive(Debug)]
struct Erased<B>(Arc<B>);

impl<B> Backend for Erased<B>
where
    B: Backend,
    B::Executable: Sized + 'static,
{
    type Executable = dyn Executable;

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn facts(&self, program: &Program, machine: Parallelism) -> Option<Vec<KernelFacts>> {
        self.0.facts(program, machine)
    }

    fn place(&self, array: &Array) -> Result<Resident, Diagnostic> {
        self.0.place(array)
    }

    fn step_sizing(&self) -> Option<&dyn StepSizing> {
        self.0.step_sizing()
    }

    fn prepare<'a>(
        &'a self,
        program: &Verified<Program>,
        arrange: &Arrange<'_>,
    ) -> Result<Box<dyn Prepared<Executable = dyn Executable> + 'a>, Diagnostic> {
        Ok(Box::new(ErasedPrepared(self.0.prepare(program, arrange)?)))
    }
}

struct ErasedPrepared<'a, E>(Box<dyn Prepared<Executable = E> + 'a>);

impl<E: Executable + 'static> Prepared for ErasedPrepared<'_, E> {
    type Executable = dyn Executable;

    fn program(&self) -> &Verified<Program> {
        self.0.program()
    }

    fn origin(&self) -> Option<&[usize]> {
        self.0.origin()
    }

    fn scratch(&self) -> &[u64] {
        self.0.scratch()
    }

    fn reads_again(&self) -> Vec<bool> {
        self.0.reads_again()
    }

    fn peak(&self, layout: &ArenaLayout) -> Result<u64, Diagnostic> {
        self.0.peak(layout)
    }

    fn compile(&self, layout: &ArenaLayout) -> Result<Arc<dyn Executable>, Diagnostic> {
        let made: Arc<E> = self.0.compile(layout)?;
        Ok(made)
    }
}
