//! Random programs with loops and branches in each other, and their derivatives: plans of every effort, ways back that
//! stack residuals and ways back with few checkpoints have the bits of the reference engine.

use super::{agrees, parallel, random};
use crate::common::control::{decode, inputs};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::reference::{Silent, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{AnyEngine, Lossy, PlanOptions, budget_frontier, decide_loops, prepare};
use adfuse::ir::{DType, Function, Module};

fn gradient(f: &Function) -> Result<Function, String> {
    let wrt = differentiable(f, None).map_err(|d| d.to_string())?;
    let module = Module::single(f.clone());
    forward_and_backward(&module, f, &wrt).map_err(|d| format!("{d}\n{f}"))
}

/// The function with its ways back as they are decided without a budget, and as the smallest budget has them.
fn decided(f: &Function, options: &PlanOptions) -> Result<[Function; 2], String> {
    let why = |d: adfuse::ir::Diagnostic| format!("{d}\n{f}");
    let prepared = prepare(&Module::single(f.clone()), f).map_err(why)?;
    let fast = decide_loops(&prepared, options, &AnyEngine).map_err(why)?.function;
    let frontier = budget_frontier(&prepared, &Lossy::default(), options, &AnyEngine);
    let frontier = frontier.map_err(why)?;
    let least = &frontier.points()[0].rewritten.decided;
    Ok([fast, least.function.clone()])
}

#[test]
fn programs_with_loops_agree_with_the_reference_engine() {
    parallel::each(&[(DType::F32, 1), (DType::F64, 2)], |&(dtype, order)| {
        random::programs(63, 12, |steps| {
            let mut f = decode(steps, dtype);
            let k = steps.len() as i64 % 3;
            for _ in 0..order {
                agrees(&Module::single(f.clone()), &f, &inputs(&f, k))?;
                f = gradient(&f)?;
            }
            agrees(&Module::single(f.clone()), &f, &inputs(&f, k))
        });
    });
}

#[test]
fn ways_back_have_the_same_bits_however_residuals_are_kept() {
    parallel::each(&[(DType::F32, 1), (DType::F64, 2)], |&(dtype, order)| {
        random::programs(64, 14, |steps| {
            let mut f = decode(steps, dtype);
            for _ in 0..order {
                f = gradient(&f)?;
            }
            let args = inputs(&f, steps.len() as i64 % 3);
            let module = Module::single(f.clone());
            let why = |d: adfuse::ir::Diagnostic| format!("{d}\n{f}");
            let expected = run(&module, &f, &args, &mut Silent).map_err(why)?;
            let cpu = Cpu { threads: 1 + 2 * (steps.len() % 2), ..Cpu::default() };
            for g in decided(&f, &cpu.plan)? {
                let why = |d: adfuse::ir::Diagnostic| format!("{d}\n{g}");
                let alone = Module::single(g.clone());
                let reference = run(&alone, &g, &args, &mut Silent).map_err(why)?;
                let engine = cpu.session();
                let found = engine.callable(&alone, &g).map_err(why)?(&args).map_err(why)?;
                if reference != expected || found != expected {
                    return Err(format!("{found:?}\n{reference:?}\nis not\n{expected:?}\n{g}"));
                }
            }
            Ok(())
        });
    });
}
