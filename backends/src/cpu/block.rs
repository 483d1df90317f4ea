//! Loops and branches before they run: where what they carry and keep is, and the steps of their programs.
//!
//! A program in a step has a table of pointers of its own. Its temporaries are in the scratch memory of the step and its
//! constants with those of the executable, so their pointers are set once. Its inputs and outputs are memory of the
//! program around it or of the loop; their pointers are set when the step begins, or at each turn of the loop.

use super::carry_start::CarryStart;
use super::deferred_steps::DeferredSteps;
use super::kernel::CompiledKernel;
use super::kernel::compile::CompileContext;
use super::legal::{LegalBlock, LegalProgram};
use super::places::place;
use super::scratch::ScratchLayout;
use super::steps::{CompiledStep, CompiledSteps, StepCompiler, StepScope, TableLayout};
use crate::runtime::arena_layout;
use crate::runtime::errors::within;
use crate::runtime::host_memory::OffsetAllocator;
use crate::runtime::report::StepReport;
use adfuse_ir::kernel::{
    Block, BlockInput, Branch, Buffer, Carry, Loop, LoopTrips, Program, Role, SLOT,
};
use adfuse_ir::{DType, Diagnostic, Kind};
use cranelift_entity::EntityRef;

/// A program in a step, made.
pub(super) struct CompiledBlock {
    /// What it is to the step.
    pub(super) role: String,
    /// The name of the program.
    pub(super) name: String,
    /// The number of its table of pointers.
    pub(super) table: usize,
    pub(super) steps: Vec<CompiledStep>,
    pub(super) made: Vec<StepReport>,
    /// Inputs that are buffers around it, with the numbers of those.
    pub(super) whole: Vec<(usize, usize)>,
    /// Inputs that are the position.
    pub(super) index: Vec<usize>,
    /// Inputs that are elsewhere at each turn.
    pub(super) moving: Vec<(usize, MovingInput)>,
    pub(super) outputs: Vec<BlockOutput>,
    /// What of it is done for several turns at once, where turns are calls of functions alone.
    pub(super) deferred: Option<CompiledDeferral>,
}

/// Steps that are done for several turns at once, made.
pub(super) struct CompiledDeferral {
    pub(super) turns: u64,
    /// The numbers of the steps, and what does each of them for all the turns.
    pub(super) steps: Vec<(usize, Vec<CompiledKernel>)>,
    /// What is carried through these steps alone, by position.
    pub(super) carries: Vec<usize>,
    /// Arrays around the loop, the bytes of an element, and what stands for the elements of all the turns.
    pub(super) elements: Vec<(usize, usize, usize)>,
    /// Temporaries, their bytes, and the arrays with a row for each of the turns.
    pub(super) kept: Vec<(usize, usize, usize)>,
}

/// An input that is elsewhere at each turn of a loop.
#[derive(Clone, Copy)]
pub(super) enum MovingInput {
    Carry(usize),
    Returned(usize),
    /// Elements of a buffer around the loop: its number, and the bytes of an element.
    Element(usize, usize),
}

/// An output of a block.
pub(super) struct BlockOutput {
    pub(super) buffer: usize,
    pub(super) bytes: usize,
    /// Whether it is copied to where it goes when the block is done; otherwise it is written there.
    pub(super) copied: bool,
}

/// A value that a loop carries.
pub(super) struct CompiledCarry {
    pub(super) start: CarryStart,
    pub(super) to: usize,
    pub(super) bytes: usize,
    /// Two other places, and the first of its checkpoints, which follow each other.
    pub(super) spare: [u64; 2],
    pub(super) kept: u64,
}

/// A carry that a loop stacks at each step. Its values are where they are stacked, so nothing is copied.
pub(super) struct CarryInStack {
    pub(super) carry: usize,
    /// Its position among the stacks.
    pub(super) stack: usize,
    /// Whether an element is what the step begins with; otherwise it is what the step gives.
    pub(super) before: bool,
}

/// How many steps a loop has.
pub(super) enum CompiledTrips {
    Known(u64),
    Count(usize),
    Range(usize, usize),
    While(Box<CompiledBlock>, u64),
}

