//! Dropout: what it drops, that nothing is dropped outside of training, and that what is computed again drops the same.

use super::Gradients;
use adfuse::ir::CheckpointPolicy;
use adfuse::nn::{Dropout, Init, Param, TransformerBlock};
use adfuse::optim::Sgd;
use adfuse::prelude::*;
use adfuse::transform::checkpoint;
use adfuse::{eval_step, train_step};

/// A parameter of ones; its gradients are what dropout multiplies by.
fn ones(dims: &[u64]) -> Param {
    Param::new(dims.iter().copied(), Init::Ones)
}

/// What dropout multiplies by in each of some steps, forward and backward, on a device.
fn masks(p: f64, dims: &[u64], (seed, steps): (u64, usize), device: Device) -> Vec<Array> {
    let step = train_step(Sgd::new(0.0), ones(dims), move |x: &Tensor, (): ()| {
        let y = Dropout::new(p).apply(x);
        (y.sum(..), y)
    });
    let mut state = step.init(device, seed).expect("is made");
    (0..steps).map(|_| state.step(&()).expect("runs").1).collect()
}

#[test]
fn a_share_is_dropped_and_the_rest_is_scaled() {
    for p in [0.1, 0.5, 0.9] {
        let (dims, n) = ([200, 300], 60_000f64);
        for (k, mask) in masks(p, &dims, (3, 2), Device::cpu()).iter().enumerate() {
            let x = mask.to_f64s();
            let kept = x.iter().filter(|&&x| x != 0.0).count() as f64;
            let spread = (n * p * (1.0 - p)).sqrt();
            assert!((kept - n * (1.0 - p)).abs() < 5.0 * spread, "{p}, step {k}: {kept} of {n}");
            let factor = 1.0 / (1.0 - p);
            assert!(x.iter().all(|&x| x == 0.0 || (x - factor).abs() < 1e-6 * factor), "{p}");
            // Neighbours are dropped independently, along both axes.
            for far in [1, 300] {
                let both =
                    x.windows(far + 1).filter(|w| w[0] != 0.0 && w[far] != 0.0).count() as f64;
                let due = (n - far as f64) * (1.0 - p) * (1.0 - p);
                assert!(
                    (both - due).abs() < 10.0 * spread,
                    "{p}: {both} of {due} pairs {far} apart"
                );
            }
        }
    }
}

#[test]
fn draws_depend_on_seed_step_and_layer() {
    let dims = [16, 16];
    let first = masks(0.5, &dims, (3, 4), Device::cpu());
    for (k, mask) in first.iter().enumerate() {
        assert!(first[..k].iter().all(|other| other != mask), "steps {k} and before");
    }
    assert!(masks(0.5, &dims, (4, 4), Device::cpu()).iter().all(|mask| !first.contains(mask)));
    let step = train_step(Sgd::new(0.0), ones(&dims), |x: &Tensor, (): ()| {
        let drop = Dropout::new(0.5);
        let (a, b) = (drop.apply(x), drop.apply(x));
        (a.sum(..), (a, b))
    });
    let (_, (a, b)) = step.init(Device::cpu(), 3).expect("is made").step(&()).expect("runs");
    assert_ne!(a, b, "two layers");
}

#[test]
fn draws_are_the_same_bits_everywhere_and_again() {
    let dims = [70, 1000];
    let one = masks(0.3, &dims, (5, 3), Device::cpu().threads(1));
    assert_eq!(one, masks(0.3, &dims, (5, 3), Device::cpu().threads(1)));
    assert_eq!(one, masks(0.3, &dims, (5, 3), Device::cpu().threads(2)));
    assert_eq!(one, masks(0.3, &dims, (5, 3), Device::named("evaluator").expect("there")));
}

/// The gradient is taken of what was dropped in the forward pass, also where a checkpoint computes it again.
#[test]
fn forward_and_backward_drop_the_same() {
    for again in [false, true] {
        let step = train_step(Gradients, ones(&[40, 50]), move |x: &Tensor, (): ()| {
            let drop = |x: &Tensor| Dropout::new(0.4).apply(x.exp()).square();
            let y = if again { checkpoint(CheckpointPolicy::Remat, drop)(x) } else { drop(x) };
            (y.sum(..), y)
        });
        let mut state = step.init(Device::cpu(), 1).expect("is made");
        let (_, y) = state.step(&()).expect("runs");
        let slope = state.params().expect("there");
        for (y, slope) in y.to_f64s().iter().zip(slope.to_f64s()) {
            // The derivative of (m exp(x))^2 is twice itself.
            assert!((slope - 2.0 * y).abs() <= 1e-5 * slope.abs(), "{slope} {y}");
        }
    }
}

#[test]
fn nothing_is_dropped_outside_of_training() {
    let step = eval_step(|x: &Tensor, (): ()| Dropout::new(0.7).apply(x));
    let x = Array::drawn(DType::F32, &[9, 7], || 0.3).expect("fits");
    assert_eq!(step.run(&Device::cpu(), &x, &()).expect("runs"), x);
    // Of a model with dropout in several places.
    let given = |p: f64| {
        let block = TransformerBlock::new(8, 2).dropout(p);
        let values = adfuse::nn::init(&block, 2).expect("fits");
        let mut k = 0.0f64;
        let x = Array::drawn(DType::F32, &[2, 3, 8], || {
            k += 0.7;
            k.cos()
        });
        let step = eval_step(|block: &TransformerBlock, x: Tensor| block.apply(x));
        step.run(&Device::cpu(), &values, &x.expect("fits")).expect("runs")
    };
    assert_eq!(given(0.0), given(0.5));
}

#[test]
fn probabilities_are_from_0_to_below_1() {
    let whole = masks(0.0, &[5, 5], (1, 1), Device::cpu());
    assert!(whole[0].to_f64s().iter().all(|&x| x == 1.0));
    for p in [1.0, -0.1, f64::NAN] {
        let step = train_step(Sgd::new(0.1), ones(&[3]), move |x: &Tensor, (): ()| {
            Dropout::new(p).apply(x).sum(..)
        });
        let told = step.init(Device::cpu(), 0).expect("is made").step(&()).err();
        let told = told.map_or("nothing".into(), |e| e.to_string());
        assert!(told.contains("a probability from 0 to below 1"), "{p}: {told}");
    }
}
