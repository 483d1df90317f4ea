//! Local search: the best schedules so far, and the small changes that improve them.
//!
//! A schedule is expanded by moves: each value that is live but not read at the peak is evicted in every way, and each
//! run that recomputes a value is dropped. A new schedule is kept if no other is as good in both memory and time, and
//! is expanded in its turn.

use super::cost_graph::{CostGraph, OpId};
use super::dead_steps::DeadSteps;
use super::fill::{GAP_LENGTHS, GapLength, fill};
use super::liveness::{LivenessMeter, ScheduleTotals};
use super::moves::{Eviction, Insertions, MissingInput, MoveContext};
use super::results::with_runs;
use crate::search::parallel::{each, threads};
use hashbrown::HashSet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A schedule that is the best so far for its peak.
#[derive(Clone, Debug)]
pub(crate) struct FrontierEntry {
    pub(crate) peak: u64,
    pub(crate) time: u64,
    pub(crate) steps: Vec<OpId>,
    expanded: bool,
}

/// Schedules of which none is worse than another in both: peaks rise, times fall.
#[derive(Debug)]
pub(crate) struct ParetoArchive<'g> {
    g: &'g CostGraph,
    pub(crate) entries: Vec<FrontierEntry>,
    /// Schedules that are beaten by little, those by the least first: the way on may lead through them.
    near: BinaryHeap<BeatenSchedule>,
    /// Hashes of schedules that were offered.
    seen: HashSet<u64>,
    liveness: LivenessMeter,
    dead_steps: DeadSteps,
    /// Steps that improvements may still measure.
    work: u64,
}

/// A schedule that is beaten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BeatenSchedule {
    /// By how much, in parts of a million of the time.
    by: Reverse<u64>,
    steps: Vec<OpId>,
}

/// The most by which a schedule may be beaten and still be a way on, in parts of a million.
const NEAR: u64 = 100_000;
/// The most schedules that wait.
const MOST_NEAR: usize = 4096;
/// The part of the effort that is spent on them: 1 over this.
const NEAR_PART: u64 = 4;

/// Ways to deal with inputs that are not there, from the most to the least computed again.
const WAYS: [MissingInput; 7] = [
    MissingInput::Deep(u32::MAX),
    MissingInput::Deep(0),
    MissingInput::Deep(1),
    MissingInput::Deep(2),
    MissingInput::Keep(1),
    MissingInput::Keep(2),
    MissingInput::Keep(4),
];

/// A schedule without dead steps, and what it takes.
pub(crate) struct MeasuredSchedule {
    steps: Vec<OpId>,
    totals: ScheduleTotals,
}

impl MeasuredSchedule {
    /// Cleans and measures a sequence; `None` for one that is no schedule.
    fn of(
        g: &CostGraph,
        steps: Vec<OpId>,
        (dead_steps, liveness): (&mut DeadSteps, &mut LivenessMeter),
    ) -> Option<MeasuredSchedule> {
        let mut steps = with_runs(g, steps);
        dead_steps.remove(g, &mut steps);
        let totals = liveness.measure(g, &steps)?;
        Some(MeasuredSchedule { steps, totals })
    }

    fn alone(g: &CostGraph, steps: Vec<OpId>) -> Option<MeasuredSchedule> {
        MeasuredSchedule::of(g, steps, (&mut DeadSteps::default(), &mut LivenessMeter::default()))
    }
}

/// Operations of a graph from which on it is worth beginning threads for schedules.
const WORTH_THREADS: usize = 256;

/// How many schedules of a graph are made side by side.
pub(crate) fn side_by_side(g: &CostGraph) -> usize {
    if g.ops().len() < WORTH_THREADS { 1 } else { threads() }
}

/// As [`each`]: schedules of a small graph are all made by this thread.
pub(crate) fn each_worth<T: Sync, R: Send>(
    g: &CostGraph,
    items: &[T],
    make: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    match side_by_side(g) {
        1 => items.iter().map(make).collect(),
        _ => each(items, make),
    }
}

/// What becomes of a sequence if memory within a budget is used to recompute less, and last the sequence itself. None for one
/// that is no schedule.
pub(crate) fn filled(g: &CostGraph, steps: Vec<OpId>, budget: u64) -> Vec<MeasuredSchedule> {
    let (mut dead_steps, mut liveness) = (DeadSteps::default(), LivenessMeter::default());
    let mut measured = |steps| MeasuredSchedule::of(g, steps, (&mut dead_steps, &mut liveness));
    let Some(given) = measured(steps) else { return Vec::new() };
    let mut all = Vec::new();
    // What recomputes nothing has nothing to drop.
    if given.steps.len() > g.runs().count() {
        for by in GAP_LENGTHS {
            let mut fewer = given.steps.clone();
            fill(g, &mut fewer, budget.max(given.totals.peak), by);
            all.extend(measured(fewer));
        }
    }
    all.extend(measured(given.steps));
    all
}

