//! Segments of equal length (Chen et al., *Training deep nets with sublinear memory cost*, 2016): what crosses the ends of
//! segments is kept, and a segment runs again when the backward pass comes to it. The last one, with which that begins, is
//! kept whole.
//!
//! Where no place of a graph is narrow, as in recurrent nets with many values that all steps read, these fit into less memory
//! than [chains](super::segments) do. Ends may move to the narrowest places around. And what takes little time, as a cut of
//! the whole graph says ([`Hull`]), does not wait in memory with its segment: it runs where it is read.

use super::cost_graph::{CostGraph, OpId, OpRole};
use super::local_search::ParetoArchive;
use super::residuals::Hull;
use super::results::with_runs;
use super::segments::crossings;
use super::steps::OpSchedule;
use cranelift_entity::{EntitySet, SecondaryMap};

/// A number of segments is followed by one that is larger by this part of it (1 over the number), and by one.
const PART: usize = 8;

/// What runs where it is read takes at most these parts of the time of everything (1 over the number).
const LATE_PARTS: [u64; 4] = [64, 32, 16, 8];

/// In what segments are equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentLength {
    /// Operations.
    Operations,
    /// Bytes of results.
    Bytes,
}

impl SegmentLength {
    /// Both of them.
    pub const ALL: [SegmentLength; 2] = [SegmentLength::Operations, SegmentLength::Bytes];

    fn of(self, g: &CostGraph, op: OpId) -> u128 {
        match self {
            SegmentLength::Operations => 1,
            SegmentLength::Bytes => u128::from(g.ops()[op].bytes),
        }
    }
}

/// The schedule that divides phase 0 into a number of segments of equal length, into one where the number is 0.
pub fn equal_segments(g: &CostGraph, count: usize, length: SegmentLength) -> OpSchedule {
    let forward = forward(g);
    let ends = equal_ends(g, &forward, count, length);
    let steps = Segmentation::of(&forward, &ends).steps(g, &EntitySet::new());
    with_runs(g, steps).into_iter().collect()
}

/// Offers the schedules of all numbers of segments that make a difference.
pub(crate) fn offer(g: &CostGraph, hull: &Hull, archive: &mut ParetoArchive<'_>) {
    let forward = forward(g);
    let (_, bytes) = crossings(g, &forward);
    let late = late_sets(g, hull);
    let (mut count, mut all) = (2, Vec::new());
    while count <= forward.len() {
        let mut seen: Vec<Vec<usize>> = Vec::new();
        for length in SegmentLength::ALL {
            let ends = equal_ends(g, &forward, count, length);
            for ends in [narrowed(&ends, &bytes), ends] {
                if !seen.contains(&ends) {
                    all.extend(late.iter().map(|late| (ends.clone(), late)));
                    seen.push(ends);
                }
            }
        }
        count += 1 + count / PART;
    }
    archive.offer_each(&all, |(ends, late)| Segmentation::of(&forward, ends).steps(g, late));
}

fn forward(g: &CostGraph) -> Vec<OpId> {
    g.runs().filter(|&o| g.ops()[o].phase.0 == 0).collect()
}

/// Nothing, and what the cuts compute again that take different parts of the time.
fn late_sets(g: &CostGraph, hull: &Hull) -> Vec<EntitySet<OpId>> {
    let mut sets = vec![EntitySet::new()];
    let mut longest = 0;
    for part in LATE_PARTS {
        let within = hull.points.partition_point(|corner| corner.time <= g.time() / part);
        let corner = within.checked_sub(1).map(|k| &hull.points[k]);
        if let Some(corner) = corner.filter(|corner| corner.time > longest) {
            longest = corner.time;
            sets.push(corner.recomputed.clone());
        }
    }
    sets
}

/// The ends of segments of equal length but the last, as numbers of operations before.
fn equal_ends(g: &CostGraph, forward: &[OpId], count: usize, length: SegmentLength) -> Vec<usize> {
    let count = count.max(1) as u128;
    let all = forward.iter().map(|&o| length.of(g, o)).sum::<u128>().max(1);
    let (mut ends, mut segment, mut before) = (Vec::new(), 0, 0u128);
    for (k, &op) in forward.iter().enumerate() {
        // What has no bytes after the last ones is of the last segment.
        let here = (before * count / all).min(count - 1);
        if here > segment {
            segment = here;
            ends.push(k);
        }
        before += length.of(g, op);
    }
    ends
}

