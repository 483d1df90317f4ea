//! Scratch memory of steps: how much each needs, and its offsets.

use super::capabilities::CAPABILITIES;
use super::executable::{bytes, handed, outputs, place, work};
use super::kernel::compile::CompileContext;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::errors::within;
use crate::runtime::host_memory::{ALIGN, OffsetAllocator};
use crate::runtime::legalize::{Legalized, legalize};
use adfuse_ir::kernel::{Buffer, Program, Verified};
use adfuse_ir::{At, Diagnostic, Kind};
use cranelift_entity::SecondaryMap;

/// Bytes that each step of a program needs beside the buffers while it runs: parts of folds over the
/// domain, operands that are computed before they are multiplied, updates of a scatter, sums that are of
/// another type than the buffer that they are for. A plan of the memory that counts them ([`ArenaLayout::scratch`]) is all that
/// the engine takes for the program, but for what each of its threads has for the piece that it works on.
///
/// # Errors
/// As [`Executable::compile`](super::CpuExecutable::compile).
pub fn scratch(program: &Verified<Program>) -> Result<Vec<u64>, Diagnostic> {
    needed(program, &legalize(program, &CAPABILITIES)?)
}

/// Bytes at the peak of a program with this layout, as the engine holds them: inputs, outputs, constants,
/// the arena and what is beside it, each block to whole lines of the cache. An executable of it says
/// that it holds no more ([`MemoryReport::peak`](crate::MemoryReport::peak)).
///
/// # Errors
/// As [`Executable::compile`](super::CpuExecutable::compile).
pub fn peak(program: &Verified<Program>, arena: &ArenaLayout) -> Result<u64, Diagnostic> {
    let low = legalize(program, &CAPABILITIES)?;
    let needed = needed(program, &low)?;
    peak_of(program, (&low, &needed), arena)
}

/// As [`peak`], for a program that is legalized, and what its steps need.
pub(super) fn peak_of(
    program: &Program,
    (low, needed): (&Legalized, &[u64]),
    arena: &ArenaLayout,
) -> Result<u64, Diagnostic> {
    let rooms = ScratchLayout::new(program, (low, needed), arena)?;
    let mut constants = OffsetAllocator::default();
    let places = place(low, arena, &rooms, &mut constants);
    let places = places.map_err(|d| within(d, program, None))?;
    let inputs = low.inputs.iter().filter_map(|&b| low.program.buffers[b].ty());
    let inputs = inputs.fold(0, |sum: u64, ty| sum.saturating_add(bytes(&ty) as u64));
    let outputs = outputs(low, &places);
    let outputs = handed(&outputs).fold(0, |sum: u64, o| sum.saturating_add(o.bytes as u64));
    let all = [rooms.most, constants.most, inputs, outputs];
    Ok(all.into_iter().fold(0, u64::saturating_add))
}

/// Where temporaries are that the layout knows nothing of.
type Offsets = SecondaryMap<Buffer, Option<u64>>;

/// As [`scratch`], for a program that is legalized.
pub(super) fn needed(program: &Program, low: &Legalized) -> Result<Vec<u64>, Diagnostic> {
    let starts = vec![0u64; program.steps.len()];
    let whole = |&at: &u64| OffsetAllocator::at(at);
    let (mut rooms, _) =
        begun(low, starts.iter().map(whole)).map_err(|d| within(d, program, None))?;
    let mut own = OffsetAllocator::default();
    for (n, step) in low.program.steps.iter().enumerate() {
        let Some((origin, room)) =
            low.origin.get(n).and_then(|&origin| Some((origin, rooms.get_mut(origin)?)))
        else {
            continue;
        };
        room.free();
        own.free();
        let mut making = CompileContext {
            compiler: None,
            program: &low.program,
            shared: room,
            own: &mut own,
            slots: 0,
            functions: None,
        };
        work(&mut making, step).map_err(|d| within(d, program, Some(origin)))?;
    }
    Ok(rooms.iter().map(|room| room.most).collect())
}

