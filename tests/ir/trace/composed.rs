//! Methods that are several ops: values against plain loops, derivatives against differences.

use adfuse::autodiff::{differentiable, value_and_grad};
use adfuse::check::{CheckOptions, Outcome, check};
use adfuse::ir::op::Domain;
use adfuse::prelude::*;
use adfuse::sample::{rng, sample};
use approx::relative_eq;

/// A method, the shapes of its inputs, and what it computes.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) shapes: &'static [&'static [u64]],
    pub(super) body: fn(&Tracer, &[Tensor]) -> Tensor,
    pub(super) due: fn(&[Vec<f64>]) -> Vec<f64>,
}

fn traced(case: &Case) -> Traced {
    let f = trace(case.name, |t| {
        let mut inputs = Vec::new();
        for (k, dims) in case.shapes.iter().enumerate() {
            inputs.push(t.input(&format!("x{k}"), TensorType::of(DType::F64, dims)));
        }
        (case.body)(t, &inputs)
    });
    f.unwrap_or_else(|e| panic!("{}: {e}", case.name))
}

/// The values of a case at random points are those of plain loops, and its derivatives those of differences.
pub(super) fn holds(case: &Case) {
    let f = traced(case);
    let module = Module::single(f.clone());
    for seed in 0..3 {
        let mut rng = rng(seed, 7);
        let args: Vec<Array> = f
            .param_types()
            .iter()
            .map(|ty| sample(ty, Domain::Uniform(-2.5, 2.5), &mut rng).expect("known extents"))
            .collect();
        let plain: Vec<Vec<f64>> = args.iter().map(Array::to_f64s).collect();
        let due = (case.due)(&plain);
        let out = run(&module, &f, &args, &mut Silent).expect("it runs").remove(0).to_f64s();
        assert_eq!(out.len(), due.len(), "{}", case.name);
        for (k, (y, d)) in out.iter().zip(&due).enumerate() {
            let close = relative_eq!(y, d, epsilon = 1e-12, max_relative = 1e-12);
            assert!(close, "{}: element {k} is {y}, not {d}, at {plain:?}", case.name);
        }
    }
    let rows = check(&module, &CheckOptions::default()).expect("it is checked");
    for row in rows {
        let passed = matches!(row.outcome, Outcome::Pass(_));
        assert!(passed, "{} by {}, {:?}: {:?}", case.name, row.input, row.mode, row.outcome);
    }
}

fn each(x: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    x.iter().map(|&x| f(x)).collect()
}

/// Rows of three.
fn rows(x: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    x.chunks(3).flat_map(f).collect()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / x.len() as f64
}

