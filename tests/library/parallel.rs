//! Data parallel steps: the bits do not depend on the number of ranks, simulated or connected.

use crate::ranks::on_ranks;
use adfuse::nn::{Dropout, Init, Linear, Param, ParamRole};
use adfuse::optim::Adam;
use adfuse::prelude::*;
use adfuse::train::{TrainStep, data_parallel};
use adfuse::train_step;

#[derive(Params, Clone)]
struct Net<T = Tensor> {
    first: Linear<T>,
    dropout: Dropout,
    last: Linear<T>,
    /// A running mean of what it has seen.
    seen: T,
    /// More than is summed whole, and more than small ones that are joined.
    table: T,
}

fn net() -> Net<Param> {
    Net {
        first: Linear::new(6, 16),
        dropout: Dropout::new(0.25),
        last: Linear::new(16, 3),
        seen: Param::new([6], Init::Zeros).role(ParamRole::Running),
        table: Param::new([300, 1000], Init::Normal(0.1)),
    }
}

type Batch<T = Tensor> = (T, T, T);

/// Cross entropy, with the number of right guesses, the mean of the answers, and a scalar that all leaves share.
fn loss(net: &Net, (x, label, scale): Batch) -> (Tensor, (Tensor, Tensor)) {
    let n = x.ty().shape[0].known().expect("known") as f64;
    net.seen.update(&(&net.seen * 0.5 + x.sum(&[0]) / n * 0.5));
    let rows = net.table.take(&label, 0).mean(-1);
    let hidden = net.dropout.apply(&net.first.apply(&x).relu());
    let answer = net.last.apply(&hidden)
        + rows.expand_dims(1).broadcast(&[0, 1], &[Dim::Const(n as u64), Dim::Const(3)]);
    let right = answer.argmax(-1).eq(&label).convert(DType::I32).sum(..);
    (answer.cross_entropy(&label) * scale, (right, answer.mean(..)))
}

fn step(leaves: u32) -> TrainStep<Net<Param>, Batch, (Tensor, (Tensor, Tensor))> {
    data_parallel(train_step(Adam::new(1e-2), net(), loss), leaves)
}

fn batch(seed: u64) -> Batch<Array> {
    let mut k = seed as f64 * 100.0;
    let mut draw = || {
        k += 1.0;
        (k * 1.7).sin()
    };
    let x = Array::drawn(DType::F32, &[16, 6], &mut draw).expect("fits");
    let labels: Vec<i32> = (0..16).map(|k| (k * 5 + seed as i32) % 3).collect();
    let scale = Array::from_f32s(&[], &[1.5]).expect("fits");
    (x, Array::from_vec(labels, [16]).expect("fits"), scale)
}

/// What three steps leave and report, as bits.
fn trained(device: Device, leaves: u32) -> Result<Vec<Vec<u64>>, Diagnostic> {
    let mut state = step(leaves).init(device, 5)?;
    let mut all = Vec::new();
    for k in 0..3 {
        let (loss, (right, mean)) = state.step(&batch(k))?;
        all.extend([vec![loss.to_bits()], right.to_bits(), mean.to_bits()]);
    }
    let params = adfuse::tree::leaves(&state.params()?);
    all.extend(params.iter().map(Array::to_bits));
    Ok(all)
}

fn cpu() -> Device {
    Device::cpu().threads(1)
}

#[test]
fn bits_do_not_depend_on_the_number_of_ranks() {
    let one = trained(cpu(), 8).expect("runs");
    for ranks in [2, 4, 8] {
        assert_eq!(
            trained(cpu().simulated_ranks(ranks), 8).expect("runs"),
            one,
            "{ranks} simulated ranks"
        );
    }
    for ranks in [2, 4] {
        for found in on_ranks(ranks, |group| trained(cpu().ranks(group), 8).expect("runs")) {
            assert_eq!(found, one, "{ranks} connected ranks");
        }
    }
    // They depend on the leaves.
    assert_ne!(trained(cpu(), 4).expect("runs"), one);
}

/// Steps that are queued are those that are waited for, whenever and in whatever order somebody reads what they gave.
#[test]
fn queued_steps_have_the_bits_of_steps() {
    let queued = |device: Device| {
        let mut state = step(4).init(device, 5).expect("is made");
        let queued: Vec<_> = (0..3).map(|k| state.queue(&batch(k)).expect("is queued")).collect();
        let params = adfuse::tree::leaves(&state.params().expect("is there"));
        let seen = queued.into_iter().rev().map(|step| {
            let (loss, (right, mean)) = step.report().expect("ran");
            [vec![loss.to_bits()], right.to_bits(), mean.to_bits()]
        });
        let mut seen: Vec<_> = seen.collect();
        seen.reverse();
        let params = params.iter().map(Array::to_bits);
        seen.into_iter().flatten().chain(params).collect::<Vec<_>>()
    };
    let due = trained(cpu(), 4).expect("runs");
    assert_eq!(queued(cpu()), due);
    for found in on_ranks(2, |group| queued(cpu().ranks(group))) {
        assert_eq!(found, due);
    }
}

