//! Attention and its gradient: the CPU engine, the kernel evaluator and the reference engine give the same bits, and so do
//! engines that run what attention is composed of. Blocks are of 128: extents are below, at and above.

use super::agrees;
use crate::common::random::inputs;
use adfuse::autodiff::{hvp, jvp, vjp};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::{Composition, Domain};
use adfuse::ir::rewrite::{StepLowering, with_steps};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Literal, Module};

/// What follows the first three operands.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Extra {
    None,
    /// A bias with these of its axes of extent 1.
    Bias([bool; 4]),
    Mask([bool; 4]),
}

struct Case {
    dtype: DType,
    /// Batch, groups, heads that share keys, rows, keys, depth, width.
    extents: [u64; 7],
    /// Keys before and after a row's place that it sees, or -1.
    window: [i64; 2],
    extra: Extra,
}

impl Case {
    fn text(&self) -> String {
        let [b, g, s, r, n, d, w] = self.extents;
        let (t, h) = (self.dtype, g * s);
        let wide = t.compute();
        let of = |ones: [bool; 4]| {
            let dims = [b, h, r, n].into_iter().zip(ones);
            dims.map(|(n, one)| if one { 1 } else { n }.to_string()).collect::<Vec<_>>().join(",")
        };
        let (param, arg) = match self.extra {
            Extra::None => (String::new(), ""),
            Extra::Bias(ones) => (format!(", %x: {t}[{}]", of(ones)), ", %x"),
            Extra::Mask(ones) => (format!(", %x: bool[{}]", of(ones)), ", %x"),
        };
        let [before, after] = self.window;
        let window = match self.window {
            [-1, -1] => String::new(),
            [-1, 0] => " {causal = true}".to_owned(),
            _ => format!(" {{window = [{before}, {after}]}}"),
        };
        format!(
            "func @f(%q: {t}[{b},{h},{r},{d}], %k: {t}[{b},{g},{n},{d}], %v: {t}[{b},{g},{n},{w}]{param}) -> \
             ({t}[{b},{h},{r},{w}], {wide}[{b},{h},{r}]) {{
               %y, %l = attention %q, %k, %v{arg}{window} : {t}[{b},{h},{r},{w}], {wide}[{b},{h},{r}]
               return %y, %l
             }}"
        )
    }

    fn module(&self) -> Module {
        parse(&self.text()).unwrap_or_else(|e| panic!("{}\n{}", e[0], self.text()))
    }
}

fn case(dtype: DType, extents: [u64; 7], causal: bool, extra: Extra) -> Case {
    Case { dtype, extents, window: if causal { [-1, 0] } else { [-1; 2] }, extra }
}

fn windowed(dtype: DType, extents: [u64; 7], window: [i64; 2], extra: Extra) -> Case {
    Case { dtype, extents, window, extra }
}

const NORMAL: &[Domain] = &[Domain::Normal];
const FULL: [bool; 4] = [false; 4];

fn cases() -> Vec<Case> {
    use DType::{BF16, F16, F32, F64};
    let shared = [true, true, false, false];
    vec![
        case(F32, [2, 2, 1, 17, 17, 6, 5], true, Extra::None),
        case(F32, [1, 1, 1, 1, 1, 4, 4], false, Extra::None),
        case(F32, [1, 1, 2, 130, 260, 8, 3], false, Extra::Bias(FULL)),
        case(F32, [1, 2, 2, 129, 128, 3, 9], true, Extra::None),
        case(F32, [1, 2, 1, 127, 300, 4, 4], true, Extra::Mask(shared)),
        case(F32, [2, 1, 3, 300, 5, 1, 1], true, Extra::Bias([true, false, true, false])),
        case(F32, [2, 1, 2, 33, 131, 16, 16], false, Extra::Mask([false, true, true, false])),
        case(F32, [1, 1, 1, 5, 140, 4, 600], false, Extra::Bias([true; 4])),
        case(F32, [1, 1, 1, 140, 9, 530, 2], false, Extra::None),
        case(F64, [1, 2, 2, 140, 150, 7, 6], true, Extra::Bias(shared)),
        case(F64, [1, 5, 1, 3, 3, 2, 2], true, Extra::Mask(FULL)),
        case(BF16, [1, 2, 2, 40, 150, 8, 8], true, Extra::None),
        case(F16, [2, 1, 2, 9, 9, 4, 3], false, Extra::Bias(FULL)),
        case(F32, [0, 2, 1, 4, 4, 2, 2], true, Extra::None),
        case(F32, [1, 0, 1, 4, 4, 2, 2], false, Extra::None),
        case(F32, [1, 1, 1, 0, 4, 2, 2], false, Extra::None),
        case(F32, [1, 1, 1, 4, 0, 2, 2], false, Extra::None),
        case(F32, [1, 1, 1, 4, 4, 0, 2], true, Extra::None),
        case(F32, [1, 1, 1, 4, 4, 2, 0], false, Extra::None),
        windowed(F32, [1, 1, 1, 260, 260, 2, 3], [20, 0], Extra::None),
        windowed(F32, [1, 1, 2, 20, 290, 3, 4], [140, 0], Extra::Bias(shared)),
        windowed(F32, [1, 1, 1, 140, 280, 2, 2], [30, 50], Extra::None),
        windowed(F32, [1, 1, 2, 270, 20, 2, 3], [10, 3], Extra::Mask(shared)),
        windowed(F64, [1, 1, 1, 20, 290, 4, 4], [129, -1], Extra::None),
        windowed(F32, [1, 1, 1, 270, 30, 2, 2], [-1, 129], Extra::None),
        windowed(BF16, [1, 1, 2, 40, 150, 8, 8], [0, 0], Extra::None),
        windowed(F32, [1, 1, 1, 5, 9, 2, 2], [100, 100], Extra::None),
        windowed(F32, [1, 1, 1, 1, 300, 2, 2], [130, 0], Extra::None),
    ]
}

