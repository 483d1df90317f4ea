//! Loops and branches from closures: their values and gradients, and located errors.

use super::{asked_for, error, values};
use adfuse::autodiff::Derived;
use adfuse::autodiff::value_and_grad;
use adfuse::prelude::*;
use adfuse::trace::ScanOptions;
use approx::assert_abs_diff_eq;

fn vector(x: &[f64]) -> Array {
    Array::from_f64s(DType::F64, &[x.len() as u64], x).expect("numbers")
}

fn scalar(x: f64) -> Array {
    Array::from_f64s(DType::F64, &[], &[x]).expect("a number")
}

fn int(n: i32) -> Array {
    Array::from_f64s(DType::I32, &[], &[f64::from(n)]).expect("a number")
}

#[test]
fn a_scan_carries_tuples_and_stacks() {
    let f = trace("f", |t| {
        let (a, b) = (t.input("a", f64s([])), t.input("b", f64s([])));
        let xs = t.input("xs", f64s([4]));
        // Each of the Fibonacci numbers, times an element.
        let ((_, last), all) = t.scan((a, b), xs, |(a, b), x| {
            let next = &a + &b;
            ((b, next.clone()), next * x)
        });
        [last, all]
    })
    .expect("the closure is right");
    let args = [scalar(1.0), scalar(1.0), vector(&[1.0, 1.0, 2.0, 1.0])];
    let [last, all] = values::<2>(f.function(), &args);
    assert_eq!((last, all), (vec![8.0], vec![2.0, 3.0, 10.0, 8.0]));
}

#[test]
fn options_of_a_scan() {
    let f = trace("f", |t| {
        let xs = t.input("xs", f64s([3]));
        let zero = t.full(f64s([]), 0.0);
        let reverse = ScanOptions { reverse: true, ..ScanOptions::default() };
        let (_, sums) = t.scan_with(reverse, zero.clone(), xs, |c, x| {
            let c = c + x;
            (c.clone(), c)
        });
        let length = ScanOptions { length: Some(5), ..ScanOptions::default() };
        let (ten, ()) = t.scan_with(length, zero, (), |c, ()| (c + 2.0, ()));
        [sums, ten]
    })
    .expect("the closure is right");
    let [sums, ten] = values::<2>(f.function(), &[vector(&[1.0, 2.0, 3.0])]);
    assert_eq!((sums, ten), (vec![6.0, 5.0, 3.0], vec![10.0]));
}

#[test]
fn branches_choose() {
    let f = trace("f", |t| {
        let (i, x) = (t.input("i", i32s([])), t.input("x", f64s([])));
        let high = t.cond(&x.gt(1.0), || &x * 2.0, || -&x);
        let chosen = t.switch(&i, &[&|| x.sin(), &|| x.clone(), &|| x.square()]);
        [high, chosen]
    })
    .expect("the closure is right");
    for (i, x, due) in [(0, 3.0, [6.0, 3f64.sin()]), (1, 0.5, [-0.5, 0.5]), (9, 3.0, [6.0, 9.0])] {
        let [high, chosen] = values::<2>(f.function(), &[int(i), scalar(x)]);
        assert_abs_diff_eq!(high[0], due[0]);
        assert_abs_diff_eq!(chosen[0], due[1], epsilon = 1e-15);
    }
}

/// `x^n` by a loop over numbers and over tensors, and a root by `while`; with their gradients.
#[test]
fn loops_repeat_and_have_gradients() {
    let f = trace("f", |t| {
        let (n, x) = (t.input("n", i32s([])), t.input("x", f64s([])));
        let one = t.full(f64s([]), 1.0);
        let cubed = t.fori(0..3, one.clone(), |_, y| y * &x);
        let zero = t.full(i32s([]), 0.0);
        let power = t.fori(&zero..&n, one, |_, y| y * &x);
        // Newton's method.
        let root =
            t.while_loop(x.clone(), |r| (&r * &r - &x).abs().gt(1e-14), |r| (&x / &r + r) * 0.5);
        cubed + power + root
    })
    .expect("the closure is right");
    let module = Module::single(f.function().clone());
    let g = value_and_grad(&module, f.function(), &[1]).expect("reverses");
    for n in [0, 1, 4] {
        let x = 2.0f64;
        let [value, slope] = values::<2>(&g, &[int(n), scalar(x)]);
        assert_abs_diff_eq!(value[0], x.powi(3) + x.powi(n) + x.sqrt(), epsilon = 1e-12);
        let due = 3.0 * x * x + f64::from(n) * x.powi(n - 1) + 0.5 / x.sqrt();
        assert_abs_diff_eq!(slope[0], due, epsilon = 1e-12);
    }
}

#[test]
fn what_changes_its_type_is_an_error_with_its_line() {
    let line = line!() + 4;
    let d = error(|t| {
        let xs = t.input("xs", f32s([4, 3]));
        let h = t.input("h", f32s([3]));
        t.scan(h, xs, |h, x| ((h * x).sum(&[0]), ())).0
    });
    assert_eq!(d.kind, Kind::Shape);
    assert!(d.message.contains("value 0 is f32[3] at first and f32[] after a step"), "{d}");
    asked_for(&d, line);
}

