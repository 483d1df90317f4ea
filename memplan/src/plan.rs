//! The planner: independent parts of a problem one by one, each by the cheap ways first.

use std::time::Instant;

use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};

use crate::bound::lower_bound;
use crate::error::PlanError;
use crate::fit::{Fit, Overlaps, Placement};
use crate::instance::{Instance, SlotId};
use crate::limit::Limit;
use crate::orders::ordered;
use crate::packing::{Method, Order, Packing};
use crate::problem::{BufferId, Offset, Problem};
use crate::solve::{Solved, solve};
use crate::validate::validate;

/// How hard to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Search steps, each of which tries one placement; where there are many buffers a step takes
    /// longer and counts for more (one more for 256 buffers). All greedy orders are tried whatever the
    /// effort. The plan depends on this number and the problem alone.
    pub effort: u64,
    /// When to stop searching, whatever effort is left. With a deadline two runs may end with
    /// different plans.
    pub deadline: Option<Instant>,
}

impl Options {
    /// The steps of [`Options::default`].
    pub const DEFAULT_EFFORT: u64 = 500_000;
}

impl Default for Options {
    fn default() -> Self {
        Self { effort: Self::DEFAULT_EFFORT, deadline: None }
    }
}

/// Finds offsets for all buffers of `problem`.
///
/// Tries every [`Order`] and keeps the best, then improves on it, until the peak equals its lower
/// bound, is within the capacity where there is one, or the effort is spent. Problems whose buffers
/// fall into groups that are never live together are planned group by group.
///
/// # Errors
///
/// A malformed problem, or [`PlanError::DoesNotFit`].
pub fn plan(problem: &Problem, options: &Options) -> Result<Packing, PlanError> {
    let (instance, slot_of) = validate(problem)?;
    let mut limit = Limit::new(options.effort, options.deadline);
    let mut offsets: SecondaryMap<SlotId, i64> = SecondaryMap::new();
    let mut parts: Vec<Component> = components(&instance);
    let bounds: Vec<i64> = parts.iter().map(|part| lower_bound(&part.instance)).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(bounds[i]), i));

    let enough = problem.capacity.map_or(0, |c| i64::try_from(c).unwrap_or(i64::MAX));
    let (mut peak, mut bound, mut method) = (0, 0, Method::Trivial);
    let mut goal = bounds.iter().copied().max().unwrap_or(0).max(enough);
    for index in order {
        let part = &mut parts[index];
        let solved: Solved = solve(&part.instance, goal, &mut limit);
        for (id, &offset) in part.ids.iter().zip(&solved.offsets) {
            offsets[*id] = offset;
        }
        if solved.peak > peak {
            (peak, method) = (solved.peak, solved.method);
        }
        bound = bound.max(solved.lower_bound);
        // No group need be better than the worst.
        goal = goal.max(peak);
    }
    finish(problem, &instance, &slot_of, &offsets, Outcome { bound, method, steps: limit.spent() })
}

/// Places the buffers of `problem` in one order, each at the lowest offset that is free; in-place
/// pairs share where that is the lowest offset. Without a capacity [`plan`] is never worse than any of
/// these.
///
/// # Errors
///
/// A malformed problem, or [`PlanError::DoesNotFit`].
pub fn plan_in_order(problem: &Problem, order: Order) -> Result<Packing, PlanError> {
    let (instance, slot_of) = validate(problem)?;
    let overlaps = Overlaps::of(&instance);
    let mut placement = Placement::new(&instance, &overlaps);
    placement.place_all(&ordered(&instance, order), Fit::Lowest);
    let mut offsets: SecondaryMap<SlotId, i64> = SecondaryMap::new();
    for (id, &offset) in instance.slots.keys().zip(placement.offsets()) {
        offsets[id] = offset;
    }
    let outcome =
        Outcome { bound: lower_bound(&instance), method: Method::Greedy(order), steps: 0 };
    finish(problem, &instance, &slot_of, &offsets, outcome)
}

struct Outcome {
    bound: i64,
    method: Method,
    steps: u64,
}

fn finish(
    problem: &Problem,
    instance: &Instance,
    slot_of: &SecondaryMap<BufferId, SlotId>,
    offsets: &SecondaryMap<SlotId, i64>,
    outcome: Outcome,
) -> Result<Packing, PlanError> {
    let of_slots: Vec<i64> = instance.slots.keys().map(|id| offsets[id]).collect();
    let peak = instance.peak(&of_slots).unsigned_abs();
    let lower_bound = outcome.bound.unsigned_abs();
    if let Some(capacity) = problem.capacity.filter(|&capacity| peak > capacity) {
        return Err(PlanError::DoesNotFit { capacity, least_peak: peak, lower_bound });
    }
    let offsets: PrimaryMap<BufferId, Offset> =
        problem.buffers.keys().map(|id| Offset(offsets[slot_of[id]].unsigned_abs())).collect();
    Ok(Packing { offsets, peak, lower_bound, method: outcome.method, steps: outcome.steps })
}

/// Slots that are never live together with others.
struct Component {
    instance: Instance,
    ids: Vec<SlotId>,
}

fn components(instance: &Instance) -> Vec<Component> {
    let mut by_birth: Vec<SlotId> = instance.slots.keys().collect();
    by_birth.sort_by_key(|&id| (instance.slots[id].birth(), id));
    let mut parts: Vec<Component> = Vec::new();
    let mut new_id: SecondaryMap<SlotId, SlotId> = SecondaryMap::with_default(SlotId::new(0));
    let mut part_of: SecondaryMap<SlotId, usize> = SecondaryMap::new();
    let (mut base, mut end) = (0, 0);
    for id in by_birth {
        let slot = &instance.slots[id];
        // Slots that are never live belong anywhere.
        if parts.is_empty() || (slot.birth() >= end && !slot.parts.is_empty()) {
            base = slot.birth();
            parts.push(Component { instance: Instance::default(), ids: Vec::new() });
        }
        end = end.max(slot.death());
        let mut moved = slot.clone();
        for part in &mut moved.parts {
            part.from -= base;
            part.to -= base;
        }
        part_of[id] = parts.len() - 1;
        if let Some(part) = parts.last_mut() {
            new_id[id] = part.instance.slots.push(moved);
            part.instance.section_count = end - base;
            part.ids.push(id);
        }
    }
    for &(a, b) in &instance.in_place {
        let (x, y) = (new_id[a], new_id[b]);
        parts[part_of[a]].instance.in_place.push((x.min(y), x.max(y)));
    }
    for part in &mut parts {
        part.instance.in_place.sort_unstable();
    }
    parts
}
