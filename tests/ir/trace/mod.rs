//! Tracing from Rust closures: what is recorded, and what is an error instead of a panic.

mod broadcast;
mod calls;
mod composed;
mod control;
mod methods;
mod random;
mod shapes;

use adfuse::autodiff::{differentiable, value_and_grad};
use adfuse::prelude::*;
use std::panic::Location;

/// The first error of a trace whose closure is wrong.
fn error<R: adfuse::Params<adfuse::trace::Tensor>>(body: impl FnOnce(&Tracer) -> R) -> Diagnostic {
    trace("f", body).expect_err("the closure is wrong")
}

fn values<const N: usize>(f: &Function, args: &[Array]) -> [Vec<f64>; N] {
    let out = run(&Module::single(f.clone()), f, args, &mut Silent).expect("it runs");
    let out: Vec<Vec<f64>> = out.iter().map(Array::to_f64s).collect();
    out.try_into().expect("as many results")
}

/// A tensor whose trace has ended.
fn ended() -> Tensor {
    let mut out = None;
    trace("old", |t| {
        let x = t.input("x", f32s([2]));
        out = Some(x.clone());
        x
    })
    .expect("the trace is right");
    out.expect("the closure ran")
}

#[track_caller]
fn asked_for(d: &Diagnostic, line: u32) {
    let hint = d.hint.as_deref().unwrap_or_default();
    let due = format!("asked for at {}:{line}:", Location::caller().file());
    assert!(hint.starts_with(&due), "{hint:?} is not {due:?}");
}

#[test]
fn a_hint_names_the_line_that_asked() {
    let mut line = 0;
    let mut check = |body: &dyn Fn(&Tensor, &mut u32) -> Tensor| {
        let d = error(|t| body(&t.input("x", f32s([2, 3])), &mut line));
        asked_for(&d, line);
    };
    check(&|x, l| {
        *l = line!() + 1;
        x + x.sum(&[1])
    });
    check(&|x, l| {
        *l = line!() + 1;
        x.clone() * x.sum(&[1])
    });
    check(&|x, l| {
        *l = line!() + 1;
        x.sum(&[7])
    });
    check(&|x, l| {
        *l = line!() + 1;
        x.max(x.sum(&[1]))
    });
    check(&|x, l| {
        *l = line!() + 1;
        x.mean(&[9])
    });
    check(&|x, l| {
        *l = line!() + 1;
        x.dot(x)
    });
    check(&|x, l| {
        *l = line!() + 1;
        x.sum(&[0]).broadcast_like(&x.transpose(&[1, 0]))
    });
    check(&|x, l| {
        let n = x.convert(DType::I32);
        *l = line!() + 1;
        0.5 * n
    });
    check(&|x, l| {
        let n = x.convert(DType::I32);
        *l = line!() + 1;
        n.max(0.5)
    });
}

#[test]
fn a_hint_names_the_line_of_the_tracers_own_errors() {
    let mut line = 0;
    let d = error(|t| {
        line = line!() + 1;
        t.full(i32s([2]), 0.5)
    });
    asked_for(&d, line);
    let d = error(|t| {
        line = line!() + 1;
        t.input("not a name", f32s([2]))
    });
    asked_for(&d, line);
    let g = trace("g", |t| t.input("x", f32s([2]))).unwrap();
    let d = error(|t| {
        line = line!() + 1;
        t.call(&g, &[])
    });
    asked_for(&d, line);
}

#[test]
fn the_first_error_is_the_one_reported() {
    let mut line = 0;
    let d = error(|t| {
        let x = t.input("x", f32s([2]));
        line = line!() + 1;
        let bad = &x + t.zeros(f32s([3]));
        bad.dot(&x) * t.full(i32s([2]), 0.5)
    });
    asked_for(&d, line);
}

