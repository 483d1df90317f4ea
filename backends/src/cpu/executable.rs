//! Executables: compiled programs, and the memory that they run in.

#![allow(unsafe_code)]
use super::codegen::vector_width::Vectors;
use super::host_services::HostServices;
use super::legal::LegalProgram;
use super::loop_run::{LoopPointers, WorkerTables};
use super::machine_code::{Code, SweepCompiler};
use super::places::{BufferPlace, ResultBuffer, bytes, handed, outputs, place};
use super::prepare::{prepared, side_by_side};
use super::scratch::ScratchLayout;
use super::steps::{CompiledStep, CompiledSteps, StepNeeds, TableLayout, compile_program};
use super::thread_pool::ThreadPool;
use super::turn_calls::{DirectTurns, turns_of_blocks};
use super::workers::Worker;
use crate::runtime::arena_layout;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::errors::within;
use crate::runtime::functions::Registry;
use crate::runtime::host_memory::{AlignedBlock, OffsetAllocator};
use crate::runtime::legalize::Legalized;
use crate::runtime::limits::RunLimits;
use crate::runtime::ranks::{Agreement, RankGroup, RankProgram};
use crate::runtime::report::{MemoryReport, StepReport};
use crate::runtime::result_pool::Store;
use adfuse_ir::kernel::{Program, Role, Verified};
use adfuse_ir::{Diagnostic, Fp, TensorType};
use cranelift_entity::EntityRef;
use std::sync::{Arc, Mutex};

/// How an executable runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuOptions {
    /// Threads that work on it, the caller's among them; at least one. They change no bit.
    pub threads: usize,
    /// The floating-point mode.
    pub fp: Fp,
    /// The largest vector width, by default that of the host. It changes no bit.
    pub vectors: Vectors,
    /// How far its runs may go.
    pub limits: RunLimits,
}

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        let (vectors, limits) = (Vectors::host(), RunLimits::default());
        CpuOptions { threads: 1, fp: Fp::default(), vectors, limits }
    }
}

/// A program as machine code, with the memory it runs in.
pub struct CpuExecutable {
    pub(super) name: String,
    pub(super) code: Code,
    pub(super) steps: Vec<CompiledStep>,
    pub(super) made: Vec<StepReport>,
    pub(super) report: MemoryReport,
    pub(super) places: Vec<BufferPlace>,
    /// The name and type of each input.
    pub(super) inputs: Vec<(String, TensorType)>,
    /// How many bytes each input has.
    pub(super) input_bytes: Vec<usize>,
    /// The name of each input that is written to.
    pub(super) written: Vec<Option<String>>,
    pub(super) outputs: Vec<ResultBuffer>,
    /// How many bytes each output has that the caller has memory for.
    pub(super) output_bytes: Vec<usize>,
    pub(super) memory: Mutex<RunMemory>,
    /// Memory of results that came back.
    pub(super) store: Arc<Store>,
    pub(super) threads: usize,
    pub(super) limits: RunLimits,
    pub(super) agreement: Agreement,
    pub(super) pool: Arc<Mutex<ThreadPool>>,
}

pub(super) struct RunMemory {
    /// The arena, and what there was no room for in it.
    pub(super) arena: AlignedBlock,
    pub(super) constants: AlignedBlock,
    // Kept for the workers, which point to it.
    #[allow(dead_code)]
    own: Vec<AlignedBlock>,
    /// Of the whole program, then of the programs in its steps.
    pub(super) tables: Vec<WorkerTables>,
    /// Of what each loop carries.
    pub(super) loops: Vec<LoopPointers>,
    /// Of programs whose turns are calls of functions alone.
    pub(super) turns: Vec<Option<DirectTurns>>,
    /// Of the buffers, for the run.
    pub(super) pointers: Vec<*mut u8>,
}

impl CpuExecutable {
    /// Compiles a program. `arena` says where its temporaries are.
    ///
    /// # Errors
    /// [`Kind::Unsupported`](adfuse_ir::Kind::Unsupported) for steps that call a function, and on hosts for which no machine code is
    /// made; [`Kind::Usage`](adfuse_ir::Kind::Usage) when the layout does not fit the program or puts two values into the same bytes at
    /// one time, or vectors are asked for that the host has not; [`Kind::Limit`](adfuse_ir::Kind::Limit) when memory is not enough. The error names the step.
    pub fn compile(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        options: CpuOptions,
    ) -> Result<CpuExecutable, Diagnostic> {
        let pool = ThreadPool::new(options.threads.max(1) - 1);
        let pool = Arc::new(Mutex::new(pool));
        let (functions, alone) = (Registry::new(), RankGroup::alone());
        let host = HostServices::of(&functions, &alone);
        CpuExecutable::made_of(program, arena, (options, host), pool, false)
    }

