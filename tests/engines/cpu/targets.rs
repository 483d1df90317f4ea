//! Machine code for targets other than the host compiles; it is not run.

use super::differentiated;
use crate::common::random;
use adfuse::backends::cpu::code_for;
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