#[test]
fn a_tensor_of_an_ended_trace_is_an_error() {
    let old = ended();
    assert_eq!(old.ty(), f32s([2]));
    assert!(format!("{old:?}").contains("f32[2]"), "{old:?}");
    let check = |body: &dyn Fn(&Tensor) -> Tensor| {
        let d = error(|t| body(&t.input("x", f32s([2]))));
        assert_eq!(d.kind, Kind::Usage, "{d:?}");
        assert!(d.message.contains("ended"), "{d:?}");
        assert!(d.hint.as_deref().is_some_and(|h| h.contains(file!())), "{d:?}");
    };
    check(&|x| &old + x);
    check(&|x| x + &old);
    check(&|x| old.dot(x));
    check(&|x| x.dot(&old));
    check(&|x| old.clone().max(x));
    check(&|x| x.lt(0.0).select(&old, x));
    check(&|x| x.broadcast_like(&old));
    check(&|x| old.broadcast_like(x));
    check(&|x| x.sum(&[0]).spread((), &old));
    let d = error(|t| t.call(&trace("g", |t| t.input("x", f32s([2]))).unwrap(), &[&old]));
    assert_eq!(d.kind, Kind::Usage, "{d:?}");
    let d = error(|_| old.clone());
    assert_eq!(d.kind, Kind::Usage, "{d:?}");
}

#[test]
fn without_any_live_trace_nothing_panics() {
    let old = ended();
    let sum = (&old + 1.0).dot(&old).named("late").mean(&[3]);
    assert_eq!(old.split(&[1, 1], 0).len(), 2);
    assert_eq!((-&old).broadcast_like(&old).log_softmax(-1).ty(), f32s([2]));
    assert!(format!("{sum:?}").contains("ended"), "{sum:?}");
}

#[test]
fn a_tensor_of_another_live_trace_is_an_error_in_both() {
    let outer = error(|t| {
        let x = t.input("x", f32s([2]));
        let inner = error(|u| &x + u.input("y", f32s([2])));
        assert_eq!(inner.kind, Kind::Usage, "{inner:?}");
        assert!(inner.message.contains("another trace"), "{inner:?}");
        x
    });
    assert_eq!(outer.kind, Kind::Usage, "{outer:?}");
}

#[test]
fn whole_numbers_stand_beside_integers() {
    let f = trace("f", |t| {
        let x = t.input("x", i32s([3]));
        [&x * 2.0, 10.0 - &x, t.full(i32s([3]), -7.0)]
    })
    .unwrap();
    let x = Array::from_f64s(DType::I32, &[3], &[1.0, -2.0, 5.0]).unwrap();
    let [double, rest, full] = values(&f, &[x]);
    assert_eq!(double, [2.0, -4.0, 10.0]);
    assert_eq!(rest, [9.0, 12.0, 5.0]);
    assert_eq!(full, [-7.0; 3]);
}

