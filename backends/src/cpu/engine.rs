//! The engine `cpu`: a thread pool that executables share, and a cache of executables.

use super::capabilities::CAPABILITIES;
use super::executable::{CpuExecutable, CpuOptions};
use super::facts::facts;
use super::host_services::HostServices;
use super::legal::LegalProgram;
use super::prepare::{buffers_peak, peak_of, prepared, side_by_side, step_scratch};
use super::thread_pool::ThreadPool;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::array::Array;
use crate::runtime::backend::{self, Arrange, Backend, Capabilities, Parallelism, StepSizing};
use crate::runtime::executable_cache::{ExecutableCache, key};
use crate::runtime::functions::Registry;
use crate::runtime::ranks::RankGroup;
use crate::runtime::report::{MemoryReport, StepReport};
use crate::runtime::trace::Trace;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::facts::KernelFacts;
use adfuse_ir::kernel::{Program, Verified};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Executables that an engine keeps at most.
const KEPT: usize = 64;

/// Compiles executables that share its threads, and caches those that were requested last,
/// by the hash of program and layout. Machine code and memory are freed with the last of an executable's
/// owners.
pub struct CpuEngine {
    options: CpuOptions,
    functions: Registry,
    ranks: RankGroup,
    pool: Arc<Mutex<ThreadPool>>,
    made: ExecutableCache<CpuExecutable>,
}

impl CpuEngine {
    /// The name that identifies plans for this engine.
    pub const NAME: &str = "cpu";

    /// With as many threads as the options say.
    pub fn new(options: CpuOptions) -> CpuEngine {
        CpuEngine::with_functions(options, Registry::new())
    }

    /// As [`CpuEngine::new`], with functions for programs to call.
    pub fn with_functions(options: CpuOptions, functions: Registry) -> CpuEngine {
        let pool = Arc::new(Mutex::new(ThreadPool::new(options.threads.max(1) - 1)));
        let (ranks, made) = (RankGroup::alone(), ExecutableCache::new(KEPT));
        CpuEngine { options, functions, ranks, pool, made }
    }

    /// The same, as the engine of one of these ranks. Programs with collectives exchange with the others when they run.
    #[must_use]
    pub fn among(self, ranks: RankGroup) -> CpuEngine {
        CpuEngine { ranks, ..self }
    }

    /// The executable of a program, made when it is asked for first.
    ///
    /// # Errors
    /// As [`CpuExecutable::compile`].
    pub fn executable(
        &self,
        program: &Verified<Program>,
        arena: &ArenaLayout,
    ) -> Result<Arc<CpuExecutable>, Diagnostic> {
        self.made.get_or_make(key(program, arena, ""), || {
            self.make(program, &prepared(program, &side_by_side)?, arena)
        })
    }

    fn make(
        &self,
        program: &Verified<Program>,
        legal: &LegalProgram,
        arena: &ArenaLayout,
    ) -> Result<CpuExecutable, Diagnostic> {
        let host = HostServices::of(&self.functions, &self.ranks);
        let (pool, how) = (Arc::clone(&self.pool), (self.options, host));
        CpuExecutable::of_legalized(program, legal, arena, how, pool, false)
    }

    /// How its executables run.
    pub fn options(&self) -> CpuOptions {
        self.options
    }

    /// The functions that its programs may call.
    pub fn functions(&self) -> &Registry {
        &self.functions
    }

    /// The ranks that it is one of.
    pub fn ranks(&self) -> &RankGroup {
        &self.ranks
    }

    /// How many executables it keeps.
    pub fn kept(&self) -> usize {
        self.made.len()
    }

    /// Drops all cached executables; they live on while they have other owners.
    pub fn clear(&self) {
        self.made.clear();
    }
}

impl Backend for CpuEngine {
    type Executable = CpuExecutable;

    fn name(&self) -> &'static str {
        CpuEngine::NAME
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn facts(&self, program: &Program, machine: Parallelism) -> Option<Vec<KernelFacts>> {
        match machine {
            Parallelism::Vectors { lanes } => facts(program, lanes),
            Parallelism::Threads => None,
        }
    }

    fn step_sizing(&self) -> Option<&dyn StepSizing> {
        Some(self)
    }

    fn prepare<'a>(
        &'a self,
        program: &Verified<Program>,
        arrange: &Arrange<'_>,
    ) -> Result<Box<dyn backend::Prepared<Executable = CpuExecutable> + 'a>, Diagnostic> {
        let legal = prepared(program, arrange)?;
        Ok(Box::new(CpuPrepared { engine: self, program: program.clone(), legal }))
    }
}

impl StepSizing for CpuEngine {
    fn scratch(&self, program: &Program) -> Result<Vec<u64>, Diagnostic> {
        step_scratch(program)
    }

    fn peak(&self, buffers: &Program, layout: &ArenaLayout) -> Result<u64, Diagnostic> {
        buffers_peak(buffers, layout)
    }
}

/// A program before its memory is planned: steps are rewritten, and counted.
struct CpuPrepared<'a> {
    engine: &'a CpuEngine,
    program: Verified<Program>,
    legal: LegalProgram,
}

impl backend::Prepared for CpuPrepared<'_> {
    type Executable = CpuExecutable;

    fn program(&self) -> &Verified<Program> {
        &self.program
    }

    // What is rewritten has its memory in the step it was made of.
    fn origin(&self) -> Option<&[usize]> {
        None
    }

    fn scratch(&self) -> &[u64] {
        &self.legal.needed
    }

    // Steps of this engine read at a coordinate before they write there.
    fn reads_again(&self) -> Vec<bool> {
        Vec::new()
    }

    fn peak(&self, layout: &ArenaLayout) -> Result<u64, Diagnostic> {
        peak_of(&self.program, &self.legal, layout)
    }

    fn compile(&self, layout: &ArenaLayout) -> Result<Arc<CpuExecutable>, Diagnostic> {
        let CpuPrepared { engine, program, legal } = self;
        let make = || engine.make(program, legal, layout);
        engine.made.get_or_make(key(program, layout, &legal.arrangement()), make)
    }
}

impl backend::Executable for CpuExecutable {
    fn run(&self, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
        self.run(args)
    }

    fn run_donating(&self, args: Vec<Array>) -> Result<Vec<Array>, Diagnostic> {
        self.run_donating(args)
    }

    fn trace(&self, args: &[Array]) -> Result<Trace, Diagnostic> {
        self.traced(args)
    }

    fn steps(&self) -> &[StepReport] {
        self.steps()
    }

    fn memory(&self) -> MemoryReport {
        self.memory()
    }

    fn write_perf_map(&self) -> Option<io::Result<PathBuf>> {
        Some(self.write_perf_map())
    }
}

impl std::fmt::Debug for CpuEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("options", &self.options).finish_non_exhaustive()
    }
}
