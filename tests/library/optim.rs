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
        ("warmup_cosine", Box::new(Sgd::new(warmup().cosine(15, 0.02)))),
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

fn step_of(
    optimizer: Box<dyn Optimizer>,
) -> adfuse::train::TrainStep<Net<Param>, (Tensor, Tensor), Tensor> {
    train_step(optimizer, net(), |net: &Net, (x, target): (Tensor, Tensor)| {
        let y = net.out.apply(net.hidden.apply(x).tanh());
        (y - target).square().sum(..) / 5.0
    })
}

/// Every optimizer goes on from a file, and with another number of threads, to the same bits.
#[test]
fn every_optimizer_resumes_to_the_bit() {
    let all = fixture("optimizers.safetensors");
    let batch = |k: usize| (row(&all["x"], k), row(&all["target"], k));
    let file =
        std::env::temp_dir().join(format!("adfuse-optim-{}.safetensors", std::process::id()));
    for ((name, first), (_, second)) in cases().into_iter().zip(cases()) {
        let mut whole = step_of(first).init(Device::cpu().threads(1), 3).expect("is made");
        for k in 0..6 {
            whole.step(&batch(k)).expect("runs");
        }
        whole.save(&file).expect("is written");
        let mut other = step_of(second).load(Device::cpu().threads(2), &file).expect("reads");
        for k in 6..12 {
            let losses = [&mut whole, &mut other].map(|s| s.step(&batch(k)).expect("runs"));
            assert_eq!(losses[0].to_bits(), losses[1].to_bits(), "{name}: step {k}");
        }
        let bits = [whole, other].map(|s| {
            let params = tree::leaves(&s.params().expect("there"));
            params.iter().map(Array::to_bits).collect::<Vec<_>>()
        });
        assert_eq!(bits[0], bits[1], "{name}");
    }
    std::fs::remove_file(file).expect("is removed");
}

/// An optimizer's update of one parameter `w`, as a function of the step, the parameter, the gradient and the state.
struct Update {
    f: adfuse::trace::Traced,
    state: Vec<Array>,
    step: u32,
}

impl Update {
    fn new(optimizer: &dyn Optimizer, ty: TensorType) -> Update {
        let params = [TrainedParam { path: "w".into(), ty: ty.clone() }];
        let kept: Vec<OptimizerState> = optimizer.state(&params);
        let f = trace("update", |t| {
            let step = t.input("step", f32s([]));
            let (w, g) = (t.input("w", ty.clone()), t.input("g", ty.clone()));
            let state: Vec<Tensor> = kept.iter().map(|k| t.input(&k.name, k.ty.clone())).collect();
            let (values, gradients) = ([w], [g]);
            let updated = optimizer.update(&UpdateContext {
                step,
                params: &params,
                values: &values,
                gradients: &gradients,
                state: &state,
            });
            [updated.params, updated.state].concat()
        });
        let fill = |k: &OptimizerState| {
            Array::drawn(k.ty.dtype, &k.ty.dims().expect("known"), || k.fill).expect("fits")
        };
        Update { f: f.expect("traces"), state: kept.iter().map(fill).collect(), step: 0 }
    }

    /// The parameter after a gradient.
    fn step(&mut self, w: &Array, g: &Array) -> Array {
        self.step += 1;
        let step = Array::from_f32s(&[], &[self.step as f32]).expect("fits");
        let args = [vec![step, w.clone(), g.clone()], self.state.clone()].concat();
        let mut out =
            run(&Module::from(self.f.clone()), &self.f, &args, &mut Silent).expect("runs");
        self.state = out.split_off(1);
        out.remove(0)
    }
}

#[test]
fn state_is_of_f32_at_least() {
    for (name, optimizer) in cases() {
        for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
            let params = [[4u64, 3].as_slice(), &[3]]
                .map(|dims| TrainedParam { path: "w".into(), ty: TensorType::of(dtype, dims) });
            for kept in optimizer.state(&params) {
                assert_eq!(kept.ty.dtype, dtype.compute(), "{name}: {}", kept.name);
            }
        }
    }
}

