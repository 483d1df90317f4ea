//! The greedy orders.

use std::cmp::Reverse;

use cranelift_entity::EntityRef;

use crate::bound::loads;
use crate::instance::{Instance, SlotId};
use crate::packing::PlacementOrder;

/// The slots of `instance` in the given order. Ties go to the larger, then the longer-lived, then the
/// earlier slot.
pub(crate) fn ordered(instance: &Instance, order: PlacementOrder) -> Vec<SlotId> {
    let loads = match order {
        PlacementOrder::Load => greatest_load(instance),
        _ => Vec::new(),
    };
    let mut ids: Vec<SlotId> = instance.slots.keys().collect();
    ids.sort_by_cached_key(|&id| {
        let slot = &instance.slots[id];
        let (size, life) = (slot.extent.unsigned_abs(), slot.lifetime);
        let first = match order {
            PlacementOrder::Size => Reverse(u128::from(size)),
            PlacementOrder::Area => Reverse(u128::from(size) * u128::from(life)),
            PlacementOrder::Lifetime => Reverse(u128::from(life)),
            PlacementOrder::Birth => Reverse((instance.section_count - slot.birth()) as u128),
            PlacementOrder::Death => Reverse(slot.death() as u128),
            PlacementOrder::Load => Reverse(u128::from(loads[id.index()].unsigned_abs())),
        };
        (first, Reverse(size), Reverse(life), id)
    });
    ids
}

/// For each slot the bytes live at the most crowded moment of its life.
fn greatest_load(instance: &Instance) -> Vec<i64> {
    // Level k holds the greatest load of each run of 2^k sections.
    let mut levels = vec![loads(instance)];
    while let Some(last) = levels.last()
        && (1 << levels.len()) <= instance.section_count
    {
        let half = 1 << (levels.len() - 1);
        let next = last.iter().zip(&last[half..]).map(|(&a, &b)| a.max(b)).collect();
        levels.push(next);
    }
    let greatest = |from: usize, to: usize| {
        let level = (to - from).ilog2();
        let runs = &levels[level as usize];
        runs[from].max(runs[to - (1 << level)])
    };
    instance
        .slots
        .values()
        .map(|slot| slot.parts.iter().map(|p| greatest(p.from, p.to)).max().unwrap_or(0))
        .collect()
}
