//! Executables: a program on a device, with the memory it runs in.
#![allow(unsafe_code)]

use super::block_memory::block_constants;
use super::call_sink::CallSink;
use super::cuda::has_branches;
use super::device::GpuDevice;
use super::device_frame::DeviceFrame;
use super::drawn::DrawnParts;
use super::entry_points::EntryPoints;
use super::event::Event;
use super::load::{KeptCode, Loaded};
use super::memory::{DeviceBlock, Pinned};
use super::overlap::{ExchangeOverlap, Touched};
use super::place::{Place, Places, aligned};
use super::play::{Player, StepEvents};
use super::prepare::{GpuPrepared, is_transfer};
use super::step_order::{StepMemoryUse, StepOrder, memory_use, step_order};
use super::work::{Pointer, Side, Work, WorkMaker, launch_count, most};
use crate::gpu::launches::{PtxModule, StepCode};
use crate::runtime::arena_layout;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::errors::within;
use crate::runtime::limits::RunLimits;
use crate::runtime::ranks::Agreement;
use crate::runtime::report::{MemoryReport, StepReport};
use adfuse_ir::kernel::{Program, Step};
use adfuse_ir::{At, Diagnostic, Kind, TensorType};
use cranelift_entity::EntityRef;
use cudarc::driver::sys::CUdeviceptr;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A program on a device, ready to run any number of times.
pub struct GpuExecutable {
    pub(crate) name: String,
    pub(crate) device: Arc<GpuDevice>,
    // Entry points are its.
    pub(crate) loaded: Loaded,
    pub(crate) steps: Vec<Work>,
    pub(crate) overlap: Option<ExchangeOverlap>,
    /// Which steps follow which, where some run side by side.
    pub(crate) order: Option<StepOrder>,
    pub(crate) made: Vec<StepReport>,
    pub(crate) places: Places,
    pub(crate) inputs: Vec<(String, TensorType)>,
    pub(crate) outputs: Vec<Output>,
    /// For each input in the host's memory, where it is there.
    pub(crate) hosted: Vec<Option<u64>>,
    /// The name of each input that is written to.
    pub(crate) written: Vec<Option<String>>,
    pub(crate) report: MemoryReport,
    pub(crate) limits: RunLimits,
    pub(crate) agreement: Agreement,
    pub(crate) held: Mutex<Held>,
}

/// Memory, and what was drawn for it.
pub(crate) struct Held {
    /// The arena, what is beside it and the constants.
    pub(crate) block: DeviceBlock,
    /// Buffers in the host's memory.
    pub(crate) pinned: Pinned,
    /// Where scalars of loops and branches are read back.
    pub(crate) readback: Pinned,
    /// Drawn for the places of inputs and outputs; those used last come last.
    pub(crate) drawn: Vec<DrawnRun>,
}

/// What was drawn of a run.
pub(crate) struct DrawnRun {
    /// Where inputs and outputs are.
    pub(crate) places: Vec<CUdeviceptr>,
    pub(crate) parts: DrawnParts,
}

