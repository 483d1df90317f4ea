//! Functions that traces call, and functions that are made of traces.

use super::{asked_for, error, values};
use adfuse::autodiff::{Derived, grad, value_and_grad, value_and_grad_has_aux, vjp};
use adfuse::prelude::*;

/// Functions that a copy of their instructions would not do: one with a rule, and one that calls it.
const RULED: &str = "func @twice(%x: f32[4]) -> f32[4] {
  %y = call %x {func = @clipped} : f32[4]
  %z = add %y, %y : f32[4]
  return %z
}

func @clipped<n>(%x: f32[n]) -> f32[n] custom_jvp(@clipped.jvp) {
  %0 = min %x, 1.0 : f32[n]
  return %0
}

func @clipped.jvp<n>(%x: f32[n], %dx: f32[n]) -> (f32[n], f32[n]) {
  %0 = min %x, 1.0 : f32[n]
  return %0, %dx
}

func @reversed(%x: f32[4]) -> f32[4] custom_vjp(@reversed.fwd, @reversed.bwd) {
  %0 = neg %x : f32[4]
  return %0
}

func @reversed.fwd(%x: f32[4]) -> f32[4] {
  %0 = neg %x : f32[4]
  return %0
}

func @reversed.bwd(%ct: f32[4]) -> f32[4] {
  %0 = mul %ct, 7.0 : f32[4]
  return %0
}
";

fn ruled() -> Module {
    let m = adfuse::ir::text::parse(RULED).expect("the text parses");
    verify(&m).expect("the text is right");
    m
}

#[test]
fn rules_of_what_is_called_survive() {
    let m = ruled();
    let x = Array::from_f32s(&[4], &[0.0, 2.0, 3.0, 0.5]).unwrap();
    for (name, value, slope) in
        [("clipped", 2.5, 1.0), ("twice", 5.0, 2.0), ("reversed", -5.5, 7.0)]
    {
        let callee = (&m, m.find(name).expect("it is there"));
        let inner = trace("inner", |t| t.call(callee, &[&t.input("x", f32s([4]))])).unwrap();
        let direct = trace("f", |t| t.call(callee, &[&t.input("x", f32s([4]))])[0].sum(&[0]));
        // What a trace calls comes along when the trace is called itself.
        let nested = trace("f", |t| t.call(&inner, &[&t.input("x", f32s([4]))])[0].sum(&[0]));
        for f in [direct.unwrap(), nested.unwrap()] {
            let module = Module::single(f.clone());
            assert_eq!(verify(&module), Ok(()), "{f}");
            let text = f.to_string();
            let again = adfuse::ir::text::parse(&text).expect("the text reads back");
            assert_eq!(again.to_string(), text);
            let out = run(&module, &f, std::slice::from_ref(&x), &mut Silent).expect("it runs");
            assert_eq!(out[0].to_f64s(), [value], "{name}");
            let g = grad(&module, &f, &[0]).expect("it differentiates");
            assert_eq!(values(&g, std::slice::from_ref(&x)), [[slope; 4]], "{name}\n{f}");
            let made = Cpu::default().compile(&module, &f).expect("it compiles").executable;
            assert_eq!(made.run(std::slice::from_ref(&x)).expect("it runs"), out);
        }
    }
}

#[test]
fn a_rule_is_not_lost_without_a_word() {
    let m = ruled();
    for name in ["clipped", "twice", "reversed"] {
        let mut line = 0;
        let d = error(|t| {
            let x = t.input("x", f32s([4]));
            line = line!() + 1;
            t.call(m.find(name).unwrap(), &[&x])
        });
        assert_eq!(d.kind, Kind::UnknownName, "{d:?}");
        assert!(d.message.contains("t.call((&module, f), ..)"), "{d:?}");
        asked_for(&d, line);
    }
}

#[test]
fn two_functions_of_one_name_are_an_error() {
    let m = ruled();
    let clipped = (&m, m.find("clipped").unwrap());
    let other = RULED.replace("min %x, 1.0", "min %x, 2.0");
    let other = adfuse::ir::text::parse(&other).unwrap();
    let d = error(|t| {
        let x = t.input("x", f32s([4]));
        let y = t.call(clipped, &[&x]);
        t.call((&other, other.find("clipped").unwrap()), &[&y[0]])
    });
    assert_eq!(d.kind, Kind::Usage, "{d:?}");
    assert!(d.message.contains("@clipped"), "{d:?}");
    let d = trace("clipped", |t| t.call(clipped, &[&t.input("x", f32s([4]))])).unwrap_err();
    assert_eq!(d.kind, Kind::Usage, "{d:?}");
    // The same function twice is the same function.
    let twice =
        trace("f", |t| t.call(clipped, &[&t.call(clipped, &[&t.input("x", f32s([4]))])[0]]));
    assert_eq!(twice.unwrap().callees().len(), 2);
}