/// A loop, made.
pub(super) struct CompiledLoop {
    pub(super) op: &'static str,
    pub(super) trips: CompiledTrips,
    pub(super) reverse: bool,
    pub(super) carries: Vec<CompiledCarry>,
    pub(super) step: CompiledBlock,
    /// What is stacked, with the bytes of an element.
    pub(super) stacks: Vec<(usize, usize)>,
    /// Carries whose values are in stacks, of a loop without a way back.
    pub(super) in_stacks: Vec<CarryInStack>,
    pub(super) back: Option<CompiledBack>,
    /// The number of its pointers.
    pub(super) state: usize,
    /// The type of positions, and where they are.
    pub(super) index: (DType, u64),
    /// Where the answer of the test goes.
    pub(super) answer: u64,
}

/// The way back over a loop's steps, made.
pub(super) struct CompiledBack {
    pub(super) carries: Vec<CompiledCarry>,
    pub(super) step: CompiledBlock,
    pub(super) stacks: Vec<(usize, usize)>,
    /// Where the numbers of the steps at the checkpoints are, and how many there are at most.
    pub(super) numbers: (u64, usize),
}

/// A branch, made.
pub(super) struct CompiledBranch {
    pub(super) selector: (usize, DType),
    pub(super) blocks: Vec<CompiledBlock>,
    pub(super) outputs: Vec<usize>,
}

impl CompiledLoop {
    /// Its programs.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &CompiledBlock> {
        let test = match &self.trips {
            CompiledTrips::While(test, _) => Some(&**test),
            CompiledTrips::Known(_) | CompiledTrips::Count(_) | CompiledTrips::Range(..) => None,
        };
        let back = self.back.as_ref().map(|back| &back.step);
        test.into_iter().chain([&self.step]).chain(back)
    }
}

/// Where a loop has what it needs, in the scratch memory of its step.
pub(super) struct LoopPlaces {
    index: u64,
    answer: u64,
    carries: Vec<([u64; 2], u64)>,
    returned: Vec<([u64; 2], u64)>,
    numbers: (u64, usize),
    blocks: u64,
}

/// Room for the programs in a step: they run one after the other, and nothing of one is needed after it.
pub(super) fn block_room(
    room: &mut OffsetAllocator,
    blocks: &[LegalBlock],
) -> Result<u64, Diagnostic> {
    let most = blocks.iter().map(|block| block.bytes).max().unwrap_or(0);
    room.take(i64::try_from(most).unwrap_or(i64::MAX), 1)
}

impl LoopPlaces {
    pub(super) fn take(
        room: &mut OffsetAllocator,
        program: &Program,
        step: &Loop,
        blocks: &[LegalBlock],
    ) -> Result<LoopPlaces, Diagnostic> {
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let checkpoints = step.back.as_ref().map_or(0, |back| step.checkpoints(back));
        let mut places = |carries: &[Carry], spare: usize, checkpoints: u64| {
            let mut all = Vec::new();
            for carry in carries {
                let line = program.buffers[carry.to].bytes().next_multiple_of(SLOT);
                let mut two = [0; 2];
                for at in &mut two[..spare] {
                    *at = room.take(count(line), 1)?;
                }
                all.push((two, room.take(count(checkpoints), line)?));
            }
            Ok::<_, Diagnostic>(all)
        };
        let spare = if step.back.is_some() { 2 } else { 1 };
        let carries = places(&step.carries, spare, checkpoints)?;
        let returned = step.back.as_ref().map_or(Ok(Vec::new()), |b| places(&b.carries, 1, 0))?;
        Ok(LoopPlaces {
            index: room.take(8, 1)?,
            answer: room.take(1, 1)?,
            carries,
            returned,
            numbers: (room.take(count(checkpoints), 8)?, checkpoints as usize),
            blocks: block_room(room, blocks)?,
        })
    }
}