fn logsumexp(x: &[f64]) -> f64 {
    x.iter().map(|x| x.exp()).sum::<f64>().ln()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function, by its series.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

const ROWS: &[&[u64]] = &[&[4, 3]];
const LINE: &[&[u64]] = &[&[12]];
const PAIR: &[&[u64]] = &[&[4, 3], &[4, 3]];

#[test]
fn activations() {
    let cases = [
        Case {
            name: "gelu",
            shapes: LINE,
            body: |_, x| x[0].gelu(),
            due: |x| each(&x[0], |x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()))),
        },
        Case {
            name: "gelu_tanh",
            shapes: LINE,
            body: |_, x| x[0].gelu_tanh(),
            due: |x| {
                each(&x[0], |x| {
                    0.5 * x
                        * (1.0
                            + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x))
                                .tanh())
                })
            },
        },
        Case {
            name: "silu",
            shapes: LINE,
            body: |_, x| x[0].silu(),
            due: |x| each(&x[0], |x| x * sigmoid(x)),
        },
        Case {
            name: "sigmoid",
            shapes: LINE,
            body: |_, x| x[0].sigmoid(),
            due: |x| each(&x[0], sigmoid),
        },
        Case {
            name: "log_sigmoid",
            shapes: LINE,
            body: |_, x| x[0].log_sigmoid(),
            due: |x| each(&x[0], |x| sigmoid(x).ln()),
        },
        Case {
            name: "softplus",
            shapes: LINE,
            body: |_, x| x[0].softplus(),
            due: |x| each(&x[0], |x| (1.0 + x.exp()).ln()),
        },
        Case {
            name: "elu",
            shapes: LINE,
            body: |_, x| x[0].elu(0.7),
            due: |x| each(&x[0], |x| if x > 0.0 { x } else { 0.7 * (x.exp() - 1.0) }),
        },
        Case {
            name: "celu",
            shapes: LINE,
            body: |_, x| x[0].celu(0.7),
            due: |x| each(&x[0], |x| if x > 0.0 { x } else { 0.7 * ((x / 0.7).exp() - 1.0) }),
        },
        Case {
            name: "selu",
            shapes: LINE,
            body: |_, x| x[0].selu(),
            due: |x| {
                each(&x[0], |x| {
                    1.0507009873554805
                        * if x > 0.0 { x } else { 1.6732632423543772 * (x.exp() - 1.0) }
                })
            },
        },
        Case {
            name: "leaky_relu",
            shapes: LINE,
            body: |_, x| x[0].leaky_relu(0.1),
            due: |x| each(&x[0], |x| if x > 0.0 { x } else { 0.1 * x }),
        },
        Case {
            name: "prelu",
            shapes: PAIR,
            body: |_, x| x[0].prelu(&x[1]),
            due: |x| {
                x[0].iter().zip(&x[1]).map(|(x, s)| if *x > 0.0 { *x } else { s * x }).collect()
            },
        },
        Case {
            name: "relu6",
            shapes: LINE,
            body: |_, x| (&x[0] * 5.0).relu6(),
            due: |x| each(&x[0], |x| (5.0 * x).clamp(0.0, 6.0)),
        },
        Case {
            name: "hard_sigmoid",
            shapes: LINE,
            body: |_, x| (&x[0] * 2.0).hard_sigmoid(),
            due: |x| each(&x[0], |x| (2.0 * x + 3.0).clamp(0.0, 6.0) / 6.0),
        },
        Case {
            name: "hardswish",
            shapes: LINE,
            body: |_, x| (&x[0] * 2.0).hardswish(),
            due: |x| each(&x[0], |x| 2.0 * x * (2.0 * x + 3.0).clamp(0.0, 6.0) / 6.0),
        },
        Case {
            name: "hard_tanh",
            shapes: LINE,
            body: |_, x| x[0].hard_tanh(),
            due: |x| each(&x[0], |x| x.clamp(-1.0, 1.0)),
        },
        Case {
            name: "softsign",
            shapes: LINE,
            body: |_, x| x[0].softsign(),
            due: |x| each(&x[0], |x| x / (1.0 + x.abs())),
        },
        Case {
            name: "mish",
            shapes: LINE,
            body: |_, x| x[0].mish(),
            due: |x| each(&x[0], |x| x * (1.0 + x.exp()).ln().tanh()),
        },
        Case {
            name: "glu",
            shapes: &[&[2, 6]],
            body: |_, x| x[0].glu(-1),
            due: |x| {
                x[0].chunks(6)
                    .flat_map(|r| (0..3).map(|k| r[k] * sigmoid(r[k + 3])).collect::<Vec<_>>())
                    .collect()
            },
        },
        Case {
            name: "swiglu",
            shapes: &[&[2, 6]],
            body: |_, x| x[0].swiglu(1),
            due: |x| {
                x[0].chunks(6)
                    .flat_map(|r| {
                        (0..3).map(|k| r[k] * sigmoid(r[k]) * r[k + 3]).collect::<Vec<_>>()
                    })
                    .collect()
            },
        },
    ];
    cases.iter().for_each(holds);
}

#[test]
fn normalizations() {
    let cases = [
        Case {
            name: "softmax",
            shapes: ROWS,
            body: |_, x| x[0].softmax(-1),
            due: |x| rows(&x[0], |r| each(r, |x| (x - logsumexp(r)).exp())),
        },
        Case {
            name: "log_softmax",
            shapes: ROWS,
            body: |_, x| x[0].log_softmax(1),
            due: |x| rows(&x[0], |r| each(r, |x| x - logsumexp(r))),
        },
        Case {
            name: "log_softmax_of_all",
            shapes: ROWS,
            body: |_, x| x[0].log_softmax(..),
            due: |x| each(&x[0], |v| v - logsumexp(&x[0])),
        },
        Case {
            name: "logsumexp",
            shapes: ROWS,
            body: |_, x| x[0].logsumexp(-1),
            due: |x| rows(&x[0], |r| vec![logsumexp(r)]),
        },
        Case {
            name: "mean",
            shapes: ROWS,
            body: |_, x| x[0].square().mean(-1),
            due: |x| rows(&x[0], |r| vec![mean(&each(r, |x| x * x))]),
        },
        Case {
            name: "var",
            shapes: ROWS,
            body: |_, x| x[0].var(1),
            due: |x| rows(&x[0], |r| vec![variance(r)]),
        },
        Case {
            name: "std",
            shapes: ROWS,
            body: |_, x| x[0].std([-1]),
            due: |x| rows(&x[0], |r| vec![variance(r).sqrt()]),
        },
        Case {
            name: "norm",
            shapes: ROWS,
            body: |_, x| x[0].norm(-1),
            due: |x| rows(&x[0], |r| vec![r.iter().map(|x| x * x).sum::<f64>().sqrt()]),
        },
        Case {
            name: "layer_norm",
            shapes: ROWS,
            body: |_, x| x[0].layer_norm(-1, 1e-3),
            due: |x| rows(&x[0], |r| each(r, |x| (x - mean(r)) / (variance(r) + 1e-3).sqrt())),
        },
        Case {
            name: "rms_norm",
            shapes: ROWS,
            body: |_, x| x[0].rms_norm(1.., 1e-3),
            due: |x| rows(&x[0], |r| each(r, |x| x / (mean(&each(r, |x| x * x)) + 1e-3).sqrt())),
        },
        Case {
            name: "l2_normalize",
            shapes: ROWS,
            body: |_, x| x[0].l2_normalize(-1, 1e-3),
            due: |x| {
                rows(&x[0], |r| {
                    each(r, |x| x / (r.iter().map(|x| x * x).sum::<f64>() + 1e-3).sqrt())
                })
            },
        },
        Case {
            name: "kept_axes",
            shapes: ROWS,
            body: |_, x| &x[0] - x[0].square().mean(keep(0)),
            due: |x| {
                let column = |k: usize| (0..4).map(|i| x[0][3 * i + k].powi(2)).sum::<f64>() / 4.0;
                (0..12).map(|n| x[0][n] - column(n % 3)).collect()
            },
        },
    ];
    cases.iter().for_each(holds);
}

