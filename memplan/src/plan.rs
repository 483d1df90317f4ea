//! The planner: independent parts of a problem one by one, cheap methods first.

use std::time::Instant;

use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};

use crate::bound::lower_bound;
use crate::error::PlanError;
use crate::fit::{Fit, Overlaps, Placement};
use crate::instance::{Instance, SlotId};
use crate::limit::Limit;
use crate::orders::ordered;
use crate::packing::{Method, Packing, PlacementOrder};
use crate::problem::{BufferId, Offset, Problem};
use crate::solve::Solver;
use crate::validate::validate;

/// How hard to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackOptions {
    /// Search steps. A step tries one placement; one for which much has to be looked at, as among
    /// many buffers, counts for several, so that equal effort takes about equal time. What is greedy
    /// is tried whatever the effort, and the effort is spent once more where a capacity was
    /// not reached. The plan depends on this number and the problem alone; more effort never gives a
    /// higher peak.
    pub effort: u64,
    /// When to stop, whatever effort is left: with the best packing so far, which is that of one pass
    /// along time where no greedy order was done by then. With a deadline two runs may end with
    /// different plans.
    pub deadline: Option<Instant>,
    /// How many threads place buffers in greedy orders, where there are many buffers. The plan does not depend on it.
    pub threads: usize,
}

impl PackOptions {
    /// The steps of [`PackOptions::default`].
    pub const DEFAULT_EFFORT: u64 = 1_000_000;
}

impl Default for PackOptions {
    fn default() -> Self {
        Self { effort: Self::DEFAULT_EFFORT, deadline: None, threads: 1 }
    }
}

/// Finds offsets for all buffers of `problem`.
///
/// Tries every [`PlacementOrder`], for up to [`MOST_ORDERED`](crate::MOST_ORDERED) buffers, and best fit, keeps the best, then improves on it, until the peak equals its lower
/// bound, is within the capacity where there is one, or the effort is spent. Problems whose buffers
/// fall into groups that are never live together are planned group by group.
///
/// # Errors
///
/// A malformed problem, or [`PlanError::DoesNotFit`].
pub fn plan(problem: &Problem, options: &PackOptions) -> Result<Packing, PlanError> {
    let (instance, slot_of) = validate(problem)?;
    let parts = components(&instance);
    let enough =
        problem.capacity.map_or(0, |c| i64::try_from(c).unwrap_or(MOST_BYTES).min(MOST_BYTES));
    let mut found = plan_parts(&instance, &parts, enough, options);
    if enough > 0 && found.bound <= enough && found.peak(&instance) > enough {
        // Aiming lower may succeed where aiming at the capacity did not, and so what fits without a
        // capacity fits with it.
        let free = plan_parts(&instance, &parts, 0, options);
        let (bound, steps) = (found.bound.max(free.bound), found.steps + free.steps);
        let placements = found.placements + free.placements;
        if free.peak(&instance) < found.peak(&instance) {
            found = free;
        }
        (found.bound, found.steps, found.placements) = (bound, steps, placements);
    }
    finish(problem, &instance, &slot_of, found)
}

/// Above any peak.
const MOST_BYTES: i64 = 1 << 62;

/// Plans part by part, none to a lower peak than `enough`.
fn plan_parts(
    instance: &Instance,
    parts: &[Component],
    enough: i64,
    options: &PackOptions,
) -> PackedOffsets {
    let mut limit = Limit::new(options.effort, options.deadline);
    let mut offsets: SecondaryMap<SlotId, i64> = SecondaryMap::new();
    let bounds: Vec<i64> = parts.iter().map(|part| lower_bound(&part.instance)).collect();
    let goal = bounds.iter().copied().max().unwrap_or(0).max(enough);
    let mut solvers: Vec<Solver<'_>> = parts
        .iter()
        .map(|part| Solver::new(&part.instance, goal, options.threads, &mut limit))
        .collect();
    improve(&mut solvers, goal, &mut limit);

    let (mut bound, mut method, mut peak) = (0, Method::Trivial, 0);
    for (part, solver) in parts.iter().zip(&solvers) {
        let solved = &solver.best;
        for (id, &offset) in part.ids.iter().zip(&solved.offsets) {
            offsets[*id] = offset;
        }
        if solved.peak > peak {
            (peak, method) = (solved.peak, solved.method);
        }
        bound = bound.max(solved.lower_bound);
    }
    let offsets = instance.slots.keys().map(|id| offsets[id]).collect();
    let placements = solvers.iter().map(|solver| solver.placements).sum();
    PackedOffsets { offsets, bound, method, steps: limit.spent(), placements }
}

