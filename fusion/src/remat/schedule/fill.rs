//! Recomputations that a budget makes unnecessary are dropped: their values stay in memory instead.
//!
//! A step that recomputes a value can be dropped if the value's earlier run may stay in memory until the step's readers
//! have read it. That takes its bytes over the gap in between. Which gaps to fill within a budget is a knapsack over
//! intervals. It is solved greedily, by the time that a gap saves for its bytes, or for its bytes times its length; what the
//! dropped steps alone have read is dropped with them. A segment tree holds the bytes in memory at each step.

use super::cost_graph::{CostGraph, OpId};
use super::dead_steps::DeadSteps;
use super::liveness::LivenessMeter;
use super::peak_tree::PeakTree;
use cranelift_entity::EntityRef;

/// Whether the length of a gap counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GapLength {
    /// Bytes over steps: the area that the gap takes.
    Linear,
    /// Bytes alone.
    Ignored,
}

/// Both of them; which is better depends on the schedule.
pub(crate) const GAP_LENGTHS: [GapLength; 2] = [GapLength::Linear, GapLength::Ignored];

/// Passes over a schedule: each changes what the next one sees.
const PASSES: usize = 4;
const NONE: u32 = u32::MAX;

/// A step that might be dropped, and the run whose value stays instead.
struct RecomputationGap {
    density: f64,
    step: usize,
    earlier: usize,
}

/// Drops recomputations of a schedule as far as the budget allows; `steps` is left as it is if it exceeds the budget.
pub(crate) fn fill(g: &CostGraph, steps: &mut Vec<OpId>, budget: u64, by: GapLength) {
    let (mut dead, mut liveness) = (DeadSteps::default(), LivenessMeter::default());
    for _ in 0..PASSES {
        let Some(totals) = liveness.measure(g, steps) else { return };
        if totals.peak > budget {
            return;
        }
        let gaps = gaps(g, steps, &liveness, by);
        if gaps.is_empty() {
            return;
        }
        let dropped = dropped(g, steps, &liveness, &gaps, budget);
        if !dropped.contains(&true) {
            return;
        }
        let mut dropped = dropped.into_iter();
        steps.retain(|_| !dropped.next().unwrap_or(false));
        dead.remove(g, steps);
    }
}

/// The recomputations, those first that save the most time for what they take.
fn gaps(
    g: &CostGraph,
    steps: &[OpId],
    liveness: &LivenessMeter,
    by: GapLength,
) -> Vec<RecomputationGap> {
    let saved = saved_times(g, steps);
    let mut latest = vec![NONE; g.ops().len()];
    let mut gaps = Vec::new();
    for (step, &op) in steps.iter().enumerate() {
        let earlier = std::mem::replace(&mut latest[op.index()], step as u32);
        if earlier == NONE {
            continue;
        }
        let memory = liveness.memory(earlier as usize);
        // A view of an input takes nothing.
        let density = steps.get(memory).map_or(f64::INFINITY, |&root| {
            let length = step.saturating_sub(liveness.last(memory) as usize).max(1) as f64;
            let weight = match by {
                GapLength::Linear => length,
                GapLength::Ignored => 1.0,
            };
            saved[step] as f64 / (g.ops()[root].bytes.max(1) as f64 * weight)
        });
        gaps.push(RecomputationGap { density, step, earlier: earlier as usize });
    }
    gaps.sort_by(|a, b| b.density.total_cmp(&a.density).then(a.step.cmp(&b.step)));
    gaps
}

/// For each step that recomputes a value its time, and that of the recomputations that it alone reads.
fn saved_times(g: &CostGraph, steps: &[OpId]) -> Vec<u64> {
    let mut latest = vec![NONE; g.ops().len()];
    let mut readers = vec![0u32; steps.len()];
    let mut is_first = vec![false; steps.len()];
    // The steps whose values each step reads, in rows.
    let (mut reads, mut row) = (Vec::new(), vec![0usize]);
    for (step, &op) in steps.iter().enumerate() {
        for input in &g.ops()[op].inputs {
            let run = latest[input.index()];
            if run != NONE {
                readers[run as usize] += 1;
                reads.push(run);
            }
        }
        row.push(reads.len());
        is_first[step] = std::mem::replace(&mut latest[op.index()], step as u32) == NONE;
    }
    let mut saved = vec![0u64; steps.len()];
    for (step, &op) in steps.iter().enumerate().filter(|&(s, _)| !is_first[s]) {
        let alone = reads[row[step]..row[step + 1]].iter().map(|&r| r as usize);
        let alone = alone.filter(|&r| !is_first[r] && readers[r] == 1);
        saved[step] = alone.fold(g.ops()[op].time, |sum, r| sum.saturating_add(saved[r]));
    }
    saved
}

/// For each step whether it is dropped.
fn dropped(
    g: &CostGraph,
    steps: &[OpId],
    liveness: &LivenessMeter,
    gaps: &[RecomputationGap],
    budget: u64,
) -> Vec<bool> {
    let n = steps.len();
    let mut tree = PeakTree::of(&liveness.resident(g, steps));
    let mut last: Vec<usize> = (0..n).map(|s| liveness.last(s) as usize).collect();
    let mut dropped = vec![false; n];
    // Runs of which a value stays for longer than it was measured: they are not dropped before it is measured again.
    let mut extended = vec![false; n];
    for gap in gaps {
        let (step, earlier) = (gap.step, gap.earlier);
        if dropped[earlier] || extended[step] || has_results(g, steps, &dropped, step) {
            continue;
        }
        let memory = liveness.memory(earlier);
        if memory < n {
            if dropped[memory] {
                continue;
            }
            let own = liveness.memory(step);
            // The memory of the dropped run counts until its last reader; a view has none that would go with it.
            let last_read = if own < n { last[own] } else { step };
            let end = if own == step { step } else { last_read.min(n - 1) + 1 };
            let begin = last[memory].saturating_add(1).min(n);
            let bytes = g.ops()[steps[memory]].bytes;
            if begin < end {
                if tree.peak(begin, end).saturating_add(bytes) > budget {
                    continue;
                }
                tree.add(begin, end, bytes);
            }
            last[memory] = last[memory].max(last_read);
            extended[earlier] = true;
            extended[memory] = true;
        }
        dropped[step] = true;
    }
    dropped
}

/// Whether further results that are kept follow a run.
fn has_results(g: &CostGraph, steps: &[OpId], dropped: &[bool], step: usize) -> bool {
    let after =
        (step + 1..steps.len()).take_while(|&s| g.ops()[steps[s]].result_of == Some(steps[step]));
    g.further_bytes(steps[step]) > 0 && after.into_iter().any(|s| !dropped[s])
}
