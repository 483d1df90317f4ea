//! Executables: compiled programs, and the memory that they run in.

#![allow(unsafe_code)]
use crate::runtime::errors::within;

use super::argsort::CompiledArgsort;
use super::capabilities::CAPABILITIES;
use super::codegen::vector_width::Vectors;
use super::contract::CompiledMember;
use super::introspect;
use super::kernel::CompiledKernel;
use super::kernel::compile::CompileContext;
use super::library_call::CompiledCall;
use super::machine_code::{Code, SweepCompiler};
use super::scatter::CompiledScatter;
use super::scratch::{ScratchLayout, needed};
use super::thread_pool::ThreadPool;
use super::workers::Worker;
use crate::runtime::arena_layout;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::functions::Registry;
use crate::runtime::host_memory::{ALIGN, AlignedBlock, OffsetAllocator};
use crate::runtime::legalize::{Legalized, legalize};
use crate::runtime::report::{MemoryReport, StepReport};
use crate::runtime::result_pool::Store;
use adfuse_ir::kernel::{Buffer, BufferData, Program, Role, Step, Verified};
use adfuse_ir::{At, DType, Diagnostic, Fp, Kind, TensorType};
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
}

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        CpuOptions { threads: 1, fp: Fp::default(), vectors: Vectors::host() }
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
    pub(super) inputs: Vec<TensorType>,
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
    pub(super) pool: Arc<Mutex<ThreadPool>>,
}

/// What a caller is handed.
pub(super) struct ResultBuffer {
    pub(super) dtype: DType,
    pub(super) dims: Vec<u64>,
    pub(super) buffer: usize,
    /// Copied from the buffer when all is done; written in place otherwise.
    pub(super) copied: bool,
    /// The input in whose memory it is left, by position.
    pub(super) left_in: Option<usize>,
    /// Its position among those that the caller has memory for.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// A step, made.
pub(super) enum CompiledStep {
    Kernel(CompiledKernel),
    Contract(Vec<CompiledMember>),
    Scatter(CompiledScatter),
    Argsort(CompiledArgsort),
    /// A user function.
    Call(CompiledCall),
    /// Bytes from one buffer to another.
    Copy(usize, usize, usize),
}

/// Where a buffer is.
#[derive(Clone, Copy)]
pub(super) enum BufferPlace {
    Input(usize),
    Output(usize),
    /// In the arena, or beside it.
    Arena(u64),
    Constant(u64),
}

pub(super) struct RunMemory {
    /// The arena, and what there was no room for in it.
    pub(super) arena: AlignedBlock,
    pub(super) constants: AlignedBlock,
    // Kept for the workers, which point to it.
    #[allow(dead_code)]
    own: Vec<AlignedBlock>,
    pub(super) workers: Vec<Mutex<Worker>>,
    /// Of the buffers, for the run.
    pub(super) pointers: Vec<*mut u8>,
}

impl CpuExecutable {
    /// Compiles a program. `arena` says where its temporaries are.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for steps that call a function, and on hosts for which no machine code is
    /// made; [`Kind::Usage`] when the layout does not fit the program or puts two values into the same bytes at
    /// one time, or vectors are asked for that the host has not; [`Kind::Limit`] when memory is not enough. The error names the step.
    pub fn compile(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        options: CpuOptions,
    ) -> Result<CpuExecutable, Diagnostic> {
        let pool = ThreadPool::new(options.threads.max(1) - 1);
        let pool = Arc::new(Mutex::new(pool));
        CpuExecutable::made_of(program, arena, (options, &Registry::new()), pool, false)
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
        CpuExecutable::made_of(program, arena, (options, functions), pool, false)
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
        CpuExecutable::made_of(program, arena, (options, &Registry::new()), pool, true)
    }

    fn made_of(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        how: (CpuOptions, &Registry),
        pool: Arc<Mutex<ThreadPool>>,
        texts: bool,
    ) -> Result<CpuExecutable, Diagnostic> {
        let low = legalize(program, &CAPABILITIES)?;
        let needed = needed(program, &low)?;
        CpuExecutable::of_legalized(program, (&low, &needed), arena, how, pool, texts)
    }

