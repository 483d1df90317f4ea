//! Segments of equal length (Chen et al., *Training deep nets with sublinear memory cost*, 2016): only what crosses the
//! ends of segments is kept, and a segment runs again when the backward pass comes to it.

use adfuse::fusion::remat::schedule::{CostGraph, OpId, OpRole, OpSchedule, evaluate};
use std::collections::BTreeSet;

/// Peaks and times for all numbers of segments that make a difference, with segments of equal numbers of operations and
/// of equal bytes.
pub(crate) fn points(g: &CostGraph) -> Vec<(u64, u64)> {
    let forward: Vec<OpId> = g.runs().filter(|&o| g.ops()[o].phase.0 == 0).collect();
    let mut points = Vec::new();
    let mut count = 1;
    while count <= forward.len().max(1) {
        for by_bytes in [false, true] {
            let home = homes(g, &forward, count, by_bytes);
            let schedule = schedule(g, &forward, &home);
            points.extend(evaluate(g, &schedule).map(|e| (e.peak, e.time)));
        }
        count += 1 + count / 8;
    }
    points
}

/// For each operation the segment that it is in; those of later phases are in none.
fn homes(g: &CostGraph, forward: &[OpId], count: usize, by_bytes: bool) -> Vec<Option<usize>> {
    let weight = |o: OpId| if by_bytes { g.ops()[o].bytes } else { 1 };
    let all: u128 = forward.iter().map(|&o| u128::from(weight(o))).sum::<u128>().max(1);
    let mut home = vec![None; g.ops().len()];
    let mut before = 0u128;
    for &op in forward {
        home[op.as_u32() as usize] = Some((before * count as u128 / all) as usize);
        before += u128::from(weight(op));
    }
    home
}

/// The schedule that keeps what crosses the ends of segments.
fn schedule(g: &CostGraph, forward: &[OpId], home: &[Option<usize>]) -> OpSchedule {
    let at = |o: OpId| home[o.as_u32() as usize];
    let is_kept = |o: OpId| {
        let op = &g.ops()[o];
        let crosses = g.users(o).iter().any(|&u| at(u).is_some_and(|h| Some(h) != at(o)));
        op.role != OpRole::Computed || op.output || crosses
    };
    // What runs again, with a segment: what later phases read, and what that is made of within the segment.
    let mut again: BTreeSet<OpId> = BTreeSet::new();
    for &op in forward.iter().rev() {
        let read = g.users(op).iter().any(|&u| at(u).is_none() || again.contains(&u));
        if read && !is_kept(op) {
            again.insert(op);
        }
    }
    let (mut steps, mut there) = (forward.to_vec(), BTreeSet::new());
    for op in g.runs().filter(|&o| at(o).is_none()) {
        for &input in &g.ops()[op].inputs {
            if again.contains(&input) && !there.contains(&input) {
                let segment = again.iter().copied().filter(|&o| at(o) == at(input));
                let segment: Vec<OpId> = segment.collect();
                append(g, &mut steps, &segment);
                there.extend(segment);
            }
        }
        steps.push(op);
    }
    steps.into_iter().collect()
}

/// Appends operations; a further result comes directly after a run of its operation.
fn append(g: &CostGraph, steps: &mut Vec<OpId>, ops: &[OpId]) {
    let from = steps.len();
    for &op in ops {
        if let Some(of) = g.ops()[op].result_of {
            let last = steps[from..].last().map(|&last| g.ops()[last].result_of.unwrap_or(last));
            if last != Some(of) {
                steps.push(of);
            }
        }
        steps.push(op);
    }
}
