//! Transformations of transformations, captures, and transformations inside of loops and branches.

use super::*;
use adfuse::autodiff::Batching;
use adfuse::transform::{
    checkpoint, cond, fori, grad, grad_aux, hessian, jacfwd, jacrev, jvp, scan, value_and_grad_aux,
    vjp, vmap, while_loop,
};

/// One tensor `f64[3]` to a scalar.
fn smooth(x: &Tensor) -> Tensor {
    (x.sin() * x).sum(&[0]) * x.square().sum(&[0]).exp()
}

/// What a gradient is a step of.
#[derive(Clone, Copy, Debug)]
enum Step {
    Grad,
    Forward,
    Batch,
}

/// A function of a tensor, by reference.
type Boxed = Box<dyn Fn(&Tensor) -> Tensor>;

/// The scalar function `sum(sin(g / 10))` of the gradient, the derivative along `cos(x)`, or the sum over a batch of two.
fn stepped(step: Step, f: Boxed) -> Boxed {
    match step {
        Step::Grad => {
            let g = grad(f);
            Box::new(move |x| (g(x) * 0.1).sin().sum(&[0]))
        }
        Step::Forward => {
            let g = jvp(f);
            Box::new(move |x| g(x, &x.cos()).1)
        }
        Step::Batch => {
            let g = vmap(f);
            Box::new(move |x| {
                let both = x.broadcast(&[1], &[Dim::Const(2), Dim::Const(3)]);
                let scale = x.tracer().iota(f64s([2, 3]), 0) + 0.5;
                g(&(both * scale)).sum(&[0])
            })
        }
    }
}

/// Every nesting to depth 3 has the difference quotient of what it is the gradient of.
#[test]
fn every_nesting_of_depth_three() {
    let steps = [Step::Grad, Step::Forward, Step::Batch];
    let x = [array(&[3], 0.3)];
    for first in steps {
        for second in steps {
            let nested = || stepped(second, stepped(first, Box::new(smooth)));
            let value = of_one(&[3], |x| nested()(&x));
            let slope = of_one(&[3], |x| grad(nested())(&x));
            let found = flat(&run_traced(&slope, &x));
            near(&found, &differences(&value, &x), 2e-6);
            let forward = of_one(&[3], |x| jacfwd(nested())(&x));
            near(&flat(&run_traced(&forward, &x)), &found, 1e-11);
        }
    }
}

/// Three transformations written as chains of modules' and as nested closures: the same bits.
#[test]
fn chains_are_those_of_modules() {
    let x = [array(&[3], 0.3)];
    let plain = of_one(&[3], |x| smooth(&x));
    let expected = chained(&plain, &x, |d| d.grad(&[0])?.jacfwd(&[0])?.jacrev(&[0]));
    let found = of_one(&[3], |x| jacrev(jacfwd(grad(smooth)))(&x));
    near(&flat(&run_traced(&found, &x)), &flat(&expected), 1e-12);
    let xs = [array(&[4, 3], 0.3)];
    let batching = Batching::new(4, [Some(0)]);
    let expected = chained(&plain, &xs, |d| d.hessian(&[0])?.vmap(&batching));
    let found = of_one(&[4, 3], |xs| vmap(hessian(smooth))(&xs));
    near(&flat(&run_traced(&found, &xs)), &flat(&expected), 1e-13);
    let batched = of_one(&[4, 3], |xs| grad(|xs: &Tensor| vmap(smooth)(xs).sum(&[0]))(&xs));
    let alone = of_one(&[4, 3], |xs| vmap(grad(smooth))(&xs));
    near(&flat(&run_traced(&batched, &xs)), &flat(&run_traced(&alone, &xs)), 1e-13);
}

/// Tensors around a closure are constants for its transformation, and move for those around it.
#[test]
fn captures_are_differentiated_from_outside() {
    let args = [array(&[3], 0.3), array(&[3], 1.1)];
    let ty = || f64s([3]);
    let inner = |w: &Tensor, x: &Tensor| {
        let scaled = w.exp();
        grad(|x: &Tensor| smooth(&(x * &scaled)))(x)
    };
    let plain = trace("f", |t| {
        let (w, x) = (t.input("w", ty()), t.input("x", ty()));
        inner(&w, &x)
    });
    let by_w = trace("f", |t| {
        let (w, x) = (t.input("w", ty()), t.input("x", ty()));
        jacrev(|w: &Tensor| inner(w, &x))(&w)
    });
    let plain = plain.unwrap();
    // By x alone: the gradient of the function of both with respect to the second.
    let both = trace("f", |t| {
        let (w, x) = (t.input("w", ty()), t.input("x", ty()));
        smooth(&(x * w.exp()))
    });
    let expected = chained(&both.unwrap(), &args, |d| d.grad(&[1]));
    assert_eq!(run_traced(&plain, &args), expected);
    near(&flat(&run_traced(&by_w.unwrap(), &args)), &differences(&plain, &args), 1e-6);
    // A batch shares what it captures.
    let batched = trace("f", |t| {
        let (w, xs) = (t.input("w", ty()), t.input("xs", f64s([2, 3])));
        vmap(|x: &Tensor| inner(&w, x))(&xs)
    });
    let args = [args[0].clone(), array(&[2, 3], 0.6)];
    let found = flat(&run_traced(&batched.unwrap(), &args));
    for k in 0..2 {
        let row = Array::from_f64s(DType::F64, &[3], &args[1].to_f64s()[3 * k..3 * k + 3]).unwrap();
        let alone = run_traced(&plain, &[args[0].clone(), row]);
        assert_eq!(found[3 * k..3 * k + 3], alone[0].to_f64s());
    }
}