/// Ends at the narrowest places that are nearer to them than to other ends.
fn narrowed(ends: &[usize], bytes: &[i128]) -> Vec<usize> {
    let most = bytes.len() - 1;
    let at = |k: usize| ends.get(k).copied();
    let mut found: Vec<usize> = Vec::new();
    for (k, &end) in ends.iter().enumerate() {
        let before = k.checked_sub(1).and_then(at).unwrap_or(0);
        let after = at(k + 1).unwrap_or(most);
        let places = end - (end - before) / 2..=end + (after - end) / 2;
        let places = places.filter(|&p| 0 < p && p < most && found.last().is_none_or(|&l| p > l));
        found.extend(places.min_by_key(|&p| (bytes[p], p.abs_diff(end))));
    }
    found
}

/// Operations of phase 0, each in a segment.
struct Segmentation<'f> {
    forward: &'f [OpId],
    /// The numbers of segments; `None` in later phases.
    home: SecondaryMap<OpId, Option<u32>>,
    count: usize,
}

impl<'f> Segmentation<'f> {
    fn of(forward: &'f [OpId], ends: &[usize]) -> Segmentation<'f> {
        let mut home = SecondaryMap::new();
        for (k, &op) in forward.iter().enumerate() {
            home[op] = u32::try_from(ends.partition_point(|&end| end <= k)).ok();
        }
        Segmentation { forward, home, count: ends.len() + 1 }
    }

    /// Whether a value stays in memory when its segment has run.
    fn is_kept(&self, g: &CostGraph, o: OpId, late: &EntitySet<OpId>) -> bool {
        let (op, own) = (&g.ops()[o], self.home[o]);
        let is_last = own.is_some_and(|home| home as usize + 1 == self.count);
        let mut readers = g.users(o).iter().filter_map(|&u| self.home[u]);
        op.role != OpRole::Computed
            || op.output
            || (is_last && !late.contains(o))
            || readers.any(|u| Some(u) != own)
    }

    /// Phase 0, and later ones, in which each segment runs again before it is read first; what of it is `late` runs when it
    /// is read itself.
    fn steps(&self, g: &CostGraph, late: &EntitySet<OpId>) -> Vec<OpId> {
        // What runs again: what later phases read, and what that is made of within the segment.
        let mut is_again = EntitySet::<OpId>::new();
        let mut again: Vec<Vec<OpId>> = vec![Vec::new(); self.count];
        for &op in self.forward.iter().rev() {
            let is_read = |&u: &OpId| self.home[u].is_none() || is_again.contains(u);
            let runs = g.users(op).iter().any(is_read) && !self.is_kept(g, op, late);
            if let Some(home) = self.home[op].filter(|_| runs) {
                is_again.insert(op);
                again[home as usize].push(op);
            }
        }
        let mut backward = BackwardSteps { g, steps: self.forward.to_vec(), lacks: is_again };
        for op in g.runs().filter(|&o| self.home[o].is_none()) {
            for home in g.ops()[op].inputs.iter().filter_map(|&input| self.home[input]) {
                // Nothing is left of a segment that has run again.
                let segment = std::mem::take(&mut again[home as usize]);
                backward.segment(segment.into_iter().rev(), late);
            }
            backward.run(op);
        }
        backward.steps
    }
}

/// The steps of later phases.
struct BackwardSteps<'g> {
    g: &'g CostGraph,
    steps: Vec<OpId>,
    /// What is not in memory.
    lacks: EntitySet<OpId>,
}

