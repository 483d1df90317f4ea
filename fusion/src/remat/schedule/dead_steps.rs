//! Removal of dead steps from a schedule.

use super::cost_graph::{CostGraph, OpId};
use cranelift_entity::EntityRef;

/// What [`remove`] knows between calls, so that it allocates once.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeadSteps {
    /// For each step whether it is the first run of its operation.
    first: Vec<bool>,
    seen: Vec<bool>,
}

impl DeadSteps {
    /// Drops steps that compute again what nobody reads. First runs stay, and so does the last value
    /// of an output.
    pub(crate) fn remove(&mut self, g: &CostGraph, steps: &mut Vec<OpId>) {
        self.seen.clear();
        self.seen.resize(g.ops().len(), false);
        let seen = &mut self.seen;
        let is_first = |op: &OpId| !std::mem::replace(&mut seen[op.index()], true);
        self.first.clear();
        self.first.extend(steps.iter().map(is_first));
        // Backward, `seen` says whether the value is read before its operation runs again.
        self.seen.fill(false);
        g.outputs().iter().for_each(|id| self.seen[id.index()] = true);
        let mut dropped = false;
        for (first, &op) in self.first.iter_mut().zip(steps.iter()).rev() {
            let read = std::mem::replace(&mut self.seen[op.index()], false);
            *first |= read;
            if *first {
                for &input in &g.ops()[op].inputs {
                    self.seen[input.index()] = true;
                }
            }
            dropped |= !*first;
        }
        if !dropped {
            return;
        }
        let mut kept = self.first.iter();
        steps.retain(|_| kept.next().copied().unwrap_or(true));
    }
}
