//! Properties of frontiers: points have the peaks and times that they claim, no point is beaten by another in both, and
//! lower bounds hold. `ADFUSE_PROGRAMS` sets how many random graphs (200 by default).

use crate::common::count_from_env;
use adfuse::fusion::remat::schedule::{
    CostGraph, FrontierOptions, OpId, OpRole, OpSchedule, Operation, evaluate, frontier,
    least_time, residuals,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// An operation before its inputs have names: they are picked among what comes before.
#[derive(Clone, Debug)]
struct Raw {
    time: u64,
    bytes: u64,
    reads: Vec<usize>,
    kind: u8,
}

fn raw() -> impl Strategy<Value = Raw> {
    let reads = proptest::collection::vec(0..1000usize, 1..4);
    // Mostly what came last, so that graphs are long.
    (0..50u64, 0..100u64, reads, 0..24u8).prop_map(|(time, bytes, reads, kind)| Raw {
        time,
        bytes,
        reads,
        kind,
    })
}

/// A graph of what was drawn, of which the last part is of phase 1.
fn graph(raw: &[Raw], forward: usize) -> CostGraph {
    let mut g = CostGraph::new();
    let mut ids: Vec<OpId> = Vec::new();
    for op in [
        Operation::source("x", 30),
        Operation { role: OpRole::Donated, ..Operation::source("d", 70) },
    ] {
        ids.push(g.push(op).expect("obeys the rules"));
    }
    for (k, r) in raw.iter().enumerate() {
        let pick = |n: &usize| ids[ids.len() - 1 - (n * n / 1000).min(n % ids.len())];
        let reads: Vec<OpId> = r.reads.iter().map(pick).collect();
        let op = Operation::new(format!("v{k}"), r.time, r.bytes).reads(&reads);
        let phase = u8::from(k >= forward);
        let op = op.phase(phase);
        if let (6..10, Some(further)) = (r.kind, further_result(&g, r, k, phase)) {
            ids.push(g.push(further).expect("obeys the rules"));
            continue;
        }
        let op = match r.kind {
            0 => op.once(),
            1 | 2 => op.output(),
            3 | 4 => op.view(reads[0]),
            5 => op.view(reads[0]).output(),
            _ => op,
        };
        ids.push(g.push(op).expect("obeys the rules"));
    }
    g
}

/// A further result of the last operation, if it can have one.
fn further_result(g: &CostGraph, r: &Raw, k: usize, phase: u8) -> Option<Operation> {
    let (last, op) = g.ops().last()?;
    let of = op.result_of.unwrap_or(last);
    let first = &g.ops()[of];
    let result = Operation::result(format!("v{k}"), r.bytes, of).phase(phase);
    let result = Operation { role: first.role, output: r.kind == 6, ..result };
    (!g.is_source(of) && first.alias.is_none() && first.phase == result.phase).then_some(result)
}

fn holds(g: &CostGraph) -> Result<(), TestCaseError> {
    let options = FrontierOptions { effort: 100_000, ..FrontierOptions::default() };
    let found = frontier(g, &options);
    let save_all = evaluate(g, &OpSchedule::save_all(g)).expect("can run");
    prop_assert_eq!(found.fastest().time, save_all.time);
    prop_assert!(found.fastest().peak <= save_all.peak);
    for p in found.points() {
        let took = evaluate(g, &p.schedule).expect("can run");
        prop_assert_eq!((took.peak, took.time, took.saved), (p.peak, p.time, p.saved));
        prop_assert!(found.least_time(p.peak) <= p.time, "{p:?}");
        prop_assert!(least_time(g, p.peak) <= p.time, "{p:?}");
        prop_assert_eq!(found.at(p.peak), Ok(p));
    }
    for pair in found.points().windows(2) {
        prop_assert!(pair[0].peak < pair[1].peak && pair[0].time > pair[1].time);
        // Up to the next point there is no other, so tighter is never higher and looser never slower.
        prop_assert_eq!(found.at(pair[1].peak - 1), Ok(&pair[0]));
    }
    prop_assert_eq!(found.at(u64::MAX), Ok(found.fastest()));
    if let Some(below) = found.least().peak.checked_sub(1) {
        let error = found.at(below).expect_err("less than the least");
        prop_assert_eq!((error.budget, error.least), (below, found.least().peak));
        prop_assert!(g.ops().values().any(|o| o.name == error.binding));
    }
    // The cut bounds what schedules recompute, whatever they save.
    let hull = residuals(g, 100);
    for p in found.points() {
        prop_assert!(p.time - g.time() >= hull.least_time(p.saved), "{p:?}");
    }
    let again = frontier(g, &options);
    prop_assert_eq!(again.points(), found.points());
    let thin = frontier(g, &FrontierOptions { points: Some(3), ..options });
    prop_assert!(thin.points().len() <= 3);
    prop_assert!(thin.points().iter().all(|p| found.points().contains(p)));
    prop_assert_eq!(thin.fastest(), found.fastest());
    prop_assert!(found.points().len() == 1 || thin.least() == found.least());
    Ok(())
}

#[test]
fn frontiers_are_what_they_claim() {
    let config = Config { cases: count_from_env("ADFUSE_PROGRAMS", 200), ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[5; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = (proptest::collection::vec(raw(), 1..60), 0..100usize);
    let result = runner.run(&strategy, |(raw, part)| holds(&graph(&raw, raw.len() * part / 100)));
    result.unwrap_or_else(|e| panic!("{e}"));
}

/// A chain of normalizations, each with statistics that the backward part reads, once with results of one operation and
/// once with readers of the first result that take no time.
fn normalizations(together: bool) -> CostGraph {
    let mut g = CostGraph::new();
    let mut push = |op| g.push(op).expect("obeys the rules");
    let mut x = push(Operation::source("x", 100));
    let mut layers = Vec::new();
    for k in 0..12 {
        let y = push(Operation::new(format!("y{k}"), 10, 100).reads(&[x]));
        let mean = match together {
            true => push(Operation::result(format!("mean{k}"), 2, y)),
            false => push(Operation::new(format!("mean{k}"), 0, 2).reads(&[y])),
        };
        layers.push((x, mean));
        x = y;
    }
    let mut dy = push(Operation::new("loss", 1, 100).reads(&[x]).phase(1));
    for (k, (x, mean)) in layers.into_iter().enumerate().rev() {
        dy = push(Operation::new(format!("d{k}"), 20, 100).reads(&[x, mean, dy]).phase(1));
    }
    g
}

#[test]
fn further_results_cost_what_zero_time_readers_cost() {
    let points = |together| {
        let g = normalizations(together);
        let found = frontier(&g, &FrontierOptions::default());
        let top = found.fastest().peak;
        let budgets = [90, 75, 60].map(|p| top * p / 100 + 10);
        (found.least().peak, budgets.map(|b| found.at(b).map(|p| p.time)))
    };
    let ((least, times), (least_apart, times_apart)) = (points(true), points(false));
    assert_eq!(times, times_apart);
    assert!(least <= least_apart + 2, "{least} {least_apart}");
    assert!(times.iter().all(Result::is_ok), "{times:?}");
}

#[test]
fn graphs_with_nothing_to_decide_have_one_point() {
    let empty = frontier(&CostGraph::new(), &FrontierOptions::default());
    assert_eq!((empty.points().len(), empty.fastest().peak, empty.least_time(0)), (1, 0, 0));
    let mut g = CostGraph::new();
    let x = g.push(Operation::source("x", 8)).expect("an input");
    g.push(Operation::new("a", 3, 4).reads(&[x]).output()).expect("reads x");
    let one = frontier(&g, &FrontierOptions::default());
    assert_eq!((one.points().len(), one.fastest().peak, one.fastest().time), (1, 12, 3));
    let error = one.at(11).expect_err("needs 12").to_string();
    assert_eq!(
        error,
        "no schedule within 11 bytes was found: the least takes 12, and the largest value at its peak \
         is `x`"
    );
}