    /// As [`CpuExecutable::compile`], with functions for the program to call.
    ///
    /// # Errors
    /// As there, but for steps that call one of these.
    pub fn compile_with(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        options: CpuOptions,
        functions: &Registry,
    ) -> Result<CpuExecutable, Diagnostic> {
        let pool = Arc::new(Mutex::new(ThreadPool::new(options.threads.max(1) - 1)));
        let alone = RankGroup::alone();
        let host = HostServices::of(functions, &alone);
        CpuExecutable::made_of(program, arena, (options, host), pool, false)
    }

    /// Compiles a program to be read: as [`CpuExecutable::compile`], with the texts of its sweeps kept.
    ///
    /// # Errors
    /// As there.
    pub fn compile_listed(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        options: CpuOptions,
    ) -> Result<CpuExecutable, Diagnostic> {
        let pool = Arc::new(Mutex::new(ThreadPool::new(options.threads.max(1) - 1)));
        let (functions, alone) = (Registry::new(), RankGroup::alone());
        let host = HostServices::listed(&functions, &alone);
        CpuExecutable::made_of(program, arena, (options, host), pool, true)
    }

    fn made_of(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        how: (CpuOptions, HostServices<'_>),
        pool: Arc<Mutex<ThreadPool>>,
        texts: bool,
    ) -> Result<CpuExecutable, Diagnostic> {
        let legal = prepared(program, &side_by_side)?;
        CpuExecutable::of_legalized(program, &legal, arena, how, pool, texts)
    }

    /// Of a program that is prepared; with threads that others use too, and the texts of its sweeps if these are
    /// wanted.
    pub(super) fn of_legalized(
        program: &Verified<Program>,
        legal: &LegalProgram,
        arena: &ArenaLayout,
        (options, host): (CpuOptions, HostServices<'_>),
        pool: Arc<Mutex<ThreadPool>>,
        texts: bool,
    ) -> Result<CpuExecutable, Diagnostic> {
        let within = |d: Diagnostic| within(d, program, None);
        let low = &legal.low;
        let rooms = ScratchLayout::new(program, (low, &legal.needed), arena)?;
        let mut constants = OffsetAllocator::default();
        let mut places = place(low, arena, &rooms, &mut constants).map_err(within)?;
        // Steps of this engine read at a coordinate before they write there.
        arena_layout::check(program, arena, &[])?;
        let mut compiler = SweepCompiler::new(options.fp, options.vectors).map_err(within)?;
        compiler.listing.texts = texts;
        let (compiled, needs) =
            compile_program(&mut compiler, (host, None), (program, legal), &rooms, constants)?;
        let CompiledSteps { steps, made, slots, arena: all } = compiled;
        let StepNeeds { own, constants, tables, loops } = needs;
        let code = compiler.finish().map_err(within)?;
        let whole = TableLayout { program: &low.program, places: places.clone(), slots, base: 0 };
        let layouts: Vec<TableLayout<'_>> = [whole].into_iter().chain(tables).collect();
        let sizes = [all, constants.most, own.most];
        let mut memory = RunMemory::new(sizes, &layouts, options.threads.max(1)).map_err(within)?;
        memory.loops = loops.into_iter().map(LoopPointers::of).collect();
        let entries = |l: &TableLayout<'_>| l.places.len() + l.slots as usize;
        let entries: Vec<usize> = layouts.iter().map(entries).collect();
        memory.turns = turns_of_blocks(&steps, &code, (&entries, options.threads.max(1)));
        let outputs = outputs(low, &places);
        for place in &mut places {
            if let BufferPlace::Output(k, _) = place {
                *k = outputs.get(*k).map_or(0, |o| o.at);
            }
        }
        let written = written(low, &places);
        let inputs: Vec<(String, TensorType)> =
            low.inputs.iter().filter_map(|&b| low.program.buffers[b].named_type()).collect();
        let input_bytes: Vec<usize> = inputs.iter().map(|(_, ty)| bytes(ty)).collect();
        let report = MemoryReport {
            arena: arena.bytes,
            outside_arena: all.saturating_sub(arena.bytes),
            constants: constants.most,
            per_thread: own.most,
            inputs: input_bytes.iter().map(|&n| n as u64).sum(),
            outputs: handed(&outputs).map(|o| o.bytes as u64).sum(),
            spare: 0,
            code: code.listed().map(|(noted, _)| noted.bytes as u64).sum(),
            functions: code.listed().filter(|(noted, _)| noted.bytes > 0).count() as u64,
            function_uses: code.listed().len() as u64,
        };
        Ok(CpuExecutable {
            name: program.name.clone(),
            code,
            steps,
            made,
            report,
            output_bytes: handed(&outputs).map(|o| o.bytes).collect(),
            store: Store::new(handed(&outputs).map(|o| o.bytes)),
            outputs,
            inputs,
            input_bytes,
            written,
            places,
            memory: Mutex::new(memory),
            threads: options.threads.max(1),
            limits: options.limits,
            agreement: Agreement::about(
                host.ranks,
                RankProgram::of(program, &format!("cpu {}", options.fp.name())),
            ),
            pool,
        })
    }
}

impl RunMemory {
    /// Memory of the arena, the constants and each worker, and the tables of pointers to it.
    fn new(
        [arena, constants, own]: [u64; 3],
        layouts: &[TableLayout<'_>],
        threads: usize,
    ) -> Result<RunMemory, Diagnostic> {
        let mut memory = RunMemory {
            arena: AlignedBlock::new(arena)?,
            constants: AlignedBlock::new(constants)?,
            own: Vec::new(),
            tables: Vec::new(),
            loops: Vec::new(),
            turns: Vec::new(),
            pointers: Vec::new(),
        };
        for _ in 0..threads {
            memory.own.push(AlignedBlock::new(own)?);
        }
        for layout in layouts {
            fill(layout.program, &layout.places, &memory.constants);
            let (buffers, base) = (layout.places.len(), layout.base as usize);
            let shared = memory.arena.start().wrapping_add(base);
            let mut table = vec![std::ptr::null_mut(); buffers + layout.slots as usize];
            for (entry, place) in table.iter_mut().zip(&layout.places) {
                match *place {
                    BufferPlace::Arena(at) => *entry = shared.wrapping_add(at as usize),
                    BufferPlace::Constant(at) => {
                        *entry = memory.constants.start().wrapping_add(at as usize);
                    }
                    // Set when it runs.
                    BufferPlace::Input(..) | BufferPlace::Output(..) => {}
                }
            }
            let worker = |own: &AlignedBlock| {
                let own = own.start();
                Mutex::new(Worker { table: table.clone(), buffers, own, shared })
            };
            memory.tables.push(memory.own.iter().map(worker).collect());
            memory.pointers.reserve(buffers);
        }
        Ok(memory)
    }
}

/// The name of each input that is written to.
fn written(low: &Legalized, places: &[BufferPlace]) -> Vec<Option<String>> {
    let mut written: Vec<Option<String>> = vec![None; low.inputs.len()];
    for (b, place) in low.program.buffers.keys().zip(places) {
        if let (BufferPlace::Input(k, _), false) = (*place, low.inputs.contains(&b)) {
            written[k] = Some(low.program.buffers[low.inputs[k]].name.clone());
        }
    }
    written
}

/// Writes the values of the constants.
fn fill(program: &Program, places: &[BufferPlace], block: &AlignedBlock) {
    let start = block.start();
    for (b, data) in program.buffers.iter() {
        let (Role::Constant(values), Some(BufferPlace::Constant(at))) =
            (&data.role, places.get(b.index()))
        else {
            continue;
        };
        let width = data.dtype.bytes() as usize;
        for (k, value) in values.iter().enumerate() {
            let bytes = value.bits().to_le_bytes();
            // SAFETY: the block has room for all elements of the constant from `at` on.
            unsafe {
                let to = start.add(*at as usize + k * width);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, width);
            }
        }
    }
}

impl std::fmt::Debug for CpuExecutable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executable").field("name", &self.name).finish_non_exhaustive()
    }
}

// SAFETY: memory is behind a lock. Its pointers are to blocks that it owns, and to slices of the caller's that
// every run sets anew before it uses them.
unsafe impl Send for RunMemory {}
