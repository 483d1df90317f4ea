//! PTX of everything: the programs of the filetests, the models with their gradients, every row of the op
//! table and random programs become text, the same each time, that an assembler takes for every target.
//! The assembler is found as `ADFUSE_PTXAS` says, where `scripts/fetch-ptxas.sh` puts it, or on the PATH;
//! where there is none, what needs it says that it is skipped.

mod assembler;
mod bits;
#[path = "../common/mod.rs"]
mod common;
mod instructions;
mod machine;

use adfuse::autodiff::{differentiable, value_and_grad};
use adfuse::backends::ptx::{self, Target};
use adfuse::fusion::{self, Device, Effort, Fp, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Step, Verified, verify};
use adfuse::ir::op::Body;
use adfuse::ir::rewrite::specialize;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module, Op};
use assembler::Assembly;
use common::kernels::files;
use common::programs::decode_over;
use common::random;

fn lowered(module: &Module, f: &Function, effort: Effort, fp: Fp) -> Verified<Program> {
    let options = fusion::Options { device: Device::h200(), effort, fp };
    let compiled = compile(module, f, &options).unwrap_or_else(|d| panic!("{d}\n{f}"));
    verify(compiled.program).unwrap_or_else(|e| panic!("{}", e[0]))
}

/// The program's module, which is the same the second time.
fn emitted(program: &Verified<Program>, fp: Fp) -> ptx::Module {
    let made =
        |target| ptx::compile(program, target, fp).unwrap_or_else(|d| panic!("{d}\n{}", **program));
    let module = made(Target::Sm80);
    assert_eq!(module, made(Target::Sm80), "{}", **program);
    assert_eq!(module.steps.len(), program.steps.len());
    module
}

fn add(all: &mut Assembly, name: &str, program: &Verified<Program>, fp: Fp) {
    all.add(name, &emitted(program, fp), &program.to_string());
}

/// Whether a program has steps without PTX, for which it must be refused with the step.
fn refused(program: &Verified<Program>) -> bool {
    let without = |s: &Step| matches!(s, Step::Library(_));
    if !program.steps.iter().any(without) {
        return false;
    }
    let refused = ptx::compile(program, Target::Sm80, Fp::Strict).expect_err("has no PTX");
    assert_eq!(refused.kind, Kind::Unsupported);
    assert!(refused.to_string().contains("step"), "{refused}");
    true
}

#[test]
fn programs_of_the_filetests() {
    let mut all = Assembly::default();
    for (name, text) in files() {
        let program = verify(read(&text).expect("reads")).expect("verifies");
        if refused(&program) {
            continue;
        }
        add(&mut all, &name, &program, Fp::Strict);
    }
    all.assembled();
}

/// The models with their gradients.
fn differentiated() -> Vec<(String, Function)> {
    let one = |(name, module, f): (String, Module, Function)| {
        let wrt = differentiable(&f, None).expect("has floats");
        let g = value_and_grad(&module, &f, &wrt).unwrap_or_else(|d| panic!("{d}"));
        (name, g)
    };
    common::models::all().into_iter().map(one).collect()
}

#[test]
fn models() {
    let mut all = Assembly::default();
    for (name, g) in differentiated() {
        for (effort, fp) in
            [(Effort::Off, Fp::Strict), (Effort::Default, Fp::Strict), (Effort::Default, Fp::Fast)]
        {
            let program = lowered(&Module::single(g.clone()), &g, effort, fp);
            let module = emitted(&program, fp);
            // Those without fusion are made of what the rows of the table are made of.
            if effort == Effort::Default && fp == Fp::Strict {
                all.add(&format!("{name} {effort:?} {fp:?}"), &module, &program.to_string());
            }
        }
    }
    all.assembled();
}