/// Adam on a parameter of bf16: the parameter is rounded, what is kept is not.
#[test]
fn parameters_of_bf16_keep_their_state_in_f32() {
    let bf16 = |values: &[f64]| Array::from_f64s(DType::BF16, &[3], values).expect("fits");
    let mut update = Update::new(&Adam::new(0.01), TensorType::of(DType::BF16, &[3]));
    let (mut w, mut m, mut v) = (bf16(&[1.0, -0.5, 0.0]), [0.0f64; 3], [0.0f64; 3]);
    for k in 1..=20 {
        let g = bf16(&[1.0 + 0.3 * f64::from(k % 3), -0.01, 1e-3 * f64::from(k)]);
        let before = w.to_f64s();
        w = update.step(&w, &g);
        assert_eq!(w.dtype(), DType::BF16);
        for (j, g) in g.to_f64s().into_iter().enumerate() {
            m[j] = 0.9 * m[j] + 0.1 * g;
            v[j] = 0.999 * v[j] + 0.001 * g * g;
            let by =
                m[j] / (1.0 - 0.9f64.powi(k)) / ((v[j] / (1.0 - 0.999f64.powi(k))).sqrt() + 1e-8);
            let due = before[j] - 0.01 * by;
            // Half of the distance of two neighbours, and the rounding of f32.
            let found = w.to_f64s()[j];
            assert!((found - due).abs() <= due.abs() / 250.0, "step {k}: {found}, not {due}");
        }
        let due = [m, v].map(|x| Array::from_f64s(DType::F64, &[3], &x).expect("fits"));
        for (found, due) in update.state.iter().zip(due) {
            assert_eq!(found.dtype(), DType::F32);
            near("state", found, &due, 2e-6);
        }
    }
}

/// What stands before an optimizer does not round gradients of bf16 once more.
#[test]
fn gradients_of_bf16_are_clipped_and_summed_in_f32() {
    let ty = TensorType::of(DType::BF16, &[3]);
    let bf16 = |values: &[f64]| Array::from_f64s(DType::BF16, &[3], values).expect("fits");
    let zeros = bf16(&[0.0; 3]);
    // The momentum after the first step is the gradient that the inner optimizer was given.
    let sgd = || Sgd::new(0.1).momentum(0.9);
    let mut clipped = Update::new(&sgd().clip_global_norm(1.0), ty.clone());
    let g = [3.0, -1.0, 0.5];
    clipped.step(&zeros, &bf16(&g));
    let norm = 10.25f64.sqrt();
    let due = Array::from_f64s(DType::F64, &[3], &g.map(|x| x / norm)).expect("fits");
    near("clipped", &clipped.state[0], &due, 1e-6);
    let mut cut = Update::new(&sgd().clip_value(0.7), ty.clone());
    cut.step(&zeros, &bf16(&g));
    let due = Array::from_f64s(DType::F64, &[3], &[0.7, -0.7, 0.5]).expect("fits");
    near("cut", &cut.state[0], &due, 1e-6);
    let mut summed = Update::new(&sgd().accumulate(2), ty);
    summed.step(&zeros, &bf16(&[1.0, 2.0, 3.0]));
    assert!(summed.state[1].to_f64s().iter().all(|&m| m == 0.0), "no update yet");
    summed.step(&zeros, &bf16(&[1.0 + 1.0 / 128.0, 2.0, 1.0]));
    let due = [1.0 + 1.0 / 256.0, 2.0, 2.0];
    assert_eq!(summed.state[1].to_f64s(), due);
    assert!(summed.state[0].to_f64s().iter().all(|&s| s == 0.0), "the sums begin anew");
}

/// Decoupled decay is for parameters of two axes or more; that of SGD is part of the gradient of all.
#[test]
fn decay_is_for_matrices() {
    let decayed: [(&str, Box<dyn Optimizer>, [bool; 3]); 4] = [
        ("adamw", Box::new(Adam::w(0.1).weight_decay(0.5)), [false, true, true]),
        ("lion", Box::new(Lion::new(0.1).weight_decay(0.5)), [false, true, true]),
        ("muon", Box::new(Muon::new(0.1, Adam::new(0.1)).weight_decay(0.5)), [false, true, false]),
        ("sgd", Box::new(Sgd::new(0.1).weight_decay(0.5)), [true; 3]),
    ];
    for (name, optimizer, due) in decayed {
        for (dims, due) in [&[4][..], &[2, 2], &[2, 2, 1]].into_iter().zip(due) {
            let ty = TensorType::of(DType::F32, dims);
            let ones = Array::drawn(DType::F32, dims, || 1.0).expect("fits");
            let zeros = Array::drawn(DType::F32, dims, || 0.0).expect("fits");
            let next = Update::new(&*optimizer, ty).step(&ones, &zeros);
            let want = if due { 1.0 - 0.1 * 0.5 } else { 1.0 };
            let near = next.to_f64s().iter().all(|x| (x - want).abs() < 1e-6);
            assert!(near, "{name} of {dims:?}: {next:?}");
        }
    }
}

