//! Branches of a graph that is captured: each step follows the steps that it is said to, not the one before it.

use super::call_sink::CallSink;
use super::cuda::{Refused, captured_ends, follow};
use super::step_order::StepOrder;
use cudarc::driver::sys::{CUgraphNode, CUstream};
use std::ops::Range;

/// The steps of a graph that were captured, with the nodes that they end with.
pub(crate) struct GraphBranches<'o> {
    order: &'o StepOrder,
    /// The steps of the graph.
    steps: Range<usize>,
    stream: CUstream,
    ends: Vec<Vec<CUgraphNode>>,
}

impl<'o> GraphBranches<'o> {
    /// Of these steps; `None` where they go one after the other, or nothing is captured.
    pub(crate) fn of(
        order: Option<&'o StepOrder>,
        steps: &Range<usize>,
        sink: &CallSink<'_>,
    ) -> Option<GraphBranches<'o>> {
        let (order, CallSink::Capture(stream, _)) = (order?, sink) else { return None };
        let follows_last = |n: usize| order.get(n).is_some_and(|all| *all == [n - 1]);
        if (steps.start + 1..steps.end).all(follows_last) || order.len() < steps.end {
            return None;
        }
        let (steps, stream) = (steps.clone(), *stream);
        Some(GraphBranches { order, steps, stream, ends: Vec::new() })
    }

    /// Has what is captured next follow what a step follows. Steps of earlier graphs are done.
    pub(crate) fn begin(&self, step: usize) -> Result<(), Refused> {
        let known = self.order[step].iter().filter_map(|k| k.checked_sub(self.steps.start));
        self.follow(known)
    }

    /// Remembers what the step ends with.
    pub(crate) fn end(&mut self) -> Result<(), Refused> {
        self.ends.push(captured_ends(self.stream)?);
        Ok(())
    }

    /// Has what is captured next follow all steps.
    pub(crate) fn join(&self) -> Result<(), Refused> {
        let is_last = |k: &usize| {
            let n = self.steps.start + k;
            !self.order[n..self.steps.end].iter().any(|follows| follows.contains(&n))
        };
        self.follow((0..self.ends.len()).filter(is_last))
    }

    fn follow(&self, steps: impl Iterator<Item = usize>) -> Result<(), Refused> {
        let mut nodes: Vec<CUgraphNode> =
            steps.filter_map(|k| self.ends.get(k)).flatten().copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        follow(self.stream, &mut nodes)
    }
}