/// The elements of an array, of which every so often one is not finite or is zero.
fn unusual(x: &Array, every: usize, values: &[f64]) -> Array {
    let bits = x.to_bits().into_iter().enumerate().map(|(k, b)| match k % every {
        0 if x.dtype().is_float() => {
            Literal::from_f64(x.dtype(), values[k / every % values.len()]).bits()
        }
        _ => b,
    });
    Array::from_bits(x.dtype(), x.dims(), &bits.collect::<Vec<_>>()).expect("small")
}

/// The results of the reference engine, of the kernel evaluator and of the CPU engine.
fn everywhere(module: &Module, f: &Function, args: &[Array]) -> Result<(), String> {
    let expected = run(module, f, args, &mut Silent).map_err(|d| d.to_string())?;
    let options =
        PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
    let made = compile(module, f, &options).map_err(|d| d.to_string())?;
    let program = verify(made.program).map_err(|e| e[0].to_string())?;
    let found = kernel::run(&program, args).map_err(|d| d.to_string())?;
    if found != expected {
        return Err(format!("the evaluator: {found:?}\nis not\n{expected:?}"));
    }
    agrees(module, f, args)
}

#[test]
fn engines_give_the_same_bits() {
    for c in cases() {
        let module = c.module();
        let f = module.funcs.values().next().expect("one");
        let wrt: Vec<usize> = match c.extra {
            Extra::Bias(_) => vec![0, 1, 2, 3],
            _ => vec![0, 1, 2],
        };
        let back = vjp(&module, f, &wrt).unwrap_or_else(|d| panic!("{d}"));
        for f in [f, &back] {
            everywhere(&module, f, &inputs(f, NORMAL))
                .unwrap_or_else(|why| panic!("{}\n{why}", c.text()));
        }
    }
}

/// Rows of infinities and NaN, and keys that all rows are hidden from.
#[test]
fn unusual_numbers() {
    let extents = [1, 1, 2, 130, 140, 3, 4];
    let lists: [&[f64]; 4] = [
        &[f64::NAN],
        &[f64::INFINITY, -1.0],
        &[f64::NEG_INFINITY, 0.0, -0.0],
        &[1e30, -1e30, 1e-40],
    ];
    for (k, values) in lists.into_iter().enumerate() {
        for extra in [Extra::None, Extra::Bias(FULL), Extra::Mask([true, true, false, false])] {
            let c = case(DType::F32, extents, k % 2 == 0, extra);
            let module = c.module();
            let f = module.funcs.values().next().expect("one");
            let back = vjp(&module, f, &[0, 1, 2]).unwrap_or_else(|d| panic!("{d}"));
            for f in [f, &back] {
                let args = inputs(f, NORMAL);
                for changed in 0..args.len() {
                    let mut args = args.clone();
                    args[changed] = unusual(&args[changed], 701, values);
                    everywhere(&module, f, &args).unwrap_or_else(|why| {
                        panic!("{}\n{values:?} in {changed}: {why}", c.text())
                    });
                }
            }
        }
    }
}

/// A row that sees nothing is NaN, and no derivative passes from it.
#[test]
fn hidden_rows() {
    let c = case(DType::F32, [1, 1, 1, 4, 2, 3, 3], true, Extra::None);
    let module = c.module();
    let f = module.funcs.values().next().expect("one");
    let found = run(&module, f, &inputs(f, NORMAL), &mut Silent).expect("runs");
    let nan: Vec<bool> = found[0].to_f64s().iter().map(|x| x.is_nan()).collect();
    assert_eq!(nan, [[true; 6].as_slice(), &[false; 6]].concat());
    assert_eq!(found[1].to_f64s()[..2], [f64::NEG_INFINITY; 2]);
    let back = vjp(&module, f, &[0, 1, 2]).unwrap_or_else(|d| panic!("{d}"));
    let found = run(&module, &back, &inputs(&back, NORMAL), &mut Silent).expect("runs");
    let [_, _, q, k, v] = found.as_slice() else { panic!("five results") };
    assert!([q, k, v].iter().all(|x| x.to_f64s().iter().all(|x| x.is_finite())), "{found:?}");
    assert!(q.to_f64s()[..6].iter().all(|&x| x == 0.0), "{q:?}");
}