/// Muon's update has singular values near 1, of wide and of tall matrices, and leaves what it is told to leave to Adam.
#[test]
fn muon_makes_orthogonal_updates() {
    for [rows, columns] in [[6u64, 6], [5, 12], [12, 5]] {
        let muon = Muon::new(1.0, Adam::new(0.01));
        let mut update = Update::new(&muon, f32s([rows, columns]));
        let zeros = Array::drawn(DType::F32, &[rows, columns], || 0.0).expect("fits");
        let g = nn::init(&Param::new([rows, columns], nn::Init::Normal(3.0)), 1).expect("fits");
        let x = update.step(&zeros, &g).to_f64s();
        let scale = (rows as f64 / columns as f64).max(1.0).sqrt();
        // The sum of the squares of singular values, which the iteration leaves between .7 and 1.2.
        let squares = x.iter().map(|v| (v / scale).powi(2)).sum::<f64>();
        let few = rows.min(columns) as f64;
        assert!(squares > 0.5 * few && squares < 1.45 * few, "{rows} x {columns}: {squares}");
        // The update goes against the gradient.
        let along: f64 = x.iter().zip(g.to_f64s()).map(|(x, g)| x * g).sum();
        assert!(along < 0.0);
    }
    let params = |path: &str| [TrainedParam { path: path.into(), ty: f32s([3, 3]) }];
    let muon = Muon::new(0.02, Adam::new(0.01)).only(|path| path != "head.weight");
    for (path, due) in [("body.weight", 1), ("head.weight", 2), ("embed.weight", 2)] {
        assert_eq!(muon.state(&params(path)).len(), due, "{path}");
    }
}

/// Rates by hand at the seams of phases.
#[test]
fn rates_at_the_seams_of_phases() {
    let at = |rate: &LearningRate, steps: &[f64]| {
        let rates = adfuse::trace::evaluate(|t| {
            let all: Vec<Tensor> = steps.iter().map(|&k| rate.at(&t.full(f32s([]), k))).collect();
            Tensor::stack(&all.iter().collect::<Vec<_>>(), 0)
        });
        rates.expect("traces").to_f64s()
    };
    let whole = LearningRate::warmup(4, 1.0).hold(2).cosine(4, 0.2).linear(2, 0.0);
    let cases: [(LearningRate, &[f64], &[f64]); 8] = [
        (0.3.into(), &[1.0, 1e6], &[0.3, 0.3]),
        (
            whole,
            &[1.0, 4.0, 5.0, 6.0, 8.0, 10.0, 11.0, 12.0, 50.0],
            &[0.25, 1.0, 1.0, 1.0, 0.6, 0.2, 0.1, 0.0, 0.0],
        ),
        (LearningRate::constant(1.0).linear(4, 0.0), &[1.0, 2.0, 4.0, 5.0], &[0.75, 0.5, 0.0, 0.0]),
        (
            LearningRate::constant(8.0).decay(0.5, 3),
            &[1.0, 3.0, 4.0, 6.0, 7.0, 10.0],
            &[8.0, 8.0, 4.0, 4.0, 2.0, 1.0],
        ),
        (LearningRate::warmup(2, 1.0).decay(0.1, 1), &[1.0, 2.0, 3.0, 4.0], &[0.5, 1.0, 1.0, 0.1]),
        (LearningRate::constant(1.0).decay(0.0, 2), &[1.0, 2.0, 3.0, 5.0], &[1.0, 1.0, 0.0, 0.0]),
        (LearningRate::warmup(0, 1.0).hold(3), &[1.0, 3.0, 4.0], &[1.0, 1.0, 1.0]),
        (LearningRate::custom(|k| k.reciprocal()), &[1.0, 4.0], &[1.0, 0.25]),
    ];
    for (rate, steps, due) in cases {
        for ((found, due), step) in at(&rate, steps).iter().zip(due).zip(steps) {
            assert!((found - due).abs() < 1e-6, "{rate:?} at step {step}: {found}, not {due}");
        }
    }
}

/// Optimizers of a model without trained parameters do nothing, and a gradient of zeros is no NaN.
#[test]
fn nothing_to_train_and_nothing_to_follow() {
    for (name, optimizer) in cases() {
        assert!(optimizer.state(&[]).is_empty(), "{name}");
        let mut update = Update::new(&*optimizer, f32s([2, 3]));
        let ones = Array::drawn(DType::F32, &[2, 3], || 1.0).expect("fits");
        let zeros = Array::drawn(DType::F32, &[2, 3], || 0.0).expect("fits");
        let next = update.step(&ones, &zeros).to_f64s();
        assert!(next.iter().all(|x| (0.9..=1.0).contains(x)), "{name}: {next:?}");
    }
}
