//! Rules and roots of closures, and of functions that closures call: at every order, in batches, in loops.

use super::*;
use adfuse::transform::{
    custom_jvp, custom_root, custom_vjp, fori, grad, hessian, jacfwd, jacrev, jvp, value_and_grad,
    vjp, vmap,
};

/// A module's function with a rule: its slope is 7 by the rule, and 1 by its instructions.
const RULED: &str =
    "func @reversed(%x: f64[3]) -> f64[3] custom_vjp(@reversed.fwd, @reversed.bwd) {
  %0 = neg %x : f64[3]
  return %0
}

func @reversed.fwd(%x: f64[3]) -> f64[3] {
  %0 = neg %x : f64[3]
  return %0
}

func @reversed.bwd(%ct: f64[3]) -> f64[3] {
  %0 = mul %ct, 7.0 : f64[3]
  return %0
}
";

#[test]
fn rules_of_called_functions_survive() {
    let m = adfuse::ir::text::parse(RULED).expect("the text parses");
    let reversed = |x: &Tensor| x.tracer().call((&m, m.find("reversed").unwrap()), &[x]).remove(0);
    let x = [array(&[3], 0.3)];
    let slope = |f: &dyn Fn(&Tensor) -> Tensor| {
        flat(&run_traced(&of_one(&[3], |x| grad(|x: &Tensor| f(x).sum(&[0]))(&x)), &x))
    };
    assert_eq!(slope(&reversed), [7.0; 3]);
    // Once a derivative has been taken, the value is what the forward rule does, whose slope is -1.
    let nested = |x: &Tensor| value_and_grad(|x: &Tensor| reversed(x).sum(&[0]))(x).0;
    assert_eq!(slope(&|x| nested(x).broadcast(&[], &[Dim::Const(3)]) / 3.0), [-1.0; 3]);
    assert_eq!(slope(&|x| vjp(|x: &Tensor| reversed(x))(x).0), [-1.0; 3]);
    // By another argument, the call stays.
    let beside = |x: &Tensor| {
        let y = x.cos();
        value_and_grad(|y: &Tensor| {
            reversed(x).sum(&[0]) * y.sum(&[0]) * 0.0 + reversed(x).sum(&[0])
        })(&y)
        .0
    };
    assert_eq!(slope(&|x| beside(x).broadcast(&[], &[Dim::Const(3)]) / 3.0), [7.0; 3]);
    assert_eq!(slope(&|x| fori(0..2, x.clone(), |_, x| reversed(&x))), [49.0; 3]);
    let batched = |x: &Tensor| {
        let both = x.broadcast(&[1], &[Dim::Const(2), Dim::Const(3)]);
        vmap(|x: &Tensor| reversed(x))(&both).sum(&[0])
    };
    assert_eq!(slope(&batched), [14.0; 3]);
    // Two batches of the same function, of other extents, in one trace.
    let two = |x: &Tensor| {
        let all = x.broadcast(&[1], &[Dim::Const(3), Dim::Const(3)]);
        batched(x) + vmap(|x: &Tensor| reversed(x))(&all).sum(&[0]) + reversed(x)
    };
    assert_eq!(slope(&two), [42.0; 3]);
}

#[test]
fn a_forward_rule_of_closures() {
    // The slope of the rule is 3 cos(x), that of the function 0.
    let steep = |x: &Tensor| {
        custom_jvp(|x: &Tensor| x.sign(), |x: &Tensor, dx: &Tensor| (x.sign(), dx * x.cos() * 3.0))(
            x,
        )
    };
    let x = [array(&[3], 0.3)];
    let sum = |x: &Tensor| steep(x).sum(&[0]);
    let slopes: Vec<f64> = x[0].to_f64s().iter().map(|x| 3.0 * x.cos()).collect();
    let curves: Vec<f64> = x[0].to_f64s().iter().map(|x| -3.0 * x.sin()).collect();
    let run_at = |f: Traced| flat(&run_traced(&f, &x));
    near(&run_at(of_one(&[3], |x| grad(sum)(&x))), &slopes, 1e-14);
    near(&run_at(of_one(&[3], |x| grad(|x: &Tensor| grad(sum)(x).sum(&[0]))(&x))), &curves, 1e-14);
    let diagonal = run_at(of_one(&[3], |x| hessian(sum)(&x)));
    near(&[diagonal[0], diagonal[4], diagonal[8]], &curves, 1e-14);
    let rows = run_at(of_one(&[3], |x| jacfwd(steep)(&x)));
    near(&[rows[0], rows[4], rows[8]], &slopes, 1e-14);
    let batched = |x: &Tensor| vmap(steep)(&x.reshape([3, 1])).sum(&[0, 1]);
    near(&run_at(of_one(&[3], |x| grad(batched)(&x))), &slopes, 1e-14);
    let twice = of_one(&[3], |x| jvp(|x: &Tensor| jvp(steep)(x, x).1)(&x, &x).1);
    let by_hand: Vec<f64> =
        x[0].to_f64s().iter().map(|x| 3.0 * x * x.cos() - 3.0 * x * x * x.sin()).collect();
    near(&run_at(twice), &by_hand, 1e-14);
}

