//! Each rule of `stabilize`: forms on which it fires, with the same values and derivatives after it,
//! finite where the naive form is not; and forms beside the pattern, which are left alone.

use super::cases::arguments;
use super::forms::{BESIDE, FORMS};
use adfuse::autodiff::{grad, jvp};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{Hazard, STABLE, stabilize};
use adfuse::ir::text::{parse, print_function};
use adfuse::ir::{DType, Function, Module, verify};
use adfuse::sample::rng;
use approx::relative_eq;
use std::collections::BTreeSet;

fn module(text: &str, dtype: DType) -> Module {
    let mut text = text.to_string();
    for (name, dims) in
        [("T", "4,5"), ("R", "4"), ("C", "5"), ("K", "4,1"), ("S", ""), ("Q", "4,4")]
    {
        text = text.replace(&format!(": {name}"), &format!(": {dtype}[{dims}]"));
        text = text.replace(&format!("-> {name}"), &format!("-> {dtype}[{dims}]"));
    }
    let module = parse(&text).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
    verify(&module).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
    module
}

/// The form itself.
fn form(of: &str, body: &str, dtype: DType) -> Module {
    module(&format!("func @f(%x: T) -> {of} {{ {body} return %y }}"), dtype)
}

/// A scalar of the form: its derivative weighs every element of `%y`.
fn scalar(of: &str, body: &str, dtype: DType) -> Module {
    let axes = match of {
        "T" | "K" => "0, 1",
        "S" => "",
        _ => "0",
    };
    let text = format!(
        "func @f(%x: T, %w: {of}) -> S {{ {body} %wy = mul %y, %w : {of}
         %total = reduce_sum %wy {{axes = [{axes}]}} : S return %total }}"
    );
    module(&text, dtype)
}

fn first(m: &Module) -> &Function {
    m.funcs.values().next().expect("a function")
}

/// The module with stable forms, and the rules that fired.
fn stable(m: &Module) -> (Module, Vec<&'static str>) {
    let (f, fired) = stabilize(first(m)).expect("stabilizes");
    let m = Module::single(f);
    verify(&m).unwrap_or_else(|e| panic!("{}\n{e:#?}", first(&m)));
    for r in &fired {
        assert!(first(&m).body_insts().contains(&r.at), "{r:?} in\n{}", first(&m));
    }
    (m, fired.iter().map(|r| r.rule).collect())
}

fn values(m: &Module, args: &[Array]) -> Vec<f64> {
    run(m, first(m), args, &mut Silent).expect("runs")[0].to_f64s()
}

fn agree(a: &[f64], b: &[f64], tol: f64) -> bool {
    let close = |(&a, &b): (&f64, &f64)| {
        a.is_nan() && b.is_nan() || relative_eq!(a, b, epsilon = tol, max_relative = tol)
    };
    a.len() == b.len() && a.iter().zip(b).all(close)
}

#[track_caller]
fn assert_agree(naive: &Module, stable: &Module, args: &[Array], tol: f64) {
    let (a, b) = (values(naive, args), values(stable, args));
    assert!(agree(&a, &b, tol), "{a:?}\n{b:?}\n{}\n{}", first(naive), first(stable));
}

#[test]
fn every_rule_has_a_form() {
    let named: BTreeSet<&str> = FORMS.iter().map(|f| f.0).collect();
    let all: BTreeSet<&str> = STABLE.rules.iter().map(|r| r.name).collect();
    assert_eq!(all.len(), STABLE.rules.len(), "names of rules are different");
    assert_eq!(named, all);
    assert!(STABLE.rules.iter().all(|r| r.doc.contains("become")));
    assert!(STABLE.rules.iter().all(|r| Hazard::of(r.name).is_some()));
    let words = Hazard::Overflow.words(DType::F32);
    assert_eq!(words, "exp is inf above 88.72 in f32, and the result inf or nan then");
}

#[test]
fn each_rule_fires_once_and_keeps_values() {
    for &(rule, of, body) in FORMS {
        for (dtype, tol) in [(DType::F64, 1e-13), (DType::F32, 3e-6), (DType::BF16, 6e-2)] {
            // A reciprocal of the written 0.2 is one of each type.
            let naive = form(of, body, dtype);
            let (rewritten, fired) = stable(&naive);
            assert_eq!(fired, [rule], "{}", first(&naive));
            let args = arguments(first(&naive), &[Domain::Normal], &mut rng(1, 0));
            assert_agree(&naive, &rewritten, &args, tol);
            let (again, fired) = stable(&rewritten);
            assert_eq!(fired, [""; 0]);
            assert_eq!(print_function(first(&rewritten)), print_function(first(&again)));
        }
    }
}

