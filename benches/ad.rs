//! Transformations against program size: time is to grow in proportion.

mod common;

use adfuse::autodiff::{differentiable, forward_and_backward, hvp, jvp, linearize};
use adfuse::ir::text;
use common::{chain, only};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

fn transformations(c: &mut Criterion) {
    let mut group = c.benchmark_group("ad");
    for n in [100, 316, 1_000, 3_162, 10_000, 31_623] {
        let module = text::parse(&chain(n)).expect("valid");
        let f = only(&module);
        let wrt = differentiable(f, None).expect("floats");
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("jvp", n), |b| {
            b.iter(|| jvp(black_box(&module), f, &wrt));
        });
        group.bench_function(BenchmarkId::new("linearize", n), |b| {
            b.iter(|| linearize(black_box(&module), f, &wrt));
        });
        group.bench_function(BenchmarkId::new("value_and_grad", n), |b| {
            b.iter(|| forward_and_backward(black_box(&module), f, &wrt));
        });
        group.bench_function(BenchmarkId::new("hvp", n), |b| {
            b.iter(|| hvp(black_box(&module), f, &wrt));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = transformations
}
criterion_main!(benches);
