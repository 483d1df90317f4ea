//! Derivatives of elementwise rows at the infinities: the mathematical limits there, in both modes.

use adfuse::autodiff::{grad, jvp};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::{Body, Deriv};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module, Op};

const INF: f64 = f64::INFINITY;
/// There is no limit, or the function is not defined near this infinity.
const NONE: f64 = f64::NAN;

/// The first and the second derivative as x goes to minus and to plus infinity.
type Limits = [[f64; 2]; 2];

/// A call with `%x` as one operand, and the limits in it. Operands beside it are constants.
const LIMITS: &[(Op, &str, Limits)] = &[
    (Op::Add, "add %x, 2.0", [[1.0, 0.0], [1.0, 0.0]]),
    (Op::Sub, "sub %x, 2.0", [[1.0, 0.0], [1.0, 0.0]]),
    (Op::Sub, "sub 2.0, %x", [[-1.0, 0.0], [-1.0, 0.0]]),
    (Op::Mul, "mul %x, 2.0", [[2.0, 0.0], [2.0, 0.0]]),
    (Op::Div, "div %x, 2.0", [[0.5, 0.0], [0.5, 0.0]]),
    (Op::Div, "div 2.0, %x", [[0.0, 0.0], [0.0, 0.0]]),
    // Far out a remainder jumps everywhere; between its jumps it has a slope of 1.
    (Op::Rem, "rem %x, 2.0", [[1.0, 0.0], [1.0, 0.0]]),
    (Op::Rem, "rem 2.0, %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Neg, "neg %x", [[-1.0, 0.0], [-1.0, 0.0]]),
    (Op::Abs, "abs %x", [[-1.0, 0.0], [1.0, 0.0]]),
    (Op::Square, "square %x", [[-INF, 2.0], [INF, 2.0]]),
    (Op::IntegerPow, "integer_pow %x {y = 3}", [[INF, -INF], [INF, INF]]),
    (Op::IntegerPow, "integer_pow %x {y = 1}", [[1.0, 0.0], [1.0, 0.0]]),
    (Op::IntegerPow, "integer_pow %x {y = -2}", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Fma, "fma %x, 2.0, 3.0", [[2.0, 0.0], [2.0, 0.0]]),
    (Op::Max, "max %x, 2.0", [[0.0, 0.0], [1.0, 0.0]]),
    (Op::Min, "min %x, 2.0", [[1.0, 0.0], [0.0, 0.0]]),
    (Op::Clamp, "clamp 1.0, %x, 2.0", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Relu, "relu %x", [[0.0, 0.0], [1.0, 0.0]]),
    (Op::Exp, "exp %x", [[0.0, 0.0], [INF, INF]]),
    (Op::Exp2, "exp2 %x", [[0.0, 0.0], [INF, INF]]),
    (Op::Expm1, "expm1 %x", [[0.0, 0.0], [INF, INF]]),
    // Where logarithms have no value, their derivatives are those of log|x| by convention; atanh is one of them.
    (Op::Log, "log %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Log1p, "log1p %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Sqrt, "sqrt %x", [[NONE, NONE], [0.0, 0.0]]),
    (Op::Rsqrt, "rsqrt %x", [[NONE, NONE], [0.0, 0.0]]),
    (Op::Cbrt, "cbrt %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Logaddexp, "logaddexp %x, 2.0", [[0.0, 0.0], [1.0, 0.0]]),
    (Op::Xlogy, "xlogy %x, 3.0", [[1.098_612_288_668_109_8, 0.0]; 2]),
    (Op::Xlogy, "xlogy 3.0, %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Pow, "pow %x, 2.0", [[-INF, 2.0], [INF, 2.0]]),
    (Op::Pow, "pow %x, -1.0", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Pow, "pow 2.0, %x", [[0.0, 0.0], [INF, INF]]),
    (Op::Pow, "pow 0.5, %x", [[-INF, INF], [0.0, 0.0]]),
    (Op::Logistic, "logistic %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Erf, "erf %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Erfc, "erfc %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::ErfInv, "erf_inv %x", [[NONE, NONE], [NONE, NONE]]),
    (Op::Lgamma, "lgamma %x", [[NONE, NONE], [INF, 0.0]]),
    (Op::Digamma, "digamma %x", [[NONE, NONE], [0.0, 0.0]]),
    (Op::Polygamma, "polygamma %x {n = 1}", [[NONE, NONE], [0.0, 0.0]]),
    (Op::Sin, "sin %x", [[NONE, NONE], [NONE, NONE]]),
    (Op::Cos, "cos %x", [[NONE, NONE], [NONE, NONE]]),
    (Op::Tan, "tan %x", [[NONE, NONE], [NONE, NONE]]),
    (Op::Asin, "asin %x", [[NONE, NONE], [NONE, NONE]]),
    (Op::Acos, "acos %x", [[NONE, NONE], [NONE, NONE]]),
    (Op::Atan, "atan %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Atan2, "atan2 %x, 2.0", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Atan2, "atan2 2.0, %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Sinh, "sinh %x", [[INF, -INF], [INF, INF]]),
    (Op::Cosh, "cosh %x", [[-INF, INF], [INF, INF]]),
    (Op::Tanh, "tanh %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Asinh, "asinh %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::Acosh, "acosh %x", [[NONE, NONE], [0.0, 0.0]]),
    (Op::Atanh, "atanh %x", [[0.0, 0.0], [0.0, 0.0]]),
    (Op::SelectN, "select_n %p, %x, 2.0", [[1.0, 0.0], [1.0, 0.0]]),
];

/// Rows without a derivative of their own to look at.
fn has_derivative(op: Op) -> bool {
    let def = op.def();
    matches!(def.body, Body::Map(..))
        && matches!(def.deriv, Deriv::Partials(_))
        && op != Op::ConvertElementType
}

fn only(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

fn differentiated(m: &Module, reverse: bool, order: usize) -> Module {
    let mut m = m.clone();
    for _ in 0..order {
        let f = only(&m);
        m = Module::single(match reverse {
            true => grad(&m, f, &[0]).expect("differentiates"),
            false => jvp(&m, f, &[0]).expect("differentiates"),
        });
    }
    m
}

/// The derivative of this order: reverse mode over reverse mode, or forward mode over forward mode along 1.
fn derivative(m: &Module, dtype: DType, x: f64, reverse: bool, order: usize) -> f64 {
    let m = differentiated(m, reverse, order);
    let one = |v: f64| Array::from_f64s(dtype, &[], &[v]).expect("a scalar");
    let mut args = vec![one(x)];
    args.extend((1..only(&m).params().len()).map(|_| one(1.0)));
    let out = run(&m, only(&m), &args, &mut Silent).expect("runs");
    out.last().expect("a result").get(0).to_f64()
}

#[test]
fn every_elementwise_row_with_a_derivative_has_its_limits_here() {
    for &op in Op::ALL.iter().filter(|&&op| has_derivative(op)) {
        assert!(LIMITS.iter().any(|(of, ..)| *of == op), "`{op}` has no limits in the table");
    }
}

#[test]
fn derivatives_at_the_infinities_are_the_limits() {
    let mut wrong = Vec::new();
    for dtype in [DType::F64, DType::F32, DType::F16] {
        for (_, call, limits) in LIMITS {
            let text = format!(
                "func @f(%x: {dtype}[]) -> {dtype}[] {{
                   %p = ne 0.0, 0.0 : bool[]
                   %y = {call} : {dtype}[]
                   return %y
                 }}"
            );
            let text = match call.contains("%p") {
                true => text.replace("ne 0.0, 0.0", "ne %x, %x"),
                false => text.replace("%p = ne 0.0, 0.0 : bool[]", ""),
            };
            let m = parse(&text).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
            for (x, limits) in [-INF, INF].into_iter().zip(limits) {
                for (order, &due) in (1..).zip(limits) {
                    for reverse in [false, true] {
                        let found = derivative(&m, dtype, x, reverse, order);
                        let near = (found - due).abs() <= 1e-3;
                        if !(near || found == due || found.is_nan() && due.is_nan()) {
                            let mode = if reverse { "reverse" } else { "forward" };
                            wrong.push(format!(
                                "`{call}` in {dtype}, order {order}, {mode}, at {x}: {found}, not {due}"
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
