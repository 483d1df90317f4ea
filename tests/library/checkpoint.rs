//! Saved and resumed training is uninterrupted training, to the bit; files are whole whatever happens to their writer.

use super::small_net::{Net, Pair, logits, loss, net};
use adfuse::data::{Dataset, safetensors};
use adfuse::nn::{self, Linear, Param};
use adfuse::optim::{Adam, LearningRate, Optimizer, Sgd};
use adfuse::prelude::*;
use adfuse::train::{TrainState, TrainStep, Trainer};
use adfuse::{eval_step, train_step, tree};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn step(hidden: u64, optimizer: impl Optimizer + 'static) -> TrainStep<Net<Param>, Pair, Tensor> {
    train_step(optimizer, net(hidden, 0.3), loss)
}

fn usual() -> TrainStep<Net<Param>, Pair, Tensor> {
    let rate = LearningRate::warmup(5, 0.01).cosine(20, 1e-4);
    step(8, Adam::new(rate).clip_global_norm(1.0).accumulate(2))
}

fn data() -> Dataset<(Array, Array)> {
    let mut draw = adfuse::sample::rng(1, 0);
    let x = adfuse::sample::sample(&f32s([50, 6]), adfuse::ir::op::Domain::Normal, &mut draw);
    let x = x.expect("fits");
    let y: Vec<i32> = x
        .as_slice::<f32>()
        .expect("f32")
        .chunks(6)
        .map(|r| i32::from(r[0] > r[1]) + i32::from(r[2] > 0.0))
        .collect();
    Dataset::new((x, Array::from_vec(y, [50]).expect("fits"))).expect("as many rows")
}

