//! Each transformation by itself: the bits of the transformation of the module, and difference quotients.

use super::*;
use adfuse::transform::{
    grad, hessian, hvp, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap, vmap_axes,
};

type One = fn(&Tensor) -> Tensor;

/// Functions of `f64[3]`, some of which use constants of their own, loops and branches.
const SCALARS: [(&str, One); 6] = [
    ("polynomial", |x| (x.powi(3) * 0.5 + x.square()).sum(&[0])),
    ("product", |x| (x.dot(x) + 1.5).log() * x.sin().sum(&[0])),
    ("softmax", |x| (x.log_softmax(0) * x).sum(&[0])),
    ("loop", |x| {
        let t = x.tracer();
        t.fori(0..3, x.clone(), |_, y| (&y * x).sin() + x).sum(&[0])
    }),
    ("branch", |x| {
        let sum = x.sum(&[0]);
        let t = x.tracer();
        t.cond(&sum.lt(0.3), || x.exp().sum(&[0]), || x.square().sum(&[0]))
    }),
    ("scan", |x| {
        let t = x.tracer();
        let (last, all) = t.scan(x.sum(&[0]), x.clone(), |c, x| {
            let c = (&c * &x).tanh() + x;
            (c.clone(), c)
        });
        last * all.square().sum(&[0])
    }),
];

/// Functions from `f64[3]` to tensors.
const TENSORS: [(&str, One); 4] = [
    ("map", |x| x.sin() * x),
    ("outer", |x| {
        let all = [Dim::Const(3), Dim::Const(3)];
        x.broadcast(&[0], &all) * x.exp().broadcast(&[1], &all)
    }),
    ("cumulative", |x| {
        let t = x.tracer();
        t.scan(x.sum(&[0]), x.clone(), |c, x| {
            let c = c.sin() * x;
            (c.clone(), c)
        })
        .1
    }),
    ("scalar", |x| (x.square().sum(&[0]) + 1.0).sqrt()),
];

/// The traced transformation gives the bits of the module's, with the same results.
#[track_caller]
fn same_bits(name: &str, f: &Traced, args: &[Array], expected: &[Array]) {
    assert_eq!(run_traced(f, args), expected, "{name}\n{f}");
    let text = f.to_string();
    let again = adfuse::ir::text::parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    assert_eq!(again.to_string(), text);
}

#[test]
fn gradients_are_those_of_modules() {
    let x = array(&[3], 0.3);
    for (name, f) in SCALARS {
        let plain = of_one(&[3], |x| f(&x));
        let args = [x.clone()];
        let expected = chained(&plain, &args, |d| d.grad(&[0]));
        same_bits(name, &of_one(&[3], |x| grad(f)(&x)), &args, &expected);
        let both = chained(&plain, &args, |d| d.value_and_grad(&[0]));
        same_bits(name, &of_one(&[3], |x| value_and_grad(f)(&x)), &args, &both);
        near(&flat(&expected), &differences(&plain, &args), 1e-7);
    }
}

#[test]
fn tangents_and_cotangents_are_those_of_modules() {
    let (x, dx) = (array(&[3], 0.3), array(&[3], 1.9));
    for (name, f) in SCALARS.into_iter().chain(TENSORS) {
        let plain = of_one(&[3], |x| f(&x));
        let args = [x.clone(), dx.clone()];
        let two = |g: &dyn Fn(Tensor, Tensor) -> (Tensor, Tensor)| {
            trace("f", |t| g(t.input("x", f64s([3])), t.input("dx", f64s([3])))).unwrap()
        };
        let expected = chained(&plain, &args, |d| d.jvp(&[0]));
        same_bits(name, &two(&|x, dx| jvp(f)(&x, &dx)), &args, &expected);
        let pushed = two(&|x, dx| {
            let (y, push) = linearize(f)(&x);
            (y, push(&dx))
        });
        let found = run_traced(&pushed, &args);
        near(&flat(&found), &flat(&expected), 1e-14);

        let ty = plain.result_types()[0].clone();
        let dims: Vec<u64> = ty.shape.iter().map(|d| d.known().unwrap()).collect();
        let args = [x.clone(), array(&dims, 0.8)];
        let expected = chained(&plain, &args, |d| d.vjp(&[0]));
        let pulled = trace("f", |t| {
            let (y, pullback) = vjp(f)(&t.input("x", f64s([3])));
            (y, pullback(&t.input("ct", ty.clone())))
        });
        same_bits(name, &pulled.unwrap(), &args, &expected);
    }
}

