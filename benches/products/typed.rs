//! Products of narrow elements beside those of `f32`: the same sizes in every type, in the mode `reproducible`.

use crate::{Runner, flops, median, seconds};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::kernel::verify;
use adfuse::ir::text::parse;

/// Rows, columns, depth: of a square, of the MLP, and of the blocks of a small and a larger transformer.
const SIZES: [[usize; 3]; 7] = [
    [1024, 1024, 1024],
    [128, 1024, 784],
    [1024, 768, 256],
    [1024, 256, 1024],
    [512, 3072, 768],
    [512, 768, 3072],
    [32, 64, 64],
];

/// Elements and sums.
const TYPES: [[&str; 2]; 4] = [["f32", "f32"], ["bf16", "f32"], ["bf16", "bf16"], ["i8", "i32"]];

/// Prints a line for each size: the GFLOP/s of each type, and what multiplies.
#[allow(clippy::print_stdout)]
pub(crate) fn table(threads: usize) {
    println!("rows x columns x depth, {threads} threads: GFLOP/s of elements, sums");
    for [m, n, k] in SIZES {
        let mut line = format!("{m:4} x {n:4} x {k:4}");
        for [elements, sums] in TYPES {
            let text = format!(
                "func @f(%x: {elements}[{m},{k}], %y: {elements}[{k},{n}]) -> {sums}[{m},{n}] {{\n\
                 %z = dot_general %x, %y {{contract = [1] x [0]}} : {sums}[{m},{n}]\nreturn %z\n}}"
            );
            let module = parse(&text).expect("it is a program");
            let f = module.funcs.values().next().expect("a function").clone();
            let fp = Fp::Reproducible;
            let options = PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp };
            let compiled = compile(&module, &f, &options).expect("it can be planned");
            let program = verify(compiled.program).expect("it verifies");
            let Some(mut runner) = Runner::new(&program, threads, fp) else {
                line += &format!("   {elements}: not taken");
                continue;
            };
            let all = seconds(|| {
                let spans = runner.run().spans;
                spans
                    .iter()
                    .filter(|s| s.task.is_none())
                    .map(|s| (s.end - s.begin).as_secs_f64())
                    .sum()
            });
            let rate = flops([1, m, n, k]) / median(&all) / 1e9;
            line += &format!("   {elements}, {sums} {rate:7.1} ({})", runner.multiplier());
        }
        println!("{line}");
    }
}
