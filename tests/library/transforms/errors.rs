//! What cannot be transformed is a typed error with the place in the Rust source.

use super::*;
use adfuse::transform::{
    custom_jvp, custom_vjp, grad, hvp, jacfwd, jvp, value_and_grad, vjp, vmap, vmap_axes,
};

/// The error of a trace of `x: f64[3]`, `m: f64[2,3]` and `k: i32[3]`, which names this file.
fn refused<R: Params<Tensor>>(f: impl FnOnce(&Tensor, &Tensor, &Tensor) -> R) -> Diagnostic {
    let made = trace("f", |t| {
        f(&t.input("x", f64s([3])), &t.input("m", f64s([2, 3])), &t.input("k", i32s([3])))
    });
    match made {
        Ok(made) => panic!("it is no error:\n{made}"),
        Err(d) => {
            let hint = d.hint.clone().unwrap_or_default();
            assert!(hint.contains("errors.rs:"), "{d:?}");
            d
        }
    }
}

#[track_caller]
fn says(d: &Diagnostic, kind: Kind, words: &[&str]) {
    assert_eq!(d.kind, kind, "{d:?}");
    for word in words {
        assert!(d.message.contains(word), "{word} in {d:?}");
    }
}

fn sum(x: &Tensor) -> Tensor {
    x.sum(&[0])
}

#[test]
fn losses_and_arguments() {
    let d = refused(|x, _, _| grad(|x: &Tensor| x.sin())(x));
    says(&d, Kind::Usage, &["a gradient is of one scalar", "f64[3]"]);
    let d = refused(|x, _, _| value_and_grad(|x: &Tensor| x.sin())(x));
    says(&d, Kind::Usage, &["f64[3]"]);
    let d = refused(|x, _, _| hvp(|x: &Tensor| x.sin())(x, x));
    says(&d, Kind::Usage, &["`hvp`", "f64[3]"]);
    let d = refused(|_, _, k| grad(sum)(k));
    says(&d, Kind::Derivative, &["by arg, which is i32[3]"]);
    let d = refused(|x, _, k| {
        grad(|(x, k): &(Tensor, Vec<Tensor>)| sum(x) + sum(&k[0]))(&(x.clone(), vec![k.clone()]))
    });
    says(&d, Kind::Derivative, &["by arg.1.0, which is i32[3]"]);
    let d = refused(|x, _, _| jacfwd(|x: &Tensor| x.lt(0.0))(x));
    says(&d, Kind::Derivative, &["`jacfwd`", "bool[3]"]);
    let d = refused(|x, _, _| {
        let nothing: Vec<Tensor> = Vec::new();
        grad(|_: &Vec<Tensor>| sum(x))(&nothing);
        x.clone()
    });
    says(&d, Kind::Usage, &["`grad` is given no tensor"]);
}

#[test]
fn structures() {
    let d = refused(|x, m, _| jvp(|x: &Tensor| x.sin())(x, m));
    says(&d, Kind::Shape, &["the tangent of `jvp` is of type f64[3], found f64[2,3]"]);
    let d = refused(|x, m, _| vjp(|x: &Tensor| x.sin())(x).1(m));
    says(&d, Kind::Shape, &["the cotangent of `vjp`"]);
    let list = |n: usize, x: &Tensor| vec![x.clone(); n];
    let d = refused(|x, _, _| jvp(|x: &Vec<Tensor>| sum(&x[0]))(&list(2, x), &list(3, x)));
    says(&d, Kind::Shape, &["has 2 tensors, found 3"]);
    // What a rule gives has the structure of what it is the rule of.
    let d = refused(|x, _, _| {
        let f = custom_vjp(
            |x: &Vec<Tensor>| sum(&x[0]),
            |x: &Vec<Tensor>| (sum(&x[0]), ()),
            |(), ct: &Tensor| vec![ct.broadcast(&[], &[Dim::Const(3)])],
        );
        f(&list(2, x))
    });
    says(&d, Kind::Shape, &["the gradient that `bwd` gives has 2 tensors, found 1"]);
    let d = refused(|x, _, _| {
        custom_vjp(|x: &Tensor| sum(x), |x: &Tensor| (x.clone(), ()), |(), ct: &Tensor| ct.clone())(
            x,
        )
    });
    says(&d, Kind::Shape, &["the value that `fwd` gives is of type f64[], found f64[3]"]);
    let d = refused(|x, m, _| {
        custom_jvp(|x: &Tensor| x.sin(), |x: &Tensor, _: &Tensor| (x.sin(), m.clone()))(x)
    });
    says(&d, Kind::Shape, &["the tangent that the `custom_jvp` gives"]);
}

