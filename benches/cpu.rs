//! The CPU engine: bodies of one sweep by the bytes that they move, gelu with its gradients, softmax over
//! rows, norms, products of matrices, and how long it takes to make the machine code.
//! `ADFUSE_THREADS` sets how many threads (1 by default), `ADFUSE_FP` the mode (`strict` by default),
//! `ADFUSE_VECTORS` how many bits vectors have (as many as the host has by default).

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::cpu::{ArenaLayout, CpuExecutable, CpuOptions, Vectors, scratch};
use adfuse::engine::arena_layout;
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile, memory_beside};
use adfuse::ir::Module;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::sample::{rng, sample};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// `sum(gelu(a * x + b))`
fn gelu(n: usize) -> String {
    format!(
        "func @f(%x: f32[{n}], %a: f32[{n}], %b: f32[{n}]) -> f32[] {{
           %0 = mul %a, %x : f32[{n}]
           %1 = add %0, %b : f32[{n}]
           %2 = mul %1, 0.7071067811865476 : f32[{n}]
           %3 = erf %2 : f32[{n}]
           %4 = add %3, 1.0 : f32[{n}]
           %5 = mul %1, 0.5 : f32[{n}]
           %6 = mul %5, %4 : f32[{n}]
           %7 = reduce_sum %6 {{axes = [0]}} : f32[]
           return %7
         }}"
    )
}

fn softmax(rows: usize, n: usize) -> String {
    format!(
        "func @f(%x: f32[{rows},{n}]) -> f32[{rows},{n}] {{
           %m = reduce_max %x {{axes = [1]}} : f32[{rows}]
           %b = broadcast_in_dim %m {{dims = [0]}} : f32[{rows},{n}]
           %d = sub %x, %b : f32[{rows},{n}]
           %e = exp %d : f32[{rows},{n}]
           %s = reduce_sum %e {{axes = [1]}} : f32[{rows}]
           %t = broadcast_in_dim %s {{dims = [0]}} : f32[{rows},{n}]
           %y = div %e, %t : f32[{rows},{n}]
           return %y
         }}"
    )
}

fn layer_norm(rows: usize, n: usize) -> String {
    let inverse = 1.0 / n as f64;
    format!(
        "func @f(%x: f32[{rows},{n}]) -> f32[{rows},{n}] {{
           %s = reduce_sum %x {{axes = [1]}} : f32[{rows}]
           %m = mul %s, {inverse:?} : f32[{rows}]
           %b = broadcast_in_dim %m {{dims = [0]}} : f32[{rows},{n}]
           %d = sub %x, %b : f32[{rows},{n}]
           %q = mul %d, %d : f32[{rows},{n}]
           %v = reduce_sum %q {{axes = [1]}} : f32[{rows}]
           %w = mul %v, {inverse:?} : f32[{rows}]
           %e = add %w, 0.00001 : f32[{rows}]
           %r = rsqrt %e : f32[{rows}]
           %t = broadcast_in_dim %r {{dims = [0]}} : f32[{rows},{n}]
           %y = mul %d, %t : f32[{rows},{n}]
           return %y
         }}"
    )
}

fn l2_norm(rows: usize, n: usize) -> String {
    format!(
        "func @f(%x: f32[{rows},{n}]) -> f32[{rows},{n}] {{
           %q = mul %x, %x : f32[{rows},{n}]
           %s = reduce_sum %q {{axes = [1]}} : f32[{rows}]
           %r = rsqrt %s : f32[{rows}]
           %b = broadcast_in_dim %r {{dims = [0]}} : f32[{rows},{n}]
           %y = mul %x, %b : f32[{rows},{n}]
           return %y
         }}"
    )
}

fn matmul(m: usize, k: usize, n: usize) -> String {
    format!(
        "func @f(%x: f32[{m},{k}], %y: f32[{k},{n}]) -> f32[{m},{n}] {{
           %z = dot_general %x, %y {{contract = [1] x [0]}} : f32[{m},{n}]
           return %z
         }}"
    )
}