/// Bytes of a scalar that is read back, and of a line around it.
const READBACK: u64 = 64;

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
        let inner = block_constants(program);
        let places = Places::new(program, arena, &self.module, self.scratch(), inner)
            .map_err(|d| within(d, program, None))?;
        let report = reported(program, &places, arena);
        Ok((places, report))
    }

    /// Makes the work of every step, and what is reported of it.
    fn works(
        &self,
        places: &Places,
        maker: &mut WorkMaker<'_>,
    ) -> Result<(Vec<Work>, Vec<StepReport>), Diagnostic> {
        let GpuPrepared { divided, module, tuned, .. } = self;
        let (program, origin) = (&divided.program, &divided.origin);
        let (mut steps, mut made) = (Vec::new(), Vec::new());
        let all = program.steps.iter().zip(&module.steps).zip(tuned);
        for (n, ((step, code), tuned)) in all.enumerate() {
            let scratch = aligned(places.scratch[n]);
            let work = match tuned {
                Some(tuned) => {
                    let buffers = tuned.matrices().map(|m| m.buffer.index());
                    Work::Product(Arc::clone(tuned), buffers, scratch)
                }
                None => maker.step(program, (n, code), self.memory.get(n), scratch)?,
            };
            let mut told = told(step, origin[n], &work);
            for launch in code.launches.iter().filter(|launch| launch.user.is_none()) {
                told.notes.extend(maker.entries.loaded.notes_of_entry(&launch.entry).cloned());
            }
            // One entry point may be launched more than once.
            told.notes.dedup();
            for number in code.launches.iter().filter_map(|launch| launch.user) {
                told.notes.extend_from_slice(maker.entries.loaded.notes_of_user(number));
            }
            made.push(told);
            steps.push(work);
        }
        Ok((steps, made))
    }

    /// Loads its text and the modules of users.
    fn loaded(&self, text: &str, cache: Option<&dyn KeptCode>) -> Result<Loaded, Diagnostic> {
        let GpuPrepared { device, module, .. } = self;
        let program = self.program();
        let loaded = Loaded::new(device, text, cache);
        let mut loaded = loaded.map_err(|d| within(d, program, None))?;
        for (number, user) in module.users.iter().enumerate() {
            let at = module.steps.iter().position(|code| code.has_user(number));
            loaded.add_user(user).map_err(|d| within(d, program, at))?;
        }
        Ok(loaded)
    }

    /// The order of all steps, copies before the first and after the last among them; `None` where each follows the one
    /// before.
    fn order(&self, places: &Places, works: &[Work]) -> Option<StepOrder> {
        let (program, module) = (self.program(), &self.module);
        if module.concurrent.is_empty() || !has_branches() {
            return None;
        }
        let first = usize::from(!module.enter.launches.is_empty());
        let mut used: Vec<StepMemoryUse> = vec![None; works.len()];
        let own = program.steps.iter().zip(works.iter().skip(first)).enumerate();
        for (n, (step, work)) in own {
            let scratch = self.scratch().get(n).copied().unwrap_or(0);
            used[first + n] = memory_use((program, places), (n, step, work), scratch);
        }
        let moved = |range: &Range<usize>| range.start + first..range.end + first;
        let ranges: Vec<Range<usize>> = module.concurrent.iter().map(moved).collect();
        Some(step_order(&used, &ranges))
    }

    /// What each step reads and writes.
    fn touched(&self, places: &Places, works: &[Work]) -> Vec<Touched> {
        let program = self.program();
        let all = program.steps.iter().zip(works).enumerate();
        let touched = |(n, (step, work)): (usize, (&Step, &Work))| {
            let scratch = self.scratch().get(n).copied().unwrap_or(0);
            Touched::of((program, places), (n, step, work), scratch)
        };
        all.map(touched).collect()
    }

    /// Refuses copies of a program without steps that need memory: it is planned with a step's.
    fn check_copies(&self) -> Result<(), Diagnostic> {
        let PtxModule { enter, leave, .. } = &self.module;
        if self.program().steps.is_empty() && enter.scratch.max(leave.scratch) > 0 {
            let m = "copies of a program without steps need memory beside its buffers";
            return Err(Diagnostic::new(At::default(), Kind::Unsupported, m));
        }
        Ok(())
    }

    /// Makes an executable of it and its text. `arena` says where the temporaries of [`GpuPrepared::program`] are.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the layout does not fit or puts two values into the same bytes at one time;
    /// [`Kind::Limit`] when the device has not enough memory;
    /// [`Kind::Usage`] when its assembler does not take a user's text, with the step, and [`Kind::Internal`] when it does
    /// not take the engine's own, with what it says.
    pub fn finish(
        &self,
        text: &str,
        arena: &ArenaLayout,
        cache: Option<&dyn KeptCode>,
    ) -> Result<GpuExecutable, Diagnostic> {
        let (places, mut report) = self.placed(arena)?;
        arena_layout::check(self.program(), arena, &self.reads_again())?;
        let GpuPrepared { device, divided, module, .. } = self;
        let (program, origin) = (&divided.program, &divided.origin);
        let whole = |d| within(d, program, None);
        self.check_copies().map_err(whole)?;
        let loaded = self.loaded(text, cache)?;
        report.code = loaded.bytes;
        let mut maker = WorkMaker {
            entries: EntryPoints::new(&loaded),
            constants_at: places.block_constants_at,
            constants: Vec::new(),
        };
        let (mut steps, mut made) = self.works(&places, &mut maker)?;
        let mut touched = self.touched(&places, &steps);
        // What callers hand over otherwise than the program has it is copied first, and at the end.
        let mut beside = |code: &StepCode, (scratch, side): (u64, Side), name: &str, at: usize| {
            let work = Work::Launches(maker.launches(program, code, (aligned(scratch), side))?);
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
            touched.insert(0, Touched::All);
            made.insert(0, told);
        }
        if !module.leave.launches.is_empty() {
            let (work, told) =
                beside(&module.leave, (last, Side::Out), "results", end).map_err(whole)?;
            steps.push(work);
            touched.push(Touched::All);
            made.push(told);
        }
        let order = self.order(&places, &steps);
        let overlap = ExchangeOverlap::of(device, &touched).map_err(|r| whole(r.into()))?;
        let block = DeviceBlock::new(device, places.all, report.peak()).map_err(whole)?;
        let constants = places.filled(program);
        if !constants.is_empty() {
            block.upload_at(places.constants_at, &constants).map_err(whole)?;
        }
        for (at, bytes) in &maker.constants {
            block.upload_at(*at, bytes).map_err(whole)?;
        }
        let is_driven = steps.iter().any(|work| !work.is_straight());
        let pinned = Pinned::new(device, places.host).map_err(whole)?;
        let readback = Pinned::new(device, if is_driven { READBACK } else { 0 }).map_err(whole)?;
        Ok(GpuExecutable {
            name: program.name.clone(),
            inputs: program.inputs().filter_map(|b| program.buffers[b].named_type()).collect(),
            outputs: outputs(program, &places),
            hosted: program.inputs().map(|b| places.host_at(b)).collect(),
            written: places.written(program),
            device: Arc::clone(device),
            loaded,
            steps,
            overlap,
            order,
            made,
            places,
            report,
            limits: self.limits,
            agreement: Agreement::about(&self.ranks, self.of_ranks.clone()),
            held: Mutex::new(Held { block, pinned, readback, drawn: Vec::new() }),
        })
    }
}