/// Whether the results of a forward pass have a row that sees nothing.
fn has_hidden_row(forward: &[Array]) -> bool {
    forward[1].to_f64s().contains(&f64::NEG_INFINITY)
}

/// What attention is composed of gives its bits, and all scores at once the same numbers.
#[test]
fn compositions() {
    for c in cases() {
        let module = c.module();
        let f = module.funcs.values().next().expect("one");
        let back = vjp(&module, f, &[0, 1, 2]).unwrap_or_else(|d| panic!("{d}"));
        for f in [f, &back] {
            let args = inputs(f, NORMAL);
            let expected = run(&module, f, &args, &mut Silent).unwrap_or_else(|d| panic!("{d}"));
            let form = |which| {
                let f = with_steps(f.clone(), &|_, _| StepLowering::Composed(which));
                f.unwrap_or_else(|d| panic!("{d}\n{}", c.text()))
            };
            let blocks = form(Composition::Defined);
            agrees(&module, &blocks, &args).unwrap_or_else(|why| panic!("{}\n{why}", c.text()));
            let found = run(&module, &blocks, &args, &mut Silent).expect("runs");
            assert_eq!(found, expected, "{}", c.text());
            let whole = run(&module, &form(Composition::Other), &args, &mut Silent).expect("runs");
            let near = if c.dtype.bytes() == 2 { 0.05 } else { 1e-4 };
            // Where a row sees nothing, the formula has NaN wherever that row has a part.
            let hidden = has_hidden_row(&expected);
            for (x, y) in whole.iter().zip(&expected) {
                let close = |(x, y): (&f64, &f64)| {
                    x == y
                        || hidden && (x.is_nan() || y.is_nan())
                        || (x - y).abs() <= near * (1.0 + y.abs())
                };
                assert!(
                    x.to_f64s().iter().zip(&y.to_f64s()).all(close),
                    "{}\n{x:?}\n{y:?}",
                    c.text()
                );
            }
        }
    }
}

/// Forward mode and products with the Hessian are those of the formula that is written out.
#[test]
fn higher_derivatives() {
    for extra in [Extra::None, Extra::Bias([true, false, false, false]), Extra::Mask(FULL)] {
        let c = case(DType::F64, [1, 2, 2, 5, 6, 3, 2], true, extra);
        let module = c.module();
        let f = module.funcs.values().next().expect("one");
        let whole = with_steps(f.clone(), &|_, _| StepLowering::Composed(Composition::Other));
        let whole = whole.expect("known");
        let wrt: &[usize] =
            if matches!(extra, Extra::Bias(_)) { &[0, 1, 2, 3] } else { &[0, 1, 2] };
        for derive in [jvp, hvp] {
            let [own, plain] = [f, &whole].map(|f| derive(&module, f, wrt));
            let (own, plain) = (own.unwrap_or_else(|d| panic!("{d}")), plain.expect("derives"));
            let args = inputs(&own, NORMAL);
            let forward = &args[..f.params().len()];
            let hidden = has_hidden_row(&run(&module, f, forward, &mut Silent).expect("runs"));
            let found = run(&module, &own, &args, &mut Silent).expect("runs");
            let expected = run(&module, &plain, &args, &mut Silent).expect("runs");
            for (x, y) in found.iter().zip(&expected) {
                let close = |(x, y): (&f64, &f64)| {
                    // The formula has NaN wherever a row that sees nothing has a part.
                    hidden && y.is_nan() || (x - y).abs() <= 1e-9 * (1.0 + y.abs())
                };
                assert!(x.to_f64s().iter().zip(&y.to_f64s()).all(close), "{extra:?}\n{x:?}\n{y:?}");
            }
        }
    }
}

/// No run takes memory for scores, forward or backward.
#[test]
fn scores_are_not_stored() {
    let c = case(DType::F32, [1, 1, 1, 1000, 1000, 8, 8], true, Extra::None);
    let module = c.module();
    let f = module.funcs.values().next().expect("one");
    let back = vjp(&module, f, &[0, 1, 2]).unwrap_or_else(|d| panic!("{d}"));
    for f in [f, &back] {
        let memory = super::dots::made(f, Fp::Strict, 1).memory();
        assert!(memory.peak() < 1000 * 1000, "{memory:?}");
        everywhere(&module, f, &inputs(f, NORMAL)).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// The step of 16-bit floats is a GPU's: hand-written programs with it are refused with the step.
#[test]
fn steps_of_16_bit_floats_are_refused() {
    let text = "program @f {
      input %q: bf16[1, 2, 8]
      output %y: bf16[1, 2, 8]
      output %l: f32[1, 2]
      %y, %l = attention(%q, %q, %q)
      return %y, %l
    }";
    let program = adfuse::ir::kernel::text::parse(text).expect("reads");
    let program = adfuse::ir::kernel::verify(program).unwrap_or_else(|e| panic!("{}", e[0]));
    let refused = Cpu::default().of_program(program).map(|_| ()).expect_err("has no step");
    assert_eq!(refused.kind, Kind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("no step for `attention`"), "{refused}");
}
