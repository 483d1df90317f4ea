//! VGG19 at 224 x 224 within 16 GB, as Checkmate (Jain et al., MLSys 2020) counts it: the largest batch.
//!
//! A layer is an operation, activations included, whose value has 4 bytes an element; its backward
//! operation takes twice its multiply-adds, makes as many bytes, and reads the layer's value and those of
//! the layers that read it, with their gradients. Pooling and flattening take no time. Beside values there
//! are the parameters, as much again for the parameters' gradients, and the images; 16 GB are 16e9 bytes.
//!
//! Published are 167 for saving everything, and 289 for the optimum within one more forward pass. The first
//! is what comes out with images, the second without: they are in the constant of the paper's program, and
//! not in the one that was solved for batches. Both ways no schedule does better than what is planned here,
//! since the gradient of the first layer needs four values of the second's size at once.

use adfuse::fusion::remat::schedule::{
    CostGraph, FrontierOptions, OpId, OpSchedule, Operation, evaluate, frontier,
};

/// Elements of each layer's value and its multiply-adds, for an image; and all parameters.
fn layers() -> (Vec<(u64, u64)>, u64) {
    let (mut layers, mut parameters) = (Vec::new(), 0);
    let (mut side, mut channels) = (224u64, 3u64);
    for (convolutions, width) in [(2, 64), (2, 128), (4, 256), (4, 512), (4, 512)] {
        for _ in 0..convolutions {
            let elements = side * side * width;
            layers.push((elements, elements * 9 * channels));
            parameters += 9 * channels * width + width;
            channels = width;
        }
        side /= 2;
        layers.push((side * side * channels, 0));
    }
    let mut inputs = side * side * channels;
    layers.push((inputs, 0));
    for outputs in [4096, 4096, 1000] {
        layers.push((outputs, inputs * outputs));
        parameters += inputs * outputs + outputs;
        inputs = outputs;
    }
    (layers, parameters)
}

const BUDGET: u64 = 16_000_000_000;
/// Bytes of an image.
const IMAGE: u64 = 4 * 224 * 224 * 3;

/// What is counted.
#[derive(Clone, Copy)]
struct Count {
    images: bool,
    all_kept: bool,
}

/// The graph of a batch. With `all_kept`, values go as in the published schedule that saves everything:
/// activations at the last step of the backward pass, gradients one step after they are read.
fn graph(batch: u64, count: Count) -> CostGraph {
    let (layers, parameters) = layers();
    let mut g = CostGraph::new();
    let mut push = |op| g.push(op).expect("obeys the rules");
    push(Operation::source("parameters and their gradients", 2 * 4 * parameters));
    let images = push(Operation::source("images", u64::from(count.images) * IMAGE * batch));
    let mut values = vec![images];
    for (k, &(elements, work)) in layers.iter().enumerate() {
        let op = Operation::new(format!("layer{k}"), work * batch, 4 * elements * batch);
        values.push(push(op.reads(&[values[k]])));
    }
    let loss = Operation::new("loss", 0, 4 * batch).reads(&values[layers.len()..]).phase(1);
    let mut gradients = vec![push(loss)];
    for (k, &(elements, work)) in layers.iter().enumerate().rev() {
        let mut reads: Vec<OpId> = values[k + 1..].iter().take(2).copied().collect();
        reads.extend(gradients.last());
        if count.all_kept {
            reads.extend(gradients.iter().rev().nth(1).filter(|_| k > 0));
            reads.extend(values.iter().filter(|_| k == 1));
        }
        let op = Operation::new(format!("gradient{k}"), 2 * work * batch, 4 * elements * batch);
        gradients.push(push(op.reads(&reads).phase(1)));
    }
    g
}

/// The largest batch for which this holds, which holds for all smaller ones.
fn largest(fits: impl Fn(u64) -> bool) -> u64 {
    let (mut yes, mut no) = (1, 1024);
    while yes + 1 < no {
        let middle = (yes + no) / 2;
        if fits(middle) { yes = middle } else { no = middle }
    }
    yes
}

/// The largest batch that fits if everything is saved.
fn save_all(count: Count) -> u64 {
    largest(|batch| {
        let g = graph(batch, count);
        evaluate(&g, &OpSchedule::save_all(&g)).expect("can run").peak <= BUDGET
    })
}

/// The largest batch that is planned within one more forward pass.
fn planned(images: bool) -> u64 {
    let forward: u64 = layers().0.iter().map(|l| l.1).sum();
    largest(|batch| {
        let g = graph(batch, Count { images, all_kept: false });
        let found = frontier(&g, &FrontierOptions { effort: 100_000, ..Default::default() });
        found.at(BUDGET).is_ok_and(|p| p.time <= g.time() + forward * batch)
    })
}

#[test]
fn the_published_batches_are_reached() {
    let of = |images, all_kept| save_all(Count { images, all_kept });
    assert_eq!((of(true, true), of(false, true)), (167, 168));
    // Without keeping what nobody reads any more.
    assert_eq!((of(true, false), of(false, false)), (220, 222));
    assert_eq!((planned(true), planned(false)), (285, 289));
    // No schedule has more: the last gradient, what it reads, and what is always there.
    let second = layers().0[1].0;
    let most = |image| (BUDGET - 8 * layers().1) / (4 * 4 * second + image);
    assert_eq!((most(IMAGE), most(0)), (285, 289));
}
