//! Functions with symbolic extents: what another tuple of extents takes, phase by phase, and what finding a tuple that
//! is kept adds to a run.

use adfuse::autodiff::{Batching, forward_and_backward, vmap};
use adfuse::backends::Array;
use adfuse::engine::Cpu;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::specialize;
use adfuse::ir::text::parse;
use adfuse::ir::{Dim, Function, Module, Symbol};
use adfuse::pipeline::prepared;
use adfuse::sample::{rng, sample};
use criterion::{Criterion, criterion_group, criterion_main};
use std::collections::BTreeMap;

/// The value and all gradients of a block of a transformer, over a batch `B` of any extent.
fn block(batch: Symbol) -> (Module, Function) {
    let text = include_str!("../tests/models/transformer_block.ir");
    let module = parse(text).expect("parses");
    let f = module.find("transformer_block").expect("is there");
    let batched = |k: usize| (k == 0 || k + 1 == f.params().len()).then_some(0);
    let batching = Batching::new(Dim::Sym(batch), (0..f.params().len()).map(batched));
    let f = vmap(&module, f, &batching).expect("maps");
    let all: Vec<usize> = (0..f.params().len()).collect();
    let g = forward_and_backward(&Module::single(f.clone()), &f, &all).expect("differentiates");
    (Module::single(g.clone()), g)
}

fn extents(c: &mut Criterion) {
    let batch = Symbol::new("B").expect("a symbol");
    let (module, g) = block(batch);
    let mut next = 0;
    let mut further = || {
        next = next % 4000 + 1;
        BTreeMap::from([(batch, next)])
    };
    let at = |extents: &BTreeMap<Symbol, u64>| specialize(&g, extents).expect("fits");
    let session = Cpu::default().session();
    let mut group = c.benchmark_group("further extent");
    group.bench_function("specialize", |b| b.iter(|| at(&further())));
    let f = at(&further());
    group.bench_function("prepare", |b| b.iter(|| prepared(&module, &f).expect("prepares")));
    let f = prepared(&module, &f).expect("prepares");
    group.bench_function("plan", |b| b.iter(|| session.plan_prepared(&f).expect("plans")));
    group.bench_function("all", |b| {
        // Nothing is found: neither here nor in the engine's own cache.
        let made = Cpu::default().compile_symbolic(&module, &g).expect("compiles").keeping(1);
        b.iter(|| made.specialized(&[("B", further()[&batch])]).expect("compiles"));
    });
    group.finish();

    let made = Cpu::default().compile_symbolic(&module, &g).expect("compiles");
    let f = at(&BTreeMap::from([(batch, 3)]));
    let mut rng = rng(1, 0);
    let types = f.param_types();
    let args: Vec<Array> =
        types.iter().map(|t| sample(t, Domain::Normal, &mut rng).expect("small")).collect();
    let executable = &made.specialized(&[("B", 3)]).expect("compiles").executable;
    let mut group = c.benchmark_group("run");
    group.bench_function("by the arguments' extents", |b| b.iter(|| made.run(&args)));
    group.bench_function("of the executable", |b| b.iter(|| executable.run(&args)));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = extents
}
criterion_main!(benches);
