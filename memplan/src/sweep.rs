//! A best-fit allocator that visits the slots in order of birth and death.
//!
//! Its time is nearly linear in the number of slots, so there is always a packing, whatever the deadline. It ignores
//! gaps and in-place pairs: a slot takes all its bytes from birth to death.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::EntityRef;

use crate::instance::{Instance, SlotId, align_up};

/// An offset for each slot.
pub(crate) fn sweep(instance: &Instance) -> Vec<i64> {
    // All is above what is fixed.
    let fixed = instance.slots.values().filter_map(|s| Some(s.fixed? + s.extent));
    let mut offsets = vec![0; instance.slots.len()];
    let mut events: Vec<(usize, bool, SlotId)> = Vec::new();
    for (id, slot) in instance.slots.iter() {
        match slot.fixed {
            Some(offset) => offsets[id.index()] = offset,
            None if slot.parts.is_empty() => {}
            // Of one moment deaths come first.
            None => events.extend([(slot.death(), false, id), (slot.birth(), true, id)]),
        }
    }
    events.sort_unstable();
    let mut rooms = FreeRanges::new(fixed.max().unwrap_or(0));
    for (_, born, id) in events {
        let slot = &instance.slots[id];
        if born {
            offsets[id.index()] = rooms.take(slot.extent, slot.align);
        } else {
            rooms.release(offsets[id.index()], slot.extent);
        }
    }
    offsets
}

/// The free ranges of the arena; no two are adjacent.
struct FreeRanges {
    /// Their ends, by their starts.
    ends: BTreeMap<i64, i64>,
    /// Their sizes and starts.
    sizes: BTreeSet<(i64, i64)>,
    /// Above this everything is free.
    top: i64,
}

impl FreeRanges {
    fn new(top: i64) -> Self {
        Self { ends: BTreeMap::new(), sizes: BTreeSet::new(), top }
    }

    /// Takes bytes of the smallest room that has them however it is aligned, or of the top.
    fn take(&mut self, size: i64, align: i64) -> i64 {
        let exact = self.sizes.range((size, 0)..).next().copied();
        let fits = |&(room, start): &(i64, i64)| align_up(start, align) + size <= start + room;
        let sure = || self.sizes.range((size + align - 1, 0)..).next().copied();
        let Some((room, start)) = exact.filter(fits).or_else(sure) else {
            let (before, offset) = (self.top, align_up(self.top, align));
            self.top = offset + size;
            self.release(before, offset - before);
            return offset;
        };
        self.remove(start, start + room);
        let offset = align_up(start, align);
        self.release(start, offset - start);
        self.release(offset + size, start + room - offset - size);
        offset
    }

    /// Frees a stretch.
    fn release(&mut self, start: i64, size: i64) {
        if size == 0 {
            return;
        }
        let (mut from, mut to) = (start, start + size);
        if let Some((&before, &end)) = self.ends.range(..start).next_back()
            && end == start
        {
            self.remove(before, end);
            from = before;
        }
        if let Some(&end) = self.ends.get(&to) {
            self.remove(to, end);
            to = end;
        }
        if to == self.top {
            self.top = from;
        } else {
            self.ends.insert(from, to);
            self.sizes.insert((to - from, from));
        }
    }

    fn remove(&mut self, from: i64, to: i64) {
        self.ends.remove(&from);
        self.sizes.remove(&(to - from, from));
    }
}
