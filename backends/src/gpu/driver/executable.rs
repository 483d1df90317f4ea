//! Executables: a program on a device, with the memory it runs in.
#![allow(unsafe_code)]

use super::cublaslt::Tuned;
use super::device::GpuDevice;
use super::graph::Graph;
use super::load::{Entry, KeptCode, Loaded};
use super::memory::{DeviceBlock, Pinned};
use super::place::{Place, Places};
use super::prepare::{GpuPrepared, aligned, is_transfer};
use crate::gpu::launches::{Arg, StepCode};
use crate::runtime::arena_layout;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::report::{MemoryReport, StepReport};
use adfuse_ir::kernel::{Program, Step};
use adfuse_ir::{At, Diagnostic, Kind, TensorType};
use cranelift_entity::EntityRef;
use cudarc::driver::sys::CUdeviceptr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A program on a device, ready to run as often as one likes.
pub struct GpuExecutable {
    pub(crate) name: String,
    pub(crate) device: Arc<GpuDevice>,
    // Entry points are its.
    pub(crate) loaded: Loaded,
    pub(crate) steps: Vec<Work>,
    pub(crate) made: Vec<StepReport>,
    pub(crate) places: Places,
    pub(crate) inputs: Vec<TensorType>,
    pub(crate) outputs: Vec<Output>,
    /// For each input in the host's memory, where it is there.
    pub(crate) hosted: Vec<Option<u64>>,
    /// The name of each input that is written to.
    pub(crate) written: Vec<Option<String>>,
    pub(crate) report: MemoryReport,
    pub(crate) held: Mutex<Held>,
}

/// Memory, and what was drawn for it.
pub(crate) struct Held {
    /// The arena, what is beside it and the constants.
    pub(crate) block: DeviceBlock,
    /// Buffers in the host's memory.
    pub(crate) pinned: Pinned,
    /// Drawn for the places of inputs and outputs; those used last come last.
    pub(crate) graphs: Vec<Graph>,
}

/// What a caller is handed.
pub(crate) struct Output {
    pub(crate) ty: TensorType,
    pub(crate) dims: Vec<u64>,
    pub(crate) bytes: u64,
    pub(crate) from: From,
}

/// Where a result comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    /// The program writes it where the caller wants it.
    There,
    /// It is copied from a buffer when all is done.
    Copied(Pointer),
    /// It is left in the memory of an input, by position.
    Input(usize),
    /// It is in the host's memory.
    Host(u64),
    /// It is the same value as an earlier result, by position, and in the same place.
    Same(usize),
}

/// A step, made.
pub(crate) enum Work {
    Launches(Vec<Launch>),
    /// By the library; where it has what it needs beside the matrices.
    Product(Arc<Tuned>, [usize; 3], u64),
    /// Bytes from one memory to the other.
    Copy {
        from: usize,
        to: usize,
        bytes: u64,
    },
}

/// Entry points that are known, by name and bytes of shared memory.
type EntryPoints = BTreeMap<(String, u32), Entry>;

/// One launch.
pub(crate) struct Launch {
    pub(crate) entry: Entry,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared: u32,
    pub(crate) args: Vec<Pointer>,
}

/// What a launch is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pointer {
    /// Where a buffer is.
    Buffer(usize),
    /// Where an input is, by position.
    Input(usize),
    /// Where a result goes, by position.
    Output(usize),
    /// In the block.
    DeviceBlock(u64),
}

impl GpuPrepared {
    /// What a run takes with this layout of the memory.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the layout does not fit the program; [`Kind::Limit`] when it is too much to
    /// count.
    pub fn report(&self, arena: &ArenaLayout) -> Result<MemoryReport, Diagnostic> {
        Ok(self.placed(arena)?.1)
    }

    /// Finds a place for everything.
    fn placed(&self, arena: &ArenaLayout) -> Result<(Places, MemoryReport), Diagnostic> {
        let program = self.program();
        let places = Places::new(program, arena, &self.module, self.scratch())
            .map_err(|d| within(d, program, None))?;
        let size = |b| program.buffers[b].bytes();
        let outputs = outputs(program, &places);
        let own = outputs.iter().filter(|o| matches!(o.from, From::There | From::Copied(_)));
        let report = MemoryReport {
            arena: arena.bytes,
            outside_arena: places.beside,
            constants: places.constants,
            inputs: program.inputs().filter(|&b| places.host_at(b).is_none()).map(size).sum(),
            outputs: own.map(|o| o.bytes).sum(),
            ..MemoryReport::default()
        };
        Ok((places, report))
    }