/// Gradient descent in a loop, and the derivative of where it ends.
#[test]
fn gradients_inside_of_loops() {
    let x = [array(&[3], 0.3)];
    let loss = |x: &Tensor| (x.square() + x.sin()).sum(&[0]);
    let loops: [(&str, Boxed); 4] = [
        ("fori", Box::new(move |x| fori(0..4, x.clone(), |_, y| &y - grad(loss)(&y) * 0.1))),
        (
            "scan",
            Box::new(move |x| {
                let rates = x.abs() * 0.1;
                scan(x.clone(), rates, |y, rate| {
                    let next = &y - grad(loss)(&y) * rate.broadcast(&[], &[Dim::Const(3)]);
                    (next, ())
                })
                .0
            }),
        ),
        (
            "cond",
            Box::new(move |x| {
                let slope = grad(loss)(x);
                cond(&x.sum(&[0]).lt(9.0), || x - &slope, || slope.clone())
            }),
        ),
        (
            "while",
            Box::new(move |x| {
                let end = |y: Tensor| loss(&y).gt(0.1);
                while_loop(x.clone(), end, |y| &y - grad(loss)(&y) * 0.2)
            }),
        ),
    ];
    for (name, f) in loops {
        let plain = of_one(&[3], |x| f(&x));
        let found = flat(&run_traced(&of_one(&[3], |x| jacrev(&f)(&x)), &x));
        near(&found, &differences(&plain, &x), 1e-6);
        if name != "while" {
            let batched = of_one(&[2, 3], |xs| vmap(jacfwd(&f))(&xs));
            let xs = [Array::from_f64s(
                DType::F64,
                &[2, 3],
                &[x[0].to_f64s(), numbers(3, 2.2)].concat(),
            )
            .unwrap()];
            near(&flat(&run_traced(&batched, &xs))[..9], &found, 1e-12);
        }
    }
}

/// What else a function gives has no derivative, in trees of any shape.
#[test]
fn auxiliary_trees() {
    let made = of_one(&[3], |x| {
        let f = |x: &Tensor| (smooth(x), (vec![x.sin(), x.lt(0.5)], Some(x.cos())));
        let (slope, (list, cosine)) = grad_aux(f)(&x);
        let ((y, again), also) = value_and_grad_aux(f)(&x);
        // Of an auxiliary result, a derivative from around.
        let around = grad(|x: &Tensor| grad_aux(|x: &Tensor| (smooth(x), x.sin()))(x).1.sum(&[0]));
        ((slope, list, cosine), (y, again, also), around(&x))
    });
    let x = [array(&[3], 0.3)];
    let out = run_traced(&made, &x);
    let expected = chained(&of_one(&[3], |x| smooth(&x)), &x, |d| d.grad(&[0]));
    assert_eq!(out[0], expected[0]);
    assert_eq!(out[8], expected[0]);
    assert_eq!(out[1..4], out[5..8]);
    let cosine: Vec<f64> = x[0].to_f64s().iter().map(|x| x.cos()).collect();
    near(&out[9].to_f64s(), &cosine, 1e-14);
}

/// Checkpoint regions stay regions, and two transformations' regions are not one.
#[test]
fn checkpoints_survive() {
    let plain = |x: &Tensor| x.sin().tanh().square();
    let kept = || checkpoint(adfuse::ir::CheckpointPolicy::Remat, plain);
    let x = [array(&[3], 0.3)];
    let made = of_one(&[3], |x| {
        let first = grad(|x: &Tensor| kept()(x).sum(&[0]))(&x);
        let second = vjp(|x: &Tensor| kept()(x))(&x).1(&first);
        (first, kept()(&second))
    });
    let text = made.to_string();
    let regions: std::collections::BTreeSet<&str> =
        text.split(" in remat(").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(regions.len() >= 3, "{text}");
    let without = of_one(&[3], |x| {
        let first = grad(|x: &Tensor| plain(x).sum(&[0]))(&x);
        let second = vjp(|x: &Tensor| plain(x))(&x).1(&first);
        (first, plain(&second))
    });
    assert_eq!(run_traced(&made, &x), run_traced(&without, &x));
}