#[test]
fn every_row() {
    let mut all = Assembly::default();
    for &op in Op::ALL {
        if matches!(op.def().body, Body::Region(_) | Body::Effect(_)) {
            continue;
        }
        for (k, module) in random::cases(op, 131).iter().enumerate() {
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
            let f = specialize(f, &extents).expect("three of each");
            let program = lowered(module, &f, Effort::Off, Fp::Strict);
            if refused(&program) {
                continue;
            }
            let made = emitted(&program, Fp::Strict);
            // The assembler takes long for the longest: of each row the first case, and every type once.
            let long = f.param_types().iter().all(|t| t.dims().as_deref() == Some(&[131]));
            if k == 0 || long {
                all.add(&op.to_string(), &made, &program.to_string());
            }
        }
    }
    all.assembled();
}

#[test]
fn random_programs() {
    let all = std::cell::RefCell::new(Assembly::default());
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        random::programs(17, 20, |steps| {
            let f = decode_over(steps, dtype, [33, 68]);
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = value_and_grad(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            let program = lowered(&Module::single(g.clone()), &g, Effort::Default, Fp::Strict);
            if !refused(&program) {
                add(&mut all.borrow_mut(), "random", &program, Fp::Strict);
            }
            Ok(())
        });
    }
    all.into_inner().assembled();
}

#[test]
fn a_function_in_text() {
    // Loads and stores of neighbours are of 16 bytes, and nothing is joined that strict mode keeps apart.
    let text = "func @f(%x: f32[64,1024], %y: f32[1024]) -> f32[64,1024] {
      %b = broadcast_in_dim %y {dims = [1]} : f32[64,1024]
      %m = mul %x, %b : f32[64,1024]
      %r = add %m, %x : f32[64,1024]
      return %r
    }";
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let of = |fp| emitted(&lowered(&module, f, Effort::Default, fp), fp).text;
    let strict = of(Fp::Strict);
    assert_eq!(strict.matches("ld.global.nc.v4.f32").count(), 2, "{strict}");
    assert_eq!(strict.matches("st.global.v4.f32").count(), 1, "{strict}");
    assert!(strict.contains("mul.rn.f32") && !strict.contains("fma"), "{strict}");
    assert_eq!(of(Fp::Fast).matches("fma.rn.f32").count(), 4);
}

/// Kernels of rows and of elements at the sizes of benches keep all they hold in registers.
#[test]
fn no_spills() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/programs");
    let cases = [
        ("add_gelu", 1 << 20),
        ("relu_loss", 1 << 20),
        ("gelu_loss", 1 << 20),
        ("dropout_chain", 1 << 20),
        ("softmax", 8192),
        ("softmax_loss", 8192),
        ("l2_norm_loss", 8192),
        ("layer_norm_loss", 8192),
        ("cross_entropy_loss", 8192),
    ];
    let mut all = Assembly::default();
    for (name, n) in cases {
        let text = std::fs::read_to_string(format!("{folder}/{name}.ir")).expect("reads");
        // Rows of a warp, and of a block that holds them in shared memory.
        for row in ["1024", "50304"] {
            let module = parse(&text.replace("1024", row)).unwrap_or_else(|e| panic!("{e:?}"));
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, n)).collect();
            let f = specialize(f, &extents).expect("an extent");
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).expect("has floats");
            let g = match f.results().len() {
                1 if f.result_types()[0].rank() == 0 => {
                    value_and_grad(&module, &f, &wrt).unwrap_or_else(|d| panic!("{d}"))
                }
                _ => f,
            };
            for fp in [Fp::Strict, Fp::Fast] {
                let program = lowered(&Module::single(g.clone()), &g, Effort::Default, fp);
                add(&mut all, &format!("{name} {row}"), &program, fp);
                // With more shared memory rows are kept that the older target reads again.
                let newer = ptx::compile(&program, Target::Sm90, fp).expect("compiles");
                all.add(&format!("{name} {row}"), &newer, &program.to_string());
            }
        }
    }
    let resources = all.assembled();
    for r in &resources {
        assert_eq!(r.spilled, 0, "{}", r.entry);
        assert!(r.registers <= 128, "{}: {} registers", r.entry, r.registers);
    }
}
