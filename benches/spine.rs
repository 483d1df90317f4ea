//! Text, verification, differentiation and reference evaluation against program size.

use adfuse::autodiff::{differentiable, jvp, value_and_grad};
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::{Function, Module, text, verify};
use adfuse::sample::{rng, sample};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

/// A chain of `n` elementwise instructions and a sum.
fn chain(n: usize) -> String {
    let mut text = String::from("func @chain(%x: f32[8], %y: f32[8]) -> f32[] {\n");
    let mut last = "%x".to_string();
    for i in 0..n {
        let line = match i % 4 {
            0 => format!("tanh {last}"),
            1 => format!("sin {last}"),
            2 => format!("add {last}, %y"),
            _ => format!("mul {last}, %y"),
        };
        writeln!(text, "  %{i} = {line} : f32[8]").expect("writing to a string");
        last = format!("%{i}");
    }
    write!(text, "  %{n} = reduce_sum {last} {{axes = [0]}} : f32[]\n  return %{n}\n}}\n")
        .expect("writing to a string");
    text
}

fn only(module: &Module) -> &Function {
    module.funcs.values().next().expect("one function")
}

fn passes(c: &mut Criterion) {
    let mut group = c.benchmark_group("passes");
    for n in [100, 1_000, 10_000] {
        let source = chain(n);
        let module = text::parse(&source).expect("valid");
        let f = only(&module);
        let wrt = differentiable(f, None).expect("floats");
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
        group.bench_function(BenchmarkId::new("jvp", n), |b| {
            b.iter(|| jvp(black_box(&module), f, &wrt));
        });
        group.bench_function(BenchmarkId::new("value_and_grad", n), |b| {
            b.iter(|| value_and_grad(black_box(&module), f, &wrt));
        });
    }
}

fn evaluation(c: &mut Criterion) {
    let source = include_str!("../examples/mlp.ir");
    let module = text::parse(source).expect("valid");
    let f = only(&module);
    let wrt = differentiable(f, None).expect("floats");
    let step = value_and_grad(&module, f, &wrt).expect("differentiable");
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
