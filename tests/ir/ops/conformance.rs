//! The elementwise ops where lists of other systems' tests have them: derivatives against
//! differences in both modes at orders 1 and 2, and `f32` against `f64`.

use super::derivatives::{Point, check};
use adfuse::autodiff::jvp;
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain::{self, Ints, Normal, NormalFar, SignedUniform, Small, Uniform};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module, TensorType};
use adfuse::sample::{rng, sample};
use approx::abs_diff_eq;

/// Where operands are drawn: one entry an operand, the last repeats.
type Domains = &'static [Domain];

const D: Domains = &[Normal];
const S: Domains = &[Small];
const P: Domains = &[Uniform(1.0, 3.0)];
const NS: Domains = &[NormalFar];
const WIDE: Domains = &[Uniform(-1.3, 1.3)];
const UNIT: Domains = &[Uniform(-0.9, 0.9)];
const STEP: Domains = &[Uniform(0.1, 0.4)];
const BELOW: Domains = &[Uniform(-0.9, -0.1)];

/// Instructions on `%x`, `%y`, `%z` of a float type and `%p` of truth values, and where they are tried.
const LIST: &[(&[&str], &[Domains])] = &[
    (&["neg %x", "logistic %x", "expm1 %x", "cos %x", "sin %x", "sinh %x", "cosh %x"], &[D]),
    (&["tanh %x", "add %x, %y", "sub %x, %y", "mul %x, %y", "atan2 %x, %y"], &[D]),
    (&["max %x, %y", "min %x, %y", "atan %x", "asinh %x", "logaddexp %x, %y"], &[D]),
    (&["floor %x", "ceil %x", "round %x", "round_nearest_even %x", "trunc %x"], &[STEP]),
    (&["exp %x", "exp2 %x", "erf %x", "erfc %x"], &[S, D]),
    (&["erf_inv %x", "atanh %x"], &[UNIT]),
    (&["log %x", "log1p %x", "abs %x", "sqrt %x", "rsqrt %x", "pow %x, %y", "acosh %x"], &[P]),
    (&["xlogy %x, %y"], &[P]),
    (&["lgamma %x", "digamma %x"], &[P, BELOW]),
    (&["polygamma %x {n = 0}", "polygamma %x {n = 1}", "polygamma %x {n = 2}"], &[P, BELOW]),
    (&["polygamma %x {n = 5}"], &[P]),
    (&["tan %x"], &[WIDE]),
    (&["asin %x", "acos %x"], &[UNIT]),
    (&["cbrt %x", "div %x, %y"], &[NS]),
    (&["rem %x, %y"], &[&[Uniform(-9.0, 9.0), SignedUniform(0.1, 5.0)]]),
    (&["integer_pow %x {y = 0}", "integer_pow %x {y = 1}", "integer_pow %x {y = 2}"], &[D]),
    (&["integer_pow %x {y = 3}", "integer_pow %x {y = 7}", "square %x", "sign %x"], &[D]),
    (&["integer_pow %x {y = -1}", "integer_pow %x {y = -3}"], &[NS]),
    (&["clamp %x, %y, %z", "fma %x, %y, %z", "relu %x", "select_n %p, %x, %y"], &[D]),
];

/// The names of the operands that an instruction reads.
fn names(text: &str) -> Vec<&'static str> {
    ["%p", "%x", "%y", "%z"].into_iter().filter(|n| text.contains(n)).collect()
}

fn module(text: &str) -> Module {
    parse(text).unwrap_or_else(|e| panic!("{text}\n{e:#?}"))
}

/// The instruction on tensors of one shape.
fn program(text: &str, dtype: DType, dims: &[u64]) -> Module {
    let ty = TensorType::of(dtype, dims);
    let of = |n: &str| if n == "%p" { TensorType::of(DType::Bool, dims) } else { ty.clone() };
    let params: Vec<String> = names(text).iter().map(|n| format!("{n}: {}", of(n))).collect();
    module(&format!("func @f({}) -> {ty} {{ %0 = {text} : {ty} return %0 }}", params.join(", ")))
}

fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

/// Arguments for the parameters; those of truth values are drawn as such.
fn arguments(m: &Module, domains: Domains, seed: u64) -> Vec<Array> {
    let mut rng = rng(seed, 0);
    let mut k = 0;
    let mut draw = |ty: &TensorType| {
        let domain = if ty.dtype == DType::Bool {
            Ints(0, 2)
        } else {
            k += 1;
            domains[(k - 1).min(domains.len() - 1)]
        };
        sample(ty, domain, &mut rng).expect("samples")
    };
    first(m).param_types().iter().map(&mut draw).collect()
}

