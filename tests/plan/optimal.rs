//! The distance of schedules from the optimum: proven optima of small random graphs, and published figures of a
//! network. `tests/plan/optimal/exact.py` makes the instances.

#[path = "optimal/vgg19.rs"]
mod vgg19;

use adfuse::fusion::remat::schedule::{
    CostGraph, FrontierOptions, OpId, OpSchedule, evaluate, frontier, least_time,
};
use serde_json::Value;

/// A graph, the least peak of the integer program, and pairs of a budget and the least time within it.
struct Instance {
    graph: CostGraph,
    least: u64,
    optima: Vec<(u64, u64)>,
}

fn instances() -> Vec<Instance> {
    let read = |line: &str| {
        let mut value: Value = serde_json::from_str(line).expect("JSON");
        let object = value.as_object_mut().expect("an object");
        let least = object.remove("least").and_then(|v| v.as_u64()).expect("a number");
        let optima = object.remove("optima").expect("optima");
        let pair = |v: &Value| Some((v.get(0)?.as_u64()?, v.get(1)?.as_u64()?));
        let optima = optima.as_array().expect("a list").iter().map(pair);
        Instance {
            graph: CostGraph::from_json(&value.to_string()).expect("a graph"),
            least,
            optima: optima.collect::<Option<_>>().expect("pairs of numbers"),
        }
    };
    let all: Vec<Instance> = include_str!("optimal/instances.jsonl").lines().map(read).collect();
    assert_eq!(all.len(), 200);
    all
}

/// Whether what runs between two first runs is not in the order of the graph, such as an operation that
/// runs twice. The integer program has no such schedules, and may be beaten by them alone.
fn is_beyond_the_program(g: &CostGraph, schedule: &OpSchedule) -> bool {
    let mut due = g.runs().peekable();
    let mut last: Option<OpId> = None;
    for &op in schedule.steps.values() {
        if last >= Some(op) {
            return true;
        }
        last = Some(op).filter(|op| due.next_if_eq(op).is_none());
    }
    false
}

#[test]
fn schedules_are_within_two_percent_of_optimal() {
    let (mut logs, mut count, mut worst, mut exact) = (0.0, 0, 1.0f64, 0);
    for (k, instance) in instances().iter().enumerate() {
        let g = &instance.graph;
        let found = frontier(g, &FrontierOptions::default());
        let least = found.least();
        assert!(
            least.peak >= instance.least || is_beyond_the_program(g, &least.schedule),
            "line {}: the least peak is {}, not {}",
            k + 1,
            instance.least,
            least.peak
        );
        for &(budget, optimum) in &instance.optima {
            let point = found.at(budget).unwrap_or_else(|e| panic!("line {}: {e}", k + 1));
            let took = evaluate(g, &point.schedule).expect("can run");
            assert!(took.peak <= budget, "line {}: {took:?}", k + 1);
            assert!(
                took.time >= optimum || is_beyond_the_program(g, &point.schedule),
                "line {}, budget {budget}: {} is below the optimum {optimum}",
                k + 1,
                took.time
            );
            assert!(found.least_time(budget) <= took.time.min(optimum), "line {}", k + 1);
            assert!(least_time(g, budget) <= took.time.min(optimum), "line {}", k + 1);
            let over = took.time as f64 / optimum as f64;
            (logs, count, worst) = (logs + over.ln(), count + 1, worst.max(over));
            exact += usize::from(took.time <= optimum);
        }
    }
    let mean = (logs / f64::from(count)).exp();
    assert!(mean <= 1.002, "the geometric mean over the optimum is {mean}");
    assert!(worst <= 1.10, "the worst over the optimum is {worst}");
    assert!(exact * 100 >= 95 * count as usize, "{exact} of {count} are optimal");
}
