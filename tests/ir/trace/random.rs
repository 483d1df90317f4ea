//! Keys: which draws differ, distributions at fixed seeds, and dropout.

use super::error;
use adfuse::check::{CheckOptions, Outcome, check};
use adfuse::prelude::*;

fn key(t: &Tracer, seed: i64) -> Key {
    Key::new(&t.constant(seed))
}

/// The largest distance of an empirical distribution of as many numbers from one on [0, 1).
fn distance(mut x: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    x.sort_by(f64::total_cmp);
    let n = x.len() as f64;
    let steps = x.iter().enumerate();
    steps
        .map(|(k, &x)| (cdf(x) - k as f64 / n).abs().max((cdf(x) - (k + 1) as f64 / n).abs()))
        .fold(0.0, f64::max)
}

const N: u64 = 20_000;
/// A distance that fewer than one sample of a million exceeds (Kolmogorov and Smirnov), and what 16 bits round.
const FAR: f64 = 2.7 / 141.4;

#[test]
fn distributions() {
    for (seed, dtype) in [(1, DType::F64), (2, DType::F32), (3, DType::F16), (4, DType::BF16)] {
        let ty = || TensorType::of(dtype, &[N]);
        let x = evaluate(|t| key(t, seed).uniform(ty())).expect("it runs").to_f64s();
        assert!(x.iter().all(|x| (0.0..1.0).contains(x)), "{dtype}");
        assert!(distance(x, |x| x) < FAR, "uniform {dtype}");
        let x = evaluate(|t| key(t, seed).normal(ty())).expect("it runs").to_f64s();
        let mean = x.iter().sum::<f64>() / N as f64;
        let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / N as f64;
        assert!(mean.abs() < 0.04 && (var - 1.0).abs() < 0.05, "{dtype}: {mean} {var}");
        assert!(x.iter().all(|x| x.is_finite()));
        // Within one and two standard deviations.
        let within = |r: f64| x.iter().filter(|x| x.abs() < r).count() as f64 / N as f64;
        assert!(
            (within(1.0) - 0.6827).abs() < 0.02 && (within(2.0) - 0.9545).abs() < 0.01,
            "{dtype}"
        );
    }
}

#[test]
fn truth_values_integers_and_classes() {
    let share = |x: Array, of: f64| {
        x.to_f64s().iter().filter(|&&x| x == of).count() as f64 / x.len() as f64
    };
    for p in [0.0, 0.1, 0.5, 1.0] {
        let x = evaluate(|t| key(t, 5).bernoulli(p, [N])).expect("it runs");
        assert!((share(x, 1.0) - p).abs() < 0.015, "{p}");
    }
    let x =
        evaluate(|t| key(t, 6).integers(-2..3, TensorType::of(DType::I8, &[N]))).expect("it runs");
    for k in -2..3 {
        assert!((share(x.clone(), f64::from(k)) - 0.2).abs() < 0.02, "{k}");
    }
    let p = [0.2f64, 0.5, 0.3];
    let x = evaluate(|t| {
        let logits = t.constant(p.map(f64::ln)).broadcast(&[1], &[Dim::Const(N), Dim::Const(3)]);
        key(t, 7).categorical(&logits)
    });
    let x = x.expect("it runs");
    for (k, p) in p.iter().enumerate() {
        assert!((share(x.clone(), k as f64) - p).abs() < 0.02, "{k}");
    }
}

/// Draws of one key, of its clones and of keys split off or folded differ; equal keys draw equal bits.
#[test]
fn draws_differ() {
    let f = trace("f", |t| {
        let seed = t.input("seed", TensorType::scalar(DType::I64));
        let a = Key::new(&seed);
        let mut all = vec![a.bits([8]), a.clone().bits([8]), a.bits([8])];
        let [b, c] = a.split();
        all.extend([b.bits([8]), c.bits([8]), b.bits([8])]);
        let [d] = b.split();
        all.extend([
            d.bits([8]),
            a.fold_in(0).bits([8]),
            a.fold_in(1).bits([8]),
            b.fold_in(1).bits([8]),
        ]);
        all.extend([a.fold_in(1).fold_in(1).bits([8]), Key::new(&(&seed + 1)).bits([8])]);
        all
    });
    let f = f.expect("traces");
    let module = Module::single(f.clone());
    let draw = |seed: i64| {
        let seed = Array::from_i64s(DType::I64, &[], &[seed]).expect("a number");
        let out = run(&module, &f, &[seed], &mut Silent).expect("it runs");
        out.iter().map(Array::to_bits).collect::<Vec<_>>()
    };
    let all = draw(3);
    for (k, x) in all.iter().enumerate() {
        assert!(!all[..k].contains(x), "draw {k} is one before it");
    }
    assert_eq!(draw(3), all);
    assert_ne!(draw(4), all);
}

/// Values and gradients use one mask, and the scale keeps the mean.
#[test]
fn dropout_scales_what_it_keeps() {
    let f = trace("f", |t| {
        let x = t.input("x", f64s([N]));
        let y = x.square().dropout(&key(t, 9), 0.25);
        (y.mean(..), y)
    });
    let f = f.expect("traces");
    let g = adfuse::autodiff::value_and_grad_has_aux(&Module::single(f.clone()), &f, &[0])
        .expect("reverses");
    let x = Array::from_f64s(DType::F64, &[N], &vec![1.0; N as usize]).expect("numbers");
    let out = run(&Module::single(g.clone()), &g, &[x], &mut Silent).expect("it runs");
    let vectors: Vec<Vec<f64>> = out.iter().filter(|a| a.len() > 1).map(Array::to_f64s).collect();
    let [y, dx] = vectors.as_slice() else { panic!("{} vectors", vectors.len()) };
    let kept = y.iter().filter(|&&y| y == 4.0 / 3.0).count();
    assert!((kept as f64 / N as f64 - 0.75).abs() < 0.02);
    for (y, dx) in y.iter().zip(dx) {
        assert!(*y == 0.0 || *y == 4.0 / 3.0, "{y}");
        assert!((dx - 2.0 * y / N as f64).abs() < 1e-15, "{y} {dx}");
    }
    let small = trace("f", |t| t.input("x", f64s([12])).square().dropout(&key(t, 9), 0.25))
        .expect("traces");
    for row in check(&Module::single(small), &CheckOptions::default()).expect("it is checked") {
        assert!(matches!(row.outcome, Outcome::Pass(_)), "{row:?}");
    }
    for p in [-0.1, 1.0, f64::NAN] {
        let d = error(|t| t.input("x", f32s([3])).dropout(&key(t, 1), p));
        assert!(d.message.contains("`dropout` takes a probability from 0 to below 1"), "{d}");
    }
    let d = error(|t| Key::new(&t.input("seed", i32s([]))).bits([2]));
    assert!(d.message.contains("the seed of a key is i64[], found i32[]"), "{d}");
}