#[test]
fn wrong_conditions_branches_and_lengths_are_errors() {
    let d = error(|t| t.while_loop(t.input("x", f32s([])), |x| x, |x| x));
    assert!(d.message.contains("the condition of `while` is a bool[], found f32[]"), "{d}");
    let d = error(|t| {
        let x = t.input("x", f32s([2]));
        t.cond(&x.sum(&[0]).gt(0.0), || x.clone(), || x.sum(&[0]))
    });
    assert!(d.message.contains("branch 1 of `cond` gives [f32[]], the first [f32[2]]"), "{d}");
    let d = error(|t| {
        let x = t.input("x", f32s([2]));
        t.cond(&x.gt(0.0), || x.clone(), || x.clone())
    });
    assert!(d.message.contains("`cond` cannot select by bool[2]"), "{d}");
    let d = error(|t| t.scan(t.input("x", f32s([])), (), |x, ()| (x, ())).0);
    assert!(d.message.contains("`scan` has no number of steps"), "{d}");
    let d = error(|t| {
        let (x, y) = (t.input("x", f32s([3])), t.input("y", f32s([4])));
        let zero = t.full(f32s([]), 0.0);
        t.scan(zero, (x, y), |c, (x, y)| (c + x + y, ())).0
    });
    assert!(d.message.contains("`scan` takes 3 steps"), "{d}");
}

/// A tensor of a closure is not known around it.
#[test]
fn what_a_closure_makes_stays_in_it() {
    let d = error(|t| {
        let x = t.input("x", f32s([3]));
        let mut kept = None;
        let (_, ()) = t.scan(t.full(f32s([]), 0.0), x, |c, x| {
            let y = c + x;
            kept = Some(y.clone());
            (y, ())
        });
        kept.expect("traced once")
    });
    assert_eq!(d.kind, Kind::Dominance);
}

/// A root comes along as a function with its rule, wherever it is found: derivatives are those of the root.
#[test]
fn a_root_is_differentiated_by_its_residual() {
    // x^3 = a b, by Newton steps in loops over elements of b; the guess has no part in it.
    let f = trace("f", |t| {
        let (a, bs, guess) =
            (t.input("a", f64s([])), t.input("bs", f64s([2])), t.input("guess", f64s([])));
        let zero = t.full(f64s([]), 0.0);
        let (sum, ()) = t.scan(zero, bs, |sum, b| {
            let cube = |x: &Tensor| x.powi(3) - &a * &b;
            let newton = |x: Tensor| {
                t.while_loop(
                    x,
                    |x| cube(&x).abs().gt(1e-13),
                    |x| &x - cube(&x) / (x.square() * 3.0),
                )
            };
            (sum + t.custom_root(guess.clone(), newton, |x| cube(&x)), ())
        });
        let two = t.custom_root(
            [guess.clone(), guess],
            |[_, y]| [&a * 1.0, y * 0.0],
            |[x, y]| [x - &a, y],
        );
        sum * &two[0]
    })
    .expect("the closures are right");
    let module = Module::single(f.clone());
    let text = module.to_string();
    assert_eq!(adfuse::ir::text::parse(&text).expect("it reads back").to_string(), text);
    assert!(
        text.contains("@f.root0.residual") && text.contains("custom_root(@f.root1.residual)"),
        "{text}"
    );
    let args = [scalar(1.5), vector(&[0.7, 2.0]), scalar(1.0)];
    let roots = |p: f64| 1.05f64.powf(p) + 3.0f64.powf(p);
    let third = 1.0 / 3.0;
    // y = a (r0 + r1), r = (a b)^(1/3): dy/da = (r0 + r1) 4/3, dy/db = a^2 / 3 (a b)^(-2/3).
    let back = value_and_grad(&module, &f, &[0, 1, 2]).expect("reverses");
    let [y, da, db, dg] = values::<4>(&back, &args);
    assert_abs_diff_eq!(y[0], 1.5 * roots(third), epsilon = 1e-12);
    assert_abs_diff_eq!(da[0], 4.0 / 3.0 * roots(third), epsilon = 1e-12);
    assert_abs_diff_eq!(db[0], 0.75 * 1.05f64.powf(-2.0 * third), epsilon = 1e-12);
    assert_eq!(dg, [0.0]);
    let twice = Derived::new(&module, &f).grad(&[0]).and_then(|g| g.jvp(&[0]));
    let twice = twice.and_then(Derived::finish).expect("order 2");
    let [_, dd] = values::<2>(&twice, &[&args[..], &[scalar(1.0)]].concat());
    assert_abs_diff_eq!(dd[0], 4.0 / 9.0 / 1.5 * roots(third), epsilon = 1e-12);
}

#[test]
fn roots_that_do_not_fit_are_located() {
    type Case<'a> = (&'a dyn Fn(&Tracer), &'a str);
    let cases: [Case<'_>; 4] = [
        (
            &|t| drop(t.custom_root(t.full(i32s([]), 1.0), |x| x, |x| x)),
            "a root is of float types, found [i32[]]",
        ),
        (&|t| t.custom_root((), |()| (), |()| ()), "a root is of float types, found []"),
        (
            &|t| drop(t.custom_root(t.full(f64s([2]), 1.0), |x| x.sum(&[0]), |x| x)),
            "has the root of the same, found [f64[]]",
        ),
        (
            &|t| drop(t.custom_root(t.full(f64s([2]), 1.0), |x| x, |x| x.convert(DType::F32))),
            "has the residual of the same, found [f32[2]]",
        ),
    ];
    for (body, message) in cases {
        let d = error(|t| {
            body(t);
            Vec::<Tensor>::new()
        });
        assert!(d.message.contains(message), "{d}");
        assert!(d.hint.as_deref().is_some_and(|h| h.contains("control.rs")), "{d}");
    }
}
