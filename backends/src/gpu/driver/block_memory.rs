//! Where the programs that loops and branches run have their memory: in the scratch memory of the step, at places that
//! are known before the memory of the whole program is planned.

use super::place::{Room, aligned, inside, misfit, scratch_places, with_slack};
use crate::gpu::launches::{BlockBinding, BlockCode, POSITION_BYTES, StepCode};
use crate::runtime::arena_layout;
use crate::runtime::backend::Arrange;
use crate::runtime::errors::within;
use adfuse_ir::kernel::{Buffer, Carry, Loop, Program, Role, SLOT, Space, Step, Verified};
use adfuse_ir::{At, Diagnostic, Kind};
use cranelift_entity::SecondaryMap;

/// What a step has beside the buffers while it runs.
#[derive(Debug, Default)]
pub(crate) struct StepMemory {
    /// Bytes, and what is behind them to begin at a multiple of what scratch begins at.
    pub(crate) bytes: u64,
    /// Of a loop.
    pub(crate) slots: Option<LoopSlots>,
    /// Where the memory of its programs begins. They run one after the other, and share it.
    pub(crate) blocks_at: u64,
    pub(crate) blocks: Vec<BlockMemory>,
}

/// The memory of a program that a step runs, from the beginning of that.
#[derive(Debug)]
pub(crate) struct BlockMemory {
    /// Of the buffers that are its own.
    pub(crate) places: SecondaryMap<Buffer, u64>,
    /// Where each step has its scratch, to be aligned.
    pub(crate) scratch: Vec<u64>,
    pub(crate) steps: Vec<StepMemory>,
    pub(crate) bytes: u64,
}

/// Where a loop has what it carries and keeps, from the beginning of its step's scratch.
#[derive(Debug)]
pub(crate) struct LoopSlots {
    pub(crate) position: u64,
    pub(crate) answer: u64,
    pub(crate) carries: Vec<CarrySlots>,
    pub(crate) returned: Vec<CarrySlots>,
}

/// The places of one carried value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarrySlots {
    /// The first place, where that is not where the value ends.
    pub(crate) first: Option<u64>,
    pub(crate) second: u64,
    /// The first checkpoint; others follow, a whole number of lines each.
    pub(crate) kept: u64,
}

impl LoopSlots {
    fn take(program: &Program, step: &Loop, room: &mut Room) -> Result<LoopSlots, Diagnostic> {
        let places = |carries: &[Carry], own: bool, kept: u64, room: &mut Room| {
            let mut all = Vec::new();
            for carry in carries {
                let line = program.buffers[carry.to].bytes().next_multiple_of(SLOT);
                let first = if own { Some(room.take(line)?) } else { None };
                let second = room.take(line)?;
                let kept = room.take(line.saturating_mul(kept))?;
                all.push(CarrySlots { first, second, kept });
            }
            Ok::<_, Diagnostic>(all)
        };
        let back = step.back.as_ref();
        let kept = back.map_or(0, |back| step.checkpoints(back));
        Ok(LoopSlots {
            position: room.take(POSITION_BYTES)?,
            answer: room.take(SLOT)?,
            carries: places(&step.carries, back.is_some(), kept, room)?,
            returned: places(back.map_or(&[][..], |back| &back.carries), false, 0, room)?,
        })
    }
}

/// The memory of each step of a program beside its buffers.
///
/// # Errors
/// Where a program in a step does not fit, with the step.
pub(crate) fn step_memories(
    program: &Program,
    codes: &[StepCode],
    arrange: &Arrange<'_>,
) -> Result<Vec<StepMemory>, Diagnostic> {
    let all = program.steps.iter().zip(codes).enumerate();
    let one = |(n, (step, code)): (usize, (&Step, &StepCode))| {
        step_memory(program, step, code, arrange).map_err(|d| within(d, program, Some(n)))
    };
    all.map(one).collect()
}

fn step_memory(
    program: &Program,
    step: &Step,
    code: &StepCode,
    arrange: &Arrange<'_>,
) -> Result<StepMemory, Diagnostic> {
    let mut blocks = Vec::new();
    for ((_, block), code) in step.blocks().into_iter().zip(&code.blocks) {
        blocks.push(block_memory(&block.program, code, arrange)?);
    }
    let mut room = Room::at(code.scratch);
    let slots = match step {
        Step::Loop(step) => Some(LoopSlots::take(program, step, &mut room)?),
        _ => None,
    };
    let most = blocks.iter().map(|block| block.bytes).max().unwrap_or(0);
    let blocks_at = if blocks.is_empty() { 0 } else { room.take(most)? };
    Ok(StepMemory { bytes: with_slack(room.end()), slots, blocks_at, blocks })
}

fn block_memory(
    program: &Verified<Program>,
    code: &BlockCode,
    arrange: &Arrange<'_>,
) -> Result<BlockMemory, Diagnostic> {
    if let Some(data) = program.buffers.values().find(|data| data.space == Space::Host) {
        let m =
            format!("%{} is in the caller's memory, in a program of a loop or a branch", data.name);
        return Err(within(Diagnostic::new(At::default(), Kind::Unsupported, m), program, None));
    }
    let steps = step_memories(program, &code.steps, arrange)?;
    let needed: Vec<u64> = steps.iter().map(|step| step.bytes).collect();
    let again = reads_again(&code.steps);
    let layout = arrange(program, &needed, &again)?;
    arena_layout::check(program, &layout, &again)?;
    let mut beside = Room::at(layout.bytes);
    let mut places = SecondaryMap::new();
    for (b, data) in program.buffers.iter() {
        if code.bindings[b] != BlockBinding::Own || matches!(data.role, Role::Constant(_)) {
            continue;
        }
        places[b] = match layout.offsets[b] {
            Some(at) if data.role == Role::Temp => {
                inside(at, data.bytes(), &layout).map_err(|m| misfit(data, m))?;
                at
            }
            _ => beside.take(data.bytes())?,
        };
    }
    let (scratch, bytes) = scratch_places(&layout, &needed, beside.end())?;
    Ok(BlockMemory { places, scratch, steps, bytes })
}

/// For each step of a program, whether it reads again what it has read when it has begun to write.
pub(crate) fn reads_again(codes: &[StepCode]) -> Vec<bool> {
    codes.iter().map(|code| !code.reads_first).collect()
}

/// Bytes of the constants of the programs in a program, each at a place of its own.
pub(crate) fn block_constants(program: &Program) -> u64 {
    let mut sum: u64 = 0;
    for (_, block) in program.steps.iter().flat_map(Step::blocks) {
        for data in block.program.buffers.values() {
            if matches!(data.role, Role::Constant(_)) {
                sum = sum.saturating_add(aligned(data.bytes()));
            }
        }
        sum = sum.saturating_add(block_constants(&block.program));
    }
    sum
}
