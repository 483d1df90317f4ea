//! Which schedules become plans: to price all of them would take too long.
//!
//! The schedules of one base plan are beaten by those of another where that has a lower peak for the same time. What is
//! beaten clearly is left out, so that the plans that are made lie closer where they matter.

use super::schedule::frontier::{Frontier, FrontierPoint, evenly_spread};
use std::borrow::Borrow;

/// A point is beaten clearly by one whose peak and time are lower by these parts of its own (1 over the number): what a plan takes differs from what its
/// schedule takes.
const LOWER: u64 = 16;
const FASTER: u64 = 64;

/// The number of a frontier, and of one of its points.
pub(super) type ScheduleNumber = (usize, usize);

/// Points of several frontiers, in order: all of them where they are at most `most` for each frontier.
pub(super) fn chosen(frontiers: &[&Frontier], most: usize) -> Vec<ScheduleNumber> {
    let numbered = || frontiers.iter().enumerate();
    let room = most * frontiers.len();
    if numbered().map(|(_, frontier)| frontier.points().len()).sum::<usize>() <= room {
        let all = |(k, f): (usize, &&Frontier)| (0..f.points().len()).map(move |at| (k, at));
        return numbered().flat_map(all).collect();
    }
    let left: Vec<Vec<NumberedSchedule<'_>>> = numbered()
        .map(|(k, frontier)| {
            let others = || numbered().filter(|(j, _)| *j != k);
            let beaten = |p: &FrontierPoint| others().any(|(_, other)| is_beaten(p, other));
            let points = frontier.points().iter().enumerate().filter(|(_, p)| !beaten(p));
            points.map(|(at, point)| NumberedSchedule(at, point)).collect()
        })
        .collect();
    let widths: Vec<f64> = left.iter().map(|points| width(points)).collect();
    let all: f64 = widths.iter().sum();
    let mut found = Vec::new();
    for (k, points) in left.iter().enumerate() {
        let part = if all > 0.0 { widths[k] / all } else { 0.0 };
        // The ends, at least.
        let count = ((room as f64 * part) as usize).max(2);
        found.extend(spread(points, count).into_iter().map(|at| (k, at)));
    }
    found
}

/// A point with its number on its frontier.
struct NumberedSchedule<'s>(usize, &'s FrontierPoint);

impl Borrow<FrontierPoint> for NumberedSchedule<'_> {
    fn borrow(&self) -> &FrontierPoint {
        self.1
    }
}

fn is_beaten(point: &FrontierPoint, other: &Frontier) -> bool {
    let faster = point.time - point.time / FASTER;
    other.at(point.peak - point.peak / LOWER).is_ok_and(|found| found.time <= faster)
}

/// How far peaks and times of a frontier's points are apart, as logarithms.
fn width(points: &[NumberedSchedule<'_>]) -> f64 {
    let (Some(low), Some(high)) = (points.first(), points.last()) else { return 0.0 };
    let times = |a: u64, b: u64| (a.max(1) as f64 / b.max(1) as f64).ln();
    times(high.1.peak, low.1.peak) + times(low.1.time, high.1.time)
}

/// The lowest points are taken, this many of them: which one becomes the plan of the lowest peak is not known before.
pub(super) const LOWEST: usize = 4;

/// The numbers of at most this many points, evenly by peak, the lowest ones, and a quarter as many in all between those whose times differ
/// most: there the time rises much for little memory.
fn spread(points: &[NumberedSchedule<'_>], most: usize) -> Vec<usize> {
    if points.is_empty() {
        return Vec::new();
    }
    let lowest = 0..LOWEST.min(points.len());
    let mut chosen: Vec<usize> = lowest.chain(evenly_spread(points, most)).collect();
    chosen.sort_unstable();
    chosen.dedup();
    for _ in 0..(most + most / 4).saturating_sub(chosen.len()) {
        let slower = |k: &usize| {
            let (low, high) = (points[chosen[*k]].1, points[chosen[*k + 1]].1);
            low.time as f64 / high.time.max(1) as f64
        };
        let gaps = (0..chosen.len() - 1).filter(|&k| chosen[k] + 1 < chosen[k + 1]);
        let Some(k) = gaps.max_by(|a, b| slower(a).total_cmp(&slower(b))) else { break };
        chosen.insert(k + 1, (chosen[k] + chosen[k + 1]) / 2);
    }
    chosen.into_iter().map(|k| points[k].0).collect()
}

#[cfg(test)]
mod tests {
    use super::super::schedule::cost_graph::{CostGraph, Operation};
    use super::super::schedule::frontier::{FrontierOptions, frontier};
    use super::*;

    /// A chain of steps, and its way back, whose values all have a number of bytes.
    fn schedules(bytes: u64) -> Frontier {
        let mut g = CostGraph::new();
        let mut push = |op| g.push(op).expect("obeys the rules");
        let mut forward = vec![push(Operation::source("x", 1))];
        for k in 0..24 {
            forward.push(push(Operation::new("", 100, bytes).reads(&[forward[k]])));
        }
        let mut back = forward[24];
        for k in (0..24).rev() {
            back = push(Operation::new("", 100, 1).reads(&[back, forward[k]]).phase(1));
        }
        frontier(&g, &FrontierOptions::default())
    }

    #[test]
    fn what_another_frontier_beats_makes_room() {
        let (small, large) = (schedules(100), schedules(300));
        let count = |frontiers: &[&Frontier], of: usize| {
            chosen(frontiers, 6).iter().filter(|(k, _)| *k == of).count()
        };
        let alone = count(&[&small], 0);
        assert!((6..=10).contains(&alone), "{alone}");
        // All that the other has is beaten but what is as fast as its own fastest.
        assert!(count(&[&small, &large], 1) <= 2);
        assert!(count(&[&small, &large], 0) > alone);
        let found = chosen(&[&small, &large], 6);
        let fastest = (1, large.points().len() - 1);
        assert!(found.iter().all(|id| id.0 == 0 || *id == fastest), "{found:?}");
        // The ends are there.
        assert_eq!(found[0], (0, 0));
        assert!(found.contains(&(0, small.points().len() - 1)));
    }
}
