//! Mixed precision and micro-batches: the same bits as the same arithmetic written by hand.

use super::small_net::{Net, Pair, loss, net};
use adfuse::data::safetensors;
use adfuse::nn::{Init, Linear, Param};
use adfuse::optim::{Adam, Optimizer, Sgd};
use adfuse::prelude::*;
use adfuse::train::{MixedPrecision, TrainState};
use adfuse::{train_step, tree};

fn batch(rows: u64, first: u64) -> (Array, Array) {
    let mut k = first as f64;
    let mut draw = || {
        k += 1.0;
        (k * 1.7).sin()
    };
    let x = Array::drawn(DType::F32, &[rows, 6], &mut draw).expect("fits");
    let y = (0..rows as i32).map(|k| k % 3).collect();
    (x, Array::from_vec(y, [rows]).expect("fits"))
}

/// The rows from one to another.
fn rows(batch: &(Array, Array), from: usize, to: usize) -> (Array, Array) {
    let n = (to - from) as u64;
    let x = batch.0.as_slice::<f32>().expect("f32")[6 * from..6 * to].to_vec();
    let y = batch.1.as_slice::<i32>().expect("i32")[from..to].to_vec();
    (Array::from_vec(x, [n, 6]).expect("fits"), Array::from_vec(y, [n]).expect("fits"))
}

fn bits<M: Params<Param>, B: Params<Tensor>>(state: &TrainState<M, B, Tensor>) -> Vec<Vec<u64>> {
    let params = state.params().expect("there");
    tree::leaves(&params).iter().map(Array::to_bits).collect()
}

#[test]
fn mixed_precision_is_conversions_around_the_loss() {
    let adam = || Adam::w(0.05).clip_global_norm(1.0);
    let mixed = train_step(adam(), net(8, 0.3), loss).mixed_precision(MixedPrecision::bf16());
    let by_hand = train_step(adam(), net(8, 0.3), |net: &Net, (x, y): Pair| {
        let narrow =
            tree::replace(net, |path, t: &Tensor| match path.as_str().contains("running") {
                true => t.clone(),
                false => t.convert(DType::BF16),
            });
        loss(&narrow, (x.convert(DType::BF16), y)).convert(DType::F32)
    });
    let mut mixed = mixed.init(Device::cpu(), 1).expect("is made");
    let mut by_hand = by_hand.init(Device::cpu(), 1).expect("is made");
    for k in 0..4 {
        let batch = batch(12, k);
        let found = mixed.step(&batch).expect("runs");
        assert_eq!(found.to_bits(), by_hand.step(&batch).expect("runs").to_bits(), "step {k}");
    }
    assert_eq!(bits(&mixed), bits(&by_hand));
    let types = tree::leaves(&mixed.params().expect("there"));
    assert!(types.iter().all(|a| a.ty().dtype == DType::F32));
}

/// A batch in parts is as many steps of an optimizer that accumulates.
#[test]
fn micro_batches_are_accumulated_gradients() {
    for (n, mixed) in [(4, false), (3, true), (12, true)] {
        let step = |optimizer: Box<dyn Optimizer>| {
            let step = train_step(optimizer, net(8, 0.3), loss);
            if mixed { step.mixed_precision(MixedPrecision::bf16()) } else { step }
        };
        let adam = || Adam::w(0.05);
        let mut whole =
            step(Box::new(adam())).micro_batches(n).init(Device::cpu(), 1).expect("is made");
        let accumulating = step(Box::new(adam().accumulate(n as u32)));
        let mut parts = accumulating.init(Device::cpu(), 1).expect("is made");
        for k in 0..3 {
            let batch = batch(24, k);
            let found = whole.step(&batch).expect("runs");
            let own = 24 / n as usize;
            let losses = (0..n as usize)
                .map(|j| parts.step(&rows(&batch, j * own, (j + 1) * own)).expect("runs") as f32);
            let due = losses.reduce(|a, b| a + b).expect("some") / n as f32;
            assert_eq!(found as f32, due, "{n} parts, step {k}");
            assert_eq!(bits(&whole), bits(&parts), "{n} parts, step {k}");
        }
        assert_eq!(whole.steps(), 3);
    }
}