#[test]
fn symbols_of_what_is_called_become_the_extents() {
    let m = ruled();
    let clipped = (&m, m.find("clipped").unwrap());
    let f = trace("f", |t| t.call(clipped, &[&t.input("x", f32s([3]))])).unwrap();
    assert_eq!(f.result_types(), [f32s([3])]);
    let rule = (&m, m.find("clipped.jvp").unwrap());
    let f = trace("f", |t| {
        let x = t.input("x", f32s([3]));
        t.call(rule, &[&x, &x])
    });
    assert_eq!(f.unwrap().result_types(), [f32s([3]), f32s([3])]);
}

/// By name a trace calls what it knows.
#[test]
fn calls_by_name_are_of_known_functions() {
    let m = ruled();
    let func = || Attrs::none().with("func", adfuse::ir::Attr::Func("clipped".into()));
    let f = trace("f", |t| {
        let x = t.input("x", f32s([4]));
        let y = t.call((&m, m.find("clipped").unwrap()), &[&x]).remove(0);
        t.apply(Op::Call, &[&y], func(), Some(&f32s([4])))
    });
    let f = f.unwrap();
    let x = Array::from_f32s(&[4], &[0.0, 2.0, 3.0, 0.5]).unwrap();
    let out = run(&Module::single(f.clone()), &f, &[x], &mut Silent).expect("it runs");
    assert_eq!(out[0].to_f64s(), [0.0, 1.0, 1.0, 0.5]);
    let mut line = 0;
    let d = error(|t| {
        let x = t.input("x", f32s([4]));
        line = line!() + 1;
        t.apply(Op::Call, &[&x], func(), Some(&f32s([4])))
    });
    assert_eq!(d.kind, Kind::UnknownName, "{d:?}");
    assert!(d.message.contains("`Tracer::call` takes the function itself"), "{d:?}");
    asked_for(&d, line);
}

#[test]
fn opaque_functions_survive() {
    let text = "func @g(%x: f32[4]) -> f32[4] {\n  %y = opaque %x {name = \"mine\"} : f32[4]\n  return %y\n}\n";
    let m = adfuse::ir::text::parse(text).expect("the text parses");
    let f = trace("f", |t| t.call((&m, m.find("g").unwrap()), &[&t.input("x", f32s([4]))]));
    assert!(f.unwrap().to_string().contains("opaque %x {name = \"mine\"}"));
}

#[test]
fn a_gradient_is_of_one_scalar() {
    let vector = trace("f", |t| t.input("x", f32s([4])).exp()).unwrap();
    let two = trace("f", |t| {
        let x = t.input("x", f32s([4]));
        (x.square().sum(&[0]), x.exp().sum(&[0]))
    });
    let whole = trace("f", |t| t.input("x", f32s([4])).argsort(0)).unwrap();
    for f in [&vector, &two.unwrap(), &whole] {
        let m = Module::single(f.clone());
        let chain = || Derived::new(&m, f);
        let refused = [
            grad(&m, f, &[0]),
            value_and_grad(&m, f, &[0]),
            chain().grad(&[0]).and_then(Derived::finish),
            chain().value_and_grad(&[0]).and_then(Derived::finish),
        ];
        for d in refused.map(|made| made.expect_err("it is of no scalar")) {
            assert_eq!(d.kind, Kind::Usage, "{d:?}");
            assert!(d.hint.as_deref().is_some_and(|h| h.contains("`vjp`")), "{d:?}");
        }
        assert!(vjp(&m, f, &[0]).is_ok());
    }
    let m = Module::single(vector.clone());
    assert_eq!(value_and_grad_has_aux(&m, &vector, &[0]).unwrap_err().kind, Kind::Usage);
}

#[test]
fn auxiliary_results_are_handed_through() {
    // Differentiating what is handed through would give a NaN at 0.
    let f = trace("f", |t| {
        let x = t.input("x", f32s([2]));
        vec![x.square().sum(&[0]), x.pow(0.5), x.argsort(0), x.sum(&[0])]
    })
    .unwrap();
    let m = Module::single(f.clone());
    let g = value_and_grad_has_aux(&m, &f, &[0]).unwrap();
    assert_eq!(g.params().len(), 1);
    let x = Array::from_f32s(&[2], &[4.0, 0.0]).unwrap();
    let out: [Vec<f64>; 5] = values(&g, &[x]);
    assert_eq!(out[0], [16.0]);
    assert_eq!(out[1], [2.0, 0.0]);
    assert_eq!(out[2], [1.0, 0.0]);
    assert_eq!(out[3], [4.0]);
    assert_eq!(out[4], [8.0, 0.0]);
    let chained = Derived::new(&m, &f).value_and_grad_has_aux(&[0]).and_then(Derived::finish);
    assert_eq!(chained.unwrap().to_string(), g.to_string());
}
