//! Improves an order: slots that end above the goal move to the front, and the order is placed again.

use cranelift_entity::EntityRef;

use crate::fit::{Fit, Overlaps, Placement};
use crate::instance::{Instance, SlotId};
use crate::limit::Limit;

/// Starts from `order` and looks for a peak of at most `goal` until the limit is reached. Returns the
/// best peak found with its offsets.
pub(crate) fn refine(
    instance: &Instance,
    overlaps: &Overlaps,
    order: &[SlotId],
    goal: i64,
    limit: &mut Limit,
) -> (i64, Vec<i64>) {
    let mut placement = Placement::new(instance, overlaps);
    let mut order = order.to_vec();
    let mut best = (i64::MAX, Vec::new());
    // How often each slot ended above the goal.
    let mut blame = vec![0u64; order.len()];
    // Each placing looks at all that is placed before.
    let cost = order.len() as u64 + order.len().pow(2) as u64 / 2048;
    while limit.spend(cost) {
        let Some(peak) = placement.place_all(&order, Fit::Lowest, i64::MAX, limit) else { break };
        if peak < best.0 {
            best = (peak, placement.offsets().to_vec());
        }
        if best.0 <= goal {
            break;
        }
        // Aim just below the best peak: a goal far away would blame everything.
        let aim = goal.max(best.0 - 1);
        let offsets = placement.offsets();
        for &id in &order {
            if offsets[id.index()] + instance.slots[id].extent > aim {
                blame[id.index()] += 1;
            }
        }
        order.sort_by_key(|id| std::cmp::Reverse(blame[id.index()]));
    }
    best
}
