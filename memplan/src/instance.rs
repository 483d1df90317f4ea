//! The validated form of a problem that all planning works on: slots over numbered sections of time.
//!
//! Buffers that must share storage are one slot. Time is cut at every birth and death into
//! sections, within which nothing changes; a slot occupies, in each section, at most one stretch of
//! bytes counted from its offset. Bytes are `i64`, since differences of offsets are needed: the
//! builder guarantees that no sum of sizes, alignments and offsets leaves the range.

use cranelift_entity::{EntityRef, PrimaryMap, entity_impl};
use smallvec::SmallVec;

/// Slots that are placed together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Instance {
    pub(crate) slots: PrimaryMap<SlotId, Slot>,
    /// Sections are numbered from 0 in the order of time.
    pub(crate) section_count: usize,
    /// Pairs that overlap in time and may still have equal offsets; lower id first, sorted.
    pub(crate) in_place: Vec<(SlotId, SlotId)>,
}

/// Names a slot of one [`Instance`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(u32);
entity_impl!(SlotId, "slot");

/// Storage that gets one offset.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Disjoint in time, in the order of time.
    pub(crate) parts: SmallVec<[SlotPart; 1]>,
    /// The end of the slot, from its offset, for the peak. No part reaches beyond.
    pub(crate) extent: i64,
    /// A power of two.
    pub(crate) align: i64,
    pub(crate) fixed: Option<i64>,
    /// The lowest offset that a greedy placement gives it, a multiple of `align`.
    pub(crate) floor: i64,
    /// Time units from birth to death, gaps included.
    pub(crate) lifetime: u64,
}

/// A run of sections in which a slot occupies the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotPart {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The first byte occupied, from the offset of the slot.
    pub(crate) lo: i64,
    /// The end of the bytes occupied, from the offset of the slot.
    pub(crate) hi: i64,
}

impl Instance {
    /// Whether the pair may have equal offsets although both are live at some time.
    pub(crate) fn may_be_in_place(&self, a: SlotId, b: SlotId) -> bool {
        !self.in_place.is_empty() && self.in_place.binary_search(&(a.min(b), a.max(b))).is_ok()
    }

    /// The greatest end of any slot that has bytes.
    pub(crate) fn peak(&self, offsets: &[i64]) -> i64 {
        let sized = self.slots.iter().filter(|(_, slot)| slot.extent > 0);
        sized.map(|(id, slot)| offsets[id.index()] + slot.extent).max().unwrap_or(0)
    }

    /// Merges sections between which nothing is born and nothing dies.
    pub(crate) fn merge_sections(&mut self) {
        let parts = self.slots.values().flat_map(|slot| &slot.parts);
        let mut cuts: Vec<usize> = parts.flat_map(|part| [part.from, part.to]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let number = |section: usize| cuts.partition_point(|&cut| cut < section);
        for part in self.slots.values_mut().flat_map(|slot| &mut slot.parts) {
            (part.from, part.to) = (number(part.from), number(part.to));
        }
        self.section_count = cuts.len().saturating_sub(1);
    }

    /// The slots of `self` joined as `group_of` says, which numbers the groups from 0 without holes.
    /// Slots of one group have one offset and do not overlap but where they may be in place.
    pub(crate) fn joined(&self, group_of: &[usize]) -> Self {
        let groups = group_of.iter().max().map_or(0, |&last| last + 1);
        let mut members: Vec<SmallVec<[&Slot; 4]>> = vec![SmallVec::new(); groups];
        for id in self.slots.keys() {
            members[group_of[id.index()]].push(&self.slots[id]);
        }
        let joined = |slots: &SmallVec<[&Slot; 4]>| match slots.as_slice() {
            [alone] => (*alone).clone(),
            slots => Slot::join(slots),
        };
        let slots = members.iter().map(joined).collect();
        Self { slots, section_count: self.section_count, in_place: Vec::new() }
    }
}

impl Slot {
    /// The first section in which the slot is live.
    pub(crate) fn birth(&self) -> usize {
        self.parts.first().map_or(0, |part| part.from)
    }

    /// The end of the last section in which the slot is live.
    pub(crate) fn death(&self) -> usize {
        self.parts.last().map_or(0, |part| part.to)
    }

    /// Whether there is a section in which both occupy bytes.
    pub(crate) fn meets(&self, other: &Slot) -> bool {
        if self.birth() >= other.death() || other.birth() >= self.death() {
            return false;
        }
        let (mut xs, mut ys) = (self.parts.iter().peekable(), other.parts.iter().peekable());
        while let (Some(x), Some(y)) = (xs.peek(), ys.peek()) {
            if x.from < y.to && y.from < x.to {
                return true;
            }
            if x.to <= y.to {
                xs.next();
            } else {
                ys.next();
            }
        }
        false
    }

    /// The slot that occupies whatever one of `slots` does, at their common offset.
    fn join(slots: &[&Slot]) -> Slot {
        let mut cuts: Vec<usize> =
            slots.iter().flat_map(|s| s.parts.iter().flat_map(|p| [p.from, p.to])).collect();
        cuts.sort_unstable();
        cuts.dedup();
        // Each piece between neighbouring cuts takes the union of what is occupied in it.
        let mut pieces: Vec<Option<(i64, i64)>> = vec![None; cuts.len()];
        for part in slots.iter().flat_map(|s| &s.parts) {
            let first = cuts.partition_point(|&cut| cut < part.from);
            for (piece, _) in pieces[first..]
                .iter_mut()
                .zip(&cuts[first..])
                .take_while(|(_, cut)| **cut < part.to)
            {
                let (lo, hi) = piece.unwrap_or((part.lo, part.hi));
                *piece = Some((lo.min(part.lo), hi.max(part.hi)));
            }
        }
        let mut parts: SmallVec<[SlotPart; 1]> = SmallVec::new();
        for (ends, piece) in cuts.windows(2).zip(&pieces) {
            let Some((lo, hi)) = *piece else { continue };
            match parts.last_mut() {
                Some(p) if p.to == ends[0] && p.lo == lo && p.hi == hi => p.to = ends[1],
                _ => parts.push(SlotPart { from: ends[0], to: ends[1], lo, hi }),
            }
        }
        Slot {
            parts,
            extent: slots.iter().map(|s| s.extent).max().unwrap_or(0),
            align: slots.iter().map(|s| s.align).max().unwrap_or(1),
            fixed: slots.iter().find_map(|s| s.fixed),
            floor: slots.iter().map(|s| s.floor).max().unwrap_or(0),
            lifetime: slots.iter().fold(0, |sum, s| sum.saturating_add(s.lifetime)),
        }
    }
}

/// `bytes` rounded up to a multiple of the power of two `align`.
pub(crate) fn align_up(bytes: i64, align: i64) -> i64 {
    (bytes + align - 1) & !(align - 1)
}