/// A rule over trees, with what it keeps, an integer beside, and captures.
#[test]
fn a_reverse_rule_of_closures() {
    let made = |w: &Tensor, x: &Tensor, k: &Tensor| {
        let still = w.stop_gradient();
        let f = custom_vjp(
            |(x, k): &(Tensor, Tensor)| (x.sin() * &still, k.clone()),
            |(x, k): &(Tensor, Tensor)| ((x.sin() * &still, k.clone()), vec![x.cos(), x.square()]),
            // The gradient reads the tensor around it, which only a second derivative sees.
            |kept: &Vec<Tensor>, (ct, k): &(Tensor, Tensor)| {
                (ct * &kept[0] * w + &kept[1] * 0.5, k.clone())
            },
        );
        f(&(x.clone(), k.clone())).0
    };
    let inputs = [array(&[3], 0.3), array(&[3], 1.3)];
    let of_two = |f: &dyn Fn(&Tensor, &Tensor) -> Tensor| {
        trace("f", |t| f(&t.input("x", f64s([3])), &t.input("w", f64s([3])))).unwrap()
    };
    let k = |x: &Tensor| x.tracer().iota(i32s([2]), 0);
    let slope = |w: &Tensor, x: &Tensor| grad(|x: &Tensor| made(w, x, &k(x)).sum(&[0]))(x);
    let found = flat(&run_traced(&of_two(&|x, w| slope(w, x)), &inputs));
    let (x, w) = (inputs[0].to_f64s(), inputs[1].to_f64s());
    let by_hand: Vec<f64> = (0..3).map(|k| x[k].cos() * w[k] + 0.5 * x[k] * x[k]).collect();
    near(&found, &by_hand, 1e-14);
    let second = of_two(&|x, w| grad(|x: &Tensor| slope(w, x).sum(&[0]))(x));
    let by_hand: Vec<f64> = (0..3).map(|k| -x[k].sin() * w[k] + x[k]).collect();
    near(&flat(&run_traced(&second, &inputs)), &by_hand, 1e-14);
    let by_w = of_two(&|x, w| grad(|w: &Tensor| slope(w, x).sum(&[0]))(w));
    let by_hand: Vec<f64> = x.iter().map(|x| x.cos()).collect();
    near(&flat(&run_traced(&by_w, &inputs)), &by_hand, 1e-14);
    let first = of_two(&|x, w| grad(|w: &Tensor| made(w, x, &k(x)).sum(&[0]))(w));
    assert_eq!(flat(&run_traced(&first, &inputs)), [0.0; 3]);
    let batched = of_two(&|x, w| {
        let both = x.broadcast(&[1], &[Dim::Const(2), Dim::Const(3)]);
        vmap(|x: &Tensor| slope(w, x))(&both).sum(&[0]) / 2.0
    });
    near(&flat(&run_traced(&batched, &inputs)), &found, 1e-14);
}

/// A root has the derivatives of the implicit function theorem to the second order, in batches, and more than once in a trace.
#[test]
fn roots_are_differentiated() {
    // z = tanh(w z + x).
    let root = |w: &Tensor, x: &Tensor| {
        let layer = |z: &Tensor| (z * w * 0.3 + x).tanh();
        custom_root(x.stop_gradient(), |z| fori(0..60, z, |_, z| layer(&z)), |z| &z - layer(&z))
    };
    let dense = |w: &Tensor, x: &Tensor| {
        let layer = |z: &Tensor| (z.rev(&[0]) * w * 0.3 + x).tanh();
        custom_root(x.stop_gradient(), |z| fori(0..60, z, |_, z| layer(&z)), |z| &z - layer(&z))
    };
    // Where an energy is least: the residual is a gradient, which has a backward pass.
    let least = |w: &Tensor, x: &Tensor| {
        let energy = |z: &Tensor| (z.square() * 0.5 + (z * w).cosh().log() * 0.3 - z * x).sum(..);
        let slope = grad(energy);
        let descent = |z: Tensor| fori(0..60, z, |_, z| &z - slope(&z) * 0.7);
        custom_root(x.stop_gradient(), descent, |z| slope(&z))
    };
    let inputs = [array(&[3], 0.3), array(&[3], 1.3)];
    type Root<'f> = (&'static str, &'f dyn Fn(&Tensor, &Tensor) -> Tensor);
    let roots: [Root<'_>; 3] = [("diagonal", &root), ("dense", &dense), ("least", &least)];
    for (name, root) in roots {
        let of_two = |f: &dyn Fn(&Tensor, &Tensor) -> Tensor| {
            let made = trace("f", |t| f(&t.input("x", f64s([3])), &t.input("w", f64s([3]))));
            made.unwrap_or_else(|e| panic!("{name}: {e:?}"))
        };
        let value = of_two(&|x, w| root(w, x).square().sum(&[0]));
        let slope = |x: &Tensor, w: &Tensor| grad(|x: &Tensor| root(w, x).square().sum(&[0]))(x);
        let first = of_two(&slope);
        near(&flat(&run_traced(&first, &inputs)), &differences(&value, &inputs), 1e-6);
        let second = of_two(&|x, w| jacrev(|x: &Tensor| slope(x, w))(x));
        near(&flat(&run_traced(&second, &inputs)), &differences(&first, &inputs), 1e-6);
        // Two roots, of which one is in a batch, and their gradients.
        let both = of_two(&|x, w| {
            let twice = x.broadcast(&[1], &[Dim::Const(2), Dim::Const(3)]);
            slope(x, w) + vmap(|x: &Tensor| slope(x, w))(&twice).sum(&[0]) + slope(&(x * 0.5), w)
        });
        let half = Array::from_f64s(
            DType::F64,
            &[3],
            &inputs[0].to_f64s().iter().map(|x| x * 0.5).collect::<Vec<f64>>(),
        );
        let half = flat(&run_traced(&first, &[half.unwrap(), inputs[1].clone()]));
        let whole = flat(&run_traced(&first, &inputs));
        let sum: Vec<f64> = whole.iter().zip(half).map(|(a, b)| 3.0 * a + b).collect();
        near(&flat(&run_traced(&both, &inputs)), &sum, 1e-12);
    }
}