#[test]
fn losses() {
    let cases = [
        Case {
            name: "cross_entropy",
            shapes: ROWS,
            body: |t, x| x[0].cross_entropy(&t.constant([2, 0, 1, 2])),
            due: |x| {
                let labels = [2, 0, 1, 2];
                let each = x[0].chunks(3).zip(labels).map(|(r, k)| logsumexp(r) - r[k]);
                vec![each.sum::<f64>() / 4.0]
            },
        },
        Case {
            name: "cross_entropy_of_probabilities",
            shapes: PAIR,
            body: |_, x| x[0].cross_entropy(&x[1].softmax(-1)),
            due: |x| {
                let each = x[0].chunks(3).zip(x[1].chunks(3)).map(|(r, p)| {
                    let total = logsumexp(p);
                    r.iter()
                        .zip(p)
                        .map(|(x, p)| (p - total).exp() * (logsumexp(r) - x))
                        .sum::<f64>()
                });
                vec![each.sum::<f64>() / 4.0]
            },
        },
        Case {
            name: "mse",
            shapes: PAIR,
            body: |_, x| x[0].mse(&x[1]),
            due: |x| {
                vec![mean(
                    &x[0].iter().zip(&x[1]).map(|(a, b)| (a - b).powi(2)).collect::<Vec<_>>(),
                )]
            },
        },
        Case {
            name: "mae",
            shapes: PAIR,
            body: |_, x| x[0].mae(&x[1]),
            due: |x| {
                vec![mean(&x[0].iter().zip(&x[1]).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>())]
            },
        },
        Case {
            name: "huber",
            shapes: PAIR,
            body: |_, x| x[0].huber(&x[1], 0.8),
            due: |x| {
                let huber = |d: f64| if d < 0.8 { 0.5 * d * d } else { 0.8 * (d - 0.4) };
                vec![mean(
                    &x[0].iter().zip(&x[1]).map(|(a, b)| huber((a - b).abs())).collect::<Vec<_>>(),
                )]
            },
        },
        Case {
            name: "binary_cross_entropy_with_logits",
            shapes: PAIR,
            body: |_, x| x[0].binary_cross_entropy_with_logits(&x[1].sigmoid()),
            due: |x| {
                let term =
                    |x: f64, y: f64| -y * sigmoid(x).ln() - (1.0 - y) * (1.0 - sigmoid(x)).ln();
                vec![mean(
                    &x[0].iter().zip(&x[1]).map(|(a, b)| term(*a, sigmoid(*b))).collect::<Vec<_>>(),
                )]
            },
        },
    ];
    cases.iter().for_each(holds);
}

/// A mean over an axis whose extent is a symbol is the mean over what the argument has.
#[test]
fn means_over_symbols() {
    let n = Dim::Sym(Symbol::new("n").expect("a name"));
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        let f = trace("f", |t| {
            let x = t.input("x", TensorType::new(dtype, [n, Dim::Const(2)]));
            [x.mean(..), x.var(0).sum(0), x.count(0).convert(dtype)]
        })
        .expect("symbols have means");
        let module = Module::single(f.clone());
        for rows in [1u64, 4, 300] {
            let numbers: Vec<f64> = (0..2 * rows).map(|k| (k % 4) as f64).collect();
            let x = Array::from_f64s(dtype, &[rows, 2], &numbers).expect("numbers");
            let out = run(&module, &f, &[x], &mut Silent).expect("it runs");
            let one = |k: usize| out[k].get(0).to_f64();
            assert_eq!(one(0), mean(&numbers), "{dtype} {rows}");
            let column = |c| numbers.iter().skip(c).step_by(2).copied().collect::<Vec<_>>();
            assert_eq!(one(1), variance(&column(0)) + variance(&column(1)), "{dtype} {rows}");
            assert_eq!(one(2), rows as f64);
        }
        for row in check(&module, &CheckOptions::default()).expect("it is checked") {
            assert!(matches!(row.outcome, Outcome::Pass(_)), "{row:?}");
        }
    }
}

