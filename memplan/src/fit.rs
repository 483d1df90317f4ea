//! Placing one slot among placed slots.

use cranelift_entity::EntityRef;
use smallvec::SmallVec;

use crate::instance::{Instance, Slot, SlotId, SlotPart, align_up};
use crate::limit::Limit;

/// Which of the free places a slot takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The lowest.
    Lowest,
    /// The one that leaves the fewest bytes free above the slot; the lowest of those.
    Tightest,
}

/// Which slots overlap in time, where each overlaps few others; else what is placed is gone through in the order of its bytes.
pub(crate) struct Overlaps {
    /// For each slot where its neighbours start in `neighbours`; empty where there is no list.
    starts: Vec<usize>,
    neighbours: Vec<SlotId>,
}

impl Overlaps {
    /// Lists longer than this take more memory than they save time.
    const MOST_PAIRS: usize = 1 << 24;

    /// A list pays where a slot overlaps fewer than one of this many others: what is placed is sorted, and most of it is
    /// passed over at a few instructions each, or not looked at.
    const FEW: usize = 32;

    pub(crate) fn of(instance: &Instance) -> Self {
        let mut by_birth: Vec<SlotId> = instance.slots.keys().collect();
        by_birth.sort_by_key(|&id| (instance.slots[id].birth(), id));
        let worth = instance.slots.len().pow(2) / (2 * Self::FEW);
        if pairs_of_lives(instance, &by_birth) > worth.min(Self::MOST_PAIRS) {
            return Self { starts: Vec::new(), neighbours: Vec::new() };
        }
        let mut pairs: Vec<(SlotId, SlotId)> = Vec::new();
        let mut live: Vec<SlotId> = Vec::new();
        for id in by_birth {
            let slot = &instance.slots[id];
            live.retain(|&other| instance.slots[other].death() > slot.birth());
            pairs
                .extend(live.iter().filter(|&&o| slot.meets(&instance.slots[o])).map(|&o| (id, o)));
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

/// How many pairs of slots, which are in the order of birth, are live together, gaps apart.
fn pairs_of_lives(instance: &Instance, by_birth: &[SlotId]) -> usize {
    let mut deaths: Vec<usize> = instance.slots.values().map(Slot::death).collect();
    deaths.sort_unstable();
    let (mut dead, mut pairs) = (0, 0);
    for (born, &id) in by_birth.iter().enumerate() {
        let birth = instance.slots[id].birth();
        while deaths.get(dead).is_some_and(|&death| death <= birth) {
            dead += 1;
        }
        // Slots that are never live are dead before they are born.
        pairs += born.saturating_sub(dead);
    }
    pairs
}

/// Slots being placed one by one.
pub(crate) struct Placement<'a> {
    instance: &'a Instance,
    overlaps: &'a Overlaps,
    /// The offset of each slot, or [`UNPLACED`].
    offsets: Vec<i64>,
    /// What is placed, by its first byte, where `overlaps` has no list.
    placed: Vec<PlacedPart>,
    /// The slots that each may be in place with.
    partners: Vec<SmallVec<[SlotId; 2]>>,
    /// Open intervals in which the offset of the slot at hand cannot be.
    forbidden: Vec<(i64, i64)>,
}

const UNPLACED: i64 = -1;

/// A part of a slot that has been placed.
#[derive(Clone, Copy)]
struct PlacedPart {
    start: i64,
    end: i64,
    /// The greatest end of all parts up to this one.
    reach: i64,
    /// Its first section, and the end of its last.
    life: [u32; 2],
    slot: SlotId,
}

impl PlacedPart {
    fn is_live_with(&self, [birth, death]: [u32; 2]) -> bool {
        birth < self.life[1] && self.life[0] < death
    }
}

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
            for part in &self.instance.slots[id].parts {
                let (start, end) = (offset + part.lo, offset + part.hi);
                let at = self.placed.partition_point(|p| (p.start, p.slot) < (start, id));
                let reach =
                    at.checked_sub(1).map_or(end, |before| self.placed[before].reach.max(end));
                self.placed
                    .insert(at, PlacedPart { start, end, reach, life: life(part), slot: id });
                let above = self.placed[at + 1..].iter_mut();
                above.take_while(|p| p.reach < reach).for_each(|p| p.reach = reach);
            }
        }
    }

    fn find(&mut self, id: SlotId, fit: Fit) -> i64 {
        let slot = &self.instance.slots[id];
        let is_placed = |other: &SlotId| self.offsets[other.index()] != UNPLACED;
        let is_alone = !self.partners[id.index()].iter().any(is_placed);
        let listed = self.overlaps.listed(id);
        match (listed, fit, slot.parts.as_slice()) {
            (None, Fit::Lowest, _) => return self.lowest(id, slot),
            (None, Fit::Tightest, &[part]) if is_alone => return self.tightest(slot, part),
            _ => {}
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
                    if offset == UNPLACED {
                        continue;
                    }
                    match (slot.parts.as_slice(), self.instance.slots[other].parts.as_slice()) {
                        // Neighbours are live together.
                        ([q], [p]) if is_alone => {
                            forbid((offset + p.lo - q.hi, offset + p.hi - q.lo));
                        }
                        (_, parts) => parts.iter().for_each(|p| {
                            let (start, end) = (offset + p.lo, offset + p.hi);
                            let part =
                                PlacedPart { start, end, reach: end, life: life(p), slot: other };
                            self.forbid((id, slot), &part, &mut forbid);
                        }),
                    }
                }
            }
            None => {
                let whole = [slot.birth(), slot.death()].map(section);
                for part in self.placed.iter().filter(|part| part.is_live_with(whole)) {
                    self.forbid((id, slot), part, &mut forbid);
                }
            }
        }
        forbidden.sort_unstable();
        let found = best_free(forbidden.iter().copied(), slot, fit);
        self.forbidden = forbidden;
        found
    }

    /// The lowest offset for a slot.
    fn lowest(&self, id: SlotId, slot: &Slot) -> i64 {
        let partners = &self.partners[id.index()];
        let mut free = slot.floor;
        loop {
            let before = free;
            for part in &slot.parts {
                free = self.lowest_of_part(part, (slot.align, partners), free);
            }
            // What one part moves up may be in the way of another, and no longer be in place.
            if free == before || slot.parts.len() == 1 && partners.is_empty() {
                return free;
            }
        }
    }

    /// The lowest offset from `free` on at which a part of a slot overlaps nothing, but for what it would be in place with. What is
    /// placed is sorted by where it starts, so that the search ends where all that is left starts above the room that was found.
    fn lowest_of_part(
        &self,
        part: &SlotPart,
        (align, partners): (i64, &[SlotId]),
        mut free: i64,
    ) -> i64 {
        let own = life(part);
        let below = self.placed.partition_point(|p| p.reach <= free + part.lo);
        for p in &self.placed[below..] {
            if p.start >= free + part.hi {
                break;
            }
            // Most of what is placed is not live at the time.
            if !p.is_live_with(own) || p.end <= free + part.lo {
                continue;
            }
            if !partners.is_empty() && partners.contains(&p.slot) {
                let at = self.offsets[p.slot.index()];
                if free <= at && align_up(at, align) == at {
                    free = at;
                    continue;
                }
            }
            free = align_up(p.end - part.lo, align);
        }
        free
    }

    /// The offset for a slot of one part that leaves the fewest bytes free above it. What is placed is sorted already.
    fn tightest(&self, slot: &Slot, part: SlotPart) -> i64 {
        let own = life(&part);
        let live = self.placed.iter().filter(|p| p.is_live_with(own));
        let intervals = live.map(|p| (p.start - part.hi, p.end - part.lo));
        best_free(intervals.filter(|&(_, high)| high > slot.floor), slot, Fit::Tightest)
    }

    /// The open intervals of the offsets at which a slot would overlap a part of another, which is placed.
    fn forbid(
        &self,
        (id, slot): (SlotId, &Slot),
        placed: &PlacedPart,
        found: &mut impl FnMut((i64, i64)),
    ) {
        let in_place = self.partners[id.index()].contains(&placed.slot);
        for q in slot.parts.iter().filter(|q| placed.is_live_with(life(q))) {
            let (low, high) = (placed.start - q.hi, placed.end - q.lo);
            if in_place {
                let offset = self.offsets[placed.slot.index()];
                found((low, offset));
                found((offset, high));
            } else {
                found((low, high));
            }
        }
    }
}

/// The first section of a part, and the end of its last.
fn life(part: &SlotPart) -> [u32; 2] {
    [part.from, part.to].map(section)
}

fn section(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// An offset that the slot may have in none of the open intervals, which are sorted.
fn best_free(forbidden: impl Iterator<Item = (i64, i64)>, slot: &Slot, fit: Fit) -> i64 {
    let mut free = slot.floor;
    let mut best: Option<(i64, i64)> = None;
    for (low, high) in forbidden {
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
