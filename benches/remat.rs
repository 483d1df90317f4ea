//! Frontiers of rematerialization schedules against the number of operations.

use adfuse::fusion::remat::schedule::{CostGraph, FrontierOptions, OpId, Operation, frontier};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::collections::BTreeMap;
use std::hint::black_box;

/// An operation of a layer: time, bytes, which values it reads (0 is what enters the layer), and whether
/// its backward part reads what it reads, and what it makes.
type Part = (u64, u64, &'static [usize], bool, bool);

/// A layer of a chain, and one of a transformer.
const CHAIN: &[Part] = &[(10, 100, &[0], true, true)];
const TRANSFORMER: &[Part] = &[
    (10, 100, &[0], true, false),
    (300, 300, &[1], true, false),
    (150, 100, &[2], true, true),
    (100, 100, &[3], true, false),
    (8, 100, &[4], false, false),
    (5, 100, &[0, 5], false, false),
    (10, 100, &[6], true, false),
    (400, 400, &[7], true, false),
    (30, 400, &[8], true, false),
    (400, 100, &[9], true, false),
    (5, 100, &[6, 10], false, false),
];

/// A graph of this many operations or a few less, forward and backward.
fn graph(layer: &[Part], operations: usize) -> CostGraph {
    let mut g = CostGraph::new();
    let mut push = |op| g.push(op).expect("obeys the rules");
    let input = push(Operation::source("x", 100));
    let mut enters = input;
    let mut forward: Vec<(OpId, Vec<OpId>, Part)> = Vec::new();
    for _ in 0..operations / 2 / layer.len() {
        let mut values = vec![enters];
        for &part in layer {
            let reads: Vec<OpId> = part.2.iter().map(|&k| values[k]).collect();
            values.push(push(Operation::new("f", part.0, part.1).reads(&reads)));
            forward.push((values[values.len() - 1], reads, part));
        }
        enters = values[values.len() - 1];
    }
    let mut cotangents: BTreeMap<OpId, Vec<OpId>> = BTreeMap::new();
    for (value, inputs, (time, bytes, _, reads_inputs, reads_value)) in forward.iter().rev() {
        let mut reads = cotangents.remove(value).unwrap_or_default();
        reads.extend(inputs.iter().filter(|_| *reads_inputs));
        reads.extend(Some(value).filter(|_| *reads_value));
        let mut op = Operation::new("b", 2 * time, *bytes).reads(&reads).phase(1);
        op.output = inputs.contains(&input);
        let back = push(op);
        inputs.iter().for_each(|&i| cotangents.entry(i).or_default().push(back));
    }
    g
}

fn frontiers(c: &mut Criterion) {
    let mut group = c.benchmark_group("remat");
    group.sample_size(10);
    for (name, layer) in [("chain", CHAIN), ("transformer", TRANSFORMER)] {
        for operations in [100, 1_000, 10_000] {
            let g = graph(layer, operations);
            group.bench_with_input(BenchmarkId::new(name, operations), &g, |b, g| {
                b.iter(|| frontier(black_box(g), &FrontierOptions::default()));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, frontiers);
criterion_main!(benches);