/// What overflows in a naive formula has a value and finite derivatives.
#[test]
fn far_from_zero() {
    let far = |body: fn(&Tensor) -> Tensor| {
        let f = trace("f", |t| body(&t.input("x", f64s([2]))).sum(..)).expect("traces");
        let g = value_and_grad(&Module::single(f.clone()), &f, &[0]).expect("reverses");
        let x = Array::from_f64s(DType::F64, &[2], &[1000.0, -1000.0]).expect("numbers");
        let out = run(&Module::single(g.clone()), &g, &[x], &mut Silent).expect("it runs");
        assert!(out.iter().all(|a| a.to_f64s().iter().all(|x| x.is_finite())), "{f}\n{out:?}");
    };
    let all: [fn(&Tensor) -> Tensor; 10] = [
        |x| x.softmax(0),
        |x| x.log_softmax(0),
        |x| x.logsumexp(0),
        |x| x.elu(1.0),
        |x| x.celu(1.0),
        |x| x.selu(),
        |x| x.gelu_tanh(),
        |x| x.silu(),
        |x| x.cross_entropy(&x.tracer().constant(1)),
        |x| x.binary_cross_entropy_with_logits(&x.ones_like()),
    ];
    all.into_iter().for_each(far);
    let y = evaluate(|t| t.constant([f64::NEG_INFINITY; 2]).logsumexp(0)).expect("it runs");
    assert_eq!(y.to_f64s(), [f64::NEG_INFINITY]);
}

/// Sums of 16-bit floats are made in `f32`: 4096 ones have the mean 1, which sums in `bf16` would not.
#[test]
fn sixteen_bits_are_summed_in_f32() {
    for dtype in [DType::F16, DType::BF16] {
        let x = Array::from_f64s(dtype, &[1 << 17], &vec![1.0; 1 << 17]).expect("numbers");
        let y = evaluate(|t| t.constant(&x).mean(0)).expect("it runs");
        assert_eq!((y.dtype(), y.to_f64s()), (dtype, vec![1.0]));
    }
}

/// A network of what layers are made of: its value and gradients by the CPU engine are those of the reference.
#[test]
fn engines_agree() {
    let f = trace("loss", |t| {
        let (x, w) = (t.input("x", f32s([4, 2, 8, 8])), t.input("w", f32s([3, 2, 3, 3])));
        let (v, b) = (t.input("v", f32s([48, 5])), t.input("b", f32s([5])));
        let key = Key::new(&t.constant(3i64));
        let images = x.conv2d(&w, &Conv::same()).gelu().max_pool2d(2);
        let h = images.flatten(1..).layer_norm(-1, 1e-5).dropout(&key, 0.2);
        let logits = h.matmul(&v) + b;
        let noise = key.normal(f32s([5])) * 1e-3;
        (logits + noise).cross_entropy(&t.constant([1, 0, 4, 2]))
    })
    .expect("the closure is right");
    let module = Module::single(f.clone());
    let wrt = differentiable(&f, None).expect("floats");
    let g = value_and_grad(&module, &f, &wrt).expect("reverses");
    agree(&g);
    // A mean over a symbol, where the program is told its extent.
    let n = Symbol::new("n").expect("a name");
    let f = trace("mean", |t| {
        t.input("x", TensorType::new(DType::F32, [Dim::Sym(n), 3.into()])).var(0).mean(..)
    });
    let f = f.expect("symbols have means");
    let g = value_and_grad(&Module::single(f.clone()), &f, &[0]).expect("reverses");
    agree(&adfuse::ir::rewrite::specialize(&g, &[(n, 7)].into()).expect("an extent"));
}

fn agree(f: &Function) {
    let module = Module::single(f.clone());
    let mut rng = rng(1, 1);
    let args: Vec<Array> = f
        .param_types()
        .iter()
        .map(|ty| sample(ty, Domain::Uniform(-1.0, 1.0), &mut rng).expect("known extents"))
        .collect();
    let due = run(&module, f, &args, &mut Silent).expect("it runs");
    let made = Cpu::default().compile(&module, f).expect("it compiles");
    let found = made.executable.run(&args).expect("it runs");
    for (a, b) in due.iter().zip(&found) {
        for (x, y) in a.to_f64s().iter().zip(b.to_f64s()) {
            assert!(relative_eq!(*x, y, epsilon = 1e-6, max_relative = 1e-5), "{x} and {y}:\n{f}");
        }
    }
}
