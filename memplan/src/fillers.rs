//! Fillers: slots that take up what a packing of a given peak leaves free.
//!
//! The bytes that are free at each moment are known, and where they change, a free stretch begins or ends. So a guess is made of the free stretches
//! themselves: one ends where another of its size began. With the fillers in it the instance is full at each moment, and what fits together exactly is
//! found by [`boxed`](crate::boxes::boxed).

use std::collections::BTreeMap;

use smallvec::smallvec;

use crate::instance::{Instance, Slot, SlotPart, align_up};
use crate::joined::Joined;

/// The instance with fillers up to `capacity`; `None` where more than that is live at some moment, where nothing is free, or where slots are of no plain
/// shape.
pub(crate) fn filled(instance: &Instance, capacity: i64) -> Option<Joined> {
    let plain = |slot: &Slot| {
        slot.fixed.is_none()
            && matches!(slot.parts[..], [part] if part.lo == 0 && part.hi == slot.extent)
    };
    if !instance.slots.values().all(plain) || !instance.in_place.is_empty() {
        return None;
    }
    let granule = instance.slots.values().map(|slot| slot.align).min().unwrap_or(1);
    let mut change = vec![0i64; instance.section_count + 1];
    for slot in instance.slots.values() {
        let size = align_up(slot.extent, granule);
        change[slot.birth()] -= size;
        change[slot.death()] += size;
    }
    change[0] += capacity / granule * granule;
    let mut fill = FreeSpace::new(instance, &change, granule);
    let last = instance.section_count;
    for (section, &change) in change.iter().enumerate().take(last) {
        fill.free += change;
        if fill.free < 0 {
            return None;
        }
        match change {
            0 => {}
            1.. => fill.grow(section, change),
            _ => fill.shrink(section, -change),
        }
    }
    while let Some((&size, _)) = fill.open.last_key_value() {
        fill.end(size, last);
    }
    let joined = fill.joined;
    (joined.instance.slots.len() > instance.slots.len()).then_some(joined)
}

/// The free stretches at a moment, as far as they are known.
struct FreeSpace {
    joined: Joined,
    granule: i64,
    /// Free bytes.
    free: i64,
    /// The births of the fillers that are open, by size.
    open: BTreeMap<i64, Vec<usize>>,
    /// For each number of bytes the last section at whose beginning exactly that many are taken up.
    taken_up: BTreeMap<i64, usize>,
}

impl FreeSpace {
    fn new(instance: &Instance, change: &[i64], granule: i64) -> Self {
        let taken = change.iter().enumerate().filter(|(_, change)| **change < 0);
        Self {
            joined: Joined::unchanged(instance),
            granule,
            free: 0,
            open: BTreeMap::new(),
            taken_up: taken.map(|(section, change)| (-change, section)).collect(),
        }
    }

    /// Whether a stretch of this size may end after a section.
    fn may_end(&self, size: i64, section: usize) -> bool {
        self.taken_up.get(&size).is_some_and(|&last| last > section)
    }

    /// More is free: a filler begins, or one ends where a larger one begins.
    fn grow(&mut self, section: usize, bytes: i64) {
        let larger = |fill: &Self| {
            let mut sizes = fill.open.keys().copied();
            sizes.find(|&size| fill.may_end(size + bytes, section))
        };
        match if self.may_end(bytes, section) { None } else { larger(self) } {
            Some(size) => {
                self.end(size, section);
                self.begin(size + bytes, section);
            }
            None => self.begin(bytes, section),
        }
    }

    /// Less is free: one filler of that size ends, or one ends where a smaller one begins; else the least that is larger, or several.
    fn shrink(&mut self, section: usize, bytes: i64) {
        if !self.open.contains_key(&bytes) {
            let mut larger = self.open.range(bytes..).map(|(&size, _)| size);
            if let Some(size) = larger.find(|&size| self.may_end(size - bytes, section)) {
                self.end(size, section);
                self.begin(size - bytes, section);
                return;
            }
        }
        let mut left = bytes;
        while left > 0 {
            let larger = self.open.range(left..).next().map(|(&size, _)| size);
            let largest = || self.open.last_key_value().map(|(&size, _)| size);
            let Some(size) = larger.or_else(largest) else { return };
            self.end(size, section);
            if size > left {
                self.begin(size - left, section);
            }
            left -= size;
        }
    }

    fn begin(&mut self, size: i64, section: usize) {
        self.open.entry(size).or_default().push(section);
    }

    fn end(&mut self, size: i64, section: usize) {
        let births = self.open.entry(size).or_default();
        let birth = births.pop();
        if births.is_empty() {
            self.open.remove(&size);
        }
        let Some(birth) = birth.filter(|&birth| birth < section) else { return };
        let part = SlotPart { from: birth, to: section, lo: 0, hi: size };
        self.joined.instance.slots.push(Slot {
            parts: smallvec![part],
            extent: size,
            align: self.granule,
            fixed: None,
            floor: 0,
            lifetime: (section - birth) as u64,
        });
    }
}
