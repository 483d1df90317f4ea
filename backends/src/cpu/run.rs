//! Executables: a program that has been compiled, and the memory it runs in.
#![allow(unsafe_code)]

use super::code::{Code, Maker};
use super::contract::MadeMember;
use super::crew::{Crew, Worker};
use super::gemm::{Gemm, best};
use super::inside::{self, MadeStep, MemoryReport};
use super::kernel::{Made, Making};
use super::lower::{Lowered, lowered};
use super::memory::{ALIGN, Block, Room};
use super::pool::Pool;
use super::scatter::MadeScatter;
use super::scratch::Rooms;
use super::trace::Recorder;
use crate::array::Array;
use adfuse_ir::kernel::{Buffer, BufferData, Program, Role, Step, Verified};
use adfuse_ir::{At, DType, Diagnostic, Fp, Kind, TensorType};
use cranelift_entity::{EntityRef, SecondaryMap};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Where a program's temporaries are in one arena.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ArenaLayout {
    /// Bytes of the arena.
    pub bytes: u64,
    /// Where each temporary begins, a multiple of 64; the engine finds room beside the arena for those
    /// without.
    pub offsets: SecondaryMap<Buffer, Option<u64>>,
    /// For each step, where it has what it needs beside the buffers, a multiple of 64, and how many bytes
    /// ([`scratch`](super::scratch) says how many it needs); the engine finds room beside the arena where
    /// there is nothing, or not enough.
    pub scratch: Vec<Option<(u64, u64)>>,
}

/// How an executable runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Threads that work on it, the caller's among them; at least one. They change no bit.
    pub threads: usize,
    /// What may happen to numbers.
    pub fp: Fp,
}

impl Default for Options {
    fn default() -> Options {
        Options { threads: 1, fp: Fp::default() }
    }
}

/// A program as machine code, with the memory it runs in.
pub struct Executable {
    name: String,
    pub(super) code: Code,
    steps: Vec<Work>,
    pub(super) made: Vec<MadeStep>,
    pub(super) report: MemoryReport,
    places: Vec<Place>,
    inputs: Vec<TensorType>,
    /// How many bytes each input has.
    input_bytes: Vec<usize>,
    outputs: Vec<Output>,
    memory: Mutex<Memory>,
    pub(super) threads: usize,
    pool: Arc<Mutex<Pool>>,
    gemm: &'static dyn Gemm,
}

/// What a caller is handed.
pub(super) struct Output {
    dtype: DType,
    dims: Vec<u64>,
    buffer: usize,
    /// Copied from the buffer when all is done; written in place otherwise.
    copied: bool,
    pub(super) bytes: usize,
}

/// A step, made.
pub(super) enum Work {
    Kernel(Made),
    Contract(Vec<MadeMember>),
    Scatter(MadeScatter),
    /// Bytes from one buffer to another.
    Copy(usize, usize, usize),
}

/// Where a buffer is.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Input(usize),
    Output(usize),
    /// In the arena, or beside it.
    Arena(u64),
    Constant(u64),
}

struct Memory {
    /// The arena, and what there was no room for in it.
    arena: Block,
    constants: Block,
    // Kept for the workers, which point to it.
    #[allow(dead_code)]
    own: Vec<Block>,
    workers: Vec<Mutex<Worker>>,
    /// Of the buffers, for the run.
    pointers: Vec<*mut u8>,
}

impl Executable {
    /// Compiles a program. `arena` says where its temporaries are.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for steps that call a library, and on hosts for which no machine code is
    /// made; [`Kind::Usage`] when the layout does not fit the program; [`Kind::Limit`] when memory is
    /// not enough. The error names the step.
    pub fn compile(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        options: Options,
    ) -> Result<Executable, Diagnostic> {
        let pool = Pool::new(options.threads.max(1) - 1);
        Executable::with_pool(program, arena, options, Arc::new(Mutex::new(pool)))
    }

    /// Compiles a program to be read: as [`Executable::compile`], with the texts of its sweeps kept.
    ///
    /// # Errors
    /// As there.
    pub fn compile_listed(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        options: Options,
    ) -> Result<Executable, Diagnostic> {
        let pool = Arc::new(Mutex::new(Pool::new(options.threads.max(1) - 1)));
        Executable::made_of(program, arena, options, pool, true)
    }

    /// As [`Executable::compile`], with threads that others use too.
    pub(super) fn with_pool(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        options: Options,
        pool: Arc<Mutex<Pool>>,
    ) -> Result<Executable, Diagnostic> {
        Executable::made_of(program, arena, options, pool, false)
    }

