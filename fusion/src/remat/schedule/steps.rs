//! Schedules, and their peaks and times.

use super::cost_graph::{CostGraph, OpId, OpRole};
use super::liveness::{END, LivenessMeter};
use super::results::ResultOrder;
use cranelift_entity::{EntityRef, EntitySet, PrimaryMap, entity_impl};
use thiserror::Error;

/// A run of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(u32);
entity_impl!(StepId, "step");

/// Operations in the order in which they run. All run; some may run again. The first runs are in the
/// order of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpSchedule {
    /// What each step runs.
    pub steps: PrimaryMap<StepId, OpId>,
}

impl OpSchedule {
    /// Everything once: nothing is computed again, and everything is kept until it is read last.
    pub fn save_all(g: &CostGraph) -> OpSchedule {
        g.runs().collect()
    }
}

impl FromIterator<OpId> for OpSchedule {
    fn from_iter<I: IntoIterator<Item = OpId>>(steps: I) -> OpSchedule {
        OpSchedule { steps: steps.into_iter().collect() }
    }
}

/// What a schedule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The most bytes that are resident during a step.
    ///
    /// A value is resident from the step that computes it to the last one that reads it before its
    /// operation runs again, and the last value of an output to the end; nothing is freed during a
    /// step, so that what it reads and makes is there together, with all results of an operation that has several. Inputs are resident all the time, and
    /// donated ones until they are read last. A view takes nothing and keeps what it views.
    pub peak: u64,
    /// The first step at which it is reached; none if there are no steps.
    pub peak_at: Option<StepId>,
    /// The time of all steps.
    pub time: u64,
    /// Bytes of values that are computed before the first step of a phase beyond 0 and resident
    /// after it has begun. Inputs and outputs do not count.
    pub saved: u64,
}

/// What is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// A step runs an input, or what the graph does not have.
    #[error("{0} cannot run")]
    Unknown(OpId),
    /// An operation runs again that may not.
    #[error("`{0}` runs twice and may not")]
    Twice(String),
    /// First runs are not in the order of the graph.
    #[error("`{0}` runs before what comes first in the graph")]
    Order(String),
    /// A further result is kept where its operation has not just run.
    #[error("`{0}` is kept where its operation has not just run")]
    Apart(String),
    /// An operation does not run.
    #[error("`{0}` does not run")]
    Missing(String),
    /// The sums exceed 64 bits.
    #[error("the schedule takes more than 2^64")]
    TooMuch,
}

/// Checks a schedule, and says what it takes.
///
/// # Errors
/// For a schedule that cannot run.
pub fn evaluate(g: &CostGraph, schedule: &OpSchedule) -> Result<Evaluation, ScheduleError> {
    let name = |op: OpId| g.ops()[op].name.clone();
    let mut ran = EntitySet::<OpId>::new();
    let mut due = g.runs();
    let mut order = ResultOrder::default();
    for &op in schedule.steps.values() {
        if !g.ops().is_valid(op) || g.is_source(op) {
            return Err(ScheduleError::Unknown(op));
        }
        if ran.insert(op) {
            if due.next() != Some(op) {
                return Err(ScheduleError::Order(name(op)));
            }
        } else if g.ops()[op].role == OpRole::Once {
            return Err(ScheduleError::Twice(name(op)));
        }
        if order.lacks_run(g, op).is_some() {
            return Err(ScheduleError::Apart(name(op)));
        }
    }
    if let Some(op) = due.next() {
        return Err(ScheduleError::Missing(name(op)));
    }
    let steps = schedule.steps.as_values_slice();
    let mut liveness = LivenessMeter::default();
    // First runs are in order, so that whatever is read has been computed.
    let totals = liveness.measure(g, steps).ok_or(ScheduleError::TooMuch)?;
    Ok(Evaluation {
        peak: totals.peak,
        peak_at: (!steps.is_empty()).then(|| StepId::new(totals.at)),
        time: totals.time,
        saved: saved(g, steps, &liveness).ok_or(ScheduleError::TooMuch)?,
    })
}

/// What crosses from phase 0 to later ones.
fn saved(g: &CostGraph, steps: &[OpId], liveness: &LivenessMeter) -> Option<u64> {
    let first = steps.iter().position(|&o| g.ops()[o].phase.0 > 0).unwrap_or(steps.len());
    let mut kept = (0..first).filter(|&s| liveness.is_own(s) && liveness.last(s) != END);
    kept.try_fold(0u64, |sum, s| match liveness.last(s) as usize >= first {
        true => sum.checked_add(g.ops()[steps[s]].bytes),
        false => Some(sum),
    })
}

