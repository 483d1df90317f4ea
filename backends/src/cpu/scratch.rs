//! Scratch memory of steps: where each has what it needs.

use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::errors::within;
use crate::runtime::host_memory::{ALIGN, OffsetAllocator};
use crate::runtime::legalize::Legalized;
use adfuse_ir::kernel::{Buffer, Program};
use adfuse_ir::{At, Diagnostic, Kind};
use cranelift_entity::SecondaryMap;

/// Where temporaries are that the layout knows nothing of.
type Offsets = SecondaryMap<Buffer, Option<u64>>;

/// For each step of the given program the room that it has, without the temporaries that it was given
/// by rewriting, and where those are.
pub(super) fn rooms(
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
    pub(super) most: u64,
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
        let given = |b: Buffer| arena.offsets[b].is_some() || arena.in_donor[b].is_some();
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
        let (steps, mut temps) = self::rooms(low, rooms)?;
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