impl BackwardSteps<'_> {
    /// Runs the operations of a segment that are not late. Late ones run only as operands of these, and their values are dropped.
    fn segment(&mut self, segment: impl Iterator<Item = OpId>, late: &EntitySet<OpId>) {
        let from = self.steps.len();
        segment.filter(|&op| !late.contains(op)).for_each(|op| self.run(op));
        self.lacks.extend(self.steps[from..].iter().copied().filter(|&op| late.contains(op)));
    }

    /// Runs an operation, after what it reads that is not there.
    fn run(&mut self, op: OpId) {
        let mut waiting = vec![op];
        while let Some(&v) = waiting.last() {
            match self.g.ops()[v].inputs.iter().find(|&&input| self.lacks.contains(input)) {
                Some(&input) => waiting.push(input),
                None => {
                    waiting.pop();
                    self.lacks.remove(v);
                    self.steps.push(v);
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::cost_graph::Operation;
    use super::super::residuals::residuals;
    use super::super::steps::evaluate;
    use super::*;

    /// A chain of `n` steps whose every value has 8 bytes, and its way back; each step back leaves a result of 1 byte.
    pub(in crate::remat::schedule) fn chain(n: usize) -> CostGraph {
        let mut g = CostGraph::new();
        let x = g.push(Operation::source("x", 1)).expect("an input");
        let mut forward = vec![x];
        for k in 0..n {
            let op = Operation::new(format!("f{k}"), 10, 8).reads(&[forward[k]]);
            forward.push(g.push(op).expect("an operation"));
        }
        let mut back = forward[n];
        for k in (0..n).rev() {
            let op = Operation::new(format!("b{k}"), 10, 1).reads(&[back, forward[k]]).phase(1);
            back = g.push(op).expect("an operation");
        }
        g
    }

    #[test]
    fn segments_keep_their_ends() {
        let g = chain(12);
        for length in SegmentLength::ALL {
            // The ends of three segments and the last segment are kept, two values of each of the three are computed again.
            let e = evaluate(&g, &equal_segments(&g, 4, length)).expect("can run");
            assert_eq!((e.time, e.saved), (240 + 6 * 10, 6 * 8), "{length:?}");
            // With the input, and a value of the second phase.
            assert_eq!(e.peak, 6 * 8 + 1 + 1, "{length:?}");
        }
    }

    /// Each step of a chain leaves a second value, which is computed in no time and read by the way back.
    fn with_cheap_values(n: usize) -> CostGraph {
        let mut g = CostGraph::new();
        let x = g.push(Operation::source("x", 1)).expect("an input");
        let (mut forward, mut cheap) = (vec![x], Vec::new());
        for k in 0..n {
            let op = Operation::new(format!("f{k}"), 1000, 8).reads(&[forward[k]]);
            forward.push(g.push(op).expect("an operation"));
            let op = Operation::new(format!("c{k}"), 1, 64).reads(&[forward[k + 1]]);
            cheap.push(g.push(op).expect("an operation"));
        }
        let mut back = forward[n];
        for k in (0..n).rev() {
            let op = Operation::new(format!("b{k}"), 1000, 8).reads(&[back, cheap[k]]).phase(1);
            back = g.push(op).expect("an operation");
        }
        g
    }

    #[test]
    fn what_takes_no_time_runs_where_it_is_read() {
        let (g, n) = (with_cheap_values(24), 24);
        let late = late_sets(&g, &residuals(&g, 24));
        assert_eq!(late.len(), 2);
        let forward = forward(&g);
        let ends = equal_ends(&g, &forward, 4, SegmentLength::Operations);
        let segments = Segmentation::of(&forward, &ends);
        let takes = |late: &EntitySet<OpId>| {
            let steps = segments.steps(&g, late).into_iter().collect();
            evaluate(&g, &steps).map(|e| (e.peak, e.time)).expect("can run")
        };
        let (whole, late) = (takes(&late[0]), takes(&late[1]));
        // A segment's six values of 64 bytes wait in the one, one of them in the other.
        assert!(late.0 + 4 * 64 < whole.0, "{late:?} {whole:?}");
        assert!(late.1 <= whole.1 + n, "{late:?} {whole:?}");
    }

    #[test]
    fn ends_move_to_the_narrowest_places() {
        // Wide places are of ten bytes.
        let bytes = [0, 10, 10, 2, 10, 10, 10, 10, 1, 10, 3, 10, 0];
        assert_eq!(narrowed(&[4, 8], &bytes), [3, 8]);
        assert_eq!(narrowed(&[6, 9, 11], &bytes), [3, 8, 10]);
        assert_eq!(narrowed(&[1], &bytes), [3]);
    }

    /// What is offered is as good as the schedule of any number of segments, or takes as little.
    #[test]
    fn all_lengths_are_offered() {
        let g = chain(60);
        let mut archive = ParetoArchive::new(&g);
        offer(&g, &residuals(&g, 24), &mut archive);
        let least = archive.entries[0].peak;
        let any = |count| SegmentLength::ALL.map(|by| evaluate(&g, &equal_segments(&g, count, by)));
        let peaks = (1..=60).flat_map(any).map(|e| e.expect("can run").peak);
        assert_eq!(Some(least), peaks.min());
        assert!(archive.entries.len() > 4, "{:?}", archive.entries);
    }
}