#[cfg(test)]
mod tests {
    use super::super::cost_graph::Operation;
    use super::*;

    /// x -> a -> b -> c, then db of (c, b) and da of (db, a).
    fn chain() -> (CostGraph, [OpId; 6]) {
        let mut g = CostGraph::new();
        let mut push = |op| g.push(op).expect("obeys the rules");
        let x = push(Operation::source("x", 8));
        let a = push(Operation::new("a", 1, 10).reads(&[x]));
        let b = push(Operation::new("b", 2, 20).reads(&[a]));
        let c = push(Operation::new("c", 3, 40).reads(&[b]));
        let db = push(Operation::new("db", 4, 5).reads(&[c, b]).phase(1));
        let da = push(Operation::new("da", 5, 5).reads(&[db, a]).phase(1).output());
        (g, [x, a, b, c, db, da])
    }

    #[test]
    fn what_is_resident_when_is_counted() {
        let (g, [_, a, b, c, db, da]) = chain();
        let takes = |steps: &[OpId]| {
            let e = evaluate(&g, &steps.iter().copied().collect()).expect("can run");
            (e.peak, e.peak_at.map(EntityRef::index), e.time, e.saved)
        };
        // All values and the first gradient.
        assert_eq!(takes(&[a, b, c, db, da]), (8 + 10 + 20 + 40 + 5, Some(3), 15, 70));
        // Without `a`, until it is computed again beside the gradient.
        assert_eq!(takes(&[a, b, c, db, a, da]), (8 + 20 + 40 + 5, Some(3), 16, 60));
        // What is not read before it is computed again is there for a moment.
        assert_eq!(takes(&[a, b, c, c, db, a, da]), (8 + 20 + 40 + 5, Some(4), 19, 60));
    }

    #[test]
    fn views_donations_and_outputs_keep_memory() {
        let mut g = CostGraph::new();
        let mut push = |op| g.push(op).expect("obeys the rules");
        let d = push(Operation { role: OpRole::Donated, ..Operation::source("d", 100) });
        let a = push(Operation::new("a", 1, 10).reads(&[d]));
        let v = push(Operation::new("v", 0, 0).view(a));
        let b = push(Operation::new("b", 1, 1).reads(&[a]).output());
        let c = push(Operation::new("c", 1, 60).reads(&[b]));
        let e = push(Operation::new("e", 1, 30).reads(&[v, c]).phase(1));
        let of = |steps: &[OpId]| evaluate(&g, &steps.iter().copied().collect());
        // The view keeps `a` and the output stays, but the donated input is gone after `a`.
        let kept = of(&[a, v, b, c, e]).expect("can run");
        assert_eq!((kept.peak, kept.peak_at.map(EntityRef::index)), (110, Some(0)));
        assert_eq!(kept.saved, 10 + 60);
        // Computing `a` again keeps the input, and a second view is of the second `a`.
        let again = of(&[a, v, b, c, a, v, e]).expect("can run");
        assert_eq!((again.peak, again.saved), (100 + 1 + 60 + 10, 10 + 60));
        // Without that, the first view keeps the first `a`.
        let both = of(&[a, v, b, c, a, e]).expect("can run");
        assert_eq!((both.peak, both.saved), (100 + 1 + 60 + 10 + 10, 10 + 60));
    }

    #[test]
    fn schedules_that_cannot_run_are_refused() {
        let (g, [x, a, b, c, db, _]) = chain();
        let wrong = |steps: &[OpId]| {
            let schedule = steps.iter().copied().collect();
            evaluate(&g, &schedule).expect_err("cannot run").to_string()
        };
        assert_eq!(wrong(&[x]), "op0 cannot run");
        assert_eq!(wrong(&[OpId::new(9)]), "op9 cannot run");
        assert_eq!(wrong(&[b]), "`b` runs before what comes first in the graph");
        assert_eq!(wrong(&[a, b, c, db]), "`da` does not run");
        let mut once = CostGraph::new();
        let a = once.push(Operation::new("a", u64::MAX >> 2, 1).once()).expect("obeys the rules");
        let twice = evaluate(&once, &[a, a].into_iter().collect());
        assert_eq!(twice, Err(ScheduleError::Twice("a".into())));
        let mut long = CostGraph::new();
        let a = long.push(Operation::new("a", u64::MAX >> 2, 1)).expect("obeys the rules");
        assert_eq!(evaluate(&long, &[a; 5].into_iter().collect()), Err(ScheduleError::TooMuch));
    }
}
