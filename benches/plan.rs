//! The way from a gradient to a program of kernels against the size of the gradient.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, lower, memory, plan, prepare};
use adfuse::ir::{Function, Module, kernel, text};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

/// A function of `k` layers, whose gradient grows with `k`.
type Layers = fn(usize) -> String;

/// Chains of elementwise instructions, reductions and broadcasts.
fn chain(k: usize) -> String {
    let mut text = String::from("func @chain(%x: f32[32,64], %y: f32[32,64]) -> f32[] {\n");
    let mut x = "%x".to_string();
    for l in 0..k {
        write!(
            text,
            "  %t{l} = tanh {x} : f32[32,64]
  %m{l} = mul %t{l}, %y : f32[32,64]
  %s{l} = reduce_sum %m{l} {{axes = [1]}} : f32[32]
  %a{l} = div %s{l}, 64.0 : f32[32]
  %b{l} = broadcast_in_dim %a{l} {{dims = [0]}} : f32[32,64]
  %x{l} = sub %m{l}, %b{l} : f32[32,64]
"
        )
        .expect("writing to a string");
        x = format!("%x{l}");
    }
    write!(text, "  %r = reduce_sum {x} {{axes = [0, 1]}} : f32[]\n  return %r\n}}\n")
        .expect("writing to a string");
    text
}

/// Layers of a contraction, a bias and a rectifier.
fn mlp(k: usize) -> String {
    let params: String = (0..k).map(|l| format!(", %w{l}: f32[64,64], %b{l}: f32[64]")).collect();
    let mut text = format!("func @mlp(%x: f32[32,64]{params}) -> f32[] {{\n");
    let mut x = "%x".to_string();
    for l in 0..k {
        write!(
            text,
            "  %d{l} = dot_general {x}, %w{l} {{contract = [1] x [0]}} : f32[32,64]
  %c{l} = broadcast_in_dim %b{l} {{dims = [1]}} : f32[32,64]
  %a{l} = add %d{l}, %c{l} : f32[32,64]
  %x{l} = relu %a{l} : f32[32,64]
"
        )
        .expect("writing to a string");
        x = format!("%x{l}");
    }
    write!(text, "  %r = reduce_sum {x} {{axes = [0, 1]}} : f32[]\n  return %r\n}}\n")
        .expect("writing to a string");
    text
}

/// Blocks of a transformer, each with parameters of its own.
fn transformer(k: usize) -> String {
    let source = include_str!("../tests/models/transformer_block.ir");
    let (head, body) = source.split_once('\n').expect("several lines");
    let params = head.split_once('(').and_then(|(_, p)| p.split_once(')')).expect("parameters").0;
    // Block `l` reads what the block before gave, and has its own name for all else.
    let named = |line: &str, l: usize| {
        let mut parts = line.split('%');
        let mut out = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            match (name, l) {
                ("x", 0) => write!(out, "%x{rest}"),
                ("x", _) => write!(out, "%out_{}{rest}", l - 1),
                _ => write!(out, "%{name}_{l}{rest}"),
            }
            .expect("writing to a string");
        }
        out
    };
    let own = params.split(", %").filter(|p| !p.starts_with("%x:"));
    let own: Vec<String> = own.map(|p| format!("%{p}")).collect();
    let mut text = String::from("func @transformer(%x: f32[2,7,10]");
    for l in 0..k {
        own.iter().for_each(|p| text.push_str(&format!(", {}", named(p, l))));
    }
    text.push_str(") -> f32[] {\n");
    let block = || body.lines().take_while(|line| !line.contains("%wout"));
    for l in 0..k {
        block().for_each(|line| text.push_str(&format!("{}\n", named(line, l))));
    }
    let last = k - 1;
    write!(
        text,
        "  %loss = reduce_sum %out_{last} {{axes = [0, 1, 2]}} : f32[]\n  return %loss\n}}\n"
    )
    .expect("writing to a string");
    text
}

fn gradient(source: &str) -> Function {
    let module = text::parse(source).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("one function");
    let wrt = differentiable(f, None).expect("floats");
    forward_and_backward(&module, f, &wrt).expect("differentiable")
}

/// The gradient of about `n` instructions, which layers give that grow it evenly.
fn sized(layers: Layers, n: usize) -> Function {
    let count = |k: usize| gradient(&layers(k)).body_insts().len();
    let (two, three) = (count(2), count(3));
    let k = 2 + n.saturating_sub(two) / (three - two);
    gradient(&layers(if n < two { 1 } else { k }))
}

fn planning(c: &mut Criterion) {
    // A block of a transformer has more than 100 instructions by itself.
    let kinds: [(&str, Layers, &[usize]); 3] = [
        ("chain", chain, &[10, 100, 1_000, 10_000]),
        ("mlp", mlp, &[10, 100, 1_000, 10_000]),
        ("transformer", transformer, &[100, 1_000, 10_000]),
    ];
    for (kind, layers, sizes) in kinds {
        let mut group = c.benchmark_group(kind);
        for &n in sizes {
            let g = sized(layers, n);
            let module = Module::single(g.clone());
            let f = prepare(&module, &g).expect("no calls");
            let options =
                |effort| PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Reproducible };
            let found = plan(&f, &options(Effort::Default)).expect("has a lowering");
            let program = lower(&f, &found, &MachineModel::cpu()).expect("is a plan of it");
            group.throughput(Throughput::Elements(f.body_insts().len() as u64));
            let size = format!("{n}/{} steps of {}", program.steps.len(), f.body_insts().len());
            group.bench_function(BenchmarkId::new("prepare", &size), |b| {
                b.iter(|| prepare(black_box(&module), &g));
            });
            for (name, effort) in [("quick", Effort::Quick), ("default", Effort::Default)] {
                group.bench_function(BenchmarkId::new(format!("plan {name}"), &size), |b| {
                    b.iter(|| plan(black_box(&f), &options(effort)));
                });
                group.bench_function(BenchmarkId::new(format!("memory {name}"), &size), |b| {
                    b.iter(|| memory(black_box(&program), effort));
                });
            }
            group.bench_function(BenchmarkId::new("lower", &size), |b| {
                b.iter(|| lower(black_box(&f), &found, &MachineModel::cpu()));
            });
            group.bench_function(BenchmarkId::new("verify", &size), |b| {
                b.iter_batched(|| program.clone(), kernel::verify, BatchSize::LargeInput);
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = planning
}
criterion_main!(benches);