#[test]
fn a_number_that_its_type_cannot_hold_is_an_error() {
    let check = |d: Diagnostic, number: &str, dtype: &str| {
        assert_eq!(d.kind, Kind::Literal, "{d:?}");
        assert!(d.message.contains(number) && d.message.contains(dtype), "{d:?}");
    };
    for (x, shown) in [
        (0.5, "0.5"),
        (1e20, "1e20"),
        (2147483648.0, "2147483648"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
    ] {
        check(error(|t| t.input("x", i32s([3])) * x), shown, "i32");
        check(error(|t| x - t.input("x", i32s([3]))), shown, "i32");
        check(error(|t| t.full(i32s([3]), x)), shown, "i32");
    }
    check(error(|t| t.full(TensorType::of(DType::Bool, &[2]), 1.0)), "1.0", "bool");
    check(error(|t| t.full(TensorType::token(), 1.0)), "1.0", "token");
    check(error(|t| t.input("x", TensorType::of(DType::Bool, &[2])).eq(1.0)), "1.0", "bool");
    assert!(trace("f", |t| t.full(f32s([2]), 0.5) * 1e20).is_ok());
}

fn token_used_twice(t: &Tracer) -> Vec<Tensor> {
    let x = t.input("x", f32s([2]));
    let token = t.apply(Op::CreateToken, &[], Attrs::none(), None);
    let label = Attrs::none().with("label", adfuse::ir::Attr::Str("x".into()));
    let print = |k: &Tensor| t.apply(Op::DebugPrint, &[k, &x], label.clone(), None);
    vec![print(&token), print(&token)]
}

#[test]
fn what_the_verifier_refuses_is_an_error() {
    let d = error(token_used_twice);
    assert_eq!(d.kind, Kind::Effect, "{d:?}");
    let d = error(|t| {
        let x = t.input("x", f32s([2]));
        let func = Attrs::none().with("func", adfuse::ir::Attr::Func("nowhere".into()));
        t.apply(Op::Call, &[&x], func, Some(&f32s([2])))
    });
    assert_eq!(d.kind, Kind::UnknownName, "{d:?}");
    assert!(d.message.contains("nowhere"), "{d:?}");
}

#[test]
fn symbols_are_declared_where_they_are_met() {
    let n = Dim::Sym(Symbol::new("n").unwrap());
    let f = trace("f", |t| {
        let x = t.input("x", f32s([]));
        [t.full(TensorType::new(DType::F32, [n]), 1.0), x.broadcast(&[], &[n, Dim::Const(2)])]
    })
    .unwrap();
    assert_eq!(f.symbols.len(), 1);
    assert_eq!(verify(&Module::single(f)), Ok(()));
    let g = trace("g", |t| t.input("x", TensorType::new(DType::F32, [n])).exp()).unwrap();
    let f = trace("f", |t| {
        let x = t.input("x", TensorType::new(DType::F32, [n]));
        t.call(&g, &[&x])
    })
    .unwrap();
    assert_eq!(f.symbols.len(), 1);
}

#[test]
fn names_are_identifiers() {
    for name in ["", "1x", "a b", "x-y", ".x", "é", "%x"] {
        let d = trace(name, |t| t.input("x", f32s([2]))).expect_err(name);
        assert_eq!(d.kind, Kind::Usage, "{d:?}");
        asked_for(&d, line!() - 2);
        let d = error(|t| t.input(name, f32s([2])));
        assert_eq!(d.kind, Kind::Usage, "{d:?}");
        assert!(d.message.contains(&format!("{name:?}")), "{d:?}");
    }
    for name in ["x", "_", "layer.0", "B_2"] {
        assert!(trace(name, |t| t.input(name, f32s([2]))).is_ok(), "{name}");
    }
}

#[test]
fn a_call_copies_the_instructions() {
    let g = trace("g", |t| {
        let x = t.input("x", f32s([2]));
        (&x * 3.0, x + 1.0)
    })
    .unwrap();
    let f = trace("f", |t| t.call(&g, &[&t.input("x", f32s([2]))])).unwrap();
    let x = Array::from_f32s(&[2], &[1.0, 2.0]).unwrap();
    assert_eq!(values(&f, &[x]), [[3.0, 6.0], [2.0, 3.0]]);
}

#[test]
fn two_inputs_of_one_name_are_an_error() {
    let mut lines = [0; 2];
    let d = error(|t| {
        lines[0] = line!() + 1;
        let x = t.input("w", f32s([2]));
        lines[1] = line!() + 1;
        x + t.input("w", f32s([2]))
    });
    assert_eq!(d.kind, Kind::Usage, "{d:?}");
    assert!(d.message.contains(&format!("{}:{}:", file!(), lines[0])), "{d:?}");
    asked_for(&d, lines[1]);
    let d = error(|t| {
        let (x, w) = (t.input("x", f32s([2])), t.input("w", f32s([2])));
        lines[1] = line!() + 1;
        w.named("x") + x
    });
    asked_for(&d, lines[1]);
    // The old name is free again.
    let f = trace("f", |t| {
        let x = t.input("x", f32s([2])).named("y");
        x + t.input("x", f32s([2]))
    });
    let names = f.map(|f| f.params().iter().map(|&p| f.name_of(p).unwrap().to_string()).collect());
    assert_eq!(names, Ok(vec!["y".to_string(), "x".to_string()]));
}

#[test]
fn gradients_may_be_used_further() {
    let loss = trace("loss", |t| {
        let (x, w) = (t.input("x", f32s([1, 2])), t.input("w", f32s([2, 1])));
        x.dot(&w).square().sum(&[0, 1])
    })
    .unwrap();
    let wrt = differentiable(&loss, Some(&["w".into()])).unwrap();
    let gradient = value_and_grad(&Module::single(loss.clone()), &loss, &wrt).unwrap();
    // A step, then a second one from where the first has led.
    let step = trace("step", |t| {
        let (x, w) = (t.input("x", f32s([1, 2])), t.input("w", f32s([2, 1])));
        let rate = t.full(f32s([2, 1]), 0.25);
        let first = &w - &t.call(&gradient, &[&x, &w])[1] * &rate;
        let second = &first - &t.call(&gradient, &[&x, &first])[1] * &rate;
        [first, second]
    })
    .unwrap();
    let x = Array::from_f32s(&[1, 2], &[1.0, 2.0]).unwrap();
    let w = Array::from_f32s(&[2, 1], &[1.0, 1.0]).unwrap();
    assert_eq!(values(&step, &[x, w]), [[-0.5, -2.0], [1.75, 2.5]]);
}

#[test]
fn too_large_is_a_limit() {
    let huge = || f32s([1 << 40, 1 << 40]);
    let kinds = [
        error(|t| t.full(huge(), 1.0)),
        error(|t| t.input("x", huge())),
        error(|t| t.iota(huge(), 0)),
        error(|t| t.input("x", f32s([])).broadcast(&[], &huge().shape)),
        error(|t| t.input("x", f32s([1 << 40, 1])).dot(&t.input("y", f32s([1, 1 << 40])))),
    ];
    for d in kinds {
        assert_eq!(d.kind, Kind::Limit, "{d:?}");
    }
    // The product of these extents is no u64.
    let d = error(|t| t.input("x", f32s([1 << 40])).mean(&[0, 0]));
    assert_eq!(d.kind, Kind::Shape, "{d:?}");
}

#[test]
fn ops_of_several_results_give_all_of_them() {
    let attrs = || Attrs::none().with_ints("sizes", [2, 1]).with_int("axis", 0);
    let f = trace("f", |t| {
        let x = t.input("x", f32s([3]));
        let mut out = t.apply_all(Op::Split, &[&x], attrs(), None);
        out.extend(x.split(&[1, 2], 0));
        out
    })
    .unwrap();
    let x = Array::from_f32s(&[3], &[1.0, 2.0, 3.0]).unwrap();
    let out: [Vec<f64>; 4] = values(&f, &[x]);
    assert_eq!(out, [vec![1.0, 2.0], vec![3.0], vec![1.0], vec![2.0, 3.0]]);

    let d = error(|t| t.apply(Op::Split, &[&t.input("x", f32s([3]))], attrs(), None));
    assert_eq!(d.kind, Kind::Usage, "{d:?}");
    assert!(d.message.contains("2 results"), "{d:?}");
    // After an error there are still as many pieces as asked for.
    let d = error(|t| {
        let pieces = t.input("x", f32s([3])).split(&[7, 7], 0);
        &pieces[0] + &pieces[1]
    });
    assert!(d.message.contains("split"), "{d:?}");
}

#[test]
fn tensors_sort() {
    let f = trace("f", |t| {
        let x = t.input("x", f64s([2, 3]));
        let (keys, places) = x.sort_key_val(&t.iota(f64s([2, 3]), 1), 1);
        let (top, at) = x.top_k(2);
        [x.sort(0), x.argsort(1).convert(DType::F64), keys, places, top, at.convert(DType::F64)]
    });
    let f = f.expect("the trace is right");
    let x = Array::from_f64s(DType::F64, &[2, 3], &[3.0, 1.0, 2.0, 1.0, 3.0, 3.0]).expect("fits");
    let out: [Vec<f64>; 6] = values(&f, &[x]);
    assert_eq!(out[0], [1.0, 1.0, 2.0, 3.0, 3.0, 3.0]);
    assert_eq!(out[1], [1.0, 2.0, 0.0, 0.0, 1.0, 2.0]);
    assert_eq!(out[2], [1.0, 2.0, 3.0, 1.0, 3.0, 3.0]);
    assert_eq!(out[3], out[1]);
    assert_eq!(out[4], [3.0, 2.0, 3.0, 3.0]);
    assert_eq!(out[5], [0.0, 2.0, 1.0, 2.0]);
    for (line, d) in [
        (line!(), error(|t| t.input("x", f32s([3])).top_k(4).1)),
        (line!(), error(|t| t.input("x", f32s([3])).top_k(u64::MAX).0)),
        (line!(), error(|t| t.input("x", f32s([3])).sort(1))),
        (line!(), error(|t| t.input("k", f32s([3])).sort_key_val(&t.input("v", f32s([2])), 0).1)),
    ] {
        asked_for(&d, line);
    }
}
