//! What programs need beside their buffers, before any of it has a place: the scratch memory of each step, the arenas
//! of the programs that loops and branches run, and the bytes at the peak.

use super::accumulated::take_products;
use super::block::{LoopPlaces, block_room};
use super::capabilities::CAPABILITIES;
use super::deferred_steps::DeferredSteps;
use super::kernel::compile::CompileContext;
use super::legal::{LegalBlock, LegalProgram};
use super::loop_layouts::copy_matrices;
use super::places::{bytes, handed, outputs, place};
use super::scratch::{ScratchLayout, rooms};
use super::steps::work;
use super::stored_parts::store_parts;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::backend::Arrange;
use crate::runtime::errors::within;
use crate::runtime::host_memory::{ALIGN, OffsetAllocator, too_much};
use crate::runtime::legalize::{Legalized, legalize, legalize_block};
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Block, Buffer, Loop, Program, Role, Step, Verified};

/// Bytes that each step of a program needs beside the buffers while it runs: parts of folds over the
/// domain, operands that are computed before they are multiplied, updates of a scatter, sums that are of
/// another type than the buffer that they are for, and all that the programs in a loop or a branch have. A plan of the
/// memory that counts them ([`ArenaLayout::scratch`]) is all that
/// the engine takes for the program, but for what each of its threads has for the piece that it works on.
///
/// # Errors
/// As [`Executable::compile`](super::CpuExecutable::compile).
pub fn scratch(program: &Verified<Program>) -> Result<Vec<u64>, Diagnostic> {
    Ok(prepared(program, &side_by_side)?.needed)
}

/// Bytes at the peak of a program with this layout, as the engine holds them: inputs, outputs, constants,
/// the arena and what is beside it, each block to whole lines of the cache. An executable of it says
/// that it holds no more ([`MemoryReport::peak`](crate::MemoryReport::peak)).
///
/// # Errors
/// As [`Executable::compile`](super::CpuExecutable::compile).
pub fn peak(program: &Verified<Program>, arena: &ArenaLayout) -> Result<u64, Diagnostic> {
    peak_of(program, &prepared(program, &side_by_side)?, arena)
}

/// As [`scratch`], for steps that the verifier accepts and that run no other programs, whatever else is in their program.
pub(super) fn step_scratch(program: &Program) -> Result<Vec<u64>, Diagnostic> {
    Ok(prepared(program, &side_by_side)?.needed)
}

/// As [`peak`], for a program of which nothing but the buffers is there, and whose arena has all that its steps need.
pub(super) fn buffers_peak(program: &Program, arena: &ArenaLayout) -> Result<u64, Diagnostic> {
    let most = arena.bytes.checked_next_multiple_of(ALIGN).ok_or_else(|| too_much(arena.bytes))?;
    let mut constants = OffsetAllocator::default();
    for data in program.buffers.values().filter(|data| matches!(data.role, Role::Constant(_))) {
        constants.take(i64::try_from(data.bytes()).unwrap_or(i64::MAX), 1)?;
    }
    let size = |b: Buffer| program.buffers[b].ty().map_or(0, |ty| bytes(&ty) as u64);
    let in_input =
        |b: Buffer| program.buffers[b].role == Role::Output && arena.in_donor[b].is_some();
    let results = program.outputs.iter().copied().filter(|&b| !in_input(b));
    let handed = program.inputs().chain(results).map(size);
    Ok(handed.chain([most, constants.most]).fold(0, u64::saturating_add))
}

/// As [`peak`], for a program that is prepared.
pub(super) fn peak_of(
    program: &Program,
    legal: &LegalProgram,
    arena: &ArenaLayout,
) -> Result<u64, Diagnostic> {
    let low = &legal.low;
    let rooms = ScratchLayout::new(program, (low, &legal.needed), arena)?;
    let mut constants = OffsetAllocator::default();
    let places = place(low, arena, &rooms, &mut constants);
    let places = places.map_err(|d| within(d, program, None))?;
    legal.block_constants(&mut constants).map_err(|d| within(d, program, None))?;
    let inputs = low.inputs.iter().filter_map(|&b| low.program.buffers[b].ty());
    let inputs = inputs.fold(0, |sum: u64, ty| sum.saturating_add(bytes(&ty) as u64));
    let outputs = outputs(low, &places);
    let outputs = handed(&outputs).fold(0, |sum: u64, o| sum.saturating_add(o.bytes as u64));
    let all = [rooms.most, constants.most, inputs, outputs];
    Ok(all.into_iter().fold(0, u64::saturating_add))
}