fn each(mut visit: impl FnMut(&'static str, Domains)) {
    for (texts, domains) in LIST {
        for text in *texts {
            for domain in *domains {
                visit(text, domain);
            }
        }
    }
}

#[test]
fn derivatives_of_the_list_agree_with_differences_and_each_other() {
    let (mut failures, mut checks) = (Vec::new(), 0);
    each(|text, domain| {
        for dims in [&[3][..], &[2, 3, 4], &[2, 1, 4], &[0, 2]] {
            let module = program(text, DType::F64, dims);
            let args = arguments(&module, domain, 11);
            match check(&Point { module, args }, 2, &mut rng(11, 1)) {
                Ok(n) => checks += n,
                Err(why) => failures.push(format!("`{text}`: {why}")),
            }
        }
    });
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert!(checks > 1000, "{checks} checks");
}

/// Operands of two shapes, broadcast to one: the transposes of their broadcasts sum.
#[test]
fn derivatives_of_broadcast_pairs_agree() {
    let shapes: [(&str, &str); 4] =
        [("f64[]", "[]"), ("f64[3,4]", "[0, 1]"), ("f64[3,1]", "[0, 1]"), ("f64[1,4]", "[0, 1]")];
    let mut checks = 0;
    for (texts, domains) in LIST {
        for text in texts.iter().filter(|t| names(t) == ["%x", "%y"]) {
            for (tx, dx) in shapes {
                for (ty, dy) in shapes {
                    let body = text.replace("%x", "%a").replace("%y", "%b");
                    let module = module(&format!(
                        "func @f(%x: {tx}, %y: {ty}) -> f64[3,4] {{
                        %a = broadcast_in_dim %x {{dims = {dx}}} : f64[3,4]
                        %b = broadcast_in_dim %y {{dims = {dy}}} : f64[3,4]
                        %0 = {body} : f64[3,4]
                        return %0 }}"
                    ));
                    let args = arguments(&module, domains[0], 3);
                    let found = check(&Point { module, args }, 2, &mut rng(3, 1));
                    checks += found.unwrap_or_else(|e| panic!("`{text}`: {e}"));
                }
            }
        }
    }
    assert!(checks > 500, "{checks} checks");
}

/// `f32` is within 16 units in the last place of the `f64` result, or of what a change of the operands
/// by their last places would change it.
#[test]
fn f32_is_as_near_as_its_condition_allows() {
    let mut compared = 0;
    each(|text, domain| {
        let (narrow, wide) = (program(text, DType::F32, &[64]), program(text, DType::F64, &[64]));
        let args = arguments(&narrow, domain, 5);
        let widened: Vec<Array> = args
            .iter()
            .map(|a| if a.dtype() == DType::F32 { a.convert(DType::F64) } else { a.clone() })
            .collect();
        let result = |m: &Module, args: &[Array]| {
            run(m, first(m), args, &mut Silent).expect("runs").swap_remove(0).to_f64s()
        };
        let (got, exact) = (result(&narrow, &args), result(&wide, &widened));
        // |x| |df/dx| for each operand alone.
        let mut change = vec![0.0; exact.len()];
        for k in (0..args.len()).filter(|&k| args[k].dtype() == DType::F32) {
            let slope = Module::single(jvp(&wide, first(&wide), &[k]).expect("differentiates"));
            let mut with_tangent = widened.clone();
            with_tangent.push(widened[k].clone());
            let out = run(&slope, first(&slope), &with_tangent, &mut Silent).expect("runs");
            for (c, t) in change.iter_mut().zip(out[1].to_f64s()) {
                *c += t.abs();
            }
        }
        for (i, (g, e)) in got.iter().zip(&exact).enumerate() {
            let allowed = 16.0 * (-23f64).exp2() * e.abs().max(change[i]) + 1e-44;
            let at: Vec<f64> = widened.iter().map(|a| a.get(i).to_f64()).collect();
            assert!(
                abs_diff_eq!(g, e, epsilon = allowed),
                "`{text}` at {at:?}: {g} in f32, {e} in f64"
            );
            compared += 1;
        }
    });
    assert!(compared > 3000, "{compared} results");
}