impl<'l> StepCompiler<'_, 'l> {
    /// Compiles a loop: step `n` of a program.
    pub(super) fn repeated(
        &mut self,
        step: &Loop,
        (legal, n): (&'l LegalProgram, usize),
        shared: &mut OffsetAllocator,
        scope: &StepScope,
    ) -> Result<CompiledLoop, Diagnostic> {
        let program = &legal.low.program;
        let places = LoopPlaces::take(shared, program, step, &legal.blocks[n])?;
        let mut legal_blocks = legal.blocks[n].iter();
        let mut block = |this: &mut Self, block: &Block| {
            let legal = legal_blocks.next().ok_or_else(missing)?;
            this.block(block, legal, places.blocks, scope)
        };
        let trips = match &step.trips {
            LoopTrips::Known(n) => CompiledTrips::Known(*n),
            LoopTrips::Count(n) => CompiledTrips::Count(n.index()),
            LoopTrips::Range(from, to) => CompiledTrips::Range(from.index(), to.index()),
            LoopTrips::While { test, most } => {
                CompiledTrips::While(Box::new(block(self, test)?), *most)
            }
        };
        let index = match &step.trips {
            LoopTrips::Range(from, _) => program.buffers[*from].dtype,
            _ => DType::I64,
        };
        let elements = |stacks: &[Buffer]| {
            let each = |&b: &Buffer| (b.index(), element_bytes(program, b));
            stacks.iter().map(each).collect::<Vec<_>>()
        };
        let mut turned = block(self, &step.step)?;
        let back = match &step.back {
            None => None,
            Some(back) => Some(CompiledBack {
                carries: carried(program, &back.carries, &places.returned),
                step: block(self, &back.step)?,
                stacks: elements(&back.stacks),
                numbers: places.numbers,
            }),
        };
        let straight = back.is_none() && !matches!(trips, CompiledTrips::While(..));
        let count = step.carries.len();
        let in_stacks = if straight { in_stacks(&mut turned, count) } else { Vec::new() };
        self.loops.push([step.carries.len(), back.as_ref().map_or(0, |b| b.carries.len())]);
        Ok(CompiledLoop {
            op: step.op(),
            trips,
            reverse: step.reverse,
            carries: carried(program, &step.carries, &places.carries),
            step: turned,
            stacks: elements(&step.stacks),
            in_stacks,
            back,
            state: self.loops.len() - 1,
            index: (index, places.index),
            answer: places.answer,
        })
    }

    /// Compiles a branch: step `n` of a program.
    pub(super) fn branched(
        &mut self,
        step: &Branch,
        (legal, n): (&'l LegalProgram, usize),
        shared: &mut OffsetAllocator,
        scope: &StepScope,
    ) -> Result<CompiledBranch, Diagnostic> {
        let at = block_room(shared, &legal.blocks[n])?;
        let mut blocks = Vec::new();
        for (block, legal) in step.blocks.iter().zip(&legal.blocks[n]) {
            blocks.push(self.block(block, legal, at, scope)?);
        }
        let dtype = legal.low.program.buffers[step.selector].dtype;
        Ok(CompiledBranch {
            selector: (step.selector.index(), dtype),
            blocks,
            outputs: step.outputs.iter().map(|b| b.index()).collect(),
        })
    }

    /// Compiles a program in a step, which has its memory there in that of the program around it.
    fn block(
        &mut self,
        block: &Block,
        legal: &'l LegalBlock,
        at: u64,
        scope: &StepScope,
    ) -> Result<CompiledBlock, Diagnostic> {
        let LegalBlock { role, given, legal, deferred, layout, .. } = legal;
        let rooms = ScratchLayout::new(given, (&legal.low, &legal.needed), layout)?;
        let places = place(&legal.low, layout, &rooms, &mut self.constants);
        let places = places.map_err(|d| within(d, given, None))?;
        arena_layout::check(given, layout, &[])?;
        let base = scope.base + at;
        let inner = StepScope { base, step: scope.step, title: format!("{}.{role}.", scope.title) };
        let CompiledSteps { steps, made, slots, .. } = self.steps(given, legal, &rooms, &inner)?;
        let program = &legal.low.program;
        let mut deferral = None;
        if let Some(steps) = deferred {
            deferral = Some(self.deferral(steps, block, (program, slots), &inner)?);
        }
        self.tables.push(TableLayout { program, places, slots, base });
        let mut made_block = CompiledBlock {
            role: role.clone(),
            name: given.name.clone(),
            // The whole program's comes first.
            table: self.tables.len(),
            steps,
            made,
            whole: Vec::new(),
            index: Vec::new(),
            moving: Vec::new(),
            outputs: outputs(program),
            deferred: deferral,
        };
        for (b, input) in block.bindings() {
            let bytes = program.buffers[b].bytes() as usize;
            let b = b.index();
            match input {
                BlockInput::Index => made_block.index.push(b),
                BlockInput::Whole(from) => made_block.whole.push((b, from.index())),
                BlockInput::Carry(k) => made_block.moving.push((b, MovingInput::Carry(k))),
                BlockInput::Returned(k) => made_block.moving.push((b, MovingInput::Returned(k))),
                BlockInput::Element(from) => {
                    made_block.moving.push((b, MovingInput::Element(from.index(), bytes)));
                }
            }
        }
        Ok(made_block)
    }
}

impl StepCompiler<'_, '_> {
    /// Compiles what does steps of a block for several turns at once.
    fn deferral(
        &mut self,
        deferred: &DeferredSteps,
        block: &Block,
        (program, slots): (&Program, u32),
        scope: &StepScope,
    ) -> Result<CompiledDeferral, Diagnostic> {
        let bytes = |b: Buffer| program.buffers[b].bytes() as usize;
        let mut made = CompiledDeferral {
            turns: deferred.turns,
            steps: Vec::new(),
            carries: Vec::new(),
            elements: Vec::new(),
            kept: deferred
                .kept
                .iter()
                .map(|&(b, all)| (b.index(), bytes(b), all.index()))
                .collect(),
        };
        for (own, input) in block.bindings() {
            let all = deferred.elements.iter().find(|(b, _)| *b == own);
            if let (Some(&(b, all)), BlockInput::Element(from)) = (all, input) {
                made.elements.push((from.index(), bytes(b), all.index()));
            }
        }
        for step in &deferred.steps {
            let mut kernels = Vec::with_capacity(step.kernels.len());
            for kernel in &step.kernels {
                let title = format!("{}{}.turns", scope.title, kernel.name);
                self.compiler.listing.begin(scope.step.unwrap_or_default(), &title);
                let mut making = CompileContext {
                    compiler: Some(&mut *self.compiler),
                    facts: None,
                    program,
                    shared: &mut OffsetAllocator::default(),
                    own: &mut self.own,
                    slots,
                    host: Some(self.host),
                };
                kernels.push(making.kernel(kernel, None)?);
            }
            made.steps.push((step.step, kernels));
            made.carries.extend(&step.carries);
        }
        Ok(made)
    }
}

/// The outputs of a block. What is given to it, constants, and what is handed over again are copied.
fn outputs(program: &Program) -> Vec<BlockOutput> {
    let output = |(k, &b): (usize, &Buffer)| {
        let data = &program.buffers[b];
        let own = data.role == Role::Output && !program.outputs[..k].contains(&b);
        BlockOutput { buffer: b.index(), bytes: data.bytes() as usize, copied: !own }
    };
    program.outputs.iter().enumerate().map(output).collect()
}

/// The carries of this many that a block stacks, each by one of its outputs, which then is where it goes.
fn in_stacks(block: &mut CompiledBlock, carries: usize) -> Vec<CarryInStack> {
    let mut found: Vec<CarryInStack> = Vec::new();
    for before in [true, false] {
        for stack in 0..block.outputs.len().saturating_sub(carries) {
            let output = &block.outputs[carries + stack];
            let is_input = |k: usize| {
                let all = &block.moving;
                all.iter().any(|&(b, input)| {
                    b == output.buffer && matches!(input, MovingInput::Carry(j) if j == k)
                })
            };
            let is_next =
                |k: usize| !block.outputs[k].copied && block.outputs[k].buffer == output.buffer;
            let carry = (0..carries).find(|&k| if before { is_input(k) } else { is_next(k) });
            let Some(carry) = carry.filter(|&k| found.iter().all(|one| one.carry != k)) else {
                continue;
            };
            if found.iter().any(|one| one.stack == stack) {
                continue;
            }
            found.push(CarryInStack { carry, stack, before });
            block.outputs[carries + stack].copied = false;
        }
    }
    found
}

fn carried(program: &Program, carries: &[Carry], places: &[([u64; 2], u64)]) -> Vec<CompiledCarry> {
    let carry = |(carry, &(spare, kept)): (&Carry, &([u64; 2], u64))| {
        let data = &program.buffers[carry.to];
        let start = CarryStart::of(carry.from, (data.dtype, data.storage));
        let bytes = data.bytes() as usize;
        CompiledCarry { start, to: carry.to.index(), bytes, spare, kept }
    };
    carries.iter().zip(places).map(carry).collect()
}

/// Bytes of an element of a buffer along its first axis: whole ones, as the verifier has seen.
fn element_bytes(program: &Program, b: Buffer) -> usize {
    let data = &program.buffers[b];
    let n = data.dims.first().map_or(1, |n| n.unsigned_abs()).max(1);
    (data.bytes() / n) as usize
}

fn missing() -> Diagnostic {
    Diagnostic::new(adfuse_ir::At::default(), Kind::Internal, "a program in a loop is not prepared")
}