    /// Of a program that is legalized, and what its steps need beside the buffers; with threads that others
    /// use too, and the texts of its sweeps if these are wanted.
    pub(super) fn of_legalized(
        program: &Verified<Program>,
        (low, needed): (&Legalized, &[u64]),
        arena: &ArenaLayout,
        (options, functions): (CpuOptions, &Registry),
        pool: Arc<Mutex<ThreadPool>>,
        texts: bool,
    ) -> Result<CpuExecutable, Diagnostic> {
        let within = |d: Diagnostic, step: Option<usize>| within(d, program, step);
        let rooms = ScratchLayout::new(program, (low, needed), arena)?;
        let mut constants = OffsetAllocator::default();
        let mut places = place(low, arena, &rooms, &mut constants).map_err(|d| within(d, None))?;
        // Steps of this engine read at a coordinate before they write there.
        arena_layout::check(program, arena, &[])?;
        let mut own = OffsetAllocator::default();
        let mut compiler =
            SweepCompiler::new(options.fp, options.vectors).map_err(|d| within(d, None))?;
        compiler.listing.texts = texts;
        let functions = Some(functions);
        let CompiledSteps { steps, made, slots, arena: all } =
            compiled_steps(program, low, &rooms, (&mut compiler, functions), &mut own)?;
        let code = compiler.finish().map_err(|d| within(d, None))?;
        let mut memory = RunMemory {
            arena: AlignedBlock::new(all).map_err(|d| within(d, None))?,
            constants: AlignedBlock::new(constants.most).map_err(|d| within(d, None))?,
            own: Vec::new(),
            workers: Vec::new(),
            pointers: Vec::with_capacity(low.program.buffers.len()),
        };
        let buffers = low.program.buffers.len();
        let shared = memory.arena.start();
        for _ in 0..options.threads.max(1) {
            let block = AlignedBlock::new(own.most).map_err(|d| within(d, None))?;
            let table = vec![std::ptr::null_mut(); buffers + slots as usize];
            let worker = Worker { table, buffers, own: block.start(), shared };
            memory.workers.push(Mutex::new(worker));
            memory.own.push(block);
        }
        fill(&low.program, &places, &memory.constants);
        let outputs = outputs(low, &places);
        for place in &mut places {
            if let BufferPlace::Output(k) = place {
                *k = outputs.get(*k).map_or(0, |o| o.at);
            }
        }
        let written = written(low, &places);
        let inputs: Vec<TensorType> =
            low.inputs.iter().filter_map(|&b| low.program.buffers[b].ty()).collect();
        let input_bytes: Vec<usize> = inputs.iter().map(bytes).collect();
        let report = MemoryReport {
            arena: arena.bytes,
            outside_arena: all.saturating_sub(arena.bytes),
            constants: constants.most,
            per_thread: own.most,
            inputs: input_bytes.iter().map(|&n| n as u64).sum(),
            outputs: handed(&outputs).map(|o| o.bytes as u64).sum(),
            spare: 0,
            code: code.listed().map(|(noted, _)| noted.bytes as u64).sum(),
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
            pool,
        })
    }
}

/// The outputs that the caller has memory for.
pub(super) fn handed(outputs: &[ResultBuffer]) -> impl Iterator<Item = &ResultBuffer> {
    outputs.iter().filter(|o| o.left_in.is_none())
}

pub(super) fn bytes(ty: &TensorType) -> usize {
    ty.elements().and_then(|n| n.checked_mul(ty.dtype.bytes())).map_or(0, |n| n as usize)
}

pub(super) fn work(
    making: &mut CompileContext<'_>,
    step: &Step,
) -> Result<CompiledStep, Diagnostic> {
    let unsupported = |m: String| Diagnostic::new(At::default(), Kind::Unsupported, m);
    Ok(match step {
        Step::Kernel(kernel) => CompiledStep::Kernel(making.kernel(kernel, None)?),
        Step::Contract(c) => CompiledStep::Contract(
            c.members.iter().map(|m| making.member(m)).collect::<Result<_, _>>()?,
        ),
        Step::Scatter(s) => CompiledStep::Scatter(making.scatter(s)?),
        Step::Argsort(s) => CompiledStep::Argsort(making.argsort(s)?),
        Step::Transfer(t) => {
            let n = making.program.buffers[t.from].bytes() as usize;
            CompiledStep::Copy(t.from.index(), t.to.index(), n)
        }
        Step::Library(l) => CompiledStep::Call(making.library(l)?),
        Step::Attend(_) => return Err(unsupported("attention is made of other steps".into())),
        Step::Loop(_) | Step::Branch(_) => {
            return Err(unsupported("loops are not compiled yet".into()));
        }
    })
}

pub(super) fn outputs(low: &Legalized, places: &[BufferPlace]) -> Vec<ResultBuffer> {
    let mut at = 0;
    let made = |(k, &b): (usize, &Buffer)| {
        let data = &low.program.buffers[b];
        let ty = data.ty()?;
        let left_in = match places.get(b.index()) {
            Some(BufferPlace::Input(j)) if data.role == Role::Output => Some(*j),
            _ => None,
        };
        let own = matches!(places.get(b.index()), Some(BufferPlace::Output(at)) if *at == k);
        let copied = !own && left_in.is_none();
        let (dims, buffer) = (ty.dims()?.to_vec(), b.index());
        let output =
            ResultBuffer { dtype: ty.dtype, dims, buffer, copied, left_in, at, bytes: bytes(&ty) };
        at += usize::from(left_in.is_none());
        Some(output)
    };
    low.outputs.iter().enumerate().filter_map(made).collect()
}

