//! The modes that are not strict: near the reference, and the same every time.

use crate::common::models;
use crate::common::random;
use crate::trials::Skipped;
use crate::{Outcome, all, gpu, say};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::gpu::library;
use adfuse::backends::reference::{Silent, run};
use adfuse::engine::Gpu;
use adfuse::fusion::Fp;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Kind, Module};

/// The distance of arrays, against the norm of what they are compared with.
pub(crate) fn distance(found: &Array, expected: &Array) -> f64 {
    let (a, b) = (found.to_f64s(), expected.to_f64s());
    let norm = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut a.iter().zip(&b).map(|(a, b)| if a == b { 0.0 } else { a - b }));
    apart / norm(&mut b.iter().copied()).max(1e-30)
}

pub(crate) fn models_in_free_modes() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let mut cases = Vec::new();
    for (name, module, f) in models::all() {
        let wrt = differentiable(&f, None).expect("has floats");
        let g = forward_and_backward(&module, &f, &wrt).unwrap_or_else(|d| panic!("{d}"));
        for (fp, most) in [(Fp::Reproducible, 2e-4f64), (Fp::Fast, 2e-2)] {
            cases.push((name.clone(), g.clone(), fp, most));
        }
    }
    all("models_in_free_modes", &cases, |(name, g, fp, most)| {
        // Of eight layers whose weights are large, each makes an error ten times as large: no mode but one that
        // rounds alike is near.
        let domain = if name == "deep_mlp" { Domain::Small } else { Domain::Normal };
        let args = random::inputs(g, &[domain]);
        let module = Module::single(g.clone());
        let text = g.to_string();
        let narrow = text.contains(": bf16") || text.contains(": f16");
        let expected = run(&module, g, &args, &mut Silent).expect("runs");
        let mut gpu = Gpu::clone(&gpu);
        gpu.plan.fp = *fp;
        let made = match gpu.compile(&module, g) {
            Ok(made) => made,
            Err(d) if d.kind == Kind::Unsupported => return Outcome::Refused(d),
            Err(d) => return Outcome::Wrong(format!("{name} {fp:?}: {d}")),
        };
        let once = made.executable.run(&args).expect("runs");
        for _ in 0..3 {
            if made.executable.run(&args).expect("runs") != once {
                return Outcome::Wrong(format!("{name} {fp:?}: other bits in another run"));
            }
        }
        for (k, (found, expected)) in once.iter().zip(&expected).enumerate() {
            // Where values of 16 bits are between, what is rounded differs from mode to mode.
            let most = if narrow { most.max(0.1) } else { *most };
            let apart = distance(found, expected);
            // What is no number is not near.
            if apart.is_nan() || apart > most {
                let m = format!("{name} {fp:?}: result {k} is {apart:e} apart, not {most:e}\n{g}");
                return Outcome::Wrong(m);
            }
        }
        Outcome::Same
    });
    Ok(())
}

/// A loss over words whose number is odd, so that rows of scores begin at lines of the cache, with its gradients.
pub(crate) fn vocabularies_of_odd_size() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let text = "func @f(%x: T[64,512], %w: T[2051,512], %b: T[2051], %labels: i32[64]) -> f32[] {
      %s = dot_general %x, %w {contract = [1] x [1]} : T[64,2051]
      %bb = broadcast_in_dim %b {dims = [1]} : T[64,2051]
      %l = add %s, %bb : T[64,2051]
      %c = convert_element_type %l : f32[64,2051]
      %m = reduce_max %c {axes = [1]} : f32[64]
      %ms = stop_gradient %m : f32[64]
      %mb = broadcast_in_dim %ms {dims = [0]} : f32[64,2051]
      %d = sub %c, %mb : f32[64,2051]
      %e = exp %d : f32[64,2051]
      %n = reduce_sum %e {axes = [1]} : f32[64]
      %ln = log %n : f32[64]
      %class = iota {axis = 1} : i32[64,2051]
      %label = broadcast_in_dim %labels {dims = [0]} : i32[64,2051]
      %is = eq %class, %label : bool[64,2051]
      %only = select_n %is, 0.0, %d : f32[64,2051]
      %picked = reduce_sum %only {axes = [1]} : f32[64]
      %nll = sub %ln, %picked : f32[64]
      %loss = reduce_sum %nll {axes = [0]} : f32[]
      return %loss
    }";
    let modes = [(Fp::Strict, 0.0), (Fp::Reproducible, 5e-2), (Fp::Fast, 5e-2)];
    let cases = ["bf16", "f32"].into_iter().flat_map(|dtype| modes.map(|(fp, m)| (dtype, fp, m)));
    let cases: Vec<(&str, Fp, f64)> = cases.collect();
    all("vocabularies_of_odd_size", &cases, |&(dtype, fp, most)| {
        let module = parse(&text.replace("T[", &format!("{dtype}["))).expect("reads");
        let f = module.funcs.values().next().expect("a function");
        let g = forward_and_backward(&module, f, &[0, 1, 2]).expect("has gradients");
        let module = Module::single(g.clone());
        let args = random::inputs(&g, &[Domain::Small]);
        let expected = run(&module, &g, &args, &mut Silent).expect("runs");
        let mut gpu = Gpu::clone(&gpu);
        gpu.plan.fp = fp;
        let made = gpu.compile(&module, &g).expect("compiles");
        assert!(made.program.buffers.values().any(|b| b.strides.is_some()), "{dtype} {fp:?}");
        let found = made.executable.run(&args).expect("runs");
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let apart = distance(found, expected);
            if apart.is_nan() || apart > most {
                return Outcome::Wrong(format!("{dtype} {fp:?}: result {k} is {apart:e} apart"));
            }
        }
        Outcome::Same
    });
    Ok(())
}

