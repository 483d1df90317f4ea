//! Text, verification and reference evaluation against program size.

mod common;

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::{Module, text, verify};
use adfuse::sample::{rng, sample};
use common::{chain, only};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

fn passes(c: &mut Criterion) {
    let mut group = c.benchmark_group("passes");
    for n in [100, 1_000, 10_000] {
        let source = chain(n);
        let module = text::parse(&source).expect("valid");
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("parse", n), |b| {
            b.iter(|| text::parse(black_box(&source)));
        });
        group.bench_function(BenchmarkId::new("print", n), |b| {
            b.iter(|| text::print_module(black_box(&module)));
        });
        group.bench_function(BenchmarkId::new("verify", n), |b| {
            b.iter(|| verify(black_box(&module)));
        });
    }
}

fn evaluation(c: &mut Criterion) {
    let source = include_str!("../examples/mlp.ir");
    let module = text::parse(source).expect("valid");
    let f = only(&module);
    let wrt = differentiable(f, None).expect("floats");
    let step = forward_and_backward(&module, f, &wrt).expect("differentiable");
    let mut rng = rng(0, 0);
    let args: Vec<_> = step
        .param_types()
        .iter()
        .map(|t| sample(t, Domain::Uniform(-1.0, 1.0), &mut rng).expect("small"))
        .collect();
    let module = Module::single(step.clone());
    c.bench_function("reference/mlp_value_and_grad", |b| {
        b.iter(|| run(&module, &step, black_box(&args), &mut Silent));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = passes, evaluation
}
criterion_main!(benches);
