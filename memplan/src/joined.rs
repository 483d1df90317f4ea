//! An instance made from another one by joining slots, and the way back.

use cranelift_entity::{EntityRef, PrimaryMap};

use crate::instance::{Instance, Slot, SlotId};

/// An instance each of whose slots stands for slots of an original one.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) instance: Instance,
    /// For each slot of the original the slot that holds it, and where it starts within.
    pub(crate) place: Vec<(SlotId, i64)>,
}

impl Joined {
    /// Every slot by itself.
    pub(crate) fn unchanged(instance: &Instance) -> Self {
        let place = instance.slots.keys().map(|id| (id, 0)).collect();
        Self { instance: instance.clone(), place }
    }

    /// Slots each of which holds some of an original instance, each from where it starts within. There are no pairs.
    pub(crate) fn of_boxes(
        original: &Instance,
        boxes: impl Iterator<Item = (Slot, Vec<(SlotId, i64)>)>,
    ) -> Self {
        let mut place = vec![(SlotId::new(0), 0); original.slots.len()];
        let mut slots = PrimaryMap::new();
        for (slot, members) in boxes {
            let whole = slots.push(slot);
            members.into_iter().for_each(|(id, start)| place[id.index()] = (whole, start));
        }
        let section_count = original.section_count;
        Self { instance: Instance { slots, section_count, in_place: Vec::new() }, place }
    }

    /// The same without slots that hold none of the original.
    pub(crate) fn without_empty(self) -> Self {
        let mut used = vec![false; self.instance.slots.len()];
        self.place.iter().for_each(|(id, _)| used[id.index()] = true);
        let mut number = vec![SlotId::new(0); used.len()];
        let mut slots = PrimaryMap::new();
        for (id, slot) in self.instance.slots.iter().filter(|(id, _)| used[id.index()]) {
            number[id.index()] = slots.push(slot.clone());
        }
        let place = self.place.iter().map(|&(id, at)| (number[id.index()], at)).collect();
        Self { instance: Instance { slots, ..self.instance }, place }
    }

    /// The offsets of the original slots.
    pub(crate) fn unpack(&self, offsets: &[i64]) -> Vec<i64> {
        self.place.iter().map(|&(id, start)| offsets[id.index()] + start).collect()
    }

    /// The same for the slots that `self` was made from.
    pub(crate) fn after(self, first: &Joined) -> Self {
        let place = first
            .place
            .iter()
            .map(|&(id, start)| {
                let (outer, outer_start) = self.place[id.index()];
                (outer, outer_start + start)
            })
            .collect();
        Self { instance: self.instance, place }
    }
}