/// A product, with what the program does before and after it, and how its operands lie.
const PRODUCTS: [&str; 8] = [
    "func @f(%x: f32[96,128], %w: f32[128,160]) -> f32[96,160] {
       %y = dot_general %x, %w {contract = [1] x [0]} : f32[96,160]
       return %y
     }",
    "func @f(%x: f32[128,96], %w: f32[160,128]) -> f32[96,160] {
       %y = dot_general %x, %w {contract = [0] x [1]} : f32[96,160]
       return %y
     }",
    "func @f(%x: f32[96,128], %w: f32[160,128], %b: f32[160]) -> f32[96,160] {
       %z = dot_general %x, %w {contract = [1] x [1]} : f32[96,160]
       %c = broadcast_in_dim %b {dims = [1]} : f32[96,160]
       %a = add %z, %c : f32[96,160]
       %y = relu %a : f32[96,160]
       return %y
     }",
    "func @f(%x: f32[96,128], %w: f32[128,160]) -> f32[160] {
       %r = tanh %x : f32[96,128]
       %z = dot_general %r, %w {contract = [1] x [0]} : f32[96,160]
       %y = reduce_sum %z {axes = [0]} : f32[160]
       return %y
     }",
    "func @f(%x: f32[6,64,48], %w: f32[6,48,80]) -> f32[6,64,80] {
       %y = dot_general %x, %w {batch = [0] x [0], contract = [2] x [1]} : f32[6,64,80]
       return %y
     }",
    "func @f(%x: bf16[96,128], %w: bf16[128,160]) -> bf16[96,160] {
       %y = dot_general %x, %w {contract = [1] x [0]} : bf16[96,160]
       return %y
     }",
    "func @f(%x: f16[96,128], %w: f16[128,160]) -> f16[96,160] {
       %y = dot_general %x, %w {contract = [1] x [0]} : f16[96,160]
       return %y
     }",
    "func @f(%x: f64[96,128], %w: f64[128,160]) -> f64[160,96] {
       %z = dot_general %x, %w {contract = [1] x [0]} : f64[96,160]
       %y = transpose %z {perm = [1, 0]} : f64[160,96]
       return %y
     }",
];

pub(crate) fn products() -> Result<(), Skipped> {
    let gpu = gpu()?;
    say(&format!("products: the library of matrices is {:?}", library()));
    let mut cases = Vec::new();
    for (n, text) in PRODUCTS.iter().enumerate() {
        for fp in [Fp::Strict, Fp::Reproducible, Fp::Fast] {
            for library in [true, false] {
                cases.push((n, *text, fp, library));
            }
        }
    }
    all("products", &cases, |&(n, text, fp, with)| {
        let module = parse(text).unwrap_or_else(|e| panic!("{n}: {e:?}"));
        let f = module.funcs.values().next().expect("a function");
        let args = random::inputs(f, &[Domain::Normal]);
        let expected = run(&module, f, &args, &mut Silent).expect("runs");
        let mut gpu = Gpu::clone(&gpu);
        (gpu.plan.fp, gpu.library) = (fp, with);
        let made = match gpu.compile(&module, f) {
            Ok(made) => made,
            Err(d) if d.kind == Kind::Unsupported => return Outcome::Refused(d),
            Err(d) => return Outcome::Wrong(format!("{n} {fp:?} {with}: {d}")),
        };
        let called = made.executable.steps().iter().any(|s| s.generator == "cublaslt");
        // It is for the modes that let it round otherwise, and only where it is asked for and there.
        let due = with && fp != Fp::Strict && library().is_some();
        if called != due {
            return Outcome::Wrong(format!("{n} {fp:?} {with}: called is {called}, not {due}"));
        }
        let found = made.executable.run(&args).expect("runs");
        if made.executable.run(&args).expect("runs") != found {
            return Outcome::Wrong(format!("{n} {fp:?} {with}: other bits in another run"));
        }
        let narrow = expected[0].dtype().bytes() == 2;
        let most = match (fp, narrow) {
            (Fp::Strict, _) => 0.0,
            (_, true) => 1e-2,
            (Fp::Fast, _) => 2e-3,
            _ => 1e-5,
        };
        let apart = distance(&found[0], &expected[0]);
        match apart <= most {
            true => Outcome::Same,
            false => Outcome::Wrong(format!("{n} {fp:?} {with}: {apart:e} apart, not {most:e}")),
        }
    });
    Ok(())
}
