//! Training steps: the same as steps by hand, kept where they are, at any batch.

use adfuse::fusion::Fp;
use adfuse::nn::{Init, Param, ParamRole};
use adfuse::optim::Sgd;
use adfuse::prelude::*;
use adfuse::train_step;

#[derive(Params, Clone)]
struct Line<T = Tensor> {
    slope: T,
    offset: T,
    /// A running mean of what it has seen.
    seen: T,
}

fn line() -> Line<Param> {
    Line {
        slope: Param::new([2], Init::Values(Array::from_f32s(&[2], &[0.5, -0.25]).expect("fits"))),
        offset: Param::new([], Init::Zeros),
        seen: Param::new([2], Init::Zeros).role(ParamRole::Running),
    }
}

/// Where the loss multiplies by the slope.
#[cfg(feature = "report")]
const LOSS_LINE: u32 = line!() + 7;

/// The loss of a line: mean squares of what it misses.
fn loss(net: &Line, (x, y): (Tensor, Tensor)) -> (Tensor, Tensor) {
    let n = x.ty().shape[0].known().expect("known") as f64;
    let mean = x.sum(&[0]) / n;
    net.seen.update(&(&net.seen * 0.5 + mean * 0.5));
    let guess = x.dot(&net.slope);
    let guess = &guess + net.offset.broadcast_like(&guess);
    let miss = &guess - y;
    ((&miss * &miss).sum(&[0]) / n, guess)
}

fn batch(n: u64, seed: u64) -> (Array, Array) {
    let mut k = seed as f64;
    let mut draw = || {
        k += 1.0;
        (k * 1.7).sin()
    };
    let x = Array::drawn(DType::F32, &[n, 2], &mut draw).expect("fits");
    let y: Vec<f32> =
        x.to_f64s().chunks(2).map(|r| (3.0 * r[0] - 2.0 * r[1] + 1.0) as f32).collect();
    (x, Array::from_f32s(&[n], &y).expect("fits"))
}

#[test]
fn a_step_is_what_it_is_by_hand() {
    let step = train_step(Sgd::new(0.1), line(), loss);
    let mut state = step.init(Device::cpu().threads(1), 3).expect("is made");
    let (mut slope, mut offset, mut seen) = ([0.5f64, -0.25], 0.0f64, [0.0f64; 2]);
    for k in 0..20 {
        let n = if k % 5 == 4 { 3 } else { 7 };
        let (x, y) = batch(n, k);
        let (loss, guess) = state.step(&(x.clone(), y.clone())).expect("runs");
        let (x, y) = (x.to_f64s(), y.to_f64s());
        let (mut due, mut by) = (0.0, [0.0; 3]);
        let mut mean = [0.0; 2];
        for (i, row) in x.chunks(2).enumerate() {
            let g = slope[0] * row[0] + slope[1] * row[1] + offset;
            assert!((g - guess.to_f64s()[i]).abs() < 1e-5, "step {k}");
            let miss = g - y[i];
            due += miss * miss / n as f64;
            [row[0], row[1], 1.0]
                .iter()
                .zip(&mut by)
                .for_each(|(f, by)| *by += 2.0 * miss * f / n as f64);
            (0..2).for_each(|j| mean[j] += row[j] / n as f64);
        }
        assert!((due - loss).abs() < 1e-5, "step {k}: {due} {loss}");
        (0..2).for_each(|j| slope[j] -= 0.1 * by[j]);
        offset -= 0.1 * by[2];
        (0..2).for_each(|j| seen[j] = 0.5 * seen[j] + 0.5 * mean[j]);
        let now = state.params().expect("there");
        let found = [now.slope.to_f64s(), now.offset.to_f64s(), now.seen.to_f64s()].concat();
        for (a, b) in found.iter().zip([slope[0], slope[1], offset, seen[0], seen[1]]) {
            assert!((a - b).abs() < 1e-5, "step {k}: {found:?}");
        }
    }
    assert_eq!(state.steps(), 20);
}