    fn made_of(
        program: &Verified<Program>,
        arena: &ArenaLayout,
        options: Options,
        pool: Arc<Mutex<Pool>>,
        texts: bool,
    ) -> Result<Executable, Diagnostic> {
        let low = lowered(program)?;
        let within = |d: Diagnostic, step: Option<usize>| within(d, program, step);
        let rooms = Rooms::new(program, &low, arena)?;
        let mut constants = Room::default();
        let places = place(&low, arena, &rooms, &mut constants).map_err(|d| within(d, None))?;
        let mut all = rooms.end;
        let mut own = Room::default();
        let mut maker = Maker::new(options.fp).map_err(|d| within(d, None))?;
        maker.listing.texts = texts;
        let (mut steps, mut made) = (Vec::new(), Vec::new());
        let mut slots = 0;
        for (n, step) in low.program.steps.iter().enumerate() {
            let origin = low.origin.get(n).copied();
            // Steps run one after the other: each has all of what is not kept.
            own.free();
            maker.listing.begin(n, step.name());
            let mut shared = rooms.of(origin);
            let mut making = Making {
                maker: Some(&mut maker),
                program: &low.program,
                shared: &mut shared,
                own: &mut own,
                slots,
            };
            steps.push(work(&mut making, step).map_err(|d| within(d, origin))?);
            slots = making.slots;
            made.push(inside::told(&low.program, step, origin.unwrap_or_default(), best()));
            all = all.max(shared.most);
        }
        let code = maker.finish().map_err(|d| within(d, None))?;
        let mut memory = Memory {
            arena: Block::new(all)?,
            constants: Block::new(constants.most)?,
            own: Vec::new(),
            workers: Vec::new(),
            pointers: Vec::with_capacity(low.program.buffers.len()),
        };
        let buffers = low.program.buffers.len();
        let shared = memory.arena.start();
        for _ in 0..options.threads.max(1) {
            let block = Block::new(own.most)?;
            let table = vec![std::ptr::null_mut(); buffers + slots as usize];
            let worker = Worker { table, buffers, own: block.start(), shared };
            memory.workers.push(Mutex::new(worker));
            memory.own.push(block);
        }
        fill(&low.program, &places, &memory.constants);
        let outputs = outputs(&low, &places);
        let inputs: Vec<TensorType> =
            low.inputs.iter().filter_map(|&b| low.program.buffers[b].ty()).collect();
        let input_bytes: Vec<usize> = inputs.iter().map(bytes).collect();
        let report = MemoryReport {
            arena: arena.bytes,
            shared: all.saturating_sub(arena.bytes),
            constants: constants.most,
            per_thread: own.most,
            inputs: input_bytes.iter().map(|&n| n as u64).sum(),
            outputs: outputs.iter().map(|o| o.bytes as u64).sum(),
            code: code.listed().map(|(noted, _)| noted.bytes as u64).sum(),
        };
        Ok(Executable {
            name: program.name.clone(),
            code,
            steps,
            made,
            report,
            outputs,
            inputs,
            input_bytes,
            places,
            memory: Mutex::new(memory),
            threads: options.threads.max(1),
            pool,
            gemm: best(),
        })
    }

    /// Runs it on arrays.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the arguments do not have the inputs' types; [`Kind::Limit`] when there is
    /// no memory for the results.
    pub fn run(&self, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
        let found: Vec<TensorType> = args.iter().map(Array::ty).collect();
        if self.inputs != found {
            let m = format!("@{} takes {:?}, found {found:?}", self.name, self.inputs);
            return Err(self.usage(m));
        }
        let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
        let mut results: Vec<Vec<u8>> = Vec::new();
        for output in &self.outputs {
            let mut bytes = Vec::new();
            let wanted = output.bytes;
            bytes.try_reserve_exact(wanted).map_err(|_| super::memory::too_much(wanted as u64))?;
            bytes.resize(wanted, 0);
            results.push(bytes);
        }
        let mut slices: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        self.run_into(&inputs, &mut slices)?;
        let typed = self.outputs.iter().zip(results);
        let array = |(o, bytes): (&Output, _)| Array::from_bytes(o.dtype, &o.dims, bytes);
        Ok(typed.map(array).collect())
    }

