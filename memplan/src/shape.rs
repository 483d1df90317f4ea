//! Facts about an instance that are constant during a search: which slots begin and end where, and which are equal.

use cranelift_entity::EntityRef;

use crate::instance::{Instance, SlotId, align_up};
use crate::scatter::scatter_wide;

/// Facts about an instance that the search asks for over and over.
pub(crate) struct InstanceFacts {
    pub(crate) begins: SectionLists,
    pub(crate) ends: SectionLists,
    /// Sizes are rounded up to multiples of this, to which the slots above are aligned anyway.
    pub(crate) granule: i64,
    /// At most this much of a section's topmost slot is rounding.
    pub(crate) slack: i64,
    /// For each slot the one before it that is like it in all respects: only the first of those left
    /// need be tried.
    pub(crate) twin: Vec<Option<SlotId>>,
    pub(crate) fixed: Vec<SlotId>,
    /// Whether some slot has several parts.
    pub(crate) broken: bool,
    /// Random numbers that make up the keys of states.
    pub(crate) slot_code: Vec<u128>,
    section_code: Vec<[u128; 2]>,
}

impl InstanceFacts {
    /// `None` if the search cannot treat the instance: windows let slots interlock, and pairs that
    /// may be in place must be decided on first.
    pub(crate) fn of(instance: &Instance) -> Option<Self> {
        let windowed = instance.slots.values().any(|s| s.parts.iter().any(|p| p.lo != 0));
        if windowed || !instance.in_place.is_empty() {
            return None;
        }
        let used = || instance.slots.iter().filter(|(_, slot)| !slot.parts.is_empty());
        let granule = used().map(|(_, slot)| slot.align).min().unwrap_or(1);
        let slack = used().map(|(_, s)| align_up(s.extent, granule) - s.extent).max().unwrap_or(0);
        let parts = || used().flat_map(|(id, s)| s.parts.iter().map(move |p| (id, p)));
        let count = instance.section_count;
        Some(Self {
            begins: SectionLists::new(count, parts().map(|(id, p)| (p.from, id))),
            ends: SectionLists::new(count, parts().map(|(id, p)| (p.to - 1, id))),
            granule,
            slack,
            twin: twins(instance),
            fixed: used().filter(|(_, slot)| slot.fixed.is_some()).map(|(id, _)| id).collect(),
            broken: used().any(|(_, slot)| slot.parts.len() > 1),
            slot_code: (0..instance.slots.len()).map(|i| scatter_wide(3 * i as u64)).collect(),
            section_code: (0..count as u64)
                .map(|i| [scatter_wide(3 * i + 1) | 1, scatter_wide(3 * i + 2) | 1])
                .collect(),
        })
    }

    /// Adds to the key of a state when a floor rises by `bytes` above its top.
    pub(crate) fn raise_code(&self, section: usize, bytes: i64) -> u128 {
        let [raised, hollow] = self.section_code[section];
        raised.wrapping_add(hollow).wrapping_mul(bytes.unsigned_abs().into())
    }

    /// What of that is taken back when a slot comes to rest above.
    pub(crate) fn hollow_code(&self, section: usize, bytes: i64) -> u128 {
        self.section_code[section][1].wrapping_mul(bytes.unsigned_abs().into())
    }
}

/// Slots listed by section.
pub(crate) struct SectionLists {
    starts: Vec<usize>,
    ids: Vec<SlotId>,
}

impl SectionLists {
    fn new(sections: usize, entries: impl Iterator<Item = (usize, SlotId)>) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        Self::of_sorted(sections, &entries)
    }

    /// The same with the slots of a section by their ranks.
    pub(crate) fn ranked(
        sections: usize,
        entries: impl Iterator<Item = (usize, SlotId)>,
        rank: &[usize],
    ) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|&(section, id)| (section, rank[id.index()]));
        Self::of_sorted(sections, &entries)
    }

    fn of_sorted(sections: usize, entries: &[(usize, SlotId)]) -> Self {
        let mut starts = vec![0; sections + 1];
        for &(section, _) in entries {
            starts[section + 1] += 1;
        }
        for section in 0..sections {
            starts[section + 1] += starts[section];
        }
        Self { starts, ids: entries.iter().map(|&(_, id)| id).collect() }
    }

    pub(crate) fn of(&self, section: usize) -> &[SlotId] {
        &self.ids[self.starts[section]..self.starts[section + 1]]
    }
}

/// For each slot the one before it that has the same parts, size and alignment, and no fixed offset.
fn twins(instance: &Instance) -> Vec<Option<SlotId>> {
    let mut ids: Vec<SlotId> = instance.slots.keys().collect();
    let like = |id: SlotId| {
        let slot = &instance.slots[id];
        let parts: Vec<_> = slot.parts.iter().map(|p| (p.from, p.to, p.hi)).collect();
        (parts, slot.extent, slot.align, slot.fixed)
    };
    ids.sort_by_cached_key(|&id| (like(id), id));
    let mut twin = vec![None; ids.len()];
    for pair in ids.windows(2) {
        if instance.slots[pair[0]].fixed.is_none() && like(pair[0]) == like(pair[1]) {
            twin[pair[1].index()] = Some(pair[0]);
        }
    }
    twin
}
