//! Fillers: slots that take up what a packing of a given peak leaves free.
//!
//! The bytes that are free at each moment are known, and where they change, a free stretch begins or ends. So a guess is made of the free stretches
//! themselves: one ends where another of its size began. With the fillers in it the instance is full at each moment, and what fits together exactly is
//! found by [`boxed`](crate::boxes::boxed).

use std::collections::BTreeMap;

use smallvec::smallvec;

use crate::free_bytes::FreeBytes;
use crate::instance::{Instance, Slot, SlotPart, align_up};
use crate::joined::Joined;

/// The instance with fillers up to `capacity`; `None` where more than that is live at some moment, where nothing is free, or where slots are of no plain
/// shape.
pub(crate) fn filled(instance: &Instance, capacity: i64) -> Option<Joined> {
    let granule = instance.slots.values().map(|slot| slot.align).min().unwrap_or(1);
    let change = changes(instance, capacity, granule)?;
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

/// The instance with only those fillers of which the load leaves little doubt: exactly as many bytes become free at one moment as are taken up at a later
/// one. The shortest come first. `None` where there is none, or as for [`filled`].
pub(crate) fn surely_filled(instance: &Instance, capacity: i64) -> Option<Joined> {
    let granule = instance.slots.values().map(|slot| slot.align).min().unwrap_or(1);
    let change = changes(instance, capacity, granule)?;
    let mut free: Vec<i64> = change[..instance.section_count].to_vec();
    let mut sum = 0;
    for bytes in &mut free {
        sum += *bytes;
        *bytes = sum;
    }
    if free.iter().any(|&bytes| bytes < 0) {
        return None;
    }
    // What is free at first and at last has no change of its own.
    let mut by_size: BTreeMap<i64, Vec<(usize, bool)>> = BTreeMap::new();
    for (section, &bytes) in change.iter().enumerate().take(instance.section_count).skip(1) {
        if bytes != 0 {
            by_size.entry(bytes.abs()).or_default().push((section, bytes > 0));
        }
    }
    let mut free = FreeBytes::new(&free);
    let mut joined = Joined::unchanged(instance);
    let mut pairs: Vec<(usize, usize, i64)> = Vec::new();
    for (&size, moments) in &by_size {
        let mut open = Vec::new();
        for &(section, grows) in moments {
            match grows {
                true => open.push(section),
                false => pairs.extend(open.pop().map(|from| (section - from, from, size))),
            }
        }
    }
    pairs.sort_unstable();
    for (life, from, size) in pairs {
        let to = from + life;
        if free.least(from, to) >= size {
            free.take(from, to, size);
            joined.instance.slots.push(filler(size, granule, from, to));
        }
    }
    (joined.instance.slots.len() > instance.slots.len()).then_some(joined)
}

/// How many bytes become free at the beginning of each section, and at the end of the last, in a packing of a peak; `None` where slots are of no plain
/// shape.
fn changes(instance: &Instance, capacity: i64, granule: i64) -> Option<Vec<i64>> {
    let plain = |slot: &Slot| {
        slot.fixed.is_none()
            && matches!(slot.parts[..], [part] if part.lo == 0 && part.hi == slot.extent)
    };
    if !instance.slots.values().all(plain) || !instance.in_place.is_empty() {
        return None;
    }
    let mut change = vec![0i64; instance.section_count + 1];
    for slot in instance.slots.values() {
        let size = align_up(slot.extent, granule);
        change[slot.birth()] -= size;
        change[slot.death()] += size;
    }
    change[0] += capacity / granule * granule;
    Some(change)
}

fn filler(size: i64, align: i64, from: usize, to: usize) -> Slot {
    Slot {
        parts: smallvec![SlotPart { from, to, lo: 0, hi: size }],
        extent: size,
        align,
        fixed: None,
        floor: 0,
        lifetime: (to - from) as u64,
    }
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
        self.joined.instance.slots.push(filler(size, self.granule, birth, section));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots by birth, death and size.
    fn instance(slots: &[(usize, usize, i64)]) -> Instance {
        let section_count = slots.iter().map(|&(_, to, _)| to).max().unwrap_or(0);
        let slots = slots.iter().map(|&(from, to, size)| filler(size, 1, from, to)).collect();
        Instance { slots, section_count, in_place: Vec::new() }
    }

    #[test]
    fn what_becomes_free_and_is_taken_up_again_is_filled() {
        let fillers = |slots: &[(usize, usize, i64)], capacity: i64| {
            let filled = surely_filled(&instance(slots), capacity)?;
            let all = filled.instance.slots.values().skip(slots.len());
            Some(all.map(|s| (s.birth(), s.death(), s.extent)).collect::<Vec<_>>())
        };
        let full = [(0, 10, 4), (0, 3, 8), (5, 10, 8)];
        assert_eq!(fillers(&full, 12), Some(vec![(3, 5, 8)]));
        // Of several the shortest comes first.
        let nested = [(0, 9, 1), (0, 2, 5), (0, 3, 3), (4, 9, 3), (8, 9, 5), (5, 6, 2)];
        assert_eq!(fillers(&nested[..5], 9), Some(vec![(3, 4, 3), (2, 8, 5)]));
        // What takes up a part in between shows that the two sizes are equal by chance.
        assert_eq!(fillers(&nested, 9), Some(vec![(3, 4, 3)]));
        let unequal = [(0, 10, 4), (0, 3, 8), (5, 10, 7)];
        assert_eq!(fillers(&unequal, 12), None);
        // More is live than the capacity.
        assert_eq!(fillers(&full, 11), None);
    }

    #[test]
    fn fillers_alone_are_left_out() {
        let slots = instance(&[(0, 10, 4), (0, 3, 8), (5, 10, 8)]);
        let filled = surely_filled(&slots, 12).map(Joined::without_empty);
        let filled = filled.expect("one filler");
        assert_eq!(filled.instance.slots.len(), 3);
        assert_eq!(filled.unpack(&[0, 4, 5]), [0, 4, 5]);
    }
}
