//! Where the inputs and outputs of a block are: a program that a loop or a branch runs, at addresses that are the same
//! for every turn.
//!
//! What a loop carries and whole buffers are read where they are, and results are written where they go. The element of
//! a stack is read or written in the stack: its kernels add the place of the element to the pointer that they are given,
//! by the position that is in memory. Where that would break the alignment of vectors, or a step is no launch
//! of a kernel, the element is copied.

use adfuse_ir::kernel::{
    Block, BlockInput, Buffer, BufferData, Feed, Operand, Param, Program, Role, Sink, Stage, Step,
    Storage, Verified, volume,
};
use cranelift_entity::SecondaryMap;

/// Where a buffer of a program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BlockBinding {
    /// In the memory of the program itself, or where its caller has it.
    #[default]
    Own,
    /// The position of the turn, a scalar.
    Index,
    /// What is carried by a loop, by its number.
    Carry(usize),
    /// What is handed back by a loop, by its number.
    Returned(usize),
    /// A buffer of the program around it.
    Whole(Buffer),
    /// The element of a buffer of the program around it at the position of the turn.
    Element(Buffer),
    /// Where an output of the block goes that is no element, by its number.
    Result(usize),
}

/// One end of a copy: a place that an entry point is given, and by how many bytes it moves on from one position to the
/// next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyEnd {
    pub(crate) place: CopyPlace,
    pub(crate) each: u64,
}

/// A place that a copy reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyPlace {
    Buffer(Buffer),
    /// A buffer of the program around the block.
    Outer(Buffer),
    Result(usize),
}

/// A copy of whole elements at the position of the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ElementCopy {
    pub(crate) from: CopyEnd,
    pub(crate) to: CopyEnd,
    pub(crate) bytes: u64,
}

/// A block with the places of its buffers.
pub(crate) struct BoundBlock<'p> {
    /// What it is to the step.
    pub(crate) role: String,
    pub(crate) program: &'p Verified<Program>,
    pub(crate) bindings: SecondaryMap<Buffer, BlockBinding>,
    /// What is copied before its first step, and after its last.
    pub(crate) before: Vec<ElementCopy>,
    pub(crate) after: Vec<ElementCopy>,
}

/// Bytes that the elements of a stack are multiples of, so that vectors in them are aligned.
const VECTOR: u64 = 16;

/// The blocks of a step, bound.
pub(crate) fn bound(step: &Step) -> Vec<BoundBlock<'_>> {
    let stacks = |role: &str| match step {
        Step::Loop(step) if role == "step" => step.stacks.as_slice(),
        Step::Loop(step) if role == "back" => {
            step.back.as_ref().map_or(&[][..], |back| back.stacks.as_slice())
        }
        _ => &[],
    };
    let mut all = Vec::new();
    for (role, block) in step.blocks() {
        let stacks = stacks(&role);
        all.push(bind(role, block, stacks));
    }
    all
}

fn bind<'p>(role: String, block: &'p Block, stacks: &[Buffer]) -> BoundBlock<'p> {
    let program = &block.program;
    let mut made = BoundBlock {
        role,
        program,
        bindings: SecondaryMap::new(),
        before: Vec::new(),
        after: Vec::new(),
    };
    let still = |place| CopyEnd { place, each: 0 };
    for (b, input) in block.bindings() {
        let bytes = program.buffers[b].bytes();
        made.bindings[b] = match input {
            BlockInput::Index => BlockBinding::Index,
            BlockInput::Carry(k) => BlockBinding::Carry(k),
            BlockInput::Returned(k) => BlockBinding::Returned(k),
            BlockInput::Whole(outer) => BlockBinding::Whole(outer),
            BlockInput::Element(outer) if in_place(program, b) => BlockBinding::Element(outer),
            BlockInput::Element(outer) => {
                let from = CopyEnd { place: CopyPlace::Outer(outer), each: bytes };
                let to = still(CopyPlace::Buffer(b));
                made.before.push(ElementCopy { from, to, bytes });
                BlockBinding::Own
            }
        };
    }
    let first = program.outputs.len() - stacks.len();
    for (k, &b) in program.outputs.iter().enumerate() {
        let data: &BufferData = &program.buffers[b];
        let bytes = data.bytes();
        let own = data.role == Role::Output && !program.outputs[..k].contains(&b);
        let stack = k.checked_sub(first).map(|k| stacks[k]);
        match stack {
            None if own => made.bindings[b] = BlockBinding::Result(k),
            Some(stack) if own && in_place(program, b) => {
                made.bindings[b] = BlockBinding::Element(stack);
            }
            _ => {
                let each =
                    if matches!(made.bindings[b], BlockBinding::Element(_)) { bytes } else { 0 };
                let from = CopyEnd { place: CopyPlace::Buffer(b), each };
                let to = match stack {
                    Some(stack) => CopyEnd { place: CopyPlace::Outer(stack), each: bytes },
                    None => still(CopyPlace::Result(k)),
                };
                made.after.push(ElementCopy { from, to, bytes });
            }
        }
    }
    made
}

