//! Folds of a few elements around kept axes: they become expressions, with the bits of the strict order.

use crate::common::random::inputs;
use adfuse::backends::reference::{Silent, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::Module;
use adfuse::ir::kernel::{Program, Sink, Step};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// A fold of a tensor whose axes a reshape made of others.
struct Case {
    op: &'static str,
    dtype: &'static str,
    from: &'static [u64],
    to: &'static [u64],
    axes: &'static [usize],
    /// Whether it is written out: else it is a fold of a kernel.
    written: bool,
}

const CASES: &[Case] = &[
    // Windows side by side: two runs, the first along rows and the second across them.
    case("reduce_sum", "f32", &[4, 8, 16], &[4, 4, 2, 8, 2], &[2, 4], true),
    case("reduce_sum", "bf16", &[4, 8, 16], &[4, 4, 2, 8, 2], &[2, 4], true),
    case("reduce_max", "f64", &[8, 9, 15], &[8, 3, 3, 5, 3], &[2, 4], true),
    case("reduce_min", "i32", &[4, 8, 16], &[4, 4, 2, 4, 4], &[2, 4], true),
    // An axis of extent 1 between folded axes parts no run, so that this is one; three runs; none along rows.
    case("reduce_sum", "f32", &[64, 8], &[16, 2, 1, 2, 8], &[1, 3], false),
    case("reduce_sum", "f32", &[8, 16, 16], &[4, 2, 8, 2, 4, 4], &[1, 3, 5], true),
    case("reduce_sum", "f32", &[8, 16, 16], &[4, 2, 8, 2, 16], &[1, 3], true),
    // Rows, more elements than lanes, results that are too few.
    case("reduce_sum", "f32", &[64, 16], &[64, 4, 4], &[2], false),
    case("reduce_sum", "f32", &[64, 64], &[8, 8, 8, 8], &[1, 3], false),
    case("reduce_sum", "f32", &[8, 16], &[4, 2, 8, 2], &[1, 3], false),
];

const fn case(
    op: &'static str,
    dtype: &'static str,
    from: &'static [u64],
    to: &'static [u64],
    axes: &'static [usize],
    written: bool,
) -> Case {
    Case { op, dtype, from, to, axes, written }
}

impl Case {
    fn text(&self) -> String {
        let Case { op, dtype, from, to, axes, .. } = self;
        let kept: Vec<u64> = (0..to.len()).filter(|a| !axes.contains(a)).map(|a| to[a]).collect();
        format!(
            "func @f(%x: {dtype}{from:?}) -> {dtype}{kept:?} {{
  %s = mul %x, %x : {dtype}{from:?}
  %r = reshape %s : {dtype}{to:?}
  %y = {op} %r {{axes = {axes:?}}} : {dtype}{kept:?}
  return %y
}}
"
        )
    }
}

/// How many sinks of kernels fold.
fn folds(program: &Program) -> usize {
    let kernels = program.steps.iter().filter_map(|s| match s {
        Step::Kernel(kernel) => Some(kernel),
        _ => None,
    });
    let sinks = kernels.flat_map(|k| &k.stages).flat_map(|s| &s.sinks);
    sinks.filter(|s| matches!(s, Sink::Reduce { .. } | Sink::Fold { .. })).count()
}

#[test]
fn few_elements_around_kept_axes_are_an_expression() {
    for case in CASES {
        let text = case.text();
        let module = parse(&text).expect("parses");
        let f = module.funcs.values().next().expect("a function").clone();
        let args = inputs(&f, &[Domain::Normal]);
        let expected = run(&module, &f, &args, &mut Silent).expect("runs");
        for effort in [Effort::Off, Effort::Default] {
            let plan = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
            let made = compile(&Module::single(f.clone()), &f, &plan).expect("compiles");
            assert_eq!(folds(&made.program) == 0, case.written, "{text}{}", made.program);
            let engine = Cpu { plan, ..Cpu::default() };
            let found = engine.compile(&module, &f).expect("compiles").executable.run(&args);
            assert_eq!(found.expect("runs"), expected, "{text}");
        }
    }
}
