//! Functions on arrays: traced and compiled once for each tuple of argument types.

use super::*;
use adfuse::jit;
use adfuse::transform::{grad, value_and_grad};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Params, Clone)]
struct Pair<T = Tensor> {
    first: T,
    second: Vec<T>,
}

#[test]
fn programs_are_kept_by_types() {
    let traces = AtomicUsize::new(0);
    let f = jit(|x: Tensor| {
        traces.fetch_add(1, Ordering::Relaxed);
        grad(|x: &Tensor| x.square().sum(&[0]))(&x)
    });
    for (n, expected) in [(3, 1), (3, 1), (5, 2), (3, 2), (5, 2)] {
        let x = array(&[n], 0.3);
        let doubled: Vec<f64> = x.to_f64s().iter().map(|x| x * 2.0).collect();
        assert_eq!(f.call(&x).expect("it runs").to_f64s(), doubled);
        assert_eq!((traces.load(Ordering::Relaxed), f.programs()), (expected, expected));
    }
    let single = Array::from_f32s(&[3], &[1.0, 2.0, 3.0]).unwrap();
    assert_eq!(f.call(&single).unwrap().to_f64s(), [2.0, 4.0, 6.0]);
    assert_eq!(f.programs(), 3);
}

#[test]
fn trees_in_and_out() {
    let f = jit(|(pair, x): (Pair, Tensor)| {
        let loss = |pair: &Pair| {
            pair.second.iter().fold(pair.first.dot(&x), |sum, t| sum + t.square().sum(&[0]))
        };
        value_and_grad(loss)(&pair)
    });
    for n in [1, 2] {
        let second: Vec<Array> = (0..n).map(|k| array(&[2], k as f64)).collect();
        let pair = Pair { first: array(&[3], 0.1), second: second.clone() };
        let x = array(&[3], 0.5);
        let (_, slopes): (Array, Pair<Array>) = f.call(&(pair, x.clone())).expect("it runs");
        assert_eq!(slopes.first, x);
        assert_eq!(slopes.second.len(), n);
        for (slope, t) in slopes.second.iter().zip(&second) {
            near(&slope.to_f64s(), &t.to_f64s().iter().map(|x| 2.0 * x).collect::<Vec<_>>(), 1e-15);
        }
    }
    assert_eq!(f.programs(), 2);
    let types = Pair { first: f64s([3]), second: vec![f64s([2])] };
    let traced = f.traced(&(types, f64s([3]))).expect("it is traced");
    let names: Vec<&str> =
        traced.params().iter().map(|&p| traced.name_of(p).unwrap_or_default()).collect();
    assert_eq!(names, ["arg.0.first", "arg.0.second.0", "arg.1"]);
    let named = jit(|pair: Pair| pair.first);
    let pair = Pair { first: f64s([3]), second: vec![f64s([2])] };
    let traced = named.named("step").traced(&pair).expect("it is traced");
    assert!(
        traced.to_string().contains("func @step(%first: f64[3], %second.0: f64[2])"),
        "{traced}"
    );
}

#[test]
fn errors_are_told_and_not_kept() {
    let f = jit(|(x, y): (Tensor, Tensor)| x + y);
    let wrong = (array(&[3], 0.1), array(&[2], 0.1));
    for _ in 0..2 {
        let d = f.call(&wrong).expect_err("the extents differ");
        assert!(d.hint.clone().unwrap_or_default().contains("jitted.rs:"), "{d:?}");
    }
    assert_eq!(f.programs(), 0);
    assert!(f.call(&(array(&[3], 0.1), array(&[3], 0.1))).is_ok());
    assert_eq!(f.programs(), 1);
}

/// Threads share the programs, and one compiles.
#[test]
fn threads_share_programs() {
    let traces = AtomicUsize::new(0);
    let f = jit(|x: Tensor| {
        traces.fetch_add(1, Ordering::Relaxed);
        x.sin()
    });
    let expected = f.call(&array(&[4], 0.2)).unwrap();
    let f = f.on(Device::cpu());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(f.call(&array(&[4], 0.2)).unwrap(), expected));
        }
    });
    assert_eq!(traces.load(Ordering::Relaxed), 2);
    assert_eq!(f.programs(), 1);
}
