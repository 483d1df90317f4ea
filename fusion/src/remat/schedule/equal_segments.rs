//! Segments of equal length (Chen et al., *Training deep nets with sublinear memory cost*, 2016): what crosses the ends of
//! segments is kept, and a segment runs again when the backward pass comes to it. The last one, with which that begins, is
//! kept whole.
//!
//! Where no place of a graph is narrow, as in recurrent nets with many values that all steps read, these fit into less memory
//! than [chains](super::segments) do.

use super::cost_graph::{CostGraph, OpId, OpRole};
use super::local_search::ParetoArchive;
use super::results::with_runs;
use super::steps::OpSchedule;
use cranelift_entity::{EntitySet, SecondaryMap};

/// A number of segments is followed by one that is larger by this part of it (1 over the number), and by one.
const PART: usize = 8;

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
    with_runs(g, Segmentation::of(g, count, length).steps(g)).into_iter().collect()
}

/// Offers the schedules of all numbers of segments that make a difference.
pub(crate) fn offer(g: &CostGraph, archive: &mut ParetoArchive<'_>) {
    let most = g.runs().filter(|&o| g.ops()[o].phase.0 == 0).count();
    let mut count = 2;
    while count <= most {
        for length in SegmentLength::ALL {
            archive.offer(Segmentation::of(g, count, length).steps(g));
        }
        count += 1 + count / PART;
    }
}

/// Operations of phase 0, each in a segment.
struct Segmentation {
    forward: Vec<OpId>,
    /// The numbers of segments; `None` in later phases.
    home: SecondaryMap<OpId, Option<u32>>,
    count: usize,
}

impl Segmentation {
    fn of(g: &CostGraph, count: usize, length: SegmentLength) -> Segmentation {
        let forward: Vec<OpId> = g.runs().filter(|&o| g.ops()[o].phase.0 == 0).collect();
        let count = count.max(1);
        let all = forward.iter().map(|&o| length.of(g, o)).sum::<u128>().max(1);
        let (mut home, mut before) = (SecondaryMap::new(), 0u128);
        for &op in &forward {
            // What has no bytes after the last ones is of the last segment.
            let segment = (before * count as u128 / all).min((count - 1) as u128);
            home[op] = u32::try_from(segment).ok();
            before += length.of(g, op);
        }
        Segmentation { forward, home, count }
    }

    /// Whether a value stays in memory when its segment has run.
    fn is_kept(&self, g: &CostGraph, o: OpId) -> bool {
        let (op, own) = (&g.ops()[o], self.home[o]);
        let is_last = own.is_some_and(|home| home as usize + 1 == self.count);
        let mut readers = g.users(o).iter().filter_map(|&u| self.home[u]);
        op.role != OpRole::Computed || op.output || is_last || readers.any(|u| Some(u) != own)
    }

    /// Phase 0, and later ones, in which each segment runs again before it is read first.
    fn steps(&self, g: &CostGraph) -> Vec<OpId> {
        // What runs again: what later phases read, and what that is made of within the segment.
        let mut is_again = EntitySet::<OpId>::new();
        let mut again: Vec<Vec<OpId>> = vec![Vec::new(); self.count];
        for &op in self.forward.iter().rev() {
            let is_read = |&u: &OpId| self.home[u].is_none() || is_again.contains(u);
            let runs = g.users(op).iter().any(is_read) && !self.is_kept(g, op);
            if let Some(home) = self.home[op].filter(|_| runs) {
                is_again.insert(op);
                again[home as usize].push(op);
            }
        }
        let mut steps = self.forward.clone();
        for op in g.runs().filter(|&o| self.home[o].is_none()) {
            for &input in g.ops()[op].inputs.iter().filter(|&&input| is_again.contains(input)) {
                if let Some(home) = self.home[input] {
                    // Nothing is left of a segment that has run again.
                    steps.extend(std::mem::take(&mut again[home as usize]).into_iter().rev());
                }
            }
            steps.push(op);
        }
        steps
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::cost_graph::Operation;
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

    /// What is offered is as good as the schedule of any number of segments, or takes as little.
    #[test]
    fn all_lengths_are_offered() {
        let g = chain(60);
        let mut archive = ParetoArchive::new(&g);
        offer(&g, &mut archive);
        let least = archive.entries[0].peak;
        let any = |count| SegmentLength::ALL.map(|by| evaluate(&g, &equal_segments(&g, count, by)));
        let peaks = (1..=60).flat_map(any).map(|e| e.expect("can run").peak);
        assert_eq!(Some(least), peaks.min());
        assert!(archive.entries.len() > 4, "{:?}", archive.entries);
    }
}