    /// Runs it on the bytes of dense row-major arrays, and writes the results' bytes.
    ///
    /// # Errors
    /// [`Kind::Usage`] when there are not as many slices as inputs and outputs, or one has not as many
    /// bytes.
    pub fn run_into(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Diagnostic> {
        self.run_recorded(inputs, outputs, None)
    }

    /// Runs it, and takes down what happens when somebody asks.
    pub(super) fn run_recorded(
        &self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        mut recorder: Option<&mut Recorder>,
    ) -> Result<(), Diagnostic> {
        let wanted = &mut self.input_bytes.iter().copied();
        self.sized("input", inputs.iter().map(|s| s.len()), wanted)?;
        let wanted = &mut self.outputs.iter().map(|o| o.bytes);
        self.sized("output", outputs.iter().map(|s| s.len()), wanted)?;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Memory { arena, constants, workers, pointers, .. } = &mut *memory;
        let (arena, constants) = (arena.start(), constants.start());
        // Elements are at multiples of their size, as everything but machine code asks for. Slices that
        // begin elsewhere are rare, and copied.
        let mut moved: Vec<(Option<usize>, Block)> = Vec::new();
        pointers.clear();
        for place in &self.places {
            pointers.push(match *place {
                // Verified programs do not write inputs.
                Place::Input(k) => {
                    aligned(inputs[k].as_ptr().cast_mut(), inputs[k].len(), None, &mut moved)?
                }
                Place::Output(k) => {
                    aligned(outputs[k].as_mut_ptr(), outputs[k].len(), Some(k), &mut moved)?
                }
                Place::Arena(offset) => arena.wrapping_add(offset as usize),
                Place::Constant(offset) => constants.wrapping_add(offset as usize),
            });
        }
        for worker in workers.iter_mut() {
            let worker = worker.get_mut().unwrap_or_else(PoisonError::into_inner);
            worker.table[..pointers.len()].copy_from_slice(pointers);
        }
        // Where another executable has the threads, this one goes on alone.
        let mut pool = match self.pool.try_lock() {
            Ok(pool) => Some(pool),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        for (n, step) in self.steps.iter().enumerate() {
            let begun = recorder.as_ref().map(|r| r.now());
            let crew = &mut Crew {
                code: &self.code,
                workers,
                pool: pool.as_deref_mut(),
                step: n,
                recorder: recorder.as_deref(),
            };
            match step {
                Work::Kernel(kernel) => kernel.run(crew),
                Work::Contract(members) => members.iter().for_each(|m| m.run(crew, self.gemm)),
                Work::Scatter(scatter) => scatter.run(crew),
                Work::Copy(from, to, n) => {
                    let (from, to) = (pointers[*from], pointers[*to]);
                    // SAFETY: both have so many bytes, and are not the same.
                    unsafe { std::ptr::copy_nonoverlapping(from, to, *n) }
                }
            }
            if let (Some(recorder), Some(begun)) = (recorder.as_mut(), begun) {
                recorder.step(n, begun);
            }
        }
        for (output, block) in &mut moved {
            if let Some(k) = *output {
                let n = outputs[k].len();
                // SAFETY: the block was made for the bytes of this output.
                unsafe { std::ptr::copy_nonoverlapping(block.start(), outputs[k].as_mut_ptr(), n) }
            }
        }
        for (k, output) in self.outputs.iter().enumerate().filter(|(_, o)| o.copied) {
            let from = pointers[output.buffer];
            // SAFETY: a dense buffer has the bytes of its type, which the slice has been checked for.
            // It may be an input, which the slice, being borrowed alone, does not overlap.
            unsafe { std::ptr::copy_nonoverlapping(from, outputs[k].as_mut_ptr(), output.bytes) }
        }
        Ok(())
    }

    fn sized(
        &self,
        word: &str,
        found: impl ExactSizeIterator<Item = usize>,
        wanted: &mut dyn ExactSizeIterator<Item = usize>,
    ) -> Result<(), Diagnostic> {
        if found.len() != wanted.len() {
            let m = format!("@{} has {} {word}s, found {}", self.name, wanted.len(), found.len());
            return Err(self.usage(m));
        }
        for (k, (found, wanted)) in found.zip(wanted).enumerate() {
            if found != wanted {
                let m = format!("{word} {k} of @{} has {wanted} bytes, found {found}", self.name);
                return Err(self.usage(m));
            }
        }
        Ok(())
    }

    fn usage(&self, m: String) -> Diagnostic {
        let at = At { func: Some(self.name.clone()), ..At::default() };
        Diagnostic::new(at, Kind::Usage, m)
    }
}

/// A slice's beginning, or that of an aligned copy of it.
fn aligned(
    at: *mut u8,
    bytes: usize,
    output: Option<usize>,
    moved: &mut Vec<(Option<usize>, Block)>,
) -> Result<*mut u8, Diagnostic> {
    // No element has more bytes.
    if at.addr().is_multiple_of(8) || bytes == 0 {
        return Ok(at);
    }
    let block = Block::new(bytes as u64)?;
    if output.is_none() {
        // SAFETY: both have so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(at, block.start(), bytes) }
    }
    moved.push((output, block));
    Ok(moved.last_mut().map_or(at, |(_, block)| block.start()))
}

pub(super) fn bytes(ty: &TensorType) -> usize {
    ty.elements().and_then(|n| n.checked_mul(ty.dtype.bytes())).map_or(0, |n| n as usize)
}

/// The diagnostic with the step it is about.
pub(super) fn within(mut d: Diagnostic, program: &Program, step: Option<usize>) -> Diagnostic {
    if d.at.func.is_none() {
        d.at.func = Some(program.name.clone());
    }
    if let Some((n, step)) = step.and_then(|n| Some((n, program.steps.get(n)?))) {
        d.at.inst.get_or_insert_with(|| format!("step {n}: {}", step.title()));
    }
    d
}

pub(super) fn work(making: &mut Making<'_>, step: &Step) -> Result<Work, Diagnostic> {
    let unsupported = |m: String| Diagnostic::new(At::default(), Kind::Unsupported, m);
    Ok(match step {
        Step::Kernel(kernel) => Work::Kernel(making.kernel(kernel, None)?),
        Step::Contract(c) => {
            Work::Contract(c.members.iter().map(|m| making.member(m)).collect::<Result<_, _>>()?)
        }
        Step::Scatter(s) => Work::Scatter(making.scatter(s)?),
        Step::Transfer(t) => {
            let n = making.program.buffers[t.from].bytes() as usize;
            Work::Copy(t.from.index(), t.to.index(), n)
        }
        Step::Library(l) => {
            return Err(unsupported(format!("there is no library function @{}", l.function)));
        }
        Step::Attend(_) => return Err(unsupported("attention is made of other steps".into())),
    })
}

pub(super) fn outputs(low: &Lowered, places: &[Place]) -> Vec<Output> {
    let made = |(k, &b): (usize, &Buffer)| {
        let data = &low.program.buffers[b];
        let ty = data.ty()?;
        let copied = !matches!(places.get(b.index()), Some(Place::Output(at)) if *at == k);
        let dims = ty.dims()?.to_vec();
        Some(Output { dtype: ty.dtype, dims, buffer: b.index(), copied, bytes: bytes(&ty) })
    };
    low.outputs.iter().enumerate().filter_map(made).collect()
}

/// Finds a place for every buffer, and checks those that are given.
pub(super) fn place(
    low: &Lowered,
    arena: &ArenaLayout,
    rooms: &Rooms,
    constants: &mut Room,
) -> Result<Vec<Place>, Diagnostic> {
    let usage = |data: &BufferData, m: &str| {
        let m = format!("the layout of the arena does not fit: %{} {m}", data.name);
        Diagnostic::new(At::default(), Kind::Usage, m)
    };
    let mut places = Vec::new();
    for (b, data) in low.program.buffers.iter() {
        let first = |all: &[Buffer]| all.iter().position(|&x| x == b);
        let size = data.bytes();
        let room = |room: &mut Room| room.take(i64::try_from(size).unwrap_or(i64::MAX), 1);
        places.push(match &data.role {
            Role::Input => Place::Input(first(&low.inputs).unwrap_or_default()),
            Role::Output => Place::Output(first(&low.outputs).unwrap_or_default()),
            Role::Constant(_) => Place::Constant(room(constants)?),
            Role::Temp => match arena.offsets[b].or(rooms.temps[b]) {
                None => return Err(usage(data, "has no place")),
                Some(at) if rooms.temps[b].is_some() => Place::Arena(at),
                Some(at) if at % ALIGN != 0 => return Err(usage(data, "is not aligned")),
                Some(at) if at.checked_add(size).is_none_or(|end| end > arena.bytes) => {
                    return Err(usage(data, "is outside"));
                }
                Some(at) => Place::Arena(at),
            },
        });
    }
    Ok(places)
}

/// Writes the values of the constants.
fn fill(program: &Program, places: &[Place], block: &Block) {
    let start = block.start();
    for (b, data) in program.buffers.iter() {
        let (Role::Constant(values), Some(Place::Constant(at))) =
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

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executable").field("name", &self.name).finish_non_exhaustive()
    }
}

// Memory is behind a lock, and its pointers are to blocks that it owns.
unsafe impl Send for Memory {}
