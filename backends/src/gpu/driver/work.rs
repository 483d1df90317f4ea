//! What a program does on a device, step by step: launches, calls of the library, copies, effects, and loops and branches
//! with the programs that they run.

use super::block_memory::{BlockMemory, CarrySlots, StepMemory};
use super::cublaslt::Tuned;
use super::entry_points::EntryPoints;
use super::load::Entry;
use super::place::aligned;
use crate::gpu::launches::{
    Arg, BlockBinding, BlockCode, FILL_THREADS, Launch, POSITION_ENTRY, StepCode, TURNS, TensorMap,
    fill_entry,
};
use crate::runtime::errors::within;
use adfuse_ir::kernel::{
    Buffer, Carry, ExchangeKind, Loop, LoopTrips, Operand, Program, Role, Step, Storage,
};
use adfuse_ir::{At, DType, Diagnostic, Kind};
use cranelift_entity::EntityRef;
use std::sync::Arc;

/// A step, made.
pub(crate) enum Work {
    Launches(Vec<DeviceLaunch>),
    /// By the library; where it has what it needs beside the matrices.
    Product(Arc<Tuned>, [usize; 3], u64),
    /// Bytes from one memory to the other.
    Copy {
        from: usize,
        to: usize,
        bytes: u64,
    },
    Print(Box<PrintWork>),
    Exchange(ExchangeWork),
    Loop(Box<LoopWork>),
    Branch(Box<BranchWork>),
}

/// An exchange between ranks, made.
#[derive(Clone, Copy)]
pub(crate) struct ExchangeWork {
    pub(crate) kind: ExchangeKind,
    pub(crate) from: Option<usize>,
    pub(crate) to: usize,
    /// From each rank to each, or in all where one sends.
    pub(crate) bytes: u64,
}

/// An effect, made: a buffer that the host reads and writes out.
pub(crate) struct PrintWork {
    pub(crate) label: String,
    pub(crate) from: usize,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<u64>,
    pub(crate) bytes: u64,
}

impl Work {
    /// Whether it is launches, calls and copies alone, which a graph has.
    pub(crate) fn is_straight(&self) -> bool {
        !matches!(self, Work::Loop(_) | Work::Branch(_) | Work::Print(_) | Work::Exchange(_))
    }
}

/// One launch.
pub(crate) struct DeviceLaunch {
    pub(crate) entry: Entry,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) args: Vec<Pointer>,
    /// What it is given after those.
    pub(crate) maps: Vec<DeviceMap>,
}

/// A tensor map of an array at a pointer.
pub(crate) struct DeviceMap {
    pub(crate) pointer: Pointer,
    pub(crate) map: TensorMap,
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
    /// Where a buffer of the program around a block is.
    Outer(usize),
    /// Where an output of a block goes.
    Result(usize),
    /// Where a loop's position is.
    Position,
    /// No place: a number that an entry point takes.
    Number(u64),
}

/// A program in a step, made.
pub(crate) struct BlockWork {
    /// Where each buffer is; for its own, where in the executable's block, and the bytes of each.
    pub(crate) buffers: Vec<(BlockBinding, u64, u64)>,
    pub(crate) before: Vec<DeviceLaunch>,
    pub(crate) steps: Vec<Work>,
    pub(crate) after: Vec<DeviceLaunch>,
    /// The stacks around it of which elements are copied, with the bytes of an element.
    pub(crate) copied: Vec<(usize, u64)>,
    /// Whether it is launches alone.
    pub(crate) is_plain: bool,
    /// Whether it reads the position.
    pub(crate) is_placed: bool,
}

/// What a carried value begins with.
pub(crate) enum StartWork {
    Buffer(usize),
    /// The bits of a value, how many there are, and the entry point that fills them.
    Fill(Entry, u64, u64),
}

/// A carried value, made.
pub(crate) struct CarryWork {
    pub(crate) start: StartWork,
    pub(crate) to: usize,
    pub(crate) bytes: u64,
    /// Places in the executable's block.
    pub(crate) slots: CarrySlots,
}

/// How many steps a loop has, made.
pub(crate) enum TripsWork {
    Known(u64),
    Count(usize),
    Range(usize, usize, DType),
    While(BlockWork, u64),
}

/// A loop, made.
pub(crate) struct LoopWork {
    pub(crate) op: &'static str,
    /// Where an error is.
    pub(crate) at: At,
    pub(crate) trips: TripsWork,
    pub(crate) reverse: bool,
    pub(crate) carries: Vec<CarryWork>,
    pub(crate) step: BlockWork,
    /// The way back: how many checkpoints there are at most, what is handed back, and a step.
    pub(crate) back: Option<(u64, Vec<CarryWork>, BlockWork)>,
    /// Where its position is in the executable's block, and who writes it.
    pub(crate) position: (u64, Entry),
    /// Where the answer of the test goes.
    pub(crate) answer: u64,
}