/// Outside their domain functions and derivatives are NaN, in both modes.
#[test]
fn outside_their_domain_derivatives_are_nan() {
    for (text, x) in [("asin %x", 1.2), ("acos %x", -1.2), ("erf_inv %x", 1.1), ("acosh %x", 0.9)] {
        let m = program(text, DType::F64, &[]);
        let x = Array::from_f64s(DType::F64, &[], &[x]).expect("a scalar");
        let forward = Module::single(jvp(&m, first(&m), &[0]).expect("differentiates"));
        let one = Array::from_f64s(DType::F64, &[], &[1.0]).expect("a scalar");
        let out = run(&forward, first(&forward), &[x.clone(), one], &mut Silent).expect("runs");
        assert!(out.iter().all(|a| a.get(0).to_f64().is_nan()), "`{text}` forward: {out:?}");
        let grad = adfuse::autodiff::grad(&m, first(&m), &[0]).expect("differentiates");
        let grad = Module::single(grad);
        let out = run(&grad, first(&grad), &[x], &mut Silent).expect("runs");
        assert!(out.iter().all(|a| a.get(0).to_f64().is_nan()), "`{text}` reverse: {out:?}");
    }
}

/// What has no derivative gives zero, not a difference of its values.
#[test]
fn a_stopped_gradient_is_zero() {
    let m = module(
        "func @f(%x: f64[]) -> f64[] { %0 = stop_gradient %x : f64[] %1 = mul %0, %x : f64[]
        return %1 }",
    );
    let g = Module::single(adfuse::autodiff::grad(&m, first(&m), &[0]).expect("differentiates"));
    let x = Array::from_f64s(DType::F64, &[], &[3.0]).expect("a scalar");
    let out = run(&g, first(&g), &[x], &mut Silent).expect("runs");
    assert_eq!(out.last().expect("a gradient").get(0).to_f64(), 3.0);
}

/// The highest order that is there has no derivative, and says so.
#[test]
fn orders_end_with_an_error() {
    let m = program("polygamma %x {n = 16}", DType::F64, &[]);
    let d = jvp(&m, first(&m), &[0]).expect_err("there is no order 17");
    assert_eq!(d.kind, adfuse::ir::Kind::Unsupported, "{d}");
    assert!(d.message.contains("from 0 to 16"), "{d}");
    let text = "func @f(%x: f64[]) -> f64[] { %0 = polygamma %x {n = -1} : f64[] return %0 }";
    let found = parse(text).expect_err("there is no such order");
    assert!(found.iter().any(|d| d.message.contains("from 0 to 16")), "{found:#?}");
}

/// Rounding, remainders and classes at the points where their definitions differ.
#[test]
fn values_at_the_edges_are_as_defined() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let table: &[(&str, &[(f64, f64)])] = &[
        (
            "round %x",
            &[(0.5, 1.0), (-0.5, -1.0), (2.5, 3.0), (-2.5, -3.0), (0.49, 0.0), (-0.2, -0.0)],
        ),
        (
            "round_nearest_even %x",
            &[(0.5, 0.0), (-0.5, -0.0), (1.5, 2.0), (2.5, 2.0), (-3.5, -4.0)],
        ),
        ("floor %x", &[(-0.5, -1.0), (0.5, 0.0), (-0.0, -0.0), (inf, inf), (nan, nan)]),
        ("ceil %x", &[(-0.5, -0.0), (0.5, 1.0), (-inf, -inf), (nan, nan)]),
        ("trunc %x", &[(-1.5, -1.0), (-0.5, -0.0), (1.5, 1.0)]),
        ("rem %x, 3.0", &[(7.5, 1.5), (-7.5, -1.5), (-6.0, -0.0), (inf, nan)]),
        ("rem %x, -3.0", &[(7.5, 1.5), (-7.5, -1.5)]),
        ("rem 7.0, %x", &[(inf, 7.0), (0.0, nan)]),
        ("sign %x", &[(-2.0, -1.0), (-0.0, -0.0), (0.0, 0.0), (inf, 1.0), (nan, nan)]),
        ("integer_pow %x {y = 0}", &[(0.0, 1.0), (nan, 1.0), (inf, 1.0)]),
        ("integer_pow %x {y = -1}", &[(0.0, inf), (-0.0, -inf), (2.0, 0.5)]),
        ("cbrt %x", &[(-8.0, -2.0), (-0.0, -0.0)]),
        ("xlogy %x, 0.0", &[(0.0, 0.0), (-0.0, 0.0), (2.0, -inf), (nan, nan)]),
        ("xlogy 0.0, %x", &[(inf, 0.0), (-1.0, 0.0), (nan, 0.0)]),
    ];
    for (text, cases) in table {
        let m = program(text, DType::F64, &[]);
        for &(x, due) in *cases {
            let x = Array::from_f64s(DType::F64, &[], &[x]).expect("a scalar");
            let out = run(&m, first(&m), std::slice::from_ref(&x), &mut Silent).expect("runs");
            let found = out[0].get(0).to_f64();
            let same = found.to_bits() == due.to_bits() || found.is_nan() && due.is_nan();
            assert!(same, "`{text}` at {x:?}: {found} instead of {due}");
        }
    }
}