/// The steps of a program, compiled.
struct CompiledSteps {
    steps: Vec<CompiledStep>,
    made: Vec<StepReport>,
    /// The most slots that a step has.
    slots: u32,
    /// Bytes of the arena, and of what steps need beside it.
    arena: u64,
}

/// Compiles every step. `own` takes what each worker needs.
fn compiled_steps(
    program: &Program,
    low: &Legalized,
    rooms: &ScratchLayout,
    (compiler, functions): (&mut SweepCompiler, Option<&Registry>),
    own: &mut OffsetAllocator,
) -> Result<CompiledSteps, Diagnostic> {
    let mut all = rooms.end;
    let (mut steps, mut made) = (Vec::new(), Vec::new());
    let mut slots = 0;
    for (n, step) in low.program.steps.iter().enumerate() {
        let origin = low.origin.get(n).copied();
        // Steps run one after the other: each has all of what is not kept.
        own.free();
        compiler.listing.begin(n, step.name());
        let mut shared = rooms.of(origin);
        let mut making = CompileContext {
            compiler: Some(&mut *compiler),
            program: &low.program,
            shared: &mut shared,
            own: &mut *own,
            slots,
            functions,
        };
        let work = work(&mut making, step).map_err(|d| within(d, program, origin))?;
        slots = making.slots;
        let emitters = compiler.listing.emitters(n);
        let origin = origin.unwrap_or_default();
        let by: Vec<&str> = match &work {
            CompiledStep::Contract(members) => {
                members.iter().map(CompiledMember::generator).collect()
            }
            _ => Vec::new(),
        };
        steps.push(work);
        made.push(introspect::told(&low.program, step, origin, &emitters, &by));
        all = all.max(shared.most);
    }
    Ok(CompiledSteps { steps, made, slots, arena: all })
}

/// The name of each input that is written to.
fn written(low: &Legalized, places: &[BufferPlace]) -> Vec<Option<String>> {
    let mut written: Vec<Option<String>> = vec![None; low.inputs.len()];
    for (b, place) in low.program.buffers.keys().zip(places) {
        if let (BufferPlace::Input(k), false) = (*place, low.inputs.contains(&b)) {
            written[k] = Some(low.program.buffers[low.inputs[k]].name.clone());
        }
    }
    written
}

/// Finds a place for every buffer, and checks those that are given.
pub(super) fn place(
    low: &Legalized,
    arena: &ArenaLayout,
    rooms: &ScratchLayout,
    constants: &mut OffsetAllocator,
) -> Result<Vec<BufferPlace>, Diagnostic> {
    let usage = |data: &BufferData, m: &str| {
        let m = format!("the layout of the arena does not fit: %{} {m}", data.name);
        Diagnostic::new(At::default(), Kind::Usage, m)
    };
    let mut places = Vec::new();
    for (b, data) in low.program.buffers.iter() {
        let first = |all: &[Buffer]| all.iter().position(|&x| x == b);
        let size = data.bytes();
        if let Some(input) = arena.donated[b] {
            places.push(BufferPlace::Input(given(low, b, input).map_err(|m| usage(data, m))?));
            continue;
        }
        let room =
            |room: &mut OffsetAllocator| room.take(i64::try_from(size).unwrap_or(i64::MAX), 1);
        places.push(match &data.role {
            Role::Input => BufferPlace::Input(first(&low.inputs).unwrap_or_default()),
            Role::Output => BufferPlace::Output(first(&low.outputs).unwrap_or_default()),
            Role::Constant(_) => BufferPlace::Constant(room(constants)?),
            Role::Temp => match arena.offsets[b].or(rooms.temps[b]) {
                None => return Err(usage(data, "has no place")),
                Some(at) if rooms.temps[b].is_some() => BufferPlace::Arena(at),
                Some(at) if at % ALIGN != 0 => return Err(usage(data, "is not aligned")),
                Some(at) if at.checked_add(size).is_none_or(|end| end > arena.bytes) => {
                    return Err(usage(data, "is outside"));
                }
                Some(at) => BufferPlace::Arena(at),
            },
        });
    }
    Ok(places)
}

/// The position of the input in whose memory a buffer is to be, or what is wrong with that.
fn given(low: &Legalized, b: Buffer, input: Buffer) -> Result<usize, &'static str> {
    let data = &low.program.buffers[b];
    let at = low.inputs.iter().position(|&b| b == input);
    let given = low.program.buffers.get(input).filter(|i| i.donated);
    let (Some(at), Some(given)) = (at, given) else {
        return Err("is in the memory of what is no input that is given up");
    };
    let fits = match data.role {
        Role::Temp => data.bytes() <= given.bytes(),
        // What is handed over twice is in two places.
        Role::Output => {
            let times = low.outputs.iter().filter(|&&o| o == b).count();
            times == 1 && data.bytes() == given.bytes()
        }
        Role::Input | Role::Constant(_) => false,
    };
    fits.then_some(at).ok_or("does not fit into the input that is given up for it")
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