/// A branch, made.
pub(crate) struct BranchWork {
    pub(crate) selector: (usize, DType),
    pub(crate) blocks: Vec<BlockWork>,
    pub(crate) outputs: Vec<usize>,
}

/// Which of a caller's arrays are copied.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Side {
    In,
    Out,
}

/// Makes the work of steps.
pub(crate) struct WorkMaker<'m> {
    pub(crate) entries: EntryPoints<'m>,
    /// Where the next constant of a block is in the executable's block.
    pub(crate) constants_at: u64,
    /// Bytes of constants of blocks, and where they go.
    pub(crate) constants: Vec<(u64, Vec<u8>)>,
}

impl WorkMaker<'_> {
    /// The launches of a step, whose scratch begins there.
    pub(crate) fn launches(
        &mut self,
        program: &Program,
        code: &StepCode,
        (scratch, side): (u64, Side),
    ) -> Result<Vec<DeviceLaunch>, Diagnostic> {
        let mut all = Vec::new();
        for launch in &code.launches {
            let entry = self.entries.of_launch(launch)?;
            let first = |b| program.inputs().position(|i| i == b).map(Pointer::Input);
            let last = |b| program.outputs.iter().position(|&o| o == b).map(Pointer::Output);
            let given = |arg: &Arg| match *arg {
                Arg::Buffer(b) => Some(Pointer::Buffer(b.index())),
                Arg::Caller(b) if side == Side::In => first(b),
                Arg::Caller(b) => last(b),
                Arg::Scratch { offset } => Some(Pointer::DeviceBlock(scratch + offset)),
                Arg::Outer(b) => Some(Pointer::Outer(b.index())),
                Arg::Result(k) => Some(Pointer::Result(k)),
                Arg::Position => Some(Pointer::Position),
                Arg::Number(n) => Some(Pointer::Number(n)),
            };
            let known =
                |arg| given(arg).ok_or_else(|| internal("a launch is given what nobody has"));
            let args = launch.args.iter().map(known).collect::<Result<Vec<_>, _>>()?;
            let mut maps = Vec::new();
            for map in &launch.maps {
                maps.push(DeviceMap { pointer: known(&map.arg)?, map: map.clone() });
            }
            let (mut grid, block, shared) = (launch.grid, launch.block, launch.shared);
            if let Some(resident) = launch.resident {
                grid[0] =
                    grid[0].min(resident.saturating_mul(self.entries.loaded.processors()).max(1));
                // Whole clusters: the text takes turns over as many blocks as there are.
                grid[0] = (grid[0] - grid[0] % launch.cluster.max(1)).max(launch.cluster);
            }
            all.push(DeviceLaunch { entry, grid, block, shared, args, maps });
        }
        Ok(all)
    }

    /// Step `n` of a program, whose scratch begins there; a library does none of it.
    pub(crate) fn step(
        &mut self,
        program: &Program,
        (n, code): (usize, &StepCode),
        memory: Option<&StepMemory>,
        scratch: u64,
    ) -> Result<Work, Diagnostic> {
        let located = |d| within(d, program, Some(n));
        let memory = || memory.ok_or_else(|| internal("a step has no memory"));
        match &program.steps[n] {
            Step::Transfer(t) => Ok(Work::Copy {
                from: t.from.index(),
                to: t.to.index(),
                bytes: program.buffers[t.from].bytes(),
            }),
            Step::Exchange(exchange) => {
                let size = exchange.from.map_or(0, |b| program.buffers[b].bytes());
                let bytes = match exchange.kind {
                    ExchangeKind::AllToAll => size / u64::from(exchange.ranks.max(1)),
                    _ => size,
                };
                let (from, to) = (exchange.from.map(EntityRef::index), exchange.to.index());
                Ok(Work::Exchange(ExchangeWork { kind: exchange.kind, from, to, bytes }))
            }
            Step::Print(print) => {
                let data = &program.buffers[print.from];
                Ok(Work::Print(Box::new(PrintWork {
                    label: print.label.clone(),
                    from: print.from.index(),
                    dtype: data.dtype,
                    dims: data.dims.iter().map(|n| n.unsigned_abs()).collect(),
                    bytes: data.bytes(),
                })))
            }
            Step::Loop(step) => {
                let made = self.repeated((program, n), step, code, memory()?, scratch);
                Ok(Work::Loop(Box::new(made.map_err(located)?)))
            }
            Step::Branch(branch) => {
                let memory = memory()?;
                let mut blocks = Vec::new();
                let all = branch.blocks.iter().zip(&code.blocks).zip(&memory.blocks);
                for ((block, code), own) in all {
                    let at = scratch + memory.blocks_at;
                    let made = self.block((program, &block.program), code, own, at);
                    blocks.push(made.map_err(located)?);
                }
                let dtype = program.buffers[branch.selector].dtype;
                let outputs = branch.outputs.iter().map(|b| b.index()).collect();
                let selector = (branch.selector.index(), dtype);
                Ok(Work::Branch(Box::new(BranchWork { selector, blocks, outputs })))
            }
            _ => {
                let made = self.launches(program, code, (scratch, Side::In));
                Ok(Work::Launches(made.map_err(located)?))
            }
        }
    }

    fn repeated(
        &mut self,
        (program, n): (&Program, usize),
        step: &Loop,
        code: &StepCode,
        memory: &StepMemory,
        scratch: u64,
    ) -> Result<LoopWork, Diagnostic> {
        let slots = memory.slots.as_ref().ok_or_else(|| internal("a loop has no memory"))?;
        let at = scratch + memory.blocks_at;
        let mut parts = code.blocks.iter().zip(&memory.blocks);
        let mut block = |this: &mut Self, inner: &Program| {
            let (code, own) = parts.next().ok_or_else(|| internal("a loop has no such program"))?;
            this.block((program, inner), code, own, at)
        };
        let trips = match &step.trips {
            LoopTrips::Known(n) => TripsWork::Known(*n),
            LoopTrips::Count(n) => TripsWork::Count(n.index()),
            LoopTrips::Range(from, to) => {
                TripsWork::Range(from.index(), to.index(), program.buffers[*from].dtype)
            }
            LoopTrips::While { test, most } => TripsWork::While(block(self, &test.program)?, *most),
        };
        let turned = block(self, &step.step.program)?;
        let back = match &step.back {
            None => None,
            Some(back) => {
                let turned = block(self, &back.step.program)?;
                let carries = self.carries(program, &back.carries, (&slots.returned, scratch))?;
                Some((step.checkpoints(back), carries, turned))
            }
        };
        let inst = format!("step {n}: {}", program.steps[n].title());
        Ok(LoopWork {
            op: step.op(),
            at: At { func: Some(program.name.clone()), inst: Some(inst.into()), ..At::default() },
            trips,
            reverse: step.reverse,
            carries: self.carries(program, &step.carries, (&slots.carries, scratch))?,
            step: turned,
            back,
            position: (scratch + slots.position, self.entries.of(POSITION_ENTRY, 0)?),
            answer: scratch + slots.answer,
        })
    }

    fn carries(
        &mut self,
        program: &Program,
        carries: &[Carry],
        (slots, base): (&[CarrySlots], u64),
    ) -> Result<Vec<CarryWork>, Diagnostic> {
        let mut all = Vec::new();
        for (carry, slots) in carries.iter().zip(slots) {
            let data = &program.buffers[carry.to];
            let start = match (carry.from, data.storage) {
                (Operand::Buffer(b), _) => StartWork::Buffer(b.index()),
                (Operand::Literal(l), Storage::Plain) => {
                    let width = data.dtype.bytes();
                    let entry = self.entries.of(&fill_entry(width), 0)?;
                    StartWork::Fill(entry, l.bits(), data.bytes() / width.max(1))
                }
                // The low bits of the value in all places of a word.
                (Operand::Literal(l), Storage::Packed(width)) => {
                    let low = l.bits() & !(u64::MAX << width.min(63));
                    let step = usize::from(width.max(1));
                    let word = (0..32).step_by(step).fold(0, |word, at| word | low << at);
                    StartWork::Fill(self.entries.of(&fill_entry(4), 0)?, word, data.bytes() / 4)
                }
            };
            let slots = CarrySlots {
                first: slots.first.map(|at| base + at),
                second: base + slots.second,
                kept: base + slots.kept,
            };
            let (to, bytes) = (carry.to.index(), data.bytes());
            all.push(CarryWork { start, to, bytes, slots });
        }
        Ok(all)
    }

    /// A program in a step of another, whose memory begins there.
    fn block(
        &mut self,
        (outer, program): (&Program, &Program),
        code: &BlockCode,
        memory: &BlockMemory,
        at: u64,
    ) -> Result<BlockWork, Diagnostic> {
        let mut buffers = Vec::new();
        for (b, data) in program.buffers.iter() {
            let place = match &data.role {
                Role::Constant(_) => self.constant(program, b),
                _ => at + memory.places[b],
            };
            buffers.push((code.bindings[b], place, data.bytes()));
        }
        let mut copies = |launches: &Vec<Launch>| {
            let code = StepCode { launches: launches.clone(), ..StepCode::default() };
            self.launches(program, &code, (0, Side::In))
        };
        let (before, after) = (copies(&code.before)?, copies(&code.after)?);
        let mut steps = Vec::new();
        for (n, step) in code.steps.iter().enumerate() {
            let scratch = aligned(at + memory.scratch[n]);
            steps.push(self.step(program, (n, step), memory.steps.get(n), scratch)?);
        }
        let mut copied: Vec<(usize, u64)> = Vec::new();
        for arg in code.before.iter().chain(&code.after).flat_map(|launch| &launch.args) {
            if let Arg::Outer(b) = *arg {
                copied.push((b.index(), element_bytes(outer, b)));
            }
        }
        copied.sort_unstable();
        copied.dedup();
        let placed = |&(binding, ..): &(BlockBinding, u64, u64)| {
            matches!(binding, BlockBinding::Index | BlockBinding::Element(_))
        };
        Ok(BlockWork {
            is_plain: steps.iter().all(Work::is_straight),
            is_placed: !copied.is_empty() || buffers.iter().any(placed),
            buffers,
            before,
            steps,
            after,
            copied,
        })
    }

    /// Where a constant of a block is, whose bytes are kept for the executable.
    fn constant(&mut self, program: &Program, b: Buffer) -> u64 {
        let data = &program.buffers[b];
        let at = self.constants_at;
        self.constants_at += aligned(data.bytes());
        if let Role::Constant(values) = &data.role {
            let width = data.dtype.bytes() as usize;
            let bytes = values.iter().flat_map(|v| v.bits().to_le_bytes()[..width].to_vec());
            self.constants.push((at, bytes.collect()));
        }
        at
    }
}

