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
        self.first.clear();
        for &op in steps.iter() {
            self.first.push(!std::mem::replace(&mut self.seen[op.index()], true));
        }
        // Backward, `seen` says whether the value is read before its operation runs again.
        for (id, op) in g.ops().iter() {
            self.seen[id.index()] = op.output;
        }
        for (step, first) in self.first.iter_mut().enumerate().rev() {
            let op = steps[step];
            let read = std::mem::replace(&mut self.seen[op.index()], false);
            *first |= read;
            if *first {
                for &input in &g.ops()[op].inputs {
                    self.seen[input.index()] = true;
                }
            }
        }
        let mut kept = self.first.iter();
        steps.retain(|_| kept.next().copied().unwrap_or(true));
    }
}