/// A training run has the same bits with any number of threads and on the evaluator.
#[test]
fn runs_have_the_same_bits_everywhere() {
    let run = |device: Device| {
        let mut state = train_step(Sgd::nesterov(Sgd::new(0.05), 0.9), line(), loss)
            .init(device, 3)
            .expect("is made");
        let losses: Vec<u64> =
            (0..10).map(|k| state.step(&batch(64, k)).expect("runs").0.to_bits()).collect();
        let params = adfuse::tree::leaves(&state.params().expect("there"));
        (losses, params.iter().map(Array::to_bits).collect::<Vec<_>>())
    };
    let one = run(Device::cpu().threads(1));
    assert_eq!(one, run(Device::cpu().threads(2)));
    assert_eq!(one, run(Device::named("evaluator").expect("there")));
}

#[test]
fn evaluation_sees_the_present_parameters() {
    let mut state =
        train_step(Sgd::new(0.1), line(), loss).init(Device::cpu(), 0).expect("is made");
    let guess = adfuse::eval_step(|net: &Line, x: Tensor| loss(net, (x.clone(), x.sum(&[1]))).1);
    let (x, y) = batch(5, 1);
    let first = state.eval(&guess, &x).expect("runs");
    let (_, own) = state.step(&(x.clone(), y)).expect("runs");
    assert_eq!(first, own);
    let second = state.eval(&guess, &x).expect("runs");
    assert_ne!(first, second);
    assert_eq!(
        second,
        guess.run(&Device::cpu(), &state.params().expect("there"), &x).expect("runs")
    );
    let seen = state.params().expect("there").seen;
    assert_eq!(seen, state.params().expect("there").seen, "an evaluation updates nothing");
}

/// What a batch is, for one function of several structures.
#[derive(Params, Clone)]
enum Given<T = Tensor> {
    Values(T),
    Squares(T),
}

#[test]
fn structures_have_programs_of_their_own() {
    let step = train_step(Sgd::new(0.0), line(), |net: &Line, given: Given| {
        let x = match given {
            Given::Values(x) => x,
            Given::Squares(x) => x.sqrt(),
        };
        (x * &net.slope).sum(..)
    });
    let mut state = step.init(Device::cpu(), 0).expect("is made");
    let x = Array::from_f32s(&[2], &[4.0, 16.0]).expect("fits");
    assert_eq!(state.step(&Given::Values(x.clone())).expect("runs"), 2.0 - 4.0);
    assert_eq!(state.step(&Given::Squares(x.clone())).expect("runs"), 1.0 - 1.0);
    // A model may have several structures too.
    let eval = adfuse::eval_step(|net: &Given, x: Tensor| match net {
        Given::Values(net) => net * x,
        Given::Squares(net) => net.sqrt() * x,
    });
    let one = Array::from_f32s(&[], &[1.0]).expect("fits");
    let run = |net| eval.run(&Device::cpu(), &net, &one).expect("runs").to_f64s();
    assert_eq!(run(Given::Values(x.clone())), [4.0, 16.0]);
    assert_eq!(run(Given::Squares(x.clone())), [2.0, 4.0]);
    let f = adfuse::jit(|(a, b): (Option<Tensor>, Option<Tensor>)| match (a, b) {
        (Some(a), _) => a,
        (_, Some(b)) => b * 100.0,
        _ => unreachable!("one is given"),
    });
    let one = Array::from_f32s(&[], &[3.0]).expect("fits");
    assert_eq!(f.call(&(Some(one.clone()), None)).expect("runs").to_f64s(), [3.0]);
    assert_eq!(f.call(&(None, Some(one))).expect("runs").to_f64s(), [300.0]);
}