/// Bytes of an element of a buffer along its first axis.
fn element_bytes(program: &Program, b: Buffer) -> u64 {
    let data = &program.buffers[b];
    data.bytes() / data.dims.first().map_or(1, |n| n.unsigned_abs()).max(1)
}

/// Launches of a turn of a program.
pub(crate) fn launch_count(work: &Work) -> u32 {
    match work {
        Work::Launches(launches) => launches.len() as u32,
        Work::Product(..) | Work::Copy { .. } => 1,
        Work::Print(_) | Work::Exchange(_) => 0,
        Work::Loop(work) => work.blocks().iter().map(|block| block.launch_count()).sum(),
        Work::Branch(work) => work.blocks.iter().map(BlockWork::launch_count).sum(),
    }
}

/// The most of something that entry points have, over all launches of a step.
pub(crate) fn most(work: &Work, of: fn(&Entry) -> u32) -> u32 {
    let block = |block: &BlockWork| {
        let own = block.before.iter().chain(&block.after).map(|launch| of(&launch.entry));
        own.chain(block.steps.iter().map(|work| most(work, of))).max().unwrap_or(0)
    };
    match work {
        Work::Launches(all) => all.iter().map(|l| of(&l.entry)).max().unwrap_or(0),
        Work::Product(..) | Work::Copy { .. } | Work::Print(_) | Work::Exchange(_) => 0,
        Work::Loop(work) => work.blocks().into_iter().map(block).max().unwrap_or(0),
        Work::Branch(work) => work.blocks.iter().map(block).max().unwrap_or(0),
    }
}

