//! Derivatives with a closed form, at special points and at higher orders.

use super::derivatives::{Point, check};
use adfuse::autodiff::{grad, jvp};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module, TensorType};
use adfuse::sample::rng;
use adfuse::trace::{Tensor, trace};
use approx::abs_diff_eq;
use std::f64::consts::{FRAC_2_SQRT_PI, FRAC_PI_2, FRAC_PI_4, LN_2, PI};

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;
/// pi^2 / 6
const ZETA_2: f64 = PI * PI / 6.0;
/// Apery's constant.
const ZETA_3: f64 = 1.202_056_903_159_594_2;

/// The function of one variable that `body` computes as `%y` from `%x`.
fn scalar(body: &str) -> Module {
    let text = format!("func @f(%x: f64[]) -> f64[] {{ {body} return %y }}");
    parse(&text).unwrap_or_else(|e| panic!("{text}\n{e:#?}"))
}

fn op(name: &str) -> Module {
    scalar(&format!("%y = {name} %x : f64[]"))
}

fn value(x: f64) -> Array {
    Array::from_f64s(DType::F64, &[], &[x]).expect("a scalar")
}

fn only(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

/// The n-th derivative by forward mode over forward mode.
fn forward(m: &Module, x: f64, n: usize) -> f64 {
    let mut m = m.clone();
    let mut args = vec![value(x)];
    for _ in 0..n {
        let wrt: Vec<usize> = (0..args.len()).collect();
        let next = jvp(&m, only(&m), &wrt).expect("differentiates");
        m = Module::single(next);
        // Only x moves, and it moves by 1.
        args.push(value(1.0));
        args.extend((1..wrt.len()).map(|_| value(0.0)));
    }
    let out = run(&m, only(&m), &args, &mut Silent).expect("runs");
    out.last().expect("a result").get(0).to_f64()
}

/// The n-th derivative by reverse mode over reverse mode.
fn reverse(m: &Module, x: f64, n: usize) -> f64 {
    let mut m = m.clone();
    for _ in 0..n {
        m = Module::single(grad(&m, only(&m), &[0]).expect("differentiates"));
    }
    let out = run(&m, only(&m), &[value(x)], &mut Silent).expect("runs");
    out.last().expect("a result").get(0).to_f64()
}

fn assert_near(found: f64, due: f64, what: &str) {
    let near = abs_diff_eq!(found, due, epsilon = 1e-12 * due.abs().max(1e-300));
    let both_nan = found.is_nan() && due.is_nan();
    assert!(near || found == due || both_nan, "{what}: {found:e} instead of {due:e}");
}

/// Both modes give these derivatives of orders 1, 2, ..
fn assert_derivatives(m: &Module, x: f64, due: &[f64]) {
    for (k, &d) in due.iter().enumerate() {
        let what = format!("derivative {} at {x} of {}", k + 1, only(m));
        assert_near(forward(m, x, k + 1), d, &format!("forward {what}"));
        assert_near(reverse(m, x, k + 1), d, &format!("reverse {what}"));
    }
}

#[test]
fn special_points_have_their_derivatives() {
    let far = 1.0 + 1e6;
    let tail = FRAC_2_SQRT_PI * (-100f64).exp();
    let table: &[(&str, f64, [f64; 2])] = &[
        ("sinh", 0.0, [1.0, 0.0]),
        ("cosh", 0.0, [0.0, 1.0]),
        ("tan", 0.0, [1.0, 0.0]),
        ("asin", 0.0, [1.0, 0.0]),
        ("acos", 0.0, [-1.0, 0.0]),
        ("tanh", 0.0, [1.0, 0.0]),
        ("tanh", 1000.0, [0.0, 0.0]),
        ("atan", 0.0, [1.0, 0.0]),
        ("atan", 1000.0, [1.0 / far, -2000.0 / (far * far)]),
        ("sin", 0.0, [1.0, 0.0]),
        ("cos", 0.0, [0.0, -1.0]),
        ("erf", 0.0, [FRAC_2_SQRT_PI, 0.0]),
        ("erfc", 0.0, [-FRAC_2_SQRT_PI, 0.0]),
        ("erf", 10.0, [tail, -20.0 * tail]),
        ("erfc", 10.0, [-tail, 20.0 * tail]),
        ("abs", 0.0, [0.0, 0.0]),
        ("sqrt", 4.0, [0.25, -1.0 / 32.0]),
        ("rsqrt", 4.0, [-1.0 / 16.0, 3.0 / 128.0]),
        ("log", 2.0, [0.5, -0.25]),
        ("logistic", 0.0, [0.25, 0.0]),
        ("expm1", 0.0, [1.0, 1.0]),
        ("log1p", 0.0, [1.0, -1.0]),
        ("exp2", 0.0, [LN_2, LN_2 * LN_2]),
        ("cbrt", 8.0, [1.0 / 12.0, -1.0 / 144.0]),
        ("asinh", 0.0, [1.0, 0.0]),
        ("atanh", 0.0, [1.0, 0.0]),
        ("square", -3.0, [-6.0, 2.0]),
        ("erf_inv", 0.0, [1.0 / FRAC_2_SQRT_PI, 0.0]),
        ("lgamma", 1.0, [-EULER, ZETA_2]),
        ("lgamma", 2.0, [1.0 - EULER, ZETA_2 - 1.0]),
        ("lgamma", 0.5, [-EULER - 2.0 * LN_2, 3.0 * ZETA_2]),
        ("lgamma", -0.5, [2.0 - EULER - 2.0 * LN_2, 3.0 * ZETA_2 + 4.0]),
        ("digamma", 1.0, [ZETA_2, -2.0 * ZETA_3]),
        ("digamma", 0.5, [3.0 * ZETA_2, -14.0 * ZETA_3]),
    ];
    for (name, x, due) in table {
        assert_derivatives(&op(name), *x, due);
    }
    for x in [FRAC_PI_4, FRAC_PI_2, PI] {
        assert_derivatives(&op("sin"), x, &[x.cos(), -x.sin()]);
        assert_derivatives(&op("cos"), x, &[-x.sin(), -x.cos()]);
    }
}

#[test]
fn special_points_agree_with_differences() {
    let points: &[(&[&str], &[f64])] = &[
        (&["sinh", "cosh", "tan", "asin", "acos"], &[0.0]),
        (&["tanh", "atan"], &[0.0, 1000.0]),
        (&["sin", "cos"], &[0.0, FRAC_PI_4, FRAC_PI_2, PI]),
        (&["erf", "erfc"], &[0.0, 10.0]),
    ];
    for (names, points) in points {
        for (name, &x) in names.iter().flat_map(|n| points.iter().map(move |x| (n, x))) {
            let point = Point { module: op(name), args: vec![value(x)] };
            check(&point, 2, &mut rng(3, 0)).unwrap_or_else(|e| panic!("{name} at {x}: {e}"));
        }
    }
}

#[test]
fn relu_has_its_derivatives_to_order_three() {
    for (x, first) in [(1.0, 1.0), (-1.0, 0.0), (0.0, 0.0), (-0.0, 0.0)] {
        assert_derivatives(&op("relu"), x, &[first, 0.0, 0.0]);
    }
    let relu6 = scalar("%y = clamp 0.0, %x, 6.0 : f64[]");
    for (x, first) in [(0.0, 0.0), (6.0, 0.0), (3.0, 1.0), (-1.0, 0.0), (7.0, 0.0)] {
        assert_derivatives(&relu6, x, &[first, 0.0]);
    }
}

/// A function of one variable, traced.
fn traced(f: impl FnOnce(&Tensor) -> Tensor) -> Module {
    let scalar = TensorType::scalar(DType::F64);
    Module::single(trace("f", |t| f(&t.input("x", scalar))).expect("traces"))
}

#[test]
fn activations_have_their_derivatives_to_order_four() {
    let relu6 = traced(Tensor::relu6);
    for (x, first) in [(0.0, 0.0), (6.0, 0.0), (3.0, 1.0), (-1.0, 0.0), (7.0, 0.0)] {
        assert_derivatives(&relu6, x, &[first, 0.0, 0.0, 0.0]);
    }
    let softplus = traced(Tensor::softplus);
    let s = 1.0 / (1.0 + (-1e-8f64).exp());
    let t = s * (1.0 - s);
    let near = [s, t, -t * (0.5e-8f64).tanh(), t * (1.0 - 6.0 * t)];
    assert_derivatives(&softplus, 1e-8, &near[..2]);
    assert_derivatives(&softplus, 0.0, &[0.5, 0.25, 0.0, -0.125]);
    assert_derivatives(&softplus, f64::INFINITY, &[1.0, 0.0, 0.0, 0.0]);
    let mish = traced(Tensor::mish);
    let at_zero = [0.6, 0.64, -0.096, -1.1008];
    assert_derivatives(&mish, 0.0, &at_zero[..2]);
    for (k, d) in at_zero.into_iter().enumerate() {
        // 1e-8 is a step of the next derivative away, which is below 4.
        for (x, allowed) in [(0.0, 1e-13), (1e-8, 4e-8)] {
            for found in [forward(&mish, x, k + 1), reverse(&mish, x, k + 1)] {
                let what = format!("derivative {} of mish at {x}: {found} instead of {d}", k + 1);
                assert!(abs_diff_eq!(found, d, epsilon = allowed), "{what}");
            }
        }
    }
    for (order, due) in (1..).zip(near).skip(2) {
        for found in [forward(&softplus, 1e-8, order), reverse(&softplus, 1e-8, order)] {
            let what = format!("derivative {order} of softplus: {found} instead of {due}");
            assert!(abs_diff_eq!(found, due, epsilon = 1e-15), "{what}");
        }
    }
    for m in [&softplus, &mish] {
        assert_derivatives(m, f64::NEG_INFINITY, &[0.0; 4]);
        assert_derivatives(m, f64::NAN, &[f64::NAN; 4]);
    }
    assert_derivatives(&mish, f64::INFINITY, &[1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn the_gamma_family_has_its_derivatives() {
    let pi4 = PI * PI * PI * PI;
    assert_derivatives(&op("lgamma"), 1.0, &[-EULER, ZETA_2, -2.0 * ZETA_3, pi4 / 15.0]);
    assert_derivatives(&op("digamma"), 0.5, &[3.0 * ZETA_2, -14.0 * ZETA_3, pi4]);
    let trigamma = scalar("%y = polygamma %x {n = 1} : f64[]");
    assert_derivatives(&trigamma, 1.0, &[-2.0 * ZETA_3, pi4 / 15.0]);
    assert_derivatives(&op("digamma"), -0.5, &[3.0 * ZETA_2 + 4.0, 16.0 - 14.0 * ZETA_3]);
    let cube = PI.sqrt() * PI / 4.0;
    assert_derivatives(&op("erf_inv"), 0.0, &[1.0 / FRAC_2_SQRT_PI, 0.0, cube]);
}

#[test]
fn ties_share_the_derivative() {
    for name in ["max", "min"] {
        for body in [format!("%y = {name} %x, 2.0 : f64[]"), format!("%y = {name} 2.0, %x : f64[]")]
        {
            assert_derivatives(&scalar(&body), 2.0, &[0.5, 0.0]);
        }
    }
    // The same value twice: both halves.
    assert_derivatives(&scalar("%y = max %x, %x : f64[]"), 2.0, &[1.0, 0.0]);
    for (name, n) in [("reduce_max", 4.0), ("reduce_min", 4.0)] {
        let body = format!(
            "%v = constant {{values = dense [0.0, 0.0, 0.0]}} : f64[3]
             %b = reshape %x : f64[1]
             %c = concatenate %b, %v {{axis = 0}} : f64[4]
             %y = {name} %c {{axes = [0]}} : f64[]"
        );
        assert_derivatives(&scalar(&body), 0.0, &[1.0 / n, 0.0]);
    }
}

#[test]
fn powers_have_their_derivatives() {
    assert_derivatives(&scalar("%y = integer_pow %x {y = 0} : f64[]"), 0.0, &[0.0, 0.0]);
    assert_derivatives(&scalar("%y = integer_pow %x {y = 1} : f64[]"), 0.0, &[1.0, 0.0]);
    assert_derivatives(
        &scalar("%y = integer_pow %x {y = 3} : f64[]"),
        2.0,
        &[12.0, 12.0, 6.0, 0.0],
    );
    assert_derivatives(&scalar("%y = integer_pow %x {y = -2} : f64[]"), 2.0, &[-0.25, 0.375]);
    assert_derivatives(&scalar("%y = pow %x, 0.0 : f64[]"), 0.0, &[0.0]);
    assert_derivatives(&scalar("%y = pow %x, 2.0 : f64[]"), 0.0, &[0.0, 2.0]);
    // Powers of what is far from 1 stay within range, at every order.
    let twelfth = scalar("%y = integer_pow %x {y = -12} : f64[]");
    assert_derivatives(&twelfth, 1e20, &[-12e-260, 156e-280, -2184e-300]);
    assert_derivatives(&twelfth, 1e-20, &[-12e260, 156e280, -2184e300]);
    // x log x: 1 + log x in all, and at 0 nothing comes from the factor that is 0.
    assert_derivatives(&scalar("%y = xlogy %x, %x : f64[]"), 2.0, &[1.0 + LN_2, 0.5, -0.25]);
    assert_derivatives(&scalar("%y = xlogy 0.0, %x : f64[]"), 0.0, &[0.0]);
    assert_derivatives(&scalar("%y = xlogy %x, 2.0 : f64[]"), 0.0, &[LN_2, 0.0]);
    let sixth = 0.0439453125;
    assert_near(forward(&scalar("%y = div 1.0, %x : f64[]"), 4.0, 6), sixth, "forward");
    assert_near(reverse(&scalar("%y = div 1.0, %x : f64[]"), 4.0, 6), sixth, "reverse");
}

/// Row `i` of the derivative of a gradient, for each parameter.
fn hessian(m: &Module, args: &[Array]) -> Vec<Vec<f64>> {
    let wrt: Vec<usize> = (0..args.len()).collect();
    let g = Module::single(grad(m, only(m), &wrt).expect("a gradient"));
    let h = Module::single(jvp(&g, only(&g), &wrt).expect("its jvp"));
    let sizes: Vec<usize> = args.iter().map(Array::len).collect();
    let mut rows = Vec::new();
    for (k, &n) in sizes.iter().enumerate() {
        for i in 0..n {
            let mut all = args.to_vec();
            for (j, a) in args.iter().enumerate() {
                let unit: Vec<f64> = (0..a.len()).map(|e| f64::from(j == k && e == i)).collect();
                all.push(Array::from_f64s(DType::F64, a.dims(), &unit).expect("same size"));
            }
            let out = run(&h, only(&h), &all, &mut Silent).expect("runs");
            rows.push(out[args.len()..].iter().flat_map(Array::to_f64s).collect());
        }
    }
    rows
}

fn assert_matrix(found: &[Vec<f64>], due: &[Vec<f64>]) {
    for (f, d) in found.iter().flatten().zip(due.iter().flatten()) {
        let near = abs_diff_eq!(f, d, epsilon = 1e-12 * d.abs().max(1.0));
        assert!(near, "{found:?} instead of {due:?}");
    }
    assert_eq!(found.len(), due.len());
}

#[test]
fn hessians_have_their_closed_form() {
    let pow = "func @f(%x: f64[], %y: f64[]) -> f64[] { %0 = pow %x, %y : f64[] return %0 }";
    let ln4 = 4f64.ln();
    let found = hessian(&parse(pow).expect("parses"), &[value(4.0), value(0.0)]);
    assert_matrix(&found, &[vec![0.0, 0.25], vec![0.25, ln4 * ln4]]);

    let form = "func @f(%x: f64[2]) -> f64[] {
        %a = constant {values = dense [1.0, 2.0, 5.0, 7.0]} : f64[2,2]
        %0 = dot_general %a, %x {contract = [1] x [0]} : f64[2]
        %1 = dot_general %x, %0 {contract = [0] x [0]} : f64[]
        return %1 }";
    let x = Array::from_f64s(DType::F64, &[2], &[0.3, -2.0]).expect("two");
    let found = hessian(&parse(form).expect("parses"), &[x]);
    assert_matrix(&found, &[vec![2.0, 7.0], vec![7.0, 14.0]]);

    // The sum of x^3 / 3 has the gradient x^2, whose jacobian is diag(2x).
    let squares = "func @f(%x: f64[4]) -> f64[] {
        %0 = integer_pow %x {y = 3} : f64[4]
        %1 = div %0, 3.0 : f64[4]
        %2 = reduce_sum %1 {axes = [0]} : f64[]
        return %2 }";
    let x = Array::from_f64s(DType::F64, &[4], &[0.0, 1.0, 2.0, 3.0]).expect("four");
    let found = hessian(&parse(squares).expect("parses"), &[x]);
    let due: Vec<Vec<f64>> = (0..4)
        .map(|i| (0..4).map(|j| if i == j { 2.0 * i as f64 } else { 0.0 }).collect())
        .collect();
    assert_matrix(&found, &due);
}

/// Products with zeros need every other factor.
#[test]
fn products_with_zeros_have_their_gradient() {
    let text = "func @f(%x: f64[2,3]) -> f64[] {
        %0 = reduce_prod %x {axes = [0, 1]} : f64[]
        return %0 }";
    let m = parse(text).expect("parses");
    let g = Module::single(grad(&m, only(&m), &[0]).expect("a gradient"));
    for (x, due) in [
        ([1.0, 2.0, 0.0, 3.0, 4.0, 5.0], [0.0, 0.0, 120.0, 0.0, 0.0, 0.0]),
        ([1.0, 0.0, 0.0, 3.0, 4.0, 5.0], [0.0; 6]),
        ([1.0, 2.0, 1.0, 3.0, 1.0, 1.0], [6.0, 3.0, 6.0, 2.0, 6.0, 6.0]),
    ] {
        let x = Array::from_f64s(DType::F64, &[2, 3], &x).expect("six");
        let out = run(&g, only(&g), &[x], &mut Silent).expect("runs");
        assert_eq!(out[0].to_f64s(), due);
    }
}