/// What a step cannot do is an error before anything has changed.
#[test]
fn wrong_steps_leave_the_state() {
    type Wrong = fn(&Line, (Tensor, Tensor)) -> Tensor;
    let wrong: [(Wrong, &str); 5] = [
        (|net, (x, _)| x.dot(&net.slope), "scalar"),
        (
            |net, (x, y)| {
                net.slope.update(&(&net.slope * 0.5));
                loss(net, (x, y)).0
            },
            "`slope`, whose role is Trained",
        ),
        (
            |net, (x, y)| {
                x.update(&(&x * 0.5));
                loss(net, (x, y)).0
            },
            "no parameter of the model",
        ),
        (
            |net, (x, y)| {
                let t = x.tracer();
                let all = t.scan(net.seen.clone(), x.clone(), |seen, x| {
                    net.seen.update(&x);
                    (seen, x)
                });
                loss(net, (x, y)).0 + all.0.sum(..)
            },
            "inside of a loop",
        ),
        (|net, (x, y)| loss(net, (x.convert(DType::F64), y)).0, "element types"),
    ];
    for (closure, due) in wrong {
        let mut state =
            train_step(Sgd::new(0.1), line(), closure).init(Device::cpu(), 0).expect("is made");
        let before = state.params().expect("there").slope.to_f64s();
        let told = state.step(&batch(4, 0)).expect_err("is refused").to_string();
        assert!(told.contains(due), "{told}");
        assert_eq!((state.steps(), state.params().expect("there").slope.to_f64s()), (0, before));
    }
}

/// An optimizer that gives too little, or something else.
struct Careless(bool);

impl adfuse::optim::Optimizer for Careless {
    fn state(&self, _: &[adfuse::optim::TrainedParam]) -> Vec<adfuse::optim::OptimizerState> {
        Vec::new()
    }

    fn update(&self, at: &adfuse::optim::UpdateContext<'_>) -> adfuse::optim::Updated {
        let params = match self.0 {
            true => at.values[1..].to_vec(),
            false => at.values.iter().map(|v| v.expand_dims(0)).collect(),
        };
        adfuse::optim::Updated { params, state: Vec::new() }
    }
}

#[test]
fn careless_optimizers_are_told() {
    for (few, due) in [(true, "gives 1 parameters, not 2"), (false, "gives f32[1,2] for f32[2]")] {
        let mut state =
            train_step(Careless(few), line(), loss).init(Device::cpu(), 0).expect("is made");
        let told = state.step(&batch(4, 0)).err().map(|d| d.to_string()).unwrap_or_default();
        assert!(told.contains(due), "{told}");
    }
}

#[derive(Params, Clone)]
struct Several<T = Tensor> {
    optimizer: Vec<T>,
}

/// Names and numbers of parameters that look like something else.
#[test]
fn structures_of_values_are_the_models() {
    let several = |n| Several { optimizer: vec![Param::new([2], Init::Ones); n] };
    let step = train_step(Sgd::new(0.1).momentum(0.9), several(2), |net: &Several, x: Tensor| {
        (&net.optimizer[0] * &net.optimizer[1] * x).sum(..)
    });
    let values = adfuse::nn::init(&several(3), 0).expect("is made");
    let told =
        step.with(Device::cpu(), &values, 0).err().map(|d| d.to_string()).unwrap_or_default();
    assert!(told.contains("not the model's structure"), "{told}");
    let mut state = step.init(Device::cpu(), 0).expect("is made");
    state.step(&Array::from_f32s(&[2], &[1.0, 2.0]).expect("fits")).expect("runs");
    let file =
        std::env::temp_dir().join(format!("adfuse-{}-names.safetensors", std::process::id()));
    state.save(&file).expect("is written");
    let back = step.load(Device::cpu(), &file).expect("reads");
    let bits =
        |tree: &Several<Array>| tree.optimizer.iter().map(Array::to_bits).collect::<Vec<_>>();
    let now = bits(&state.params().expect("there"));
    assert_eq!(bits(&back.params().expect("there")), now);
    assert_eq!(bits(&adfuse::nn::load(&several(2), &file).expect("reads")), now);
    assert!(state.save(file.with_extension("npz")).is_err());
    std::fs::remove_file(file).expect("is removed");
}