impl BlockWork {
    /// Launches of a turn.
    pub(crate) fn launch_count(&self) -> u32 {
        let copies = self.before.len() + self.after.len();
        copies as u32 + self.steps.iter().map(launch_count).sum::<u32>()
    }
}

/// Launches of one graph of turns at most.
const GRAPH_LAUNCHES: u64 = 128;

impl LoopWork {
    /// Its programs.
    pub(crate) fn blocks(&self) -> Vec<&BlockWork> {
        let test = match &self.trips {
            TripsWork::While(test, _) => Some(test),
            TripsWork::Known(_) | TripsWork::Count(_) | TripsWork::Range(..) => None,
        };
        test.into_iter().chain([&self.step]).chain(self.back.as_ref().map(|b| &b.2)).collect()
    }

    /// The most forward turns of one graph: a power of 2.
    pub(crate) fn turns(&self) -> u64 {
        let each = u64::from(self.step.launch_count().max(1));
        let most = (GRAPH_LAUNCHES / each).clamp(1, TURNS);
        1 << most.ilog2()
    }
}

impl CarryWork {
    /// Blocks that fill it.
    pub(crate) fn fill_blocks(count: u64) -> u64 {
        count.div_ceil(FILL_THREADS.into())
    }
}

pub(crate) fn internal(m: &str) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Internal, m)
}
