//! The strict reduction order against a free one and a copy.
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
// The test of its bits uses more of it.
#[allow(dead_code)]
mod vector;

use std::hint::black_box;
use std::time::Duration;
use vector::Float;

fn values<T: Float>(n: usize) -> Vec<T> {
    let mut state = 1_u64;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            T::from_f64((state >> 40) as f64 / 1e7 - 0.8)
        })
        .collect()
}

fn bytes<T>(n: usize) -> Throughput {
    Throughput::Bytes((n * size_of::<T>()) as u64)
}

fn sums<T: Float>(c: &mut Criterion, dtype: &str) {
    let mut group = c.benchmark_group(format!("sum/{dtype}"));
    for n in [1 << 10, 1 << 12, 1 << 16, 1 << 20, 1 << 24] {
        let xs = values::<T>(n);
        let mut copy = xs.clone();
        group.throughput(bytes::<T>(n));
        group.bench_function(BenchmarkId::new("strict", n), |b| {
            b.iter(|| vector::sum::<T, 32, 1024, 1>(black_box(&xs)))
        });
        group.bench_function(BenchmarkId::new("free", n), |b| {
            b.iter(|| vector::sum_free::<T, 64>(black_box(&xs)))
        });
        group.bench_function(BenchmarkId::new("copy", n), |b| {
            b.iter(|| {
                copy.copy_from_slice(black_box(&xs));
                black_box(copy.last().copied())
            })
        });
    }
}

fn rows<T: Float>(c: &mut Criterion, dtype: &str) {
    let mut group = c.benchmark_group(format!("rows/{dtype}"));
    for row in [64, 1000, 1024, 4096, 50304] {
        let n = ((1 << 18) / row).max(4) * row;
        let xs = values::<T>(n);
        group.throughput(bytes::<T>(n));
        for (name, sum) in [
            ("strict", vector::sum::<T, 32, 1024, 1> as fn(&[T]) -> T),
            ("free", vector::sum_free::<T, 64>),
        ] {
            let mut out = vec![T::default(); n / row];
            group.bench_function(BenchmarkId::new(name, row), |b| {
                b.iter(|| {
                    for (o, xs) in out.iter_mut().zip(black_box(&xs).chunks_exact(row)) {
                        *o = sum(xs);
                    }
                    black_box(&mut out);
                })
            });
        }
    }
}

fn columns<T: Float>(c: &mut Criterion, dtype: &str) {
    let mut group = c.benchmark_group(format!("columns/{dtype}"));
    for (rows, columns) in [(1024, 1024), (128, 1024), (100_000, 64), (100_000, 3)] {
        let xs = values::<T>(rows * columns);
        let shape = format!("{rows}x{columns}");
        let mut out = vec![T::default(); columns];
        let mut scratch = Vec::new();
        group.throughput(bytes::<T>(rows * columns));
        group.bench_function(BenchmarkId::new("strict", &shape), |b| {
            b.iter(|| {
                vector::sum_columns::<T, 64>(black_box(&xs), columns, &mut out, &mut scratch);
                black_box(&mut out);
            })
        });
        group.bench_function(BenchmarkId::new("free", &shape), |b| {
            b.iter(|| {
                vector::sum_columns_free(black_box(&xs), columns, &mut out);
                black_box(&mut out);
            })
        });
    }
}

fn scans<T: Float>(c: &mut Criterion, dtype: &str) {
    let mut group = c.benchmark_group(format!("cumsum/{dtype}"));
    for n in [1 << 10, 1 << 16, 1 << 20] {
        let xs = values::<T>(n);
        group.throughput(bytes::<T>(n));
        group.bench_function(BenchmarkId::new("strict", n), |b| {
            b.iter_batched_ref(
                || vec![T::default(); n],
                |out| vector::cumsum_blocked(black_box(&xs), out),
                BatchSize::LargeInput,
            )
        });
    }
}

fn all(c: &mut Criterion) {
    sums::<f32>(c, "f32");
    sums::<f64>(c, "f64");
    rows::<f32>(c, "f32");
    rows::<f64>(c, "f64");
    columns::<f32>(c, "f32");
    columns::<f64>(c, "f64");
    scans::<f32>(c, "f32");
    scans::<f64>(c, "f64");
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    targets = all
}
criterion_main!(benches);