/// For each step of the given program the room that it has, without the temporaries that it was given
/// by rewriting, and where those are.
fn begun(
    low: &Legalized,
    starts: impl Iterator<Item = OffsetAllocator>,
) -> Result<(Vec<OffsetAllocator>, Offsets), Diagnostic> {
    let mut rooms: Vec<OffsetAllocator> = starts.collect();
    let mut temps = Offsets::new();
    for &(b, step) in &low.temps {
        if let Some(room) = step.and_then(|n| rooms.get_mut(n)) {
            temps[b] = Some(room.take(size(low, b), 1)?);
            room.keep();
        }
    }
    Ok((rooms, temps))
}

fn size(low: &Legalized, b: Buffer) -> i64 {
    i64::try_from(low.program.buffers[b].bytes()).unwrap_or(i64::MAX)
}

/// Where steps have what they need.
pub(super) struct ScratchLayout {
    steps: Vec<OffsetAllocator>,
    /// Temporaries that the layout has no offset for.
    pub(super) temps: Offsets,
    /// One past the last byte of the arena and of temporaries beside it.
    pub(super) end: u64,
    /// The same, with what steps have beside it.
    most: u64,
}

impl ScratchLayout {
    /// As the layout says, or beside the arena.
    pub(super) fn new(
        program: &Program,
        (low, needed): (&Legalized, &[u64]),
        arena: &ArenaLayout,
    ) -> Result<ScratchLayout, Diagnostic> {
        let wrong = |n: usize, m: &str| {
            let m = format!("the layout of the arena does not fit: the scratch of step {n} {m}");
            within(Diagnostic::new(At::default(), Kind::Usage, m), program, Some(n))
        };
        let after = arena.bytes.checked_next_multiple_of(ALIGN);
        let after = after.ok_or_else(|| crate::runtime::host_memory::too_much(arena.bytes))?;
        let mut beside = OffsetAllocator::at(after);
        let mut kept = Vec::new();
        let given = |b: Buffer| arena.offsets[b].is_some() || arena.donated[b].is_some();
        let rewritten = |b: Buffer| low.temps.iter().any(|&(t, step)| t == b && step.is_some());
        for (b, data) in low.program.buffers.iter() {
            let temp = matches!(data.role, adfuse_ir::kernel::Role::Temp);
            if temp && !given(b) && !rewritten(b) {
                kept.push((b, beside.take(size(low, b), 1)?));
            }
        }
        let mut starts = Vec::new();
        for (n, &bytes) in needed.iter().enumerate() {
            starts.push(match arena.scratch.get(n).copied().flatten() {
                Some((at, _)) if at % ALIGN != 0 => return Err(wrong(n, "is not aligned")),
                Some((at, size)) if at.checked_add(size).is_none_or(|end| end > arena.bytes) => {
                    return Err(wrong(n, "is outside"));
                }
                Some((at, size)) if size >= bytes => at,
                _ => beside.most,
            });
        }
        // What is made is made twice, and the second time takes no more.
        let ends = starts.iter().zip(needed).map(|(&at, &bytes)| at.saturating_add(bytes));
        let most = ends.max().unwrap_or(0).max(beside.most);
        let rooms =
            starts.iter().zip(needed).map(|(&at, &bytes)| OffsetAllocator::at(at).within(bytes));
        let (steps, mut temps) = begun(low, rooms)?;
        kept.into_iter().for_each(|(b, at)| temps[b] = Some(at));
        Ok(ScratchLayout { steps, temps, end: beside.most, most })
    }

    /// The room of a step of the given program.
    pub(super) fn of(&self, step: Option<usize>) -> OffsetAllocator {
        let room = step.and_then(|n| self.steps.get(n).copied());
        // A program without steps copies at most.
        room.unwrap_or(OffsetAllocator::at(self.end))
    }
}