/// A pullback may be called more than once, and in a region.
#[test]
fn pullbacks_are_linear() {
    let f = of_one(&[3], |x| {
        let (y, pullback) = vjp(|x: &Tensor| x.sin() * x)(&x);
        let rows = vmap(|ct: &Tensor| pullback(ct))(&x.tracer().apply(
            Op::ConvertElementType,
            &[&identity(&x.tracer(), 3)],
            Attrs::none(),
            Some(&f64s([3, 3])),
        ));
        (pullback(&y), pullback(&(&y * 2.0)), rows)
    });
    let x = array(&[3], 0.3);
    let out = run_traced(&f, std::slice::from_ref(&x));
    let doubled: Vec<f64> = out[0].to_f64s().iter().map(|x| x * 2.0).collect();
    near(&out[1].to_f64s(), &doubled, 1e-15);
    let plain = of_one(&[3], |x| x.sin() * x);
    let rows = chained(&plain, &[x], |d| d.jacrev(&[0]));
    assert_eq!(out[2], rows[0]);
}

fn identity(t: &Tracer, n: u64) -> Tensor {
    let ty = i32s([n, n]);
    t.iota(ty.clone(), 0).eq(t.iota(ty, 1))
}

#[test]
fn second_derivatives_are_those_of_modules() {
    let (x, v) = (array(&[3], 0.3), array(&[3], 1.9));
    for (name, f) in SCALARS {
        let plain = of_one(&[3], |x| f(&x));
        let args = [x.clone(), v.clone()];
        let expected = chained(&plain, &args, |d| d.hvp(&[0]));
        let made =
            trace("f", |t| hvp(f)(&t.input("x", f64s([3])), &t.input("v", f64s([3])))).unwrap();
        same_bits(name, &made, &args, &expected);
        let args = [x.clone()];
        let expected = chained(&plain, &args, |d| d.hessian(&[0]));
        same_bits(name, &of_one(&[3], |x| hessian(f)(&x)), &args, &expected);
        let gradient = of_one(&[3], |x| grad(f)(&x));
        near(&flat(&expected), &differences(&gradient, &args), 1e-7);
        // Reverse over reverse, row by row.
        let rows = of_one(&[3], |x| jacrev(grad(f))(&x));
        near(&flat(&run_traced(&rows, &args)), &flat(&expected), 1e-13);
    }
}

#[test]
fn jacobians_are_those_of_modules() {
    let args = [array(&[3], 0.3)];
    for (name, f) in TENSORS {
        let plain = of_one(&[3], |x| f(&x));
        let forward = chained(&plain, &args, |d| d.jacfwd(&[0]));
        same_bits(name, &of_one(&[3], |x| jacfwd(f)(&x)), &args, &forward);
        let reverse = chained(&plain, &args, |d| d.jacrev(&[0]));
        same_bits(name, &of_one(&[3], |x| jacrev(f)(&x)), &args, &reverse);
        near(&flat(&forward), &differences(&plain, &args), 1e-7);
        near(&flat(&reverse), &flat(&forward), 1e-13);
    }
}

#[test]
fn batches_are_those_of_modules() {
    let xs = array(&[4, 3], 0.3);
    for (name, f) in SCALARS.into_iter().chain(TENSORS) {
        let plain = of_one(&[3], |x| f(&x));
        let args = [xs.clone()];
        let batching = adfuse::autodiff::Batching::new(4, [Some(0)]);
        let expected = chained(&plain, &args, |d| d.vmap(&batching));
        same_bits(name, &of_one(&[4, 3], |xs| vmap(f)(&xs)), &args, &expected);
        // Along the last axis.
        let turned = of_one(&[4, 3], |xs| vmap_axes(Some(1), f)(&xs.transpose(&[1, 0])));
        assert_eq!(run_traced(&turned, &args), expected, "{name}");
        // Each element by itself.
        for k in 0..4 {
            let row = &xs.to_f64s()[3 * k..3 * k + 3];
            let row = Array::from_f64s(DType::F64, &[3], row).unwrap();
            let alone = run_traced(&plain, &[row]);
            let n = alone[0].len();
            assert_eq!(expected[0].to_f64s()[n * k..n * k + n], alone[0].to_f64s(), "{name}");
        }
    }
}