fn told(step: &Step, origin: usize, work: &Work) -> StepReport {
    let is_copied = matches!(work, Work::Copy { .. } | Work::Print(_) | Work::Exchange(_));
    debug_assert!(is_transfer(step) == is_copied, "a copy is a transfer");
    StepReport { name: step.name().into(), ..told_of(origin, work) }
}

fn told_of(origin: usize, work: &Work) -> StepReport {
    let generator = match work {
        Work::Launches(_) | Work::Loop(_) | Work::Branch(_) => "ptx",
        Work::Product(..) => "cublaslt",
        Work::Copy { .. } => "copy",
        Work::Print(_) => "host",
        Work::Exchange(_) => "nccl",
    };
    let notes = match work {
        Work::Loop(work) => {
            let each = work.step.launch_count();
            vec![format!("{each} launches a turn, up to {} turns a graph", work.turns())]
        }
        Work::Branch(work) => vec![format!("one of {} graphs", work.blocks.len())],
        _ => Vec::new(),
    };
    let (registers, local) = (most(work, |e| e.registers), most(work, |e| e.local));
    let (generator, launches) = (generator.to_owned(), launch_count(work));
    StepReport { origin, generator, notes, launches, registers, local, ..StepReport::default() }
}

/// What a caller is handed, and where that comes from.
/// The memory of a program whose buffers have these places.
pub(super) fn reported(program: &Program, places: &Places, arena: &ArenaLayout) -> MemoryReport {
    let size = |b| program.buffers[b].bytes();
    let outputs = outputs(program, places);
    let own = outputs.iter().filter(|o| matches!(o.from, From::There | From::Copied(_)));
    MemoryReport {
        arena: arena.bytes,
        outside_arena: places.beside,
        constants: places.constants,
        inputs: program.inputs().filter(|&b| places.host_at(b).is_none()).map(size).sum(),
        outputs: own.map(|o| o.bytes).sum(),
        ..MemoryReport::default()
    }
}

