//! An instance made from another one by joining slots, and the way back.

use cranelift_entity::EntityRef;

use crate::instance::{Instance, SlotId};

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
