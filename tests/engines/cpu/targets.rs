//! Machine code for targets other than the host compiles; it is not run.

use super::differentiated;
use crate::common::random;
use adfuse::backends::cpu::{Vectors, code_for, listing_for};
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Body;
use adfuse::ir::rewrite::specialize;
use adfuse::ir::{Function, Kind, Module, Op};

const TARGETS: [&str; 2] = ["aarch64-unknown-linux-gnu", "aarch64-apple-darwin"];

fn compiles(module: &Module, f: &Function, fp: Fp) -> Result<(), String> {
    let options = fusion::PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp };
    let compiled = compile(module, f, &options).map_err(|d| d.to_string())?;
    let program = verify(compiled.program).map_err(|e| e[0].to_string())?;
    for target in TARGETS {
        code_for(&program, target, fp).map_err(|d| format!("{target}: {d}\n{}", *program))?;
    }
    Ok(())
}

#[test]
fn models_of_other_targets() {
    for (name, g) in differentiated() {
        for fp in [Fp::Strict, Fp::Reproducible] {
            if let Err(why) = compiles(&Module::single(g.clone()), &g, fp) {
                panic!("{name}: {why}");
            }
        }
    }
}

#[test]
fn rows_of_other_targets() {
    for &op in Op::ALL {
        if matches!(op.def().body, Body::Region(_) | Body::Effect(_)) {
            continue;
        }
        for module in random::cases(op, 131) {
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
            let f = specialize(f, &extents).expect("three of each");
            if let Err(why) = compiles(&module, &f, Fp::Strict) {
                panic!("`{op}`: {why}");
            }
        }
    }
}

#[test]
fn there_is_code_and_unknown_targets_are_refused() {
    let text = "program @f {
      input %x: f32[40]
      output %y: f32[40]
      kernel @a [40] {
        stage [] { p0 = load %x[d0] s0 = param.f32 0 s1 = mul.f32 s0 s0 %y[d0] = store s1 }
      }
      return %y
    }";
    let program = verify(read(text).expect("reads")).expect("verifies");
    for target in TARGETS {
        assert!(code_for(&program, target, Fp::Strict).expect("is made") > 100, "{target}");
    }
    for target in ["riscv128-unknown-none", "nowhere"] {
        let refused = code_for(&program, target, Fp::Strict).expect_err("no such target");
        assert_eq!(refused.kind, Kind::Unsupported, "{refused}");
    }
}

/// The code of aarch64 for a kernel of two vectors whose elements have this type.
fn lines_of(dtype: &str, body: &str, result: &str) -> String {
    let last = 1 + body.matches(" = ").count();
    let text = format!(
        "program @f {{
          input %x: {dtype}[4096]
          input %y: {dtype}[4096]
          output %z: {result}[4096]
          kernel @a [4096] {{
            stage [] {{
              p0 = load %x[d0] p1 = load %y[d0]
              s0 = param.{dtype} 0 s1 = param.{dtype} 1 {body} %z[d0] = store s{last}
            }}
          }}
          return %z
        }}"
    );
    let program = verify(read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}")));
    let program = program.unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
    let steps = listing_for(&program, TARGETS[0], Vectors::Narrow, Fp::Strict).expect("is made");
    steps.iter().flat_map(|s| &s.functions).map(|f| f.asm.as_str()).collect()
}

/// Lines have the vector instructions of aarch64, where it has one that x86-64 has not, and no calls. Constants that are known
/// count shifts without registers, and a NaN becomes canonical by one comparison.
#[test]
fn lines_of_aarch64_have_its_instructions() {
    let cases = [
        ("f32", "s2 = max.f32 s0 s1", "f32", "fmax"),
        ("f64", "s2 = min.f64 s0 s1", "f64", "fmin"),
        ("f32", "s2 = const.f32 0.0 s3 = max.f32 s0 s2", "f32", "fmax"),
        ("f32", "s2 = fma.f32 s0 s1 s1", "f32", "fmla"),
        ("f32", "s2 = roundeven.f32 s0", "f32", "frintn"),
        ("f32", "s2 = convert.i32 s0", "i32", "fcvtzs"),
        ("f64", "s2 = convert.i32 s0", "i32", "fcvtzs"),
        ("f32", "s2 = convert.f64 s0", "f64", "fcvtl"),
        ("u32", "s2 = mulhi.u32 s0 s1", "u32", "umull"),
        ("u32", "s2 = const.u32 7 s3 = shrl.u32 s0 s2", "u32", "ushr"),
        ("bf16", "s2 = convert.f32 s0 s3 = convert.bf16 s2", "bf16", "sqxtun"),
    ];
    for (dtype, body, result, instruction) in cases {
        let asm = lines_of(dtype, body, result);
        let of_vectors = |l: &&str| l.contains(instruction) && l.contains("v");
        assert!(asm.lines().any(|l| of_vectors(&l)), "{body}: no {instruction}:\n{asm}");
        assert!(!asm.contains("blr"), "{body}: calls:\n{asm}");
    }
    // A comparison for each of the four groups of a round, and of the group and the element that are left.
    let asm = lines_of("f32", "s2 = add.f32 s0 s1", "f32");
    let compared = asm.lines().filter(|l| l.contains("fcmeq") || l.contains("fcmp")).count();
    assert_eq!(compared, 6, "{asm}");
}