/// A report is of the step that runs: its parameters by their paths, its peak what a run takes.
#[cfg(feature = "report")]
#[test]
fn a_report_is_of_the_step_that_runs() {
    use adfuse::report::{ValueKind, page};
    let step = train_step(Sgd::new(0.1), line(), loss);
    let batch = batch(7, 1);
    let device = Device::cpu().threads(1);
    let mut state = step.init(device.clone(), 3).expect("is made");
    state.step(&batch).expect("runs");
    let report = state.report(&batch).expect("is made");
    assert_eq!(report, step.report(&device, &batch).expect("is made"));
    assert_eq!(report.memory.held, state.peak_bytes());
    let kind = |name: &str| {
        let found = report.memory.values.iter().find(|v| v.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {:?}", report.memory.values)).kind
    };
    assert_eq!(kind("%net.slope"), ValueKind::Parameter);
    assert_eq!(kind("%net.seen"), ValueKind::State);
    assert_eq!(kind("%batch.0"), ValueKind::Input);
    // Each step has the lines that asked for what it computes: of the loss here, and of the optimizer in the library.
    let lines = || report.steps.iter().flat_map(|s| &s.lines);
    let of_loss = format!("{}:{LOSS_LINE}:", file!());
    assert!(lines().any(|line| line.starts_with(&of_loss)), "{:?}", lines().collect::<Vec<_>>());
    assert!(lines().any(|line| line.contains("src/optim/")));
    assert!(lines().all(|line| !line.starts_with('/')), "no path is one of this host");
    let page = page(&report);
    assert!(page.contains("a training step traced from Rust") && page.contains("%net.slope"));
    assert!(page.contains(&of_loss));
}

#[derive(Params, Clone)]
struct Queries<T = Tensor> {
    weight: T,
}

/// Formulas that a mode has stable forms of have them before they are differentiated: attention that is written out stores no scores,
/// forward or backward. In strict mode they stay as they are written.
#[test]
fn what_is_differentiated_has_the_forms_of_its_mode() {
    let (rows, depth) = (130, 8);
    let mut k = 0.0;
    let mut draw = || {
        k += 1.0;
        f64::sin(k * 1.7)
    };
    let x = Array::drawn(DType::F32, &[rows, depth], &mut draw).expect("fits");
    let weight = Array::drawn(DType::F32, &[depth, depth], &mut draw).expect("fits");
    let model = Queries { weight: Param::new([depth, depth], Init::Values(weight)) };
    let loss = |net: &Queries, x: Tensor| {
        let scores = x.matmul(&net.weight).matmul(&x.transpose([1, 0])) * 0.25;
        let seen = scores.softmax([1]).matmul(&x);
        (&seen * &seen).sum(&[0, 1])
    };
    let step = train_step(Sgd::new(0.01), model, loss);
    let trained = |fp: Fp| {
        let device = Device::cpu().threads(1).fp(fp);
        let mut state = step.init(device, 0).expect("is made");
        let ops = state.traced(&x).expect("is traced").to_string();
        let losses: Vec<f64> = (0..4).map(|_| state.step(&x).expect("runs")).collect();
        (ops, losses)
    };
    let ((strict, due), (free, found)) = (trained(Fp::Strict), trained(Fp::Reproducible));
    assert!(!strict.contains("= attention") && strict.contains("= exp"), "{strict}");
    assert!(free.contains("= attention_grad") && !free.contains("= exp"), "{free}");
    assert!(due[3] < due[0]);
    let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-5 * y.abs();
    assert!(found.iter().zip(&due).all(close), "{found:?} {due:?}");
}
