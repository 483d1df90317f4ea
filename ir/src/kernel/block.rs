//! Loops and branches: steps that run programs of their own.
//!
//! A [`Block`] is a program that is verified, planned and compiled by itself. The step around it says where its inputs
//! come from and where its outputs go; the two share no buffers. So a loop is to the program around it what a function
//! of a library is: it reads some buffers, writes others, and needs scratch memory while it runs.

use super::buffer::{Buffer, BufferData};
use super::program::{Program, Step};
use super::stage::Operand;
use super::verified::Verified;
use cranelift_entity::PrimaryMap;
use smallvec::SmallVec;

/// A program that a step runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// The program.
    pub program: Verified<Program>,
    /// What each of its inputs is, in order.
    pub inputs: Vec<BlockInput>,
}

/// What an input of a block is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockInput {
    /// The position of the loop's step, an integer scalar.
    Index,
    /// What the loop carries from step to step, by position.
    Carry(usize),
    /// What the loop carries from step to step on its way back, by position.
    Returned(usize),
    /// The element of a buffer at the position of the step, along its first axis.
    Element(Buffer),
    /// A buffer as it is.
    Whole(Buffer),
}

/// One of several programs, which an integer or a truth value selects.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Branch {
    /// A name for people, without `@`.
    pub name: String,
    /// A scalar. A truth value selects the first block where it is true and the second otherwise; an integer is
    /// clamped to the blocks.
    pub selector: Buffer,
    /// The programs; their inputs are [`BlockInput::Whole`].
    pub blocks: Vec<Block>,
    /// Where their outputs go, in order.
    pub outputs: Vec<Buffer>,
}

/// A program that is repeated.
///
/// Step `t` of `n` is at position `t`, or `n - 1 - t` where the loop is reversed. The outputs of its block are the next
/// values of the carries, then the elements of `stacks` at that position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Loop {
    /// A name for people, without `@`.
    pub name: String,
    /// How many steps there are.
    pub trips: LoopTrips,
    /// Whether positions go from the last to the first.
    pub reverse: bool,
    /// What is carried from step to step.
    pub carries: Vec<Carry>,
    /// A step.
    pub step: Block,
    /// Where an element of each step goes.
    pub stacks: Vec<Buffer>,
    /// The way back over the steps.
    pub back: Option<Back>,
}

/// How many steps a loop has.
// A loop has one of these; boxing the test would save nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LoopTrips {
    /// This many.
    Known(u64),
    /// As many as an `i64` scalar says; none where that is negative.
    Count(Buffer),
    /// From the first integer scalar to before the second, which are of one type. Positions begin at the first.
    Range(Buffer, Buffer),
    /// As many as it takes until a block of one truth value gives false for the carries.
    While {
        /// The block; its inputs are carries and buffers as they are.
        test: Block,
        /// The most steps; more are an error. 0 where there is no bound.
        most: u64,
    },
}

/// A value that a loop carries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Carry {
    /// What it is at first: a buffer of the type of `to`, or one value everywhere.
    pub from: Operand,
    /// Where its last value goes.
    pub to: Buffer,
}

/// The way back over the steps of a loop: from the last step to the first, a block reads what the step was entered
/// with.
///
/// Carries are kept at checkpoints and computed again from there. The outputs of the block are the next values of what
/// it hands back, then the elements of `stacks` at the position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Back {
    /// How many times the carries are kept at most; at least one. It changes no value.
    pub checkpoints: u64,
    /// What is handed from a step to the one before it.
    pub carries: Vec<Carry>,
    /// A step back.
    pub step: Block,
    /// Where an element of each step back goes.
    pub stacks: Vec<Buffer>,
}

impl Block {
    /// The buffers around the block that it reads, each once, in the order of its inputs.
    pub fn reads(&self) -> impl Iterator<Item = Buffer> + '_ {
        let outer = |input: &BlockInput| match *input {
            BlockInput::Element(b) | BlockInput::Whole(b) => Some(b),
            BlockInput::Index | BlockInput::Carry(_) | BlockInput::Returned(_) => None,
        };
        self.inputs.iter().filter_map(outer)
    }

    /// Its inputs in the program, each with what it is.
    pub fn bindings(&self) -> impl Iterator<Item = (Buffer, BlockInput)> + '_ {
        self.program.inputs().zip(self.inputs.iter().copied())
    }
}

impl Branch {
    /// The number of the block, of this many, that a selector of this value selects.
    pub fn taken(blocks: usize, is_bool: bool, selector: i64) -> usize {
        let last = blocks.saturating_sub(1);
        match is_bool {
            true => usize::from(selector == 0).min(last),
            false => usize::try_from(selector.max(0)).unwrap_or(last).min(last),
        }
    }
}

impl LoopTrips {
    /// How many steps there are, where that is known before the program runs.
    pub fn known(&self) -> Option<u64> {
        match self {
            LoopTrips::Known(n) => Some(*n),
            LoopTrips::Count(_) | LoopTrips::Range(..) | LoopTrips::While { .. } => None,
        }
    }