/// The layout of programs in steps where nobody plans their memory: no two temporaries share any.
///
/// # Errors
/// None: the engine finds room for all that has no place.
pub(super) fn side_by_side(_: &Program, _: &[u64], _: &[bool]) -> Result<ArenaLayout, Diagnostic> {
    Ok(ArenaLayout::default())
}

/// A program as the engine runs it; `arrange` plans the memory of the programs in it.
///
/// # Errors
/// Where a step cannot be rewritten or sized; the error names the step.
pub(super) fn prepared(
    program: &Program,
    arrange: &Arrange<'_>,
) -> Result<LegalProgram, Diagnostic> {
    sized(program, legalize(program, &CAPABILITIES)?, arrange)
}

fn sized(
    program: &Program,
    mut low: Legalized,
    arrange: &Arrange<'_>,
) -> Result<LegalProgram, Diagnostic> {
    copy_matrices(&mut low)?;
    let accumulated = take_products(&mut low)?;
    let mut blocks = Vec::new();
    for (n, step) in low.program.steps.iter().enumerate() {
        let all = step.blocks().into_iter().map(|(role, block)| {
            let around = match step {
                Step::Loop(l) if std::ptr::eq(block, &l.step) => Some(&**l),
                _ => None,
            };
            prepared_block(role, (block, around), arrange)
        });
        let all: Result<Vec<LegalBlock>, Diagnostic> = all.collect();
        blocks.push(all.map_err(|d| within(d, program, low.origin.get(n).copied()))?);
    }
    let mut legal = LegalProgram { low, needed: Vec::new(), blocks, accumulated };
    legal.needed = needed(program, &legal)?;
    Ok(legal)
}

fn prepared_block(
    role: String,
    (block, around): (&Block, Option<&Loop>),
    arrange: &Arrange<'_>,
) -> Result<LegalBlock, Diagnostic> {
    let given = block.program.clone();
    let mut legal = sized(&given, legalize_block(&given, &CAPABILITIES)?, arrange)?;
    let layout = arrange(&given, &legal.needed, &[])?;
    store_parts(&mut legal, &layout);
    let deferred = around.and_then(|l| DeferredSteps::of(l, &mut legal.low));
    let bytes = ScratchLayout::new(&given, (&legal.low, &legal.needed), &layout)?.most;
    Ok(LegalBlock { role, given, legal, deferred, layout, bytes })
}

/// As [`scratch`], for a program that is legalized.
fn needed(program: &Program, legal: &LegalProgram) -> Result<Vec<u64>, Diagnostic> {
    let LegalProgram { low, blocks, .. } = legal;
    let starts = vec![0u64; program.steps.len()];
    let whole = |&at: &u64| OffsetAllocator::at(at);
    let (mut rooms, _) =
        rooms(low, starts.iter().map(whole)).map_err(|d| within(d, program, None))?;
    let mut own = OffsetAllocator::default();
    for (n, step) in low.program.steps.iter().enumerate() {
        let Some((origin, room)) =
            low.origin.get(n).and_then(|&origin| Some((origin, rooms.get_mut(origin)?)))
        else {
            continue;
        };
        room.free();
        own.free();
        let sized = match step {
            Step::Loop(step) => LoopPlaces::take(room, &low.program, step, &blocks[n]).map(|_| ()),
            Step::Branch(_) => block_room(room, &blocks[n]).map(|_| ()),
            step => {
                let mut making = CompileContext {
                    compiler: None,
                    facts: None,
                    program: &low.program,
                    shared: room,
                    own: &mut own,
                    slots: 0,
                    host: None,
                };
                work(&mut making, step, legal.accumulation(n)).map(|_| ())
            }
        };
        sized.map_err(|d| within(d, program, Some(origin)))?;
    }
    Ok(rooms.iter().map(|room| room.most).collect())
}