/// Bodies of one sweep: the parameters, instructions and result of a function of `T`, which is
/// `f32[n]`, and the bytes of an element that are read and written. `P` is `bool[n]`.
const BODIES: [(&str, &str, &str, &str, u64); 13] = [
    (
        "relu of scale and shift",
        "%x: T",
        "%0 = mul %x, 1.5 : T\n%1 = add %0, 0.25 : T\n%r = relu %1 : T",
        "T",
        8,
    ),
    ("exp", "%x: T", "%r = exp %x : T", "T", 8),
    ("tanh", "%x: T", "%r = tanh %x : T", "T", 8),
    ("sin", "%x: T", "%r = sin %x : T", "T", 8),
    ("gelu", "%x: T", GELU, "T", 8),
    ("add and gelu", "%a: T, %b: T", "%x = add %a, %b : T\nGELU", "T", 12),
    (
        "gelu backward",
        "%x: T, %g: T",
        "%s = mul %x, 0.7071067811865476 : T
         %e = erf %s : T
         %p = add %e, 1.0 : T
         %h = mul %p, 0.5 : T
         %q = mul %x, %x : T
         %m = mul %q, -0.5 : T
         %d = exp %m : T
         %f = mul %d, 0.3989422804014327 : T
         %k = mul %f, %x : T
         %t = add %h, %k : T
         %r = mul %g, %t : T",
        "T",
        12,
    ),
    ("mask of relu", "%x: T", "%r = gt %x, 0.0 : P", "P", 5),
    ("to bf16", "%x: T", "%r = convert_element_type %x : bf16[N]", "bf16[N]", 6),
    ("to f16", "%x: T", "%r = convert_element_type %x : f16[N]", "f16[N]", 6),
    ("to i8", "%x: T", "%0 = mul %x, 127.0 : T\n%r = convert_element_type %0 : i8[N]", "i8[N]", 5),
    ("random bits", "%s: i64[], %o: i64[]", "%r = rng_bits %s, %o : u32[N]", "u32[N]", 4),
    (
        "pad",
        "%x: T",
        "%s = slice %x {start = [1], limit = [N], stride = [1]} : f32[M]
         %p = pad %s, 0.0 {low = [0], high = [1], interior = [0]} : T
         %r = add %x, %p : T",
        "T",
        8,
    ),
];

/// By erf.
const GELU: &str = "%s = mul %x, 0.7071067811865476 : T
         %e = erf %s : T
         %p = add %e, 1.0 : T
         %h = mul %x, 0.5 : T
         %r = mul %h, %p : T";

fn body(params: &str, insts: &str, result: &str, n: usize) -> String {
    let text = format!("func @f({params}) -> {result} {{\n{insts}\nreturn %r\n}}\n");
    let text = text.replace("GELU", GELU).replace(": T", ": f32[N]").replace("> T", "> f32[N]");
    let text = text.replace(": P", ": bool[N]").replace("> P", "> bool[N]");
    text.replace("[N]", &format!("[{n}]")).replace("[M]", &format!("[{}]", n - 1))
}

/// The program of a function, with its gradients if wanted, and where its temporaries are.
fn program(text: &str, grad: bool) -> (Verified<Program>, ArenaLayout) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function").clone();
    let (module, f) = match grad {
        false => (module, f),
        true => {
            let wrt = differentiable(&f, None).expect("floats");
            let g = forward_and_backward(&module, &f, &wrt).expect("differentiates");
            (Module::single(g.clone()), g)
        }
    };
    let options =
        fusion::PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: mode() };
    let program = verify(compile(&module, &f, &options).expect("compiles").program);
    let program = program.unwrap_or_else(|e| panic!("{}", e[0]));
    let beside = scratch(&program).expect("compiles");
    let plan = memory_beside(&program, Effort::Default, &beside).expect("fits");
    (program, arena_layout(&plan))
}

