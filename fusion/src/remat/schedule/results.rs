//! Operations with several results: a further result is kept directly after a run of its operation.

use super::cost_graph::{CostGraph, OpId};

/// Follows steps, and says whether further results directly follow a run of their operation.
#[derive(Debug, Default)]
pub(crate) struct ResultOrder {
    /// The operation that ran last, and its results that were kept since.
    ran: Option<OpId>,
    kept: Vec<OpId>,
}

impl ResultOrder {
    /// Takes a step; says whether the operation must run before it.
    pub(crate) fn lacks_run(&mut self, g: &CostGraph, op: OpId) -> Option<OpId> {
        let Some(of) = g.ops()[op].result_of else {
            self.begin(op);
            return None;
        };
        let lacks = self.ran != Some(of) || self.kept.contains(&op);
        if lacks {
            self.begin(of);
        }
        self.kept.push(op);
        lacks.then_some(of)
    }

    fn begin(&mut self, op: OpId) {
        self.ran = Some(op);
        self.kept.clear();
    }
}

/// Runs operations before further results that do not follow a run of theirs.
pub(crate) fn with_runs(g: &CostGraph, steps: Vec<OpId>) -> Vec<OpId> {
    if !g.has_further() {
        return steps;
    }
    let mut order = ResultOrder::default();
    let mut out = Vec::with_capacity(steps.len());
    for op in steps {
        out.extend(order.lacks_run(g, op));
        out.push(op);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::cost_graph::Operation;
    use super::super::steps::{OpSchedule, ScheduleError, evaluate};
    use super::*;

    /// x -> n with results m and s; y of n; then dn of (m, y) in phase 1.
    fn graph() -> (CostGraph, [OpId; 5]) {
        let mut g = CostGraph::new();
        let mut push = |op| g.push(op).expect("obeys the rules");
        let x = push(Operation::source("x", 2));
        let n = push(Operation::new("n", 5, 8).reads(&[x]));
        let m = push(Operation::result("m", 4, n));
        let s = push(Operation::result("s", 1, n));
        let y = push(Operation::new("y", 3, 16).reads(&[n]));
        let dn = push(Operation::new("dn", 7, 8).reads(&[m, y]).phase(1).output());
        (g, [n, m, s, y, dn])
    }

    #[test]
    fn all_results_are_in_memory_when_the_operation_runs() {
        let (g, [n, m, s, y, dn]) = graph();
        let e = evaluate(&g, &OpSchedule::save_all(&g)).expect("can run");
        // At the last step: x, m, y and dn.
        assert_eq!((e.peak, e.time, e.saved), (2 + 4 + 16 + 8, 15, 4 + 16));
        // While n runs again for m, s is there too, though nobody keeps it.
        let again: OpSchedule = [n, m, s, y, n, m, dn].into_iter().collect();
        let e = evaluate(&g, &again).expect("can run");
        assert_eq!((e.peak, e.time), (2 + 16 + 8 + 4 + 1, 20));
    }

    #[test]
    fn a_further_result_needs_a_run_of_its_operation() {
        let (g, [n, m, s, y, dn]) = graph();
        let apart = vec![n, m, s, y, m, dn];
        let error = evaluate(&g, &apart.iter().copied().collect()).expect_err("m has no run");
        assert_eq!(error, ScheduleError::Apart("m".into()));
        assert_eq!(with_runs(&g, apart), [n, m, s, y, n, m, dn]);
        let twice = with_runs(&g, vec![n, m, s, m, y, dn]);
        assert_eq!(twice, [n, m, s, n, m, y, dn]);
    }
}