#[test]
fn other_values_have_an_entry_of_each_part() {
    for n in [2, 12] {
        let step =
            train_step(Sgd::new(0.0), Param::new([], Init::Ones), |p: &Tensor, (x, by): Pair| {
                let y = &x * p * &by;
                (y.sum(..), y)
            });
        let mut state = step.micro_batches(n).init(Device::cpu(), 0).expect("is made");
        let x: Vec<f32> = (0..24).map(|k| k as f32).collect();
        let scalar = Array::from_vec(vec![2f32], []).expect("fits");
        let batch = (Array::from_vec(x.clone(), [24]).expect("fits"), scalar);
        let (_, y) = state.step(&batch).expect("runs");
        assert_eq!(y.dims(), [n, 24 / n]);
        assert_eq!(
            y.as_slice::<f32>().expect("f32"),
            x.iter().map(|x| 2.0 * x).collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_batch_that_does_not_divide_is_refused() {
    let step = train_step(Sgd::new(0.1), net(8, 0.0), loss).micro_batches(5);
    let refused =
        step.init(Device::cpu(), 0).expect("is made").step(&batch(24, 0)).expect_err("24 rows");
    assert_eq!(refused.kind, Kind::Shape);
    assert!(refused.to_string().contains("5 micro-batches do not divide"), "{refused}");
}

/// A batch in parts takes less memory than whole.
#[test]
fn micro_batches_take_less_memory() {
    let layers = vec![Linear::new(32, 32); 6];
    let peak = |n| {
        let step = train_step(Sgd::new(0.1), layers.clone(), |net: &Vec<Linear>, x: Tensor| {
            net.iter().fold(x.clone(), |h, layer| layer.apply(h).gelu()).mse(&x)
        });
        let mut state = step.micro_batches(n).init(Device::cpu(), 0).expect("is made");
        let x = Array::from_vec(vec![0.5f32; 32 * 2048], [2048, 32]).expect("fits");
        state.step(&x).expect("runs");
        state.peak_bytes()
    };
    let [whole, four, sixteen] = [1, 4, 16].map(peak);
    assert!(four < whole / 2 && sixteen < four, "{whole}, {four}, {sixteen} bytes");
}

/// What the scale of the loss keeps.
fn scale(state: &TrainState<Param, Tensor, Tensor>, name: &str) -> [f64; 3] {
    let name = format!("adfuse-{}-{name}.safetensors", std::process::id());
    let file = std::env::temp_dir().join(name);
    state.save(&file).expect("is written");
    let (arrays, _) = safetensors::read(&file).expect("reads");
    std::fs::remove_file(&file).expect("is there");
    ["scale", "finite", "skipped"].map(|kept| {
        let due = format!("optimizer.loss_scale.{kept}");
        arrays.iter().find(|(name, _)| *name == due).expect("is kept").1.to_f64s()[0]
    })
}

/// Gradients that `f16` has no numbers for arrive when the loss is scaled.
#[test]
fn a_scaled_loss_keeps_small_gradients() {
    let run = |precision: MixedPrecision| {
        let step =
            train_step(Sgd::new(1.0), Param::new([4], Init::Ones), |p: &Tensor, by: Tensor| {
                (p * by * 1e-4).sum(..)
            });
        let mut state = step.mixed_precision(precision).init(Device::cpu(), 0).expect("is made");
        let loss =
            state.step(&Array::from_vec(vec![1e-4f32; 4], [4]).expect("fits")).expect("runs");
        (loss, state.params().expect("there").to_f64s()[0])
    };
    let (loss, scaled) = run(MixedPrecision::f16().loss_scale(1024.0));
    assert!((1.0 - scaled - 1e-8).abs() < 6e-8 && loss < 1e-6, "{loss}, {scaled}");
    let (_, unscaled) = run(MixedPrecision::f16().loss_scale(1.0));
    assert_eq!(unscaled, 1.0);
}

/// The scale falls after gradients that are not finite, whose step changes nothing, and rises after enough of those that are.
#[test]
fn the_scale_of_the_loss_follows_the_gradients() {
    let step = train_step(Adam::w(0.5), Param::new([2], Init::Ones), |p: &Tensor, by: Tensor| {
        (p * by).sum(..)
    });
    let step = step.mixed_precision(MixedPrecision::f16().dynamic_loss_scale(65536.0, 2));
    let mut state = step.init(Device::cpu(), 0).expect("is made");
    let by = |x: f32| Array::from_vec(vec![x; 2], [2]).expect("fits");
    // 65,536 times 2 is more than f16 has: two steps are skipped.
    for (x, due) in [(4.0, [32768.0, 0.0, 1.0]), (2.0, [16384.0, 0.0, 2.0])] {
        state.step(&by(x)).expect("runs");
        assert_eq!(scale(&state, "follows"), due, "{x}");
        assert_eq!(state.params().expect("there").to_f64s(), [1.0, 1.0], "{x}");
    }
    state.step(&by(2.0)).expect("runs");
    assert_eq!(scale(&state, "follows"), [16384.0, 1.0, 2.0]);
    // Adam's first step that counts is by the rate, and by the decay of nothing: one axis does not decay.
    let after = state.params().expect("there").to_f64s()[0];
    assert!((after - 0.5).abs() < 1e-6, "{after}");
    state.step(&by(2.0)).expect("runs");
    assert_eq!(scale(&state, "follows"), [32768.0, 0.0, 2.0]);
}
