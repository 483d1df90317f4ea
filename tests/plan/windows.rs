//! Folds of a few elements around kept axes: they become expressions, with the bits of the strict order.

use crate::common::random::inputs;
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::kernel::{Program, Sink, Step};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Module};

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

/// Numbers with ties, both zeros, infinities and NaNs, several of them in some windows, the same each time.
fn unusual(dtype: DType, dims: &[u64]) -> Array {
    let n: u64 = dims.iter().product();
    let value = |i: u64| match (i * i * 7919 + i) % 13 {
        k @ 0..4 => [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0][k as usize],
        k => (k % 5) as f64 - 2.0,
    };
    let values: Vec<f64> = (0..n).map(value).collect();
    Array::from_f64s(dtype, dims, &values).expect("small")
}

/// Sources of windows of rows and columns go to the first extremum; each window gives a vector of places, and none folds.
#[test]
fn places_of_extrema_in_windows_are_an_expression() {
    for dtype in [DType::F32, DType::BF16, DType::I32] {
        for select in ["ge", "le"] {
            for ([window, stride], [high, wide]) in
                [([2, 2], [16, 32]), ([2, 2], [17, 33]), ([3, 3], [24, 24]), ([3, 2], [17, 33])]
            {
                let count = |n: u64| (n - window) / stride + 1;
                let (image, source) = ([2, high, wide], [2, count(high), count(wide)]);
                let text = format!(
                    "func @f(%s: {dtype}{source:?}, %x: {dtype}{image:?}) -> {dtype}{image:?} {{
  %y = select_and_scatter_add %s, %x {{window = [1, {window}, {window}], strides = [1, {stride}, {stride}], select = {select}}} : {dtype}{image:?}
  return %y
}}
"
                );
                let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
                let f = module.funcs.values().next().expect("a function").clone();
                let args = [unusual(dtype, &source), unusual(dtype, &image)];
                let expected = run(&module, &f, &args, &mut Silent).expect("runs");
                if window == stride {
                    let by_hand = scattered(&args, (&source, &image), (window, select == "ge"));
                    assert_eq!(
                        expected[0],
                        Array::from_f64s(dtype, &image, &by_hand).expect("small")
                    );
                }
                for effort in [Effort::Off, Effort::Default] {
                    let plan = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
                    let made = compile(&Module::single(f.clone()), &f, &plan).expect("compiles");
                    assert_eq!(folds(&made.program), 0, "{text}{}", made.program);
                    let engine = Cpu { plan, ..Cpu::default() };
                    let found =
                        engine.compile(&module, &f).expect("compiles").executable.run(&args);
                    assert_eq!(found.expect("runs"), expected, "{text}");
                }
            }
        }
    }
}

/// Each element of the source at the first extremum of its window, of windows that lie side by side.
fn scattered(
    [source, image]: &[Array; 2],
    (from, to): (&[u64; 3], &[u64; 3]),
    (window, greatest): (u64, bool),
) -> Vec<f64> {
    let mut out = vec![0.0; image.len()];
    for n in 0..source.len() as u64 {
        let [i, j, k] = [n / (from[1] * from[2]), n / from[2] % from[1], n % from[2]];
        let place = |step: u64| {
            let (row, col) = (j * window + step / window, k * window + step % window);
            ((i * to[1] + row) * to[2] + col) as usize
        };
        let value = |step: u64| image.get(place(step)).to_f64();
        let beats =
            |a: f64, b: f64| !b.is_nan() && (a.is_nan() || if greatest { a > b } else { a < b });
        let steps = 1..window * window;
        let first = steps.fold(0, |best, s| if beats(value(s), value(best)) { s } else { best });
        out[place(first)] += source.get(n as usize).to_f64();
    }
    out
}
