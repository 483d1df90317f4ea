//! Arrays: numbers of Rust in and out, clones, rows, and batches of a data set. Times are of 1 Mi elements.

use adfuse::backends::Array;
use adfuse::data::Dataset;
use adfuse::ir::DType;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

const N: u64 = 1 << 20;

fn values() -> Vec<f32> {
    (0..N).map(|k| k as f32 * 0.5).collect()
}

fn conversions(c: &mut Criterion) {
    let mut group = c.benchmark_group("arrays");
    group.throughput(Throughput::Bytes(N * 4));
    let values = values();
    let x = Array::from_slice(&values, [N]).expect("as many");
    let bytes = x.bytes().to_vec();
    // What the others are compared with.
    group.bench_function("copy", |b| b.iter(|| black_box(&values).clone()));
    group.bench_function("from_vec", |b| {
        let from = |v| Array::from_vec(v, [N]).expect("as many");
        b.iter_batched(|| values.clone(), from, BatchSize::LargeInput);
    });
    group.bench_function("from_slice", |b| {
        b.iter(|| Array::from_slice(black_box(&values), [N]).expect("as many"));
    });
    group.bench_function("from_le_bytes", |b| {
        b.iter(|| Array::from_le_bytes(DType::F32, &[N], black_box(&bytes)).expect("as many"));
    });
    group.bench_function("from_bits", |b| {
        let bits = x.to_bits();
        b.iter(|| Array::from_bits(DType::F32, &[N], black_box(&bits)).expect("as many"));
    });
    group.bench_function("clone", |b| b.iter(|| black_box(&x).clone()));
    group.bench_function("as_slice", |b| {
        b.iter(|| black_box(&x).as_slice::<f32>().expect("f32").len());
    });
    group.bench_function("to_vec", |b| b.iter(|| black_box(&x).to_vec::<f32>().expect("f32")));
    group.bench_function("into_vec", |b| {
        let new = || Array::from_slice(&values, [N]).expect("as many");
        b.iter_batched(new, |x| x.into_vec::<f32>().expect("f32"), BatchSize::LargeInput);
    });
    group.bench_function("to_f64s", |b| b.iter(|| black_box(&x).to_f64s()));
    group.bench_function("update a clone", |b| {
        b.iter(|| {
            let mut y = black_box(&x).clone();
            y.update::<f32>(|all| all[0] = 1.0).expect("f32");
            y
        });
    });
    group.finish();
}

/// An epoch of rows of 256 elements, in batches of 64.
fn batches(c: &mut Criterion) {
    let mut group = c.benchmark_group("batches");
    group.throughput(Throughput::Bytes(N * 4));
    let x = Array::from_vec(values(), [N / 256, 256]).expect("as many");
    let y = Array::from((0..N as i64 / 256).collect::<Vec<_>>());
    let data = Dataset::new((x, y)).expect("as many rows").shuffled(1);
    group.bench_function("an epoch", |b| b.iter(|| data.batches(64).map(black_box).count()));
    group.bench_function("an epoch, prefetched", |b| {
        b.iter(|| data.batches(64).prefetch().map(black_box).count());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = conversions, batches
}
criterion_main!(benches);