/// The mean over leaves of equal size is the mean over the batch.
#[test]
fn a_step_of_leaves_is_nearly_the_step_of_the_whole_batch() {
    let slope = |leaves: u32| {
        let loss = |p: &Tensor, x: Tensor| (x.dot(p) - 1.0).square().mean(..);
        let step =
            data_parallel(train_step(Adam::new(0.1), Param::new([6], Init::Ones), loss), leaves);
        let mut state = step.init(cpu(), 0).expect("is made");
        (0..5).for_each(|k| {
            state.step(&batch(k).0).expect("runs");
        });
        state.params().expect("is there").to_f64s()
    };
    let (whole, divided) = (slope(1), slope(4));
    assert!(whole.iter().zip(&divided).all(|(a, b)| (a - b).abs() < 1e-5), "{whole:?} {divided:?}");
}

#[test]
fn divisions_that_are_none_are_refused() {
    for (device, leaves, said) in [
        (cpu(), 3, "3 leaves"),
        (cpu().simulated_ranks(3), 4, "3 ranks"),
        (cpu().simulated_ranks(4), 2, "4 ranks share a batch of 2 leaves"),
        (cpu().simulated_ranks(2), 1, "2 ranks share a batch of 1 leaves"),
        (cpu(), 32, "32 leaves do not divide its rows"),
    ] {
        let d = trained(device, leaves).expect_err(said);
        assert!(d.message.contains(said), "{d}");
    }
}

/// One rank writes the state, and training goes on from it with the same bits on another number of ranks.
#[test]
fn a_state_is_written_once_and_goes_on_anywhere() {
    let folder = std::env::temp_dir().join(format!("adfuse-ranks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let at = |rank: u32| folder.join(format!("{rank}.safetensors"));
    on_ranks(2, |group| {
        let rank = group.rank();
        let mut state = step(4).init(cpu().ranks(group), 5).expect("is made");
        (0..2).for_each(|k| {
            state.step(&batch(k)).expect("runs");
        });
        state.save(at(rank)).expect("is written");
    });
    assert!(at(0).exists() && !at(1).exists());
    let after = |mut state: adfuse::train::TrainState<_, _, _>| {
        state.step(&batch(2)).expect("runs");
        let params = state.params().expect("is there");
        adfuse::tree::leaves(&params).iter().map(Array::to_bits).collect::<Vec<_>>()
    };
    let resumed = after(step(4).load(cpu().simulated_ranks(4), at(0)).expect("reads"));
    let mut whole = step(4).init(cpu(), 5).expect("is made");
    (0..2).for_each(|k| {
        whole.step(&batch(k)).expect("runs");
    });
    assert_eq!(resumed, after(whole));
    std::fs::remove_dir_all(&folder).expect("is removed");
}

/// Ranks that begin with other values, or are given other batches, would train on towards nothing: all of them are told who differs.
#[test]
fn ranks_begin_alike() {
    let step = || data_parallel(train_step(Adam::new(1e-2), net(), loss), 2);
    type Given = (u64, u64, u64);
    let first = |of: &(dyn Fn(u32) -> Given + Sync)| {
        on_ranks(2, |group| {
            let (seed, data, steps) = of(group.rank());
            let mut state = step().init(cpu(), seed).expect("begins");
            for k in 0..steps {
                state.step(&batch(k)).expect("runs");
            }
            let file = std::env::temp_dir().join(format!(
                "adfuse-alike-{}-{}.safetensors",
                std::process::id(),
                group.rank()
            ));
            state.save(&file).expect("is written");
            let loaded = step().load(cpu().ranks(group), &file);
            std::fs::remove_file(&file).expect("is removed");
            loaded.expect("reads").step(&batch(data)).map(|_| ())
        })
    };
    assert!(first(&|_| (5, 0, 1)).iter().all(Result::is_ok));
    let cases: [(&(dyn Fn(u32) -> Given + Sync), &str); 3] = [
        (&|rank| (u64::from(rank), 0, 0), "rank 1 begins with another state than rank 0"),
        (&|rank| (5, 0, u64::from(rank)), "rank 1 begins with another state than rank 0"),
        (&|rank| (5, u64::from(rank), 0), "rank 1 begins with another batch than rank 0"),
    ];
    for (of, said) in cases {
        for found in first(of) {
            let told = found.expect_err("they differ");
            assert_eq!((told.kind, told.message.as_str()), (adfuse::ir::Kind::Usage, said));
        }
    }
}