/// Searches where the peak is, level by level: no part need be better than the worst.
fn improve(solvers: &mut [Solver<'_>], goal: i64, limit: &mut Limit) {
    while !limit.is_over() {
        // In each level a part has one turn; where others are as bad after it, they have theirs.
        let mut had = vec![false; solvers.len()];
        loop {
            // What is known to be least anywhere need not be beaten elsewhere.
            let bound = solvers.iter().map(|s| s.best.lower_bound).fold(goal, i64::max);
            let worst = (0..solvers.len()).rev().max_by_key(|&k| solvers[k].best.peak);
            let Some(worst) = worst.filter(|&k| solvers[k].best.peak > bound) else { return };
            if std::mem::replace(&mut had[worst], true) || limit.is_over() {
                break;
            }
            solvers[worst].level(bound, limit);
        }
    }
}

/// Places the buffers of `problem` in one order, each at the lowest offset that is free; in-place
/// pairs share where that is the lowest offset. Without a capacity [`plan`] is never worse than any of
/// these for up to [`MOST_ORDERED`](crate::MOST_ORDERED) buffers.
///
/// # Errors
///
/// A malformed problem, or [`PlanError::DoesNotFit`].
pub fn plan_in_order(problem: &Problem, order: PlacementOrder) -> Result<Packing, PlanError> {
    plan_in_orders(problem, order, &[])
}

/// The best of [`plan_in_order`] in several orders, the first of equally good ones: they are tried until one is as good as the
/// lower bound.
///
/// # Errors
///
/// As there.
pub fn plan_in_orders(
    problem: &Problem,
    first: PlacementOrder,
    others: &[PlacementOrder],
) -> Result<Packing, PlanError> {
    let (instance, slot_of) = validate(problem)?;
    let overlaps = Overlaps::of(&instance);
    let mut placement = Placement::new(&instance, &overlaps);
    let (bound, mut limit) = (lower_bound(&instance), Limit::new(0, None));
    let (offsets, method) = (Vec::new(), Method::Greedy(first));
    let mut placed = PackedOffsets { offsets, bound, method, steps: 0, placements: 0 };
    let mut least = i64::MAX;
    for &order in [first].iter().chain(others) {
        let ids = ordered(&instance, order);
        placed.placements += 1;
        let peak = placement.place_all(&ids, Fit::Lowest, least, &mut limit);
        if placed.offsets.is_empty() || peak.is_some_and(|peak| peak < least) {
            least = peak.unwrap_or(i64::MAX);
            placed.offsets = placement.offsets().to_vec();
            placed.method = Method::Greedy(order);
        }
        if least <= bound {
            break;
        }
    }
    finish(problem, &instance, &slot_of, placed)
}

pub(crate) struct PackedOffsets {
    /// For each slot.
    pub(crate) offsets: Vec<i64>,
    pub(crate) bound: i64,
    pub(crate) method: Method,
    pub(crate) steps: u64,
    pub(crate) placements: u64,
}

impl PackedOffsets {
    fn peak(&self, instance: &Instance) -> i64 {
        instance.peak(&self.offsets)
    }
}

pub(crate) fn finish(
    problem: &Problem,
    instance: &Instance,
    slot_of: &SecondaryMap<BufferId, SlotId>,
    placed: PackedOffsets,
) -> Result<Packing, PlanError> {
    let peak = placed.peak(instance).unsigned_abs();
    let lower_bound = placed.bound.unsigned_abs();
    if let Some(capacity) = problem.capacity.filter(|&capacity| peak > capacity) {
        return Err(PlanError::DoesNotFit { capacity, least_peak: peak, lower_bound });
    }
    let offset = |id: BufferId| Offset(placed.offsets[slot_of[id].index()].unsigned_abs());
    let offsets: PrimaryMap<BufferId, Offset> = problem.buffers.keys().map(offset).collect();
    let PackedOffsets { method, steps, placements, .. } = placed;
    Ok(Packing { offsets, peak, lower_bound, method, steps, placements })
}

/// Slots that are never live together with others.
struct Component {
    instance: Instance,
    /// The section of the whole that is the first here.
    base: usize,
    /// For each slot the one of the whole.
    ids: Vec<SlotId>,
}

fn components(instance: &Instance) -> Vec<Component> {
    let mut by_birth: Vec<SlotId> = instance.slots.keys().collect();
    by_birth.sort_by_key(|&id| (instance.slots[id].birth(), id));
    // The sections of each part.
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut part_of: SecondaryMap<SlotId, usize> = SecondaryMap::new();
    for id in by_birth {
        let slot = &instance.slots[id];
        match spans.last_mut() {
            // Slots that are never live belong anywhere.
            Some((_, end)) if slot.birth() < *end || slot.parts.is_empty() => {
                *end = slot.death().max(*end);
            }
            _ => spans.push((slot.birth(), slot.death())),
        }
        part_of[id] = spans.len() - 1;
    }
    let mut parts: Vec<Component> = Vec::new();
    for (from, to) in spans {
        let empty = Instance { section_count: to - from, ..Instance::default() };
        parts.push(Component { instance: empty, base: from, ids: Vec::new() });
    }
    // In the order of their ids, so that ties are broken as in the whole.
    let mut new_id: SecondaryMap<SlotId, SlotId> = SecondaryMap::with_default(SlotId::new(0));
    for (id, slot) in instance.slots.iter() {
        let part = &mut parts[part_of[id]];
        let mut moved = slot.clone();
        for piece in &mut moved.parts {
            piece.from -= part.base;
            piece.to -= part.base;
        }
        new_id[id] = part.instance.slots.push(moved);
        part.ids.push(id);
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