    /// Makes the work of every step, and what is reported of it.
    fn works(
        &self,
        places: &Places,
        loaded: &Loaded,
        entries: &mut EntryPoints,
    ) -> Result<(Vec<Work>, Vec<StepReport>), Diagnostic> {
        let GpuPrepared { divided, module, tuned, .. } = self;
        let (program, origin) = (&divided.program, &divided.origin);
        let (mut steps, mut made) = (Vec::new(), Vec::new());
        let all = program.steps.iter().zip(&module.steps).zip(tuned);
        for (n, ((step, code), tuned)) in all.enumerate() {
            let scratch = aligned(places.scratch[n]);
            let work = match (step, tuned) {
                (_, Some(tuned)) => {
                    let buffers = tuned.matrices().map(|m| m.buffer.index());
                    Work::Product(Arc::clone(tuned), buffers, scratch)
                }
                (Step::Transfer(t), None) => Work::Copy {
                    from: t.from.index(),
                    to: t.to.index(),
                    bytes: program.buffers[t.from].bytes(),
                },
                (_, None) => Work::Launches(
                    launches(program, code, (scratch, Side::In), loaded, entries)
                        .map_err(|d| within(d, program, Some(n)))?,
                ),
            };
            made.push(told(step, origin[n], &work));
            steps.push(work);
        }
        Ok((steps, made))
    }

    /// Makes an executable of it. `arena` says where the temporaries of [`GpuPrepared::program`] are.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the layout does not fit or puts two values into the same bytes at one time;
    /// [`Kind::Limit`] when the device has not enough memory;
    /// [`Kind::Internal`] when the driver does not take the code, with what its assembler says.
    pub fn finish(
        &self,
        arena: &ArenaLayout,
        cache: Option<&dyn KeptCode>,
    ) -> Result<GpuExecutable, Diagnostic> {
        let (places, mut report) = self.placed(arena)?;
        arena_layout::check(self.program(), arena, &self.reads_again())?;
        let GpuPrepared { device, divided, module, .. } = self;
        let (program, origin) = (&divided.program, &divided.origin);
        let whole = |d| within(d, program, None);
        let beside = module.enter.scratch.max(module.leave.scratch);
        if program.steps.is_empty() && beside > 0 {
            // What copies need is planned with a step's.
            let m = "copies of a program without steps need memory beside its buffers";
            return Err(whole(Diagnostic::new(At::default(), Kind::Unsupported, m)));
        }
        let loaded = Loaded::new(device, &module.text, cache).map_err(whole)?;
        report.code = loaded.bytes;
        let mut entries = EntryPoints::new();
        let (mut steps, mut made) = self.works(&places, &loaded, &mut entries)?;
        // What callers hand over otherwise than the program has it is copied first, and at the end.
        let mut beside = |code: &StepCode, (scratch, side): (u64, Side), name: &str, at: usize| {
            let scratch = (aligned(scratch), side);
            let work = launches(program, code, scratch, &loaded, &mut entries)?;
            let work = Work::Launches(work);
            let told = StepReport { name: name.into(), ..told_of(at, &work) };
            Ok::<_, Diagnostic>((work, told))
        };
        let first = places.scratch.first().copied().unwrap_or(0);
        let last = places.scratch.last().copied().unwrap_or(0);
        let end = origin.last().copied().unwrap_or(0);
        if !module.enter.launches.is_empty() {
            let (work, told) =
                beside(&module.enter, (first, Side::In), "inputs", 0).map_err(whole)?;
            steps.insert(0, work);
            made.insert(0, told);
        }
        if !module.leave.launches.is_empty() {
            let (work, told) =
                beside(&module.leave, (last, Side::Out), "results", end).map_err(whole)?;
            steps.push(work);
            made.push(told);
        }
        let block = DeviceBlock::new(device, places.all, report.peak()).map_err(whole)?;
        let constants = places.filled(program);
        if !constants.is_empty() {
            block.upload_at(places.constants_at, &constants).map_err(whole)?;
        }
        let pinned = Pinned::new(device, places.host).map_err(whole)?;
        Ok(GpuExecutable {
            name: program.name.clone(),
            inputs: program.inputs().filter_map(|b| program.buffers[b].ty()).collect(),
            outputs: outputs(program, &places),
            hosted: program.inputs().map(|b| places.host_at(b)).collect(),
            written: places.written(program),
            device: Arc::clone(device),
            loaded,
            steps,
            made,
            places,
            report,
            held: Mutex::new(Held { block, pinned, graphs: Vec::new() }),
        })
    }
}

/// The diagnostic with the step it is about.
fn within(mut d: Diagnostic, program: &Program, step: Option<usize>) -> Diagnostic {
    if d.at.func.is_none() {
        d.at.func = Some(program.name.clone());
    }
    if let Some((n, step)) = step.and_then(|n| Some((n, program.steps.get(n)?))) {
        d.at.inst.get_or_insert_with(|| format!("step {n}: {}", step.title()));
    }
    d
}

/// Which of a caller's arrays are copied.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    In,
    Out,
}

