//! Optimizers against PyTorch's and against the formulas of their papers, parameter by parameter over 20 steps.

use crate::nn::{fixture, near, within};
use adfuse::nn::{self, Linear, Param};
use adfuse::optim::{
    Adam, LearningRate, Lion, Muon, Optimizer, OptimizerState, Sgd, TrainedParam, UpdateContext,
};
use adfuse::prelude::*;
use adfuse::{train_step, tree};

#[derive(Params, Clone)]
struct Net<T = Tensor> {
    hidden: Linear<T>,
    out: Linear<T>,
}

fn net() -> Net<Param> {
    Net { hidden: Linear::new(4, 6), out: Linear::new(6, 3) }
}

/// The cases of `optimizers.safetensors`.
fn cases() -> Vec<(&'static str, Box<dyn Optimizer>)> {
    let muon = || Muon::new(0.02, Adam::new(0.01));
    let adam = || Adam::new(0.01);
    let warmup = || LearningRate::warmup(5, 0.2);
    vec![
        ("sgd", Box::new(Sgd::new(0.1))),
        ("momentum", Box::new(Sgd::new(0.05).momentum(0.9))),
        ("nesterov", Box::new(Sgd::new(0.05).nesterov(0.9))),
        ("sgd_decay", Box::new(Sgd::new(0.05).momentum(0.9).weight_decay(0.1))),
        ("adam", Box::new(adam())),
        ("adam_betas", Box::new(Adam::new(0.02).betas(0.7, 0.9).eps(0.01))),
        ("adamw", Box::new(Adam::w(0.02).weight_decay(0.1))),
        ("lion", Box::new(Lion::new(0.01))),
        ("lion_decay", Box::new(Lion::new(0.01).betas(0.8, 0.95).weight_decay(0.5))),
        ("muon", Box::new(muon())),
        ("muon_decay", Box::new(muon().weight_decay(0.1))),
        ("clip_global_norm", Box::new(Sgd::new(0.1).clip_global_norm(1.0))),
        ("clip_value", Box::new(Sgd::new(0.1).clip_value(0.2))),
        ("accumulate", Box::new(adam().accumulate(4))),
        ("accumulate_clip", Box::new(adam().clip_global_norm(1.0).accumulate(4))),
        ("warmup_cosine", Box::new(Sgd::new(warmup().cosine(10, 0.02)))),
        ("warmup_linear", Box::new(Sgd::new(warmup().linear(10, 0.02)))),
        ("decay", Box::new(Sgd::new(LearningRate::constant(0.2).decay(0.5, 6)))),
    ]
}

/// The row of a number of an array whose first axis are rows.
fn row(all: &Array, k: usize) -> Array {
    let n = all.len() / all.dims()[0] as usize;
    let bytes = n * all.dtype().bytes() as usize;
    let own = &all.bytes()[k * bytes..(k + 1) * bytes];
    Array::from_le_bytes(all.dtype(), &all.dims()[1..], own).expect("fits")
}

/// Parameters after each step are those of PyTorch, in parameters of this type.
fn compare(dtype: DType, share: f64) {
    let all = fixture("optimizers.safetensors");
    for (name, optimizer) in cases() {
        let model = nn::with_dtype(&net(), dtype);
        let state: Vec<(String, Array)> = within(&all, "state/").into_iter().collect();
        let values = nn::named(&model, &state).expect("PyTorch's names");
        let step = train_step(optimizer, model, |net: &Net, (x, target): (Tensor, Tensor)| {
            let y = net.out.apply(net.hidden.apply(x).tanh());
            (y - target).square().sum(..) / 5.0
        });
        let mut state = step.with(Device::cpu().threads(1), &values, 0).expect("types fit");
        for k in 0..20 {
            let batch = ["x", "target"].map(|n| row(&all[n], k).convert(dtype));
            let [x, target] = batch;
            state.step(&(x, target)).unwrap_or_else(|e| panic!("{name}: {e}"));
            for (path, found) in tree::named_leaves(&state.params().expect("there")) {
                let due = row(&all[&format!("{name}/{path}")], k);
                assert_eq!(found.dtype(), dtype);
                near(&format!("{name}: {path} after step {}", k + 1), &found, &due, share);
            }
        }
    }
}

#[test]
fn parameters_are_pytorchs_after_each_step() {
    compare(DType::F32, 1e-5);
}

/// Rates are f32; the rest is in the type of the parameters.
#[test]
fn parameters_of_f64_are_nearer() {
    compare(DType::F64, 5e-7);
}

#[test]
fn all_cases_are_compared() {
    let all = fixture("optimizers.safetensors");
    let names: std::collections::BTreeSet<&str> =
        all.keys().filter_map(|n| n.split_once('/')).map(|(case, _)| case).collect();
    let due = cases().into_iter().map(|(name, _)| name).chain(["state"]).collect();
    assert_eq!(names, due);
}
