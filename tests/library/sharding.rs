//! Optimizer state that ranks divide among them: the bits of whole state, in files that know nothing of ranks, within budgets that whole
//! state does not keep.

use crate::ranks::on_ranks;
use adfuse::ir::rewrite::StateSharding;
use adfuse::nn::{Init, Linear, Param};
use adfuse::optim::{Accumulate, Adam, Lion, Muon, Optimizer, Sgd};
use adfuse::prelude::*;
use adfuse::train::{MixedPrecision, OptimizerSharding, TrainState, TrainStep, data_parallel};
use adfuse::train_step;
use std::path::PathBuf;

#[derive(Params, Clone)]
struct Net<T = Tensor> {
    /// 25,800 elements, so that the last of eight ranks has padding alone.
    first: Linear<T>,
    /// As many as the parts of two, four and eight ranks have.
    table: T,
    /// Too few to be divided.
    bias: T,
}

fn net() -> Net<Param> {
    Net {
        first: Linear::new(129, 200),
        table: Param::new([64, 512], Init::Normal(0.1)),
        bias: Param::new([3], Init::Zeros),
    }
}

type Batch<T = Tensor> = (T, T);

fn loss(net: &Net, (x, label): Batch) -> Tensor {
    let rows = net.table.take(&label, 0);
    let hidden = net.first.apply(&x).relu();
    (hidden.square().mean(..) + (&rows * &rows).mean(..)) * (net.bias.sum(..) + 1.0)
}

type Step = TrainStep<Net<Param>, Batch, Tensor>;
type State = TrainState<Net<Param>, Batch, Tensor>;

fn step(optimizer: impl Optimizer + 'static, sharding: OptimizerSharding) -> Step {
    data_parallel(train_step(optimizer, net(), loss), 8).optimizer_sharding(sharding)
}

fn batch(seed: u64) -> Batch<Array> {
    let mut k = seed as f64 * 100.0;
    let mut draw = || {
        k += 1.0;
        (k * 1.7).sin()
    };
    let x = Array::drawn(DType::F32, &[8, 129], &mut draw).expect("fits");
    let labels: Vec<i32> = (0..8).map(|k| (k * 5 + seed as i32) % 64).collect();
    (x, Array::from_vec(labels, [8]).expect("fits"))
}

fn cpu() -> Device {
    Device::cpu().threads(1)
}

/// What some steps leave and report, as bits; and how many tensors are divided.
fn trained(step: &Step, device: Device) -> (Vec<Vec<u64>>, usize) {
    let mut state = step.init(device, 5).unwrap_or_else(|d| panic!("{d}"));
    let mut all = Vec::new();
    for k in 0..3 {
        let loss = state.step(&batch(k)).unwrap_or_else(|d| panic!("{d}"));
        all.push(vec![loss.to_bits()]);
    }
    all.extend(params(&state));
    (all, state.sharding().map_or(0, |report| report.decision.tensors.len()))
}

fn params(state: &State) -> Vec<Vec<u64>> {
    let params = state.params().unwrap_or_else(|d| panic!("{d}"));
    adfuse::tree::leaves(&params).iter().map(Array::to_bits).collect()
}

/// A step for whole and for divided state, and how many tensors it divides.
type Case = (&'static str, fn(OptimizerSharding) -> Step, usize);

const CASES: &[Case] = &[
    // m and v of both large parameters; the parameters themselves are read in f32.
    ("adamw", |s| step(Adam::w(1e-2).weight_decay(0.1), s), 4),
    ("adamw, clipped by a norm", |s| step(Adam::w(1e-2).clip_global_norm(0.05), s), 4),
    // The f32 parameters too, which are gathered in 16 bits.
    ("adamw, bf16", |s| mixed(step(Adam::w(1e-2).clip_global_norm(0.05), s)), 6),
    ("adamw, f16 with a scaled loss", |s| scaled(step(Adam::w(1e-2).clip_value(0.01), s)), 6),
    ("momentum", |s| step(Sgd::new(0.1).nesterov(0.9), s), 2),
    ("lion", |s| step(Lion::new(1e-2).weight_decay(0.1), s), 2),
    // Its matrices are orthogonalized whole.
    ("muon", |s| step(Muon::new(0.02, Adam::new(1e-2)), s), 0),
    // An update in a branch is not divided.
    ("accumulated", |s| step(Accumulate::new(Adam::new(1e-2), 2), s), 0),
];

fn mixed(step: Step) -> Step {
    step.mixed_precision(MixedPrecision::bf16())
}

fn scaled(step: Step) -> Step {
    step.mixed_precision(MixedPrecision::f16())
}

#[test]
fn divided_state_has_the_bits_of_whole_state_on_any_number_of_ranks() {
    for (what, made, count) in CASES {
        let (whole, none) = trained(&made(OptimizerSharding::Never), cpu());
        assert_eq!(none, 0, "{what}");
        let divided = made(OptimizerSharding::Always);
        for ranks in [1, 2, 4, 8] {
            let (found, divided) = trained(&divided, cpu().simulated_ranks(ranks));
            assert!(found == whole, "{what} on {ranks} simulated ranks");
            assert_eq!(divided, if ranks == 1 { 0 } else { *count }, "{what} on {ranks} ranks");
        }
    }
}