fn mode() -> Fp {
    let name = std::env::var("ADFUSE_FP").unwrap_or_else(|_| "strict".into());
    Fp::ALL.into_iter().find(|(_, n)| *n == name).map_or(Fp::Strict, |(fp, _)| fp)
}

fn vectors() -> Vectors {
    let bits = std::env::var("ADFUSE_VECTORS").ok().and_then(|bits| bits.parse().ok());
    bits.and_then(Vectors::of_bits).unwrap_or_else(Vectors::host)
}

fn made(program: &Verified<Program>, layout: &ArenaLayout) -> CpuExecutable {
    let threads = std::env::var("ADFUSE_THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    let options = CpuOptions { threads, fp: mode(), vectors: vectors(), ..CpuOptions::default() };
    CpuExecutable::compile(program, layout, options).expect("compiles")
}

fn run(c: &mut Criterion, name: &str, throughput: Throughput, text: &str, grad: bool) {
    let (program, layout) = program(text, grad);
    let executable = made(&program, &layout);
    let mut rng = rng(1, 0);
    let types: Vec<_> = program.inputs().filter_map(|b| program.buffers[b].ty()).collect();
    let args: Vec<Array> =
        types.iter().map(|t| sample(t, Domain::Normal, &mut rng).expect("small")).collect();
    let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
    let mut results: Vec<Vec<u8>> =
        executable.run(&args).expect("runs").iter().map(|a| a.bytes().to_vec()).collect();
    let mut group = c.benchmark_group("run");
    group.throughput(throughput);
    group.bench_function(name, |b| {
        let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        b.iter(|| executable.run_into(&inputs, &mut outputs).expect("runs"));
    });
    group.finish();
}

fn bodies(c: &mut Criterion) {
    for (size, n) in [("4K", 1 << 12), ("64K", 1 << 16), ("1M", 1 << 20)] {
        for (name, params, insts, result, bytes) in BODIES {
            let bytes = Throughput::Bytes(bytes * n as u64);
            run(c, &format!("{name} {size}"), bytes, &body(params, insts, result, n), false);
        }
    }
}

fn runs(c: &mut Criterion) {
    let run = |c: &mut Criterion, name: &str, n: usize, text: &str, grad| {
        run(c, name, Throughput::Elements(n as u64), text, grad);
    };
    for (name, n) in [("4K", 1 << 12), ("64K", 1 << 16), ("1M", 1 << 20)] {
        run(c, &format!("gelu value and gradients {name}"), n, &gelu(n), true);
        run(c, &format!("softmax rows of 1024 {name}"), n, &softmax(n / 1024, 1024), false);
        run(c, &format!("l2 norm rows of 1024 {name}"), n, &l2_norm(n / 1024, 1024), false);
        run(c, &format!("layer norm rows of 1024 {name}"), n, &layer_norm(n / 1024, 1024), false);
    }
    run(c, "matmul 128x784x1024", 128 * 784 * 1024, &matmul(128, 784, 1024), false);
    run(c, "matmul 512^3", 512 * 512 * 512, &matmul(512, 512, 512), false);
}

/// From a program to machine code that can be run.
fn makes(c: &mut Criterion) {
    let mut group = c.benchmark_group("compile");
    let cases = [
        ("gelu value and gradients", gelu(1 << 12), true),
        ("softmax", softmax(4, 1024), false),
        ("layer norm", layer_norm(4, 1024), false),
    ];
    let cases = cases.into_iter().chain(BODIES.iter().map(|&(name, params, insts, result, _)| {
        (name, body(params, insts, result, 1 << 12), false)
    }));
    for (name, text, grad) in cases {
        let (program, layout) = program(&text, grad);
        group.throughput(Throughput::Elements(program.steps.len() as u64));
        group.bench_function(name, |b| b.iter(|| made(&program, &layout)));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = bodies, runs, makes
}
criterion_main!(benches);