/// First derivatives, and second ones by forward over reverse.
#[test]
fn each_rule_keeps_derivatives() {
    for &(rule, of, body) in FORMS {
        let naive = scalar(of, body, DType::F64);
        let (rewritten, fired) = stable(&naive);
        assert_eq!(fired, [rule]);
        let derived = |m: &Module| {
            let g = Module::single(grad(m, first(m), &[0]).expect("a gradient"));
            let h = Module::single(jvp(&g, first(&g), &[0]).expect("a derivative of it"));
            (g, h)
        };
        let ((g, h), (gs, hs)) = (derived(&naive), derived(&rewritten));
        let domains = [Domain::Normal; 3];
        assert_agree(&g, &gs, &arguments(first(&g), &domains, &mut rng(2, 0)), 1e-12);
        let args = arguments(first(&h), &domains, &mut rng(3, 0));
        let second = |m: &Module| {
            let results = run(m, first(m), &args, &mut Silent).expect("runs");
            results.last().expect("a tangent").to_f64s()
        };
        let (a, b) = (second(&h), second(&hs));
        assert!(agree(&a, &b, 1e-12), "{a:?}\n{b:?}\n{}", first(&rewritten));
    }
}

/// Rows about 1000 and -1000; the second column is the largest by far in a row.
fn large(dtype: DType) -> Array {
    let x: Vec<f64> = (0..20)
        .map(|k| {
            let (row, column) = (k / 5, k % 5);
            let base = [1000.0, -1000.0, 990.0, -2000.0][row];
            base + [0.0, 7.0, -1.0, 2.5, -3.0][column] * (1.0 + row as f64)
        })
        .collect();
    Array::from_f64s(dtype, &[4, 5], &x).expect("as many")
}

/// Values and gradients are finite where the naive form overflows, and near those in `f64` of a
/// shifted argument, where they do not depend on the shift.
#[test]
fn each_rule_is_finite_where_the_naive_form_is_not() {
    let mut overflowed = BTreeSet::new();
    for &(rule, of, body) in FORMS {
        let naive = form(of, body, DType::F32);
        let (rewritten, _) = stable(&naive);
        let args = [large(DType::F32)];
        let (a, b) = (values(&naive, &args), values(&rewritten, &args));
        assert!(b.iter().all(|y| y.is_finite()), "{b:?}\n{}", first(&rewritten));
        if a.iter().any(|y| !y.is_finite()) {
            overflowed.insert(rule);
        }
        let naive = scalar(of, body, DType::F32);
        let (rewritten, _) = stable(&naive);
        let g = Module::single(grad(&rewritten, first(&rewritten), &[0]).expect("a gradient"));
        let mut args = arguments(first(&g), &[Domain::Normal; 2], &mut rng(4, 0));
        args[0] = large(DType::F32);
        let slopes = values(&g, &args);
        assert!(slopes.iter().all(|y| y.is_finite()), "{slopes:?}\n{}", first(&g));
    }
    assert_eq!(overflowed, ["log-softmax", "logsumexp", "softmax", "softplus"].into());
}

/// A large mean beside a small deviation.
#[test]
fn variance_does_not_cancel() {
    let x: Vec<f64> = (0..20).map(|k| 30_000.0 + f64::from(k * k % 7)).collect();
    let arg = |dtype| [Array::from_f64s(dtype, &[4, 5], &x).expect("as many")];
    for &(_, of, body) in FORMS.iter().filter(|f| f.0 == "variance") {
        let exact = values(&form(of, body, DType::F64), &arg(DType::F64));
        let naive = form(of, body, DType::F32);
        let (rewritten, _) = stable(&naive);
        assert!(!agree(&exact, &values(&naive, &arg(DType::F32)), 0.1));
        let stable = values(&rewritten, &arg(DType::F32));
        assert!(agree(&exact, &stable, 1e-3), "{exact:?}\n{stable:?}");
    }
}

/// Where the naive form has a value of inf and -inf among its operands, it is kept.
#[test]
fn infinities_give_what_they_gave() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let x = [
        [-inf, -inf, -inf, -inf, -inf],
        [0.0, 1.0, -inf, 2.0, -inf],
        [inf, 1.0, -inf, 0.5, 2.0],
        [nan, 1.0, 0.5, 0.25, -inf],
    ];
    let args = [Array::from_f64s(DType::F64, &[4, 5], &x.concat()).expect("as many")];
    let sums = FORMS.iter().filter(|f| f.0 != "variance" && !f.2.contains("%s = sub"));
    for &(_, of, body) in sums {
        let naive = form(of, body, DType::F64);
        assert_agree(&naive, &stable(&naive).0, &args, 1e-13);
    }
}

#[test]
fn rules_do_not_fire_beside_their_pattern() {
    for &(name, of, body) in BESIDE {
        let naive = form(of, body, DType::F32);
        let (rewritten, fired) = stable(&naive);
        assert_eq!(fired, [""; 0], "{name}");
        assert_eq!(print_function(first(&rewritten)), print_function(first(&naive)), "{name}");
    }
}
