//! Placing one slot among placed slots.

use cranelift_entity::EntityRef;
use smallvec::SmallVec;

use crate::instance::{Instance, Slot, SlotId, align_up};
use crate::limit::Limit;

/// Which of the free places a slot takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The lowest.
    Lowest,
    /// The one that leaves the fewest bytes free above the slot; the lowest of those.
    Tightest,
}

/// Which slots overlap in time, for slots that are few or overlap little; else it is found out anew
/// whenever it is asked.
pub(crate) struct Overlaps {
    /// For each slot where its neighbours start in `neighbours`; empty where there is no list.
    starts: Vec<usize>,
    neighbours: Vec<SlotId>,
}

impl Overlaps {
    /// Lists longer than this take more memory than they save time.
    const MOST_PAIRS: usize = 1 << 24;

    pub(crate) fn of(instance: &Instance) -> Self {
        let mut by_birth: Vec<SlotId> = instance.slots.keys().collect();
        by_birth.sort_by_key(|&id| (instance.slots[id].birth(), id));
        // A list pays where most slots do not overlap.
        let worth = instance.slots.len().pow(2) / 16;
        let mut pairs: Vec<(SlotId, SlotId)> = Vec::new();
        let mut live: Vec<SlotId> = Vec::new();
        for id in by_birth {
            let slot = &instance.slots[id];
            live.retain(|&other| instance.slots[other].death() > slot.birth());
            pairs
                .extend(live.iter().filter(|&&o| slot.meets(&instance.slots[o])).map(|&o| (id, o)));
            if pairs.len() > worth.min(Self::MOST_PAIRS) {
                return Self { starts: Vec::new(), neighbours: Vec::new() };
            }
            live.push(id);
        }
        let mut starts = vec![0; instance.slots.len() + 1];
        for (a, b) in &pairs {
            starts[a.index() + 1] += 1;
            starts[b.index() + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut neighbours = vec![SlotId::new(0); pairs.len() * 2];
        for (a, b) in pairs {
            neighbours[next[a.index()]] = b;
            neighbours[next[b.index()]] = a;
            next[a.index()] += 1;
            next[b.index()] += 1;
        }
        Self { starts, neighbours }
    }

    fn listed(&self, id: SlotId) -> Option<&[SlotId]> {
        let range = *self.starts.get(id.index())?..*self.starts.get(id.index() + 1)?;
        self.neighbours.get(range)
    }
}

/// Slots being placed one by one.
pub(crate) struct Placement<'a> {
    instance: &'a Instance,
    overlaps: &'a Overlaps,
    /// The offset of each slot, or [`UNPLACED`].
    offsets: Vec<i64>,
    /// The slots placed, by offset, where `overlaps` has no list; with the first section of each, and the end of its last.
    placed: Vec<(i64, SlotId, [u32; 2])>,
    /// The slots that each may be in place with.
    partners: Vec<SmallVec<[SlotId; 2]>>,
    /// Open intervals in which the offset of the slot at hand cannot be.
    forbidden: Vec<(i64, i64)>,
}

const UNPLACED: i64 = -1;

impl<'a> Placement<'a> {
    /// With the fixed slots placed.
    pub(crate) fn new(instance: &'a Instance, overlaps: &'a Overlaps) -> Self {
        let mut partners = vec![SmallVec::new(); instance.slots.len()];
        for &(a, b) in &instance.in_place {
            partners[a.index()].push(b);
            partners[b.index()].push(a);
        }
        let mut this = Self {
            instance,
            overlaps,
            offsets: vec![UNPLACED; instance.slots.len()],
            placed: Vec::new(),
            partners,
            forbidden: Vec::new(),
        };
        this.clear();
        this
    }

    /// Takes all but the fixed slots out again.
    pub(crate) fn clear(&mut self) {
        self.offsets.fill(UNPLACED);
        self.placed.clear();
        for (id, slot) in self.instance.slots.iter() {
            if let Some(offset) = slot.fixed {
                self.put(id, offset);
            }
        }
    }

    /// Places all slots in the given order; returns the peak in bytes, or nothing where the time ends
    /// before. A peak of at least `below` is of no use: as soon as it is certain, the greatest number is returned.
    pub(crate) fn place_all(
        &mut self,
        order: &[SlotId],
        fit: Fit,
        below: i64,
        limit: &mut Limit,
    ) -> Option<i64> {
        self.clear();
        for &id in order {
            if self.offsets[id.index()] == UNPLACED {
                let offset = self.find(id, fit);
                let extent = self.instance.slots[id].extent;
                if extent > 0 && offset.saturating_add(extent) >= below {
                    return Some(i64::MAX);
                }
                self.put(id, offset);
                let near = self.overlaps.listed(id).map_or(self.placed.len(), <[_]>::len);
                if !limit.look(near + 1) {
                    return None;
                }
            }
        }
        Some(self.instance.peak(&self.offsets))
    }