fn folder(name: &str) -> PathBuf {
    let at = std::env::temp_dir().join(format!("adfuse-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&at);
    std::fs::create_dir_all(&at).expect("is made");
    at
}

/// All that a state has, as bits.
fn bits(state: &TrainState<Net<Param>, Pair, Tensor>, at: &Path) -> Vec<(String, Vec<u64>)> {
    let file = at.join("bits.safetensors");
    state.save(&file).expect("is written");
    let (arrays, metadata) = safetensors::read(&file).expect("reads");
    assert_eq!(metadata["adfuse.steps"], state.steps().to_string());
    arrays.into_iter().map(|(name, a)| (name, a.to_bits())).collect()
}

#[test]
fn resumed_training_has_the_bits_of_uninterrupted_training() {
    let (at, data) = (folder("resume"), data());
    // Batches of 12, so that the last of an epoch is shorter.
    let batches = |epoch| data.shuffled(4).epoch(epoch).batches(12);
    let trainer = Trainer::new(4).quiet();
    let mut whole = usual().init(Device::cpu(), 7).expect("is made");
    trainer.run(&mut whole, batches, |_, _| Ok(())).expect("trains");
    assert_eq!(whole.steps(), 20);
    let due = bits(&whole, &at);
    for stop in [1u64, 4, 5, 7, 13] {
        let mut first = usual().init(Device::cpu().threads(1), 7).expect("is made");
        let all = (0..4).flat_map(batches);
        for batch in all.take(stop as usize) {
            first.step(&batch).expect("runs");
        }
        let file = at.join("state.safetensors");
        first.save(&file).expect("is written");
        drop(first);
        let mut second = usual().load(Device::cpu().threads(2), &file).expect("reads");
        assert_eq!((second.steps(), second.seed()), (stop, 7));
        trainer.run(&mut second, batches, |_, _| Ok(())).expect("trains");
        assert_eq!(bits(&second, &at), due, "stopped after {stop}");
    }
    std::fs::remove_dir_all(at).expect("is removed");
}

#[test]
fn trainers_log_and_keep() {
    let (at, data) = (folder("trainer"), data());
    let (log, file) = (at.join("log.csv"), at.join("net.safetensors"));
    let mut state = usual().init(Device::cpu(), 7).expect("is made");
    let right = eval_step(|net: &Net, (x, y): Pair| {
        logits(net, &x).argmax(-1).eq(&y).convert(DType::F32).mean(..)
    });
    let trainer = Trainer::new(3).quiet().log(&log).checkpoint(&file).checkpoint_every(2);
    let outcome = trainer.run(
        &mut state,
        |epoch| data.shuffled(4).epoch(epoch).batches(25),
        |state, metrics| {
            let share = state.eval(&right, &data.all())?.item::<f32>()?;
            metrics.set("accuracy", share.into());
            Ok(())
        },
    );
    let outcome = outcome.expect("trains");
    assert_eq!((outcome.epochs, outcome.interrupted), (3, false));
    let text = std::fs::read_to_string(&log).expect("is there");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("epoch,steps,loss,accuracy", 4));
    assert!(lines[3].starts_with("3,6,"), "{text}");
    let accuracy = outcome.metrics.get("accuracy").expect("is set");
    assert!(lines[3].ends_with(&format!(",{accuracy}")), "{text}");
    // The file is a file of weights too, but for what the optimizer keeps.
    let back = usual().load(Device::cpu(), &file).expect("reads");
    assert_eq!(bits(&back, &at), bits(&state, &at));
    let weights = at.join("weights.safetensors");
    state.save_weights(&weights).expect("is written");
    let loaded = nn::load(&net(8, 0.3), &weights).expect("reads");
    let same = |a: &Net<Array>, b: &Net<Array>| {
        tree::leaves(a).iter().map(Array::to_bits).eq(tree::leaves(b).iter().map(Array::to_bits))
    };
    assert!(same(&loaded, &state.params().expect("there")));
    std::fs::remove_dir_all(at).expect("is removed");
}

#[test]
fn files_of_others_are_refused() {
    let at = folder("others");
    let state = usual().init(Device::cpu(), 0).expect("is made");
    let file = at.join("state.safetensors");
    state.save(&file).expect("is written");
    let refused = |step: TrainStep<Net<Param>, Pair, Tensor>, path: &Path| {
        step.load(Device::cpu(), path).err().expect("is refused").to_string()
    };
    let of = |text: String, part: &str| assert!(text.contains(part), "{text}");
    of(
        refused(step(9, Adam::new(0.1).accumulate(2)), &file),
        "the parameter `l1.weight` is f32[9,6], its weights are f32[8,6]",
    );
    of(refused(step(8, Sgd::new(0.1)), &file), "it is of another optimizer");
    of(
        refused(step(8, Sgd::new(0.1).momentum(0.9)), &file),
        "the optimizer keeps `momentum.l1.weight`",
    );
    let weights = at.join("weights.safetensors");
    state.save_weights(&weights).expect("is written");
    of(refused(usual(), &weights), "it is no state of training");
    of(refused(usual(), &at.join("none.safetensors")), "none.safetensors");
    let smaller = nn::load(&Linear::new(6, 8), &weights).expect_err("is refused").to_string();
    of(smaller, "there are no weights for `weight`, `bias`");
    let bytes = std::fs::read(&file).expect("is there");
    for end in [0, 7, 8, 100, bytes.len() - 1] {
        let cut = at.join("cut.safetensors");
        std::fs::write(&cut, &bytes[..end]).expect("is written");
        assert!(usual().load(Device::cpu(), &cut).is_err(), "{end} of {} bytes", bytes.len());
    }
    std::fs::remove_dir_all(at).expect("is removed");
}

const SAVER: &str = "ADFUSE_TEST_SAVES_TO";

/// Saves again and again until it is killed, where the test below runs it as a program of its own.
#[test]
fn saver() {
    let Some(file) = std::env::var_os(SAVER) else { return };
    let mut state = step(400, Sgd::new(0.1)).init(Device::cpu().threads(1), 0).expect("is made");
    let batch = data().batches(10).next().expect("there");
    loop {
        state.step(&batch).expect("runs");
        state.save(&file).expect("is written");
    }
}

#[test]
fn a_writer_that_is_killed_leaves_a_whole_file() {
    let at = folder("killed");
    let file = at.join("state.safetensors");
    let program = std::env::current_exe().expect("is known");
    let (mut seen, mut last) = (0, 0);
    let written = || file.metadata().and_then(|m| m.modified()).ok();
    for k in 0..50u64 {
        let before = written();
        let mut child = Command::new(&program)
            .args(["checkpoint::saver", "--exact", "--nocapture"])
            .env(SAVER, &file)
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        // Times that fall anywhere in the loop of steps and writes, however long it takes to start.
        let late = Instant::now() + Duration::from_secs(20);
        while written() == before && Instant::now() < late {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros((k * 7919) % 40_000));
        child.kill().expect("is killed");
        child.wait().expect("ends");
        if file.exists() {
            let state = step(400, Sgd::new(0.1)).load(Device::cpu().threads(1), &file);
            let state = state.unwrap_or_else(|d| panic!("killed the {k}th time: {d}"));
            seen += 1;
            last = state.steps();
        }
    }
    assert!(seen > 25 && last > 0, "{seen} files were there, the last of {last} steps");
    let left = std::fs::read_dir(&at).expect("is there").count();
    assert!(left <= 2, "{left} files are left: writers remove what others left behind");
    std::fs::remove_dir_all(at).expect("is removed");
}

const TRAINER: &str = "ADFUSE_TEST_TRAINS_TO";

/// Trains for long, where the test below runs it as a program of its own.
#[test]
fn long_training() {
    let Some(file) = std::env::var_os(TRAINER) else { return };
    let mut state = usual().init(Device::cpu().threads(1), 7).expect("is made");
    let trainer = Trainer::new(1_000_000).checkpoint(file);
    let outcome =
        trainer.run(&mut state, |epoch| data().shuffled(4).epoch(epoch).batches(5), |_, _| Ok(()));
    assert!(outcome.expect("trains").interrupted);
}

/// Ctrl-C ends training after a step with the state of that step in the file, and the run ends well.
#[test]
#[cfg(unix)]
fn an_interrupt_saves_and_stops() {
    let at = folder("interrupted");
    let file = at.join("state.safetensors");
    let mut child = Command::new(std::env::current_exe().expect("is known"))
        .args(["checkpoint::long_training", "--exact", "--nocapture"])
        .env(TRAINER, &file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // The file is there once an epoch is over, so that the interrupt meets training.
    while !file.exists() {
        assert!(child.try_wait().expect("is known").is_none(), "training ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.expect("runs").success());
    let ended = child.wait_with_output().expect("ends");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{told}");
    let state = usual().load(Device::cpu(), &file).expect("reads");
    let steps = format!("interrupted after {} steps", state.steps());
    assert!(told.contains(&steps), "{told}");
    std::fs::remove_dir_all(at).expect("is removed");
}