fn outputs(program: &Program, places: &Places) -> Vec<Output> {
    let made = |(k, &b): (usize, &adfuse_ir::kernel::Buffer)| {
        let ty = program.buffers[b].ty()?;
        let bytes = ty.elements()?.checked_mul(ty.dtype.bytes())?;
        let first = program.outputs.iter().position(|&o| o == b).filter(|&first| first < k);
        let from = match places.of(b) {
            Place::Host(at) => From::Host(at),
            _ if let Some(first) = first => From::Same(first),
            Place::Output(at, _) if at == k => From::There,
            _ => match places.left_at[b] {
                Some(_) => From::There,
                None => match places.of(b) {
                    Place::Input(j, _) if places.is_given_up(b) => From::Input(j),
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
    /// among them. Of loops and branches those of one turn of each program are counted.
    pub fn launches(&self) -> u32 {
        let copied = self.outputs.iter().filter(|o| matches!(o.from, From::Copied(_))).count();
        self.made.iter().map(|s| s.launches).sum::<u32>() + copied as u32
    }

    /// Bytes that a run takes.
    pub fn memory(&self) -> MemoryReport {
        self.report
    }

    /// Whether some of its steps run at the same time: branches of a graph.
    pub fn has_branches(&self) -> bool {
        let is_branched = |(n, follows): (usize, &Vec<usize>)| n > 0 && *follows != [n - 1];
        self.order.as_ref().is_some_and(|order| order.iter().enumerate().any(is_branched))
    }

    /// Whether its code was kept from a run before.
    pub fn was_kept(&self) -> bool {
        self.loaded.kept
    }

    /// The GPU that programs are loaded to, which its engines share.
    pub fn device(&self) -> &Arc<GpuDevice> {
        &self.device
    }

    /// Runs it once with inputs and outputs at these places; events of `marks`, if there are any, take down when steps
    /// begin and end.
    pub(crate) fn play(
        &self,
        held: &Held,
        [inputs, outputs]: [&[CUdeviceptr]; 2],
        parts: &mut DrawnParts,
        marks: &[Event],
    ) -> Result<(), Diagnostic> {
        self.device.enter()?;
        self.agreement.reach()?;
        let (device, limits) = (&self.device, self.limits);
        let player = Player { device, limits, readback: &held.readback };
        let at = DeviceFrame {
            all: self.pointers(held, inputs, outputs),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            block: held.block.at(),
            ..DeviceFrame::default()
        };
        let mut last = |sink: &mut CallSink<'_>| {
            for (k, output) in self.outputs.iter().enumerate() {
                if let From::Copied(from) = output.from {
                    sink.copy(at.of(from), outputs[k], output.bytes)?;
                }
            }
            Ok(())
        };
        // A trace has one step after the other.
        let overlap = self.overlap.as_ref().filter(|_| marks.is_empty());
        let order = self.order.as_ref().filter(|_| marks.is_empty());
        player.steps(&self.steps, &at, parts, (StepEvents { marks, overlap, order }, &mut last))
    }

    /// Where everything is, for inputs and outputs at these places.
    fn pointers(
        &self,
        held: &Held,
        inputs: &[CUdeviceptr],
        outputs: &[CUdeviceptr],
    ) -> Vec<CUdeviceptr> {
        let at = |place: &Place| match *place {
            Place::Input(k, at) => inputs[k] + at,
            Place::Output(k, at) => outputs[k] + at,
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