#[test]
fn batches() {
    let d = refused(|x, m, _| {
        vmap(|(x, m): &(Tensor, Tensor)| sum(x) + sum(m))(&(x.clone(), m.clone()))
    });
    says(&d, Kind::Shape, &["`vmap` takes 3 elements", "arg.1", "2 along axis 0"]);
    let d = refused(|x, _, _| vmap_axes(Some(1), sum)(x));
    says(&d, Kind::Shape, &["axis 1 of arg", "f64[3]"]);
    let d = refused(|x, _, _| vmap_axes(None, sum)(x));
    says(&d, Kind::Shape, &["no tensor with an axis of the batch"]);
}

#[test]
fn rules() {
    // Forward mode of a reverse rule.
    let d = refused(|x, _, _| {
        let f = custom_vjp(
            |x: &Tensor| x.sin(),
            |x: &Tensor| (x.sin(), ()),
            |(), ct: &Tensor| ct.clone(),
        );
        jacfwd(f)(x)
    });
    says(&d, Kind::Unsupported, &["custom_vjp", "forward mode"]);
    // The rule says nothing of what is around the function.
    let d = refused(|x, m, _| {
        let w = m.sum(&[0]).named("w");
        custom_jvp(|x: &Tensor| x * &w, |x: &Tensor, dx: &Tensor| (x * &w, dx * &w))(x)
    });
    says(&d, Kind::CustomRule, &["%w, f64[3]"]);
    assert!(d.hint.unwrap().contains("stop_gradient"));
    // A rule whose value moves with the tangent.
    let d = trace("f", |t| {
        let x = t.input("x", f64s([3]));
        custom_jvp(|x: &Tensor| x.sin(), |x: &Tensor, dx: &Tensor| (x + dx, dx.clone()))(&x)
    });
    assert_eq!(d.unwrap_err().kind, Kind::CustomRule);
}

/// An error inside of a closure is the one that is told, and not what follows of it.
#[test]
fn the_first_error_is_told() {
    let line = std::cell::Cell::new(0);
    let d = refused(|x, m, _| {
        grad(|x: &Tensor| {
            line.set(line!() + 1);
            x.dot(m).sum(&[0])
        })(x)
    });
    says(&d, Kind::Usage, &["`dot_general`"]);
    assert!(d.hint.unwrap().contains(&format!("errors.rs:{}:", line.get())));
}

/// Tensors of another trace are refused, as arguments and in closures.
#[test]
fn other_traces() {
    let mut other = None;
    let _ = trace("g", |t| {
        let x = t.input("x", f64s([3]));
        other = Some(x.clone());
        x
    });
    let other = other.unwrap();
    says(&refused(|x, _, _| jvp(|x: &Tensor| x.sin())(x, &other)), Kind::Usage, &["has ended"]);
    says(
        &refused(|x, _, _| grad(|x: &Tensor| (x * &other).sum(&[0]))(x)),
        Kind::Usage,
        &["has ended"],
    );
    says(&refused(|x, _, _| grad(|_: &Tensor| other.clone())(x)), Kind::Usage, &["has ended"]);
}
