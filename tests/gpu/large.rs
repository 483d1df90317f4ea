//! Rows that fill a chip: chains of rows whose columns fold on the way, and rows so long that they are copied ahead.
//! They are held to the CPU engine, which has the bits of the evaluator and takes less time.

use crate::common::random;
use crate::near::distance;
use crate::trials::Skipped;
use crate::{Outcome, all, gpu};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::engine::Cpu;
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::specialize;
use adfuse::ir::text::parse;
use adfuse::ir::{Function, Module};

/// A program of the benches, the length of its rows there, and rows and lengths to run it with.
type Case = (&'static str, &'static str, &'static [(u64, &'static str)]);
const CASES: [Case; 6] = [
    // Rows of a part of a warp's turns, whole and not, copied ahead or too odd for that; pieces of long rows.
    (
        "bias_relu_loss",
        "4096",
        &[(25000, "33"), (25001, "36"), (24577, "64"), (3100, "4096"), (12300, "1030")],
    ),
    (
        "residual_norm_loss",
        "4096",
        &[(25000, "36"), (25003, "100"), (12301, "1032"), (6200, "2080")],
    ),
    ("residual_norm_loss_bf16", "4096", &[(25000, "40"), (25003, "33"), (12301, "1032")]),
    ("vocabulary_loss", "50304", &[(300, "16384"), (301, "16402"), (150, "50304"), (140, "57000")]),
    ("vocabulary_loss_bf16", "50304", &[(300, "16384"), (301, "16402"), (150, "50304")]),
    ("softmax_loss", "1024", &[(300, "15400"), (3000, "1500"), (140, "131072")]),
];

/// The programs' texts: they go where the test goes.
fn text(name: &str) -> &'static str {
    match name {
        "bias_relu_loss" => include_str!("../../benches/programs/bias_relu_loss.ir"),
        "residual_norm_loss" => include_str!("../../benches/programs/residual_norm_loss.ir"),
        "residual_norm_loss_bf16" => {
            include_str!("../../benches/programs/residual_norm_loss_bf16.ir")
        }
        "vocabulary_loss" => include_str!("../../benches/programs/vocabulary_loss.ir"),
        "vocabulary_loss_bf16" => include_str!("../../benches/programs/vocabulary_loss_bf16.ir"),
        "softmax_loss" => include_str!("../../benches/programs/softmax_loss.ir"),
        _ => panic!("no program @{name}"),
    }
}

fn function(name: &str, row: &str, n: u64, length: &str) -> Function {
    let text = text(name);
    let module = parse(&text.replace(row, length)).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let extents = f.symbols.iter().map(|&s| (s, n)).collect();
    let f = specialize(f, &extents).expect("an extent");
    let module = Module::single(f.clone());
    let wrt = differentiable(&f, None).expect("has floats");
    forward_and_backward(&module, &f, &wrt).unwrap_or_else(|d| panic!("{d}"))
}

pub(crate) fn rows_that_fill_a_chip() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let mut cases = Vec::new();
    for (name, row, sizes) in CASES {
        cases.extend(sizes.iter().map(|&(n, length)| (name, row, n, length)));
    }
    all("rows_that_fill_a_chip", &cases, |&(name, row, n, length)| {
        let f = function(name, row, n, length);
        let module = Module::single(f.clone());
        let args = random::inputs(&f, &[Domain::Normal]);
        let mut first = None;
        for fp in [Fp::Strict, Fp::Reproducible, Fp::Fast] {
            let of = |what: String| Outcome::Wrong(format!("{name} {n} x {length} {fp:?}: {what}"));
            let options =
                fusion::PlanOptions { device: MachineModel::h200(), effort: Effort::Default, fp };
            let compiled = compile(&module, &f, &options).unwrap_or_else(|d| panic!("{d}"));
            let program = verify(compiled.program).expect("lowering gives sound programs");
            if fp == Fp::Strict {
                let cpu = Cpu::default().of_program(program.clone());
                let cpu = cpu.unwrap_or_else(|d| panic!("{d}"));
                first = Some(cpu.executable.run(&args).unwrap_or_else(|d| panic!("{d}")));
            }
            let Some(expected) = &first else { return of("no reference".to_owned()) };
            let mut gpu = gpu.clone();
            gpu.plan.fp = fp;
            let made = match gpu.of_program(program) {
                Ok(made) => made,
                Err(d) => return of(d.to_string()),
            };
            let found = made.executable.run(&args).expect("runs");
            if made.executable.run(&args).expect("runs") != found {
                return of("other bits in another run".to_owned());
            }
            for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
                let most = match (fp, expected.dtype().bytes()) {
                    (Fp::Strict, _) => 0.0,
                    (_, 2) => 1e-2,
                    _ => 1e-4,
                };
                let apart = distance(found, expected);
                if apart.is_nan() || apart > most || fp == Fp::Strict && found != expected {
                    return of(format!("result {k} is {apart:e} apart, not {most:e}"));
                }
            }
        }
        Outcome::Same
    });
    Ok(())
}