/// The launches of a step, whose scratch begins there.
fn launches(
    program: &Program,
    code: &StepCode,
    (scratch, side): (u64, Side),
    loaded: &Loaded,
    entries: &mut EntryPoints,
) -> Result<Vec<Launch>, Diagnostic> {
    let mut all = Vec::new();
    for launch in &code.launches {
        let key = (launch.entry.clone(), launch.shared);
        let entry = match entries.get(&key) {
            Some(&known) => known,
            None => {
                let entry = loaded.entry(&launch.entry, launch.shared)?;
                entries.insert(key, entry);
                entry
            }
        };
        let first = |b| program.inputs().position(|i| i == b).map(Pointer::Input);
        let last = |b| program.outputs.iter().position(|&o| o == b).map(Pointer::Output);
        let given = |arg: &Arg| match *arg {
            Arg::Buffer(b) => Some(Pointer::Buffer(b.index())),
            Arg::Caller(b) if side == Side::In => first(b),
            Arg::Caller(b) => last(b),
            Arg::Scratch { offset } => Some(Pointer::DeviceBlock(scratch + offset)),
            Arg::Position | Arg::Outer(_) | Arg::Result(_) => None,
        };
        let args = launch.args.iter().map(given).collect::<Option<Vec<_>>>().ok_or_else(|| {
            Diagnostic::new(At::default(), Kind::Internal, "a launch is given what nobody has")
        })?;
        let (mut grid, block, shared) = (launch.grid, launch.block, launch.shared);
        if let Some(resident) = launch.resident {
            grid[0] = grid[0].min(resident.saturating_mul(loaded.processors()).max(1));
        }
        all.push(Launch { entry, grid, block, shared, args });
    }
    Ok(all)
}

fn told(step: &Step, origin: usize, work: &Work) -> StepReport {
    debug_assert!(is_transfer(step) == matches!(work, Work::Copy { .. }), "a copy is a transfer");
    StepReport { name: step.name().into(), ..told_of(origin, work) }
}

fn told_of(origin: usize, work: &Work) -> StepReport {
    let (generator, launches) = match work {
        Work::Launches(launches) => ("ptx", launches.len() as u32),
        Work::Product(..) => ("cublaslt", 1),
        Work::Copy { .. } => ("copy", 1),
    };
    let most = |of: fn(&Entry) -> u32| match work {
        Work::Launches(all) => all.iter().map(|l| of(&l.entry)).max().unwrap_or(0),
        _ => 0,
    };
    let (registers, local) = (most(|e| e.registers), most(|e| e.local));
    let generator = generator.to_owned();
    StepReport { origin, generator, launches, registers, local, ..StepReport::default() }
}

/// What a caller is handed, and where that comes from.
fn outputs(program: &Program, places: &Places) -> Vec<Output> {
    let made = |(k, &b): (usize, &adfuse_ir::kernel::Buffer)| {
        let ty = program.buffers[b].ty()?;
        let bytes = ty.elements()?.checked_mul(ty.dtype.bytes())?;
        let first = program.outputs.iter().position(|&o| o == b).filter(|&first| first < k);
        let from = match places.of(b) {
            Place::Host(at) => From::Host(at),
            _ if let Some(first) = first => From::Same(first),
            Place::Output(at) if at == k => From::There,
            _ => match places.left_at[b] {
                Some(_) => From::There,
                None => match places.of(b) {
                    Place::Input(j) if places.is_given_up(b) => From::Input(j),
                    _ => From::Copied(Pointer::Buffer(b.index())),
                },
            },
        };
        Some(Output { dims: ty.dims()?.to_vec(), ty, bytes, from })
    };
    program.outputs.iter().enumerate().filter_map(made).collect()
}

impl GpuExecutable {
    /// The steps, in the order in which they run.
    pub fn steps(&self) -> &[StepReport] {
        &self.made
    }

    /// Kernels launched in a run, calls of the library, and copies, those of results that are in other buffers
    /// among them.
    pub fn launches(&self) -> u32 {
        let copied = self.outputs.iter().filter(|o| matches!(o.from, From::Copied(_))).count();
        self.made.iter().map(|s| s.launches).sum::<u32>() + copied as u32
    }

    /// Bytes that a run takes.
    pub fn memory(&self) -> MemoryReport {
        self.report
    }

    /// Whether its code was kept from a run before.
    pub fn was_kept(&self) -> bool {
        self.loaded.kept
    }

    /// The device.
    pub fn device(&self) -> &Arc<GpuDevice> {
        &self.device
    }

    /// Where everything is, for inputs and outputs at these places.
    pub(crate) fn pointers(
        &self,
        held: &Held,
        inputs: &[CUdeviceptr],
        outputs: &[CUdeviceptr],
    ) -> Vec<CUdeviceptr> {
        let at = |place: &Place| match *place {
            Place::Input(k) => inputs[k],
            Place::Output(k) => outputs[k],
            Place::DeviceBlock(offset) => held.block.at() + offset,
            Place::Host(offset) => held.pinned.start().addr() as u64 + offset,
        };
        self.places.each().map(at).collect()
    }
}

impl std::fmt::Debug for GpuExecutable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuExecutable").field("name", &self.name).finish_non_exhaustive()
    }
}
