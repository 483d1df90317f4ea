//! A lower bound on the time of every schedule within a budget, from minimum cuts at several moments.
//!
//! While an operation runs for the first time, its operands and its result are in memory. What the operations from it
//! on read and earlier ones computed is either in memory then, too, or computed again afterwards; that is the cut of
//! [`residuals`](super::residuals()) at this moment instead of the end of phase 0. A moment at which an operation takes
//! much memory leaves less for the rest, so moments early in the later phases often prove more.

use super::cost_graph::{CostGraph, OpId, OpRole};
use super::residuals::least_time_after;

/// Moments that are tried.
const MOMENTS: usize = 24;
/// Cuts at each of them.
const CUTS: usize = 10;

/// What every schedule within a budget takes at least, found or not. It takes the time of a few hundred minimum cuts.
pub fn least_time(g: &CostGraph, budget: u64) -> u64 {
    let stay: u64 = g.ops().values().filter(|o| o.role == OpRole::Source).map(|o| o.bytes).sum();
    let again = moments(g).into_iter().map(|op| {
        let own = stay + g.ops()[op].bytes + g.further_bytes(op);
        least_time_after(g, op, budget.saturating_sub(own), CUTS)
    });
    g.time().saturating_add(again.max().unwrap_or(0))
}

/// The operations of later phases that take the most memory, one of each stretch of time; stretches become longer.
fn moments(g: &CostGraph) -> Vec<OpId> {
    let later: Vec<OpId> = g.runs().filter(|&o| g.ops()[o].phase.0 > 0).collect();
    let all: u64 = later.iter().map(|&o| g.ops()[o].time).sum();
    let mut best: Vec<Option<(u64, OpId)>> = vec![None; MOMENTS];
    let mut before = 0u64;
    for (k, &op) in later.iter().enumerate() {
        let operation = &g.ops()[op];
        let part = (before as f64 / all.max(1) as f64).sqrt() * (MOMENTS - 1) as f64;
        before += operation.time;
        // The first operation is the end of phase 0.
        let slot = if k == 0 { 0 } else { 1 + (part as usize).min(MOMENTS - 2) };
        if operation.alias.is_some() || operation.result_of.is_some() {
            continue;
        }
        let reads = operation.inputs.iter().filter(|&&p| !g.is_source(p));
        let bytes = reads.map(|&p| g.ops()[p].bytes).sum::<u64>() + operation.bytes;
        if best[slot].is_none_or(|(most, _)| bytes > most) {
            best[slot] = Some((bytes, op));
        }
    }
    best.into_iter().flatten().map(|(_, op)| op).collect()
}