impl<'g> ParetoArchive<'g> {
    /// Nothing yet.
    pub(crate) fn new(g: &'g CostGraph) -> ParetoArchive<'g> {
        ParetoArchive {
            g,
            entries: Vec::new(),
            near: BinaryHeap::new(),
            seen: HashSet::new(),
            liveness: LivenessMeter::default(),
            dead_steps: DeadSteps::default(),
            work: 0,
        }
    }

    fn is_spent(&self) -> bool {
        self.work == 0
    }

    /// Cleans and measures a sequence, and keeps it if it is better than what there is.
    pub(crate) fn offer(&mut self, steps: Vec<OpId>) -> Option<ScheduleTotals> {
        self.work = self.work.saturating_sub(steps.len() as u64);
        let with = (&mut self.dead_steps, &mut self.liveness);
        let measured = MeasuredSchedule::of(self.g, steps, with)?;
        let totals = measured.totals;
        self.offer_measured(measured);
        Some(totals)
    }

    /// Keeps a schedule if it is better than what there is.
    pub(crate) fn offer_measured(&mut self, schedule: MeasuredSchedule) {
        let MeasuredSchedule { steps, totals: ScheduleTotals { peak, time, .. } } = schedule;
        // Those before have a lower peak.
        let at = self.entries.partition_point(|e| e.peak < peak);
        let same = self.entries.get(at).filter(|e| e.peak == peak);
        let below = at.checked_sub(1).map(|k| &self.entries[k]);
        if let Some(e) = same.or(below).filter(|e| e.time <= time) {
            let by = u128::from(time - e.time) * 1_000_000 / u128::from(e.time.max(1));
            let by = u64::try_from(by).unwrap_or(u64::MAX);
            if by <= NEAR && self.near.len() < MOST_NEAR && self.seen.insert(hash(&steps)) {
                self.near.push(BeatenSchedule { by: Reverse(by), steps });
            }
            return;
        }
        let worse = self.entries[at..].iter().take_while(|e| e.time >= time).count();
        let entry = FrontierEntry { peak, time, steps, expanded: false };
        self.entries.splice(at..at + worse, [entry]);
    }

    /// Offers the schedule of each item, in their order; threads make them where the graph is large.
    pub(crate) fn offer_each<T: Sync>(
        &mut self,
        items: &[T],
        make: impl Fn(&T) -> Vec<OpId> + Sync,
    ) {
        let g = self.g;
        // Those of large graphs take memory, so that not all are made before some are offered.
        for some in items.chunks(4 * side_by_side(g)) {
            let made = each_worth(g, some, |item| MeasuredSchedule::alone(g, make(item)));
            made.into_iter().flatten().for_each(|schedule| self.offer_measured(schedule));
        }
    }

    /// Fills the memory between neighbours that are far apart: what budgets in between make unnecessary is dropped from the
    /// schedules below these.
    pub(crate) fn fill_between(&mut self) {
        let peaks: Vec<u64> = self.entries.iter().map(|e| e.peak).collect();
        for pair in peaks.windows(2) {
            let (low, wide) = (pair[0], pair[1] - pair[0]);
            if wide < pair[1] / FAR_PART {
                continue;
            }
            for part in 1..=BUDGETS_BETWEEN {
                let budget = low + (u128::from(wide - 1) * part / BUDGETS_BETWEEN) as u64;
                let end = self.entries.partition_point(|e| e.peak <= budget);
                let below = &self.entries[end.saturating_sub(FILLED_BELOW)..end];
                let below: Vec<Vec<OpId>> = below.iter().map(|e| e.steps.clone()).collect();
                let both = |steps| GAP_LENGTHS.map(|by| (steps, by));
                let ways: Vec<(&Vec<OpId>, GapLength)> = below.iter().flat_map(both).collect();
                let g = self.g;
                self.offer_each(&ways, |&(steps, by)| {
                    let mut filled = steps.clone();
                    fill(g, &mut filled, budget, by);
                    filled
                });
            }
        }
    }

    /// Expands what is best until nothing better is found, then what is nearly as good, until the work
    /// of measuring this many steps is done. At most this many ways are tried from each.
    pub(crate) fn improve(&mut self, effort: u64, most: usize) {
        self.work = effort;
        self.climb(most);
        self.work = self.work.min(effort / NEAR_PART);
        while !self.is_spent()
            && let Some(BeatenSchedule { steps, .. }) = self.near.pop()
        {
            self.expand(&steps, most);
            self.climb(most);
        }
    }

    /// Expands what is best until nothing better is found, or the work is spent.
    fn climb(&mut self, most: usize) {
        loop {
            let before = self.entries.iter().rposition(|e| !e.expanded);
            let Some(mut k) = before else { return };
            // From the fastest down, since each shows the way to the next.
            loop {
                if self.is_spent() {
                    return;
                }
                self.entries[k].expanded = true;
                let steps = self.entries[k].steps.clone();
                let peak = self.entries[k].peak;
                self.expand(&steps, most);
                let below = self.entries.partition_point(|e| e.peak < peak);
                match self.entries[..below].iter().rposition(|e| !e.expanded) {
                    Some(next) => k = next,
                    None => break,
                }
            }
        }
    }

    fn expand(&mut self, steps: &[OpId], most: usize) {
        let mut steps = steps.to_vec();
        let Some(start) = self.liveness.measure(self.g, &steps) else { return };
        // Where several moments are as crowded, one eviction does not lower the peak: the best goes on.
        for _ in 0..DEEPEST {
            let Some((totals, next)) = self.evict(&steps, most) else { break };
            if totals.peak < start.peak {
                break;
            }
            steps = next;
        }
        self.drop_runs(&steps, most);
    }

    /// Tries evictions at the peak moment; the one with the least time for its bytes is returned.
    fn evict(&mut self, steps: &[OpId], most: usize) -> Option<(ScheduleTotals, Vec<OpId>)> {
        let totals = self.liveness.measure(self.g, steps)?;
        let liveness = self.liveness.clone();
        let cx = MoveContext::of(self.g, &liveness, steps);
        let mut ways: Vec<(f64, Insertions)> = Vec::new();
        for e in cx.evictions(totals.at) {
            self.ways_of(&cx, &e, most, &mut ways);
        }
        ways.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        ways.truncate(most);
        let mut best = None;
        let mut least = (true, u64::MAX, f64::INFINITY);
        for (price, runs) in ways {
            let mut next = with_runs(self.g, cx.with(&runs));
            let Some(found) = self.offer(next.clone()) else { continue };
            if found.peak > totals.peak {
                continue;
            }
            let rank = (found.peak == totals.peak, found.time, price);
            if best.is_none() || rank < least {
                least = rank;
                self.dead_steps.remove(self.g, &mut next);
                best = Some((found, next));
            }
        }
        best
    }

    fn ways_of(
        &self,
        cx: &MoveContext<'_>,
        e: &Eviction,
        most: usize,
        ways: &mut Vec<(f64, Insertions)>,
    ) {
        let from = ways.len();
        for missing in WAYS {
            let Some(runs) = cx.runs_for(e, missing, MOST_RUNS.max(most)) else { continue };
            if !ways[from..].iter().any(|(_, r)| *r == runs) {
                ways.push((cx.time(&runs) as f64 / e.bytes as f64, runs));
            }
        }
    }

    /// Tries to do without each run that computes something again.
    fn drop_runs(&mut self, steps: &[OpId], most: usize) {
        if self.liveness.measure(self.g, steps).is_none() {
            return;
        }
        let liveness = self.liveness.clone();
        let cx = MoveContext::of(self.g, &liveness, steps);
        let mut again: Vec<usize> = (0..steps.len()).filter(|&s| cx.is_recomputation(s)).collect();
        again.sort_by_key(|&s| (std::cmp::Reverse(self.g.ops()[steps[s]].time), s));
        for &step in again.iter().take(most) {
            self.offer(cx.without(step));
        }
    }
}

/// Neighbours are far apart whose peaks differ by this part of the larger one.
const FAR_PART: u64 = 50;
/// Budgets between them, and the schedules below each that are filled.
const BUDGETS_BETWEEN: u128 = 4;
const FILLED_BELOW: usize = 3;

/// The most evictions one after the other at one peak.
const DEEPEST: usize = 8;
/// The most runs of one eviction.
const MOST_RUNS: usize = 64;

/// The same for equal sequences, in every process: rotations and products by a large odd number, as in Firefox's hash.
fn hash(steps: &[OpId]) -> u64 {
    let mix =
        |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    steps.iter().fold(mix(0, steps.len() as u64), |hash, op| mix(hash, op.as_u32().into()))
}

#[cfg(test)]
mod tests {
    use super::super::equal_segments::tests::chain;
    use super::*;

    /// Between a schedule that saves all of a chain and one that saves nothing of it, filling finds schedules for the budgets
    /// in between, none of which recomputes what a budget has room for.
    #[test]
    fn memory_between_neighbours_is_filled() {
        let (g, n) = (chain(12), 12);
        let mut archive = ParetoArchive::new(&g);
        archive.offer(g.runs().collect());
        // Each step back computes what it reads from the input.
        let forward: Vec<OpId> = g.runs().take(n).collect();
        let mut steps = forward.clone();
        for (k, op) in g.runs().skip(n).enumerate() {
            steps.extend(&forward[..n - 1 - k]);
            steps.push(op);
        }
        archive.offer(steps);
        let before: Vec<(u64, u64)> = archive.entries.iter().map(|e| (e.peak, e.time)).collect();
        assert_eq!(before.len(), 2, "{before:?}");
        archive.fill_between();
        let found: Vec<(u64, u64)> = archive.entries.iter().map(|e| (e.peak, e.time)).collect();
        assert!(found.len() >= 4, "{found:?}");
        for between in &found[1..found.len() - 1] {
            assert!(between.0 < before[1].0 && between.1 < before[0].1, "{found:?}");
        }
    }
}
