//! Optimizer state that ranks divide among them: the bits of whole state, in files that know nothing of ranks, within budgets that whole
//! state does not keep.

use crate::ranks::on_ranks;
use adfuse::ir::rewrite::StateSharding;
use adfuse::nn::{Init, Linear, Param};
use adfuse::optim::{
    Accumulate, Adam, Lion, Muon, Optimizer, OptimizerState, Sgd, TrainedParam, UpdateContext,
    Updated,
};
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

/// The program of a step is one that users could have written.
fn verified(state: &State) {
    let module = Module::from(state.traced(&batch(0)).unwrap_or_else(|d| panic!("{d}")));
    verify(&module).unwrap_or_else(|e| panic!("{}", e[0]));
}

/// What some steps leave and report, as bits; and how many tensors are divided.
fn trained(step: &Step, device: Device) -> (Vec<Vec<u64>>, usize) {
    let mut state = step.init(device, 5).unwrap_or_else(|d| panic!("{d}"));
    let mut all = Vec::new();
    for k in 0..3 {
        let loss = state.step(&batch(k)).unwrap_or_else(|d| panic!("{d}"));
        all.push(vec![loss.to_bits()]);
    }
    verified(&state);
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

/// Processes that are connected have the same bits as whole state, and all of them give whole parameters.
#[test]
fn connected_ranks_divide_their_state() {
    for (what, made, count) in [CASES[1], CASES[2]] {
        let (whole, _) = trained(&made(OptimizerSharding::Never), cpu());
        for ranks in [2, 4] {
            let step = made(OptimizerSharding::Always);
            for found in on_ranks(ranks, |group| trained(&step, cpu().ranks(group))) {
                assert!(found == (whole.clone(), count), "{what} on {ranks} connected ranks");
            }
        }
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("adfuse-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A state that ranks divided is a whole file, equal to that of whole state, and goes on with the same bits on any number of ranks; so does one
/// of whole state on ranks that divide it.
#[test]
fn files_know_nothing_of_ranks() {
    let made = |sharding| mixed(step(Adam::w(1e-2).clip_global_norm(0.05), sharding));
    let (divides, whole) = (made(OptimizerSharding::Always), made(OptimizerSharding::Never));
    let folder = Folder::new("sharded");
    let (of_ranks, of_one) = (folder.at("0.safetensors"), folder.at("one.safetensors"));
    let two_steps = |mut state: State| {
        (0..2).for_each(|k| {
            state.step(&batch(k)).expect("runs");
        });
        state
    };
    on_ranks(2, |group| {
        let name = format!("{}.safetensors", group.rank());
        let state = two_steps(divides.init(cpu().ranks(group), 5).expect("is made"));
        assert_eq!(state.sharding().map(|report| report.names.len()), Some(6));
        state.save(folder.at(&name)).expect("is written");
    });
    two_steps(whole.init(cpu(), 5).expect("is made")).save(&of_one).expect("is written");
    assert!(!folder.at("1.safetensors").exists());
    assert_eq!(std::fs::read(&of_ranks).expect("reads"), std::fs::read(&of_one).expect("reads"));
    let third = |mut state: State| {
        state.step(&batch(2)).expect("runs");
        params(&state)
    };
    let due = third(whole.load(cpu(), &of_ranks).expect("reads"));
    for ranks in [2, 8] {
        let device = cpu().simulated_ranks(ranks);
        assert_eq!(third(divides.load(device, &of_one).expect("reads")), due, "{ranks} ranks");
    }
    for found in
        on_ranks(4, |group| third(divides.load(cpu().ranks(group), &of_one).expect("reads")))
    {
        assert_eq!(found, due);
    }
}

/// Momenta of several lengths, so that most of a step's memory is state.
struct Momenta(usize);

impl Optimizer for Momenta {
    fn state(&self, params: &[TrainedParam]) -> Vec<OptimizerState> {
        let all = |p| (0..self.0).map(move |k| OptimizerState::zeros(&format!("m{k}"), p));
        params.iter().flat_map(all).collect()
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        let mut updated = Updated { params: Vec::new(), state: Vec::new() };
        let states = at.state.chunks(self.0);
        for ((p, g), momenta) in at.values.iter().zip(at.gradients).zip(states) {
            let decay = |k: usize| 1.0 - 1.0 / (k + 2) as f64;
            let next = momenta.iter().enumerate().map(|(k, m)| m * decay(k) + g);
            let next: Vec<Tensor> = next.collect();
            let step = next.iter().fold(p.clone(), |p, m| p - m * 0.01);
            updated.params.push(step);
            updated.state.extend(next);
        }
        updated
    }
}

/// The budget decides: whole state where it fits, divided state where it does not.
#[test]
fn a_budget_that_whole_state_does_not_keep_divides_it() {
    let table = || Param::new([64, 512], Init::Normal(0.1));
    let loss = |table: &Tensor, rows: Tensor| table.take(&rows, 0).square().mean(..);
    let made = |sharding| {
        data_parallel(train_step(Momenta(6), table(), loss), 2).optimizer_sharding(sharding)
    };
    let rows = Array::from_vec(vec![3i32, 5, 5, 9], [4]).expect("fits");
    // How many tensors are divided, the most bytes of a step, and the bits that two steps leave.
    let trained = |sharding, device: Device| {
        let mut state = made(sharding).init(device, 5)?;
        (0..2).try_for_each(|_| state.step(&rows).map(|_| ()))?;
        let divided = state.sharding().map_or(0, |report| report.names.len());
        Ok::<_, Diagnostic>((divided, state.peak_bytes(), state.params()?.to_bits()))
    };
    let peak = |sharding| {
        let of_ranks = on_ranks(2, |group| trained(sharding, cpu().ranks(group)).expect("runs"));
        of_ranks[0].1
    };
    let (whole, divided) = (peak(OptimizerSharding::Never), peak(OptimizerSharding::Always));
    // Of six tensors of 128 KiB each rank has a half.
    assert!(divided + (256 << 10) < whole, "{divided} {whole}");
    let (_, _, bits) = trained(OptimizerSharding::Never, cpu()).expect("runs");
    for (budget, sharding, due) in [
        (whole, OptimizerSharding::Auto, Some(0)),
        (divided, OptimizerSharding::Auto, Some(6)),
        (divided, OptimizerSharding::Never, None),
    ] {
        for found in on_ranks(2, |group| trained(sharding, cpu().ranks(group).mem_budget(budget))) {
            match (found, due) {
                (Err(d), None) => assert_eq!(d.kind, Kind::Limit, "{d}"),
                (Ok((count, peak, found)), Some(due)) => {
                    assert_eq!(count, due, "within {budget} of {whole} bytes");
                    assert!(peak <= budget && found == bits, "within {budget} of {whole} bytes");
                }
                (found, due) => panic!("{found:?} {due:?}"),
            }
        }
    }
    // What is simulated keeps the budget of a rank.
    let device = cpu().simulated_ranks(2).mem_budget(divided);
    let (count, _, found) = trained(OptimizerSharding::Auto, device).expect("runs");
    assert!(count == 6 && found == bits);
}

/// A model is evaluated on whole parameters, whatever ranks divide.
#[test]
fn models_are_evaluated_whole() {
    let step = mixed(step(Adam::w(1e-2), OptimizerSharding::Always));
    let answer = adfuse::eval_step(|net: &Net, (x, _): Batch| net.first.apply(&x).sum(..));
    let answers = |device: Device| {
        let mut state = step.init(device, 5).expect("is made");
        let mut all = Vec::new();
        for k in 0..2 {
            all.push(state.eval(&answer, &batch(k)).expect("runs").to_bits());
            state.step(&batch(k)).expect("runs");
        }
        all.push(state.eval(&answer, &batch(2)).expect("runs").to_bits());
        all
    };
    let due = answers(cpu());
    assert_eq!(answers(cpu().simulated_ranks(4)), due);
    assert!(on_ranks(2, |group| answers(cpu().ranks(group))).iter().all(|found| *found == due));
}

/// The decision says what it saves and what it costs, has a text that reads back, and is an answer of the plan's report.
#[test]
fn the_decision_is_told() {
    let step = step(Adam::w(1e-2), OptimizerSharding::Always);
    let device = cpu().simulated_ranks(2);
    let mut state = step.init(device.clone(), 5).expect("is made");
    assert!(state.sharding().is_none());
    state.step(&batch(0)).expect("runs");
    let report = state.sharding().expect("is decided");
    let names = ["m.first.weight", "v.first.weight", "m.table", "v.table"];
    assert_eq!(report.names, names.map(|name| format!("optimizer.{name}")));
    // Parts have whole blocks of 1024 elements.
    assert_eq!(report.saved_bytes, 2 * 4 * ((25_800 - 13 * 1024) + (32_768 - 16 * 1024)));
    assert!(report.exchange_seconds > 0.0 && report.whole_exchange_seconds > 0.0);
    let text = report.decision.to_string();
    assert_eq!(text.parse::<StateSharding>().as_ref(), Ok(&report.decision), "{text}");
    let sentence = report.to_string();
    assert!(sentence.contains("4 tensors") && sentence.contains("it was asked for"), "{sentence}");
    let traced = state.traced(&batch(1)).expect("traces");
    assert!(traced.to_string().contains("reduce_scatter"));
    let page = step.report(&device, &batch(0)).expect("reports");
    let answer = page.answers.iter().find(|answer| answer.key == "sharding").expect("an answer");
    assert_eq!(answer.answer, sentence);
}
