//! Transformations against program size: time is to grow in proportion.

use adfuse::autodiff::{differentiable, hvp, jvp, linearize, value_and_grad};
use adfuse::ir::{Function, Module, text};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

/// A chain of `n` elementwise instructions and a sum.
fn chain(n: usize) -> Module {
    let mut out = String::from("func @chain(%x: f32[8], %y: f32[8]) -> f32[] {\n");
    let mut last = "%x".to_string();
    for i in 0..n {
        let line = match i % 4 {
            0 => format!("tanh {last}"),
            1 => format!("sin {last}"),
            2 => format!("add {last}, %y"),
            _ => format!("mul {last}, %y"),
        };
        writeln!(out, "  %{i} = {line} : f32[8]").expect("writing to a string");
        last = format!("%{i}");
    }
    write!(out, "  %{n} = reduce_sum {last} {{axes = [0]}} : f32[]\n  return %{n}\n}}\n")
        .expect("writing to a string");
    text::parse(&out).expect("valid")
}

fn only(module: &Module) -> &Function {
    module.funcs.values().next().expect("one function")
}

fn transformations(c: &mut Criterion) {
    let mut group = c.benchmark_group("ad");
    for n in [100, 316, 1_000, 3_162, 10_000, 31_623] {
        let module = chain(n);
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
            b.iter(|| value_and_grad(black_box(&module), f, &wrt));
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