/// Whether the element of a stack may be used where it is: all steps that use it are launches of entry points, which
/// know the position, and vectors in it are aligned. They are where elements have a multiple of 16 bytes, or
/// where every loop over the buffer has as many points as it has elements: the width of a vector divides the points.
fn in_place(program: &Program, b: Buffer) -> bool {
    let data = &program.buffers[b];
    let uses = |step: &&Step| step.reads().chain(step.writes()).any(|used| used == b);
    let mut users = program.steps.iter().filter(uses);
    if data.bytes().is_multiple_of(VECTOR) {
        return users.all(|step| {
            let by_host = matches!(
                step,
                Step::Transfer(_) | Step::Library(_) | Step::Exchange(_) | Step::Print(_)
            );
            !by_host && !matches!(step, Step::Loop(_) | Step::Branch(_))
        });
    }
    let points = volume(&data.dims);
    data.storage == Storage::Plain && users.all(|step| each_point_once(step, b, points))
}

/// Whether every loop of a step that uses a buffer has this many points.
fn each_point_once(step: &Step, b: Buffer, points: i64) -> bool {
    match step {
        Step::Kernel(k) => k.stages.iter().all(|stage| {
            let walked = volume(k.domain.iter().chain(&stage.axes));
            walked == points && !after_fold(stage, b) || !stage_uses(stage, b)
        }),
        Step::Bundle(bundle) => {
            bundle.kernels.iter().all(|k| each_point_once(&Step::Kernel(k.clone()), b, points))
        }
        Step::Contract(c) => c.members.iter().all(|m| {
            let walked = |feed: &Feed, own: &[i64]| {
                let all = volume(m.batch.iter().chain(own).chain(&m.depth));
                all == points || !loads(&feed.params, b)
            };
            let walks = volume(&m.result()) == points && !after_fold(&m.then, b);
            let then = walks || !stage_uses(&m.then, b);
            walked(&m.lhs, &m.rows) && walked(&m.rhs, &m.cols) && then
        }),
        _ => false,
    }
}

/// Whether what follows a fold uses a buffer: it has other points than the loop that folds.
fn after_fold(stage: &Stage, b: Buffer) -> bool {
    stage.sinks.iter().any(|sink| match sink {
        Sink::Fold { then, .. } => stage_uses(then, b),
        _ => false,
    })
}

/// Whether a stage reads or stores a buffer.
fn stage_uses(stage: &Stage, b: Buffer) -> bool {
    let sinks = stage.sinks.iter().any(|sink| match sink {
        Sink::Store { buffer, .. } => *buffer == b,
        Sink::Fold { then, .. } => stage_uses(then, b),
        _ => false,
    });
    sinks || loads(&stage.params, b)
}

fn loads(params: &[Param], b: Buffer) -> bool {
    params.iter().any(|param| match param {
        Param::Load(pieces) => pieces.iter().any(|piece| piece.from == Operand::Buffer(b)),
        _ => false,
    })
}
