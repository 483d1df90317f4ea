//! Circles of a graph.

use std::collections::{BTreeMap, BTreeSet};

/// The sets of more than one vertex of which each reaches every other, in order.
pub(crate) fn circles<V: Ord + Clone>(graph: &BTreeMap<V, BTreeSet<V>>) -> Vec<Vec<V>> {
    let reached = |from: &V| {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![from]);
        while let Some(v) = stack.pop() {
            for to in graph.get(v).into_iter().flatten() {
                if seen.insert(to) {
                    stack.push(to);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&V, BTreeSet<&V>> = graph.keys().map(|v| (v, reached(v))).collect();
    let (mut found, mut done) = (Vec::new(), BTreeSet::new());
    for (v, to) in &all {
        if !done.contains(v) && to.contains(v) {
            let circle: Vec<&V> = to.iter().copied().filter(|w| all[w].contains(v)).collect();
            done.extend(circle.iter().copied());
            if circle.len() > 1 {
                found.push(circle.into_iter().cloned().collect());
            }
        }
    }
    found
}