    /// What is placed.
    pub(crate) fn instance(&self) -> &'a Instance {
        self.instance
    }

    /// The offset of each slot.
    pub(crate) fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    fn put(&mut self, id: SlotId, offset: i64) {
        self.offsets[id.index()] = offset;
        if self.overlaps.starts.is_empty() {
            let at = self.placed.partition_point(|&(at, other, _)| (at, other) < (offset, id));
            self.placed.insert(at, (offset, id, life(&self.instance.slots[id])));
        }
    }

    fn find(&mut self, id: SlotId, fit: Fit) -> i64 {
        let slot = &self.instance.slots[id];
        let listed = self.overlaps.listed(id);
        if listed.is_none() && fit == Fit::Lowest {
            return self.find_from_below(id, slot);
        }
        let mut forbidden = std::mem::take(&mut self.forbidden);
        forbidden.clear();
        // What ends below the slot's floor forbids nothing.
        let mut forbid = |interval: (i64, i64)| {
            if interval.1 > slot.floor {
                forbidden.push(interval);
            }
        };
        match listed {
            Some(neighbours) => {
                for &other in neighbours {
                    let offset = self.offsets[other.index()];
                    if offset != UNPLACED {
                        self.forbid((id, slot), (offset, other), &mut forbid);
                    }
                }
            }
            None => {
                let [birth, death] = life(slot);
                for &(offset, other, [born, dead]) in &self.placed {
                    // Most slots are not live together.
                    if birth < dead && born < death {
                        self.forbid((id, slot), (offset, other), &mut forbid);
                    }
                }
            }
        }
        forbidden.sort_unstable();
        let found = best_free(&forbidden, slot, fit);
        self.forbidden = forbidden;
        found
    }

    /// The lowest offset for a slot. What is placed is sorted by where it starts, so that the search ends where all that
    /// is left starts above the first room that is large enough.
    fn find_from_below(&mut self, id: SlotId, slot: &Slot) -> i64 {
        let tallest = slot.parts.iter().map(|q| q.hi).max().unwrap_or(0);
        let [birth, death] = life(slot);
        let mut free = slot.floor;
        // Intervals that begin above `free` so far.
        let mut above = std::mem::take(&mut self.forbidden);
        above.clear();
        for &(offset, other, [born, dead]) in &self.placed {
            if offset - tallest >= free {
                break;
            }
            // Most slots are not live together.
            if birth >= dead || born >= death {
                continue;
            }
            let before = free;
            self.forbid((id, slot), (offset, other), &mut |(low, high)| {
                if high > free {
                    match low < free {
                        true => free = align_up(high, slot.align),
                        false => above.push((low, high)),
                    }
                }
            });
            if free > before {
                free = freed(&mut above, free, slot.align);
            }
        }
        self.forbidden = above;
        free
    }

    /// The open intervals of the offsets at which a slot would overlap another, which is placed.
    fn forbid(
        &self,
        (id, slot): (SlotId, &Slot),
        (offset, other_id): (i64, SlotId),
        found: &mut impl FnMut((i64, i64)),
    ) {
        let other = &self.instance.slots[other_id];
        let in_place = self.partners[id.index()].contains(&other_id);
        for p in &other.parts {
            for q in slot.parts.iter().filter(|q| p.from < q.to && q.from < p.to) {
                let (low, high) = (offset + p.lo - q.hi, offset + p.hi - q.lo);
                if in_place {
                    found((low, offset));
                    found((offset, high));
                } else {
                    found((low, high));
                }
            }
        }
    }
}

/// The first section in which a slot is live, and the end of its last.
fn life(slot: &Slot) -> [u32; 2] {
    [slot.birth(), slot.death()].map(|section| u32::try_from(section).unwrap_or(u32::MAX))
}

/// The lowest offset from `free` on that none of some intervals forbids, which stay as far as they are above it.
fn freed(above: &mut Vec<(i64, i64)>, mut free: i64, align: i64) -> i64 {
    loop {
        let before = free;
        above.retain(|&(low, high)| {
            if low < free && high > free {
                free = align_up(high, align);
            }
            high > free
        });
        if free == before {
            return free;
        }
    }
}

/// An offset that the slot may have in none of the open intervals, which are sorted.
fn best_free(forbidden: &[(i64, i64)], slot: &Slot, fit: Fit) -> i64 {
    let mut free = slot.floor;
    let mut best: Option<(i64, i64)> = None;
    for &(low, high) in forbidden {
        if low >= free {
            // The offsets from `free` to `low` are allowed.
            if fit == Fit::Lowest {
                return free;
            }
            if best.is_none_or(|(slack, _)| low - free < slack) {
                best = Some((low - free, free));
            }
        }
        if high > free {
            free = align_up(high, slot.align);
        }
    }
    best.map_or(free, |(_, offset)| offset)
}