    /// The scalars that say how many steps there are.
    pub fn bounds(&self) -> SmallVec<[Buffer; 2]> {
        match self {
            LoopTrips::Known(_) | LoopTrips::While { .. } => SmallVec::new(),
            LoopTrips::Count(n) => SmallVec::from_slice(&[*n]),
            LoopTrips::Range(from, to) => SmallVec::from_slice(&[*from, *to]),
        }
    }

    /// The block that is asked before each step.
    pub fn test(&self) -> Option<&Block> {
        match self {
            LoopTrips::While { test, .. } => Some(test),
            LoopTrips::Known(_) | LoopTrips::Count(_) | LoopTrips::Range(..) => None,
        }
    }
}

impl Loop {
    /// Its blocks: the test where there is one, a step, a step back where there is one.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let back = self.back.as_ref().map(|back| &back.step);
        self.trips.test().into_iter().chain([&self.step]).chain(back)
    }

    /// The op of the table that it is made of, by the word that people write.
    pub fn op(&self) -> &'static str {
        match (&self.trips, &self.back) {
            (LoopTrips::While { .. }, _) => "while",
            (_, Some(_)) | (LoopTrips::Count(_), None) => "adjoint",
            (LoopTrips::Range(..), None) => "fori",
            (LoopTrips::Known(_), None) => "scan",
        }
    }

    /// All that is carried, on the way back too.
    pub fn all_carries(&self) -> impl Iterator<Item = &Carry> {
        self.carries.iter().chain(self.back.iter().flat_map(|back| &back.carries))
    }

    /// All that is stacked, on the way back too.
    pub fn all_stacks(&self) -> impl Iterator<Item = Buffer> + '_ {
        self.stacks.iter().chain(self.back.iter().flat_map(|back| &back.stacks)).copied()
    }

    /// How many times its carries are kept at most: the checkpoints, as far as there are steps.
    pub fn checkpoints(&self, back: &Back) -> u64 {
        back.checkpoints.min(self.trips.known().unwrap_or(u64::MAX)).max(1)
    }

    /// Bytes of the values that the loop keeps while it runs, beside its buffers and what its blocks need: the position,
    /// the answer of the test, and another place for each carry. With a way back there are two of these for each that is
    /// computed again, and the checkpoints with their numbers. Each is counted in whole lines of [`SLOT`] bytes;
    /// `buffers` are those of the program around it.
    pub fn slots(&self, buffers: &PrimaryMap<Buffer, BufferData>) -> u64 {
        let carries = lines(&self.carries, buffers);
        let fixed = 2 * SLOT;
        let Some(back) = &self.back else { return carries.saturating_add(fixed) };
        let kept = self.checkpoint_bytes(back, buffers);
        let spare = carries.saturating_mul(2);
        [lines(&back.carries, buffers), spare, kept, fixed].into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes of the checkpoints with their numbers, as [`Loop::slots`] counts them.
    pub fn checkpoint_bytes(&self, back: &Back, buffers: &PrimaryMap<Buffer, BufferData>) -> u64 {
        let count = self.checkpoints(back);
        let numbers = count.saturating_mul(8).checked_next_multiple_of(SLOT).unwrap_or(u64::MAX);
        lines(&self.carries, buffers).saturating_mul(count).saturating_add(numbers)
    }
}

/// Bytes of what is carried, in whole lines.
fn lines(carries: &[Carry], buffers: &PrimaryMap<Buffer, BufferData>) -> u64 {
    let line = |c: &Carry| buffers[c.to].bytes().next_multiple_of(SLOT);
    carries.iter().map(line).fold(0, u64::saturating_add)
}

/// What the places of a loop's values are multiples of, in bytes.
pub const SLOT: u64 = 64;

/// How deep programs are in programs at most.
pub const MAX_NESTING: usize = 64;

/// The most steps of a loop that says how many it has.
pub const MAX_TRIPS: u64 = 1 << 40;

impl Step {
    /// The programs that it runs, with what each is to it: `test`, `step` and `back` of a loop, and the cases of a
    /// branch by their numbers.
    pub fn blocks(&self) -> Vec<(String, &Block)> {
        match self {
            Step::Loop(step) => {
                let test = step.trips.test().map(|block| ("test".to_string(), block));
                let back = step.back.as_ref().map(|back| ("back".to_string(), &back.step));
                test.into_iter().chain([("step".to_string(), &step.step)]).chain(back).collect()
            }
            Step::Branch(branch) => {
                let case = |(k, block)| (format!("case{k}"), block);
                branch.blocks.iter().enumerate().map(case).collect()
            }
            Step::Kernel(_)
            | Step::Contract(_)
            | Step::Attend(_)
            | Step::Scatter(_)
            | Step::Argsort(_)
            | Step::Library(_)
            | Step::Transfer(_)
            | Step::Exchange(_)
            | Step::Print(_)
            | Step::Bundle(_) => Vec::new(),
        }
    }
}

impl Program {
    /// How deep programs are in it: 0 where there are none.
    pub fn nesting(&self) -> usize {
        let blocks = self.steps.iter().flat_map(Step::blocks);
        blocks.map(|(_, block)| 1 + block.program.nesting()).max().unwrap_or(0)
    }
}
