//! Families of instances of any number of buffers, which tests and benches share.

use crate::instances::{Random, Recipe};
use adfuse_memplan::{BufferSpec, Problem};

/// A kind of instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// Births and lifetimes at random, sizes of three decades. The least peak is not known.
    Random,
    /// A rectangle cut in straight lines.
    Straight,
    /// A rectangle cut into pinwheels alone, each of five pieces that no straight cut separates.
    Pinwheel,
    /// A full rectangle of three buffers at each moment; two neighbours die together, and two of another division follow.
    Triples,
    /// A rectangle of buffers that are aligned to 256 bytes, most of which are smaller by less than that.
    Aligned,
    /// A rectangle from which a tenth of the buffers is missing.
    Holes,
    /// What a stack of calls holds: what is born later dies earlier.
    Nested,
    /// A training step: what layers leave for the way back, with temporaries. The least peak is not known.
    Trace,
}

impl Family {
    /// All of them.
    pub(crate) const ALL: [Family; 8] = [
        Family::Random,
        Family::Straight,
        Family::Pinwheel,
        Family::Triples,
        Family::Aligned,
        Family::Holes,
        Family::Nested,
        Family::Trace,
    ];

    /// An instance of about this many buffers, and its least peak where that is known.
    pub(crate) fn problem(self, seed: u64, count: usize) -> (Problem, Option<u64>) {
        let plain = Recipe { width: 20 * count as u64, ..Recipe::plain(seed, count) };
        let cut = |recipe: Recipe| (recipe.problem(), Some(recipe.height));
        match self {
            Family::Straight => cut(plain),
            Family::Pinwheel => cut(Recipe { pinwheels: 100, height: 1 << 30, ..plain }),
            Family::Aligned => cut(Recipe { grain: 256, height: 1 << 30, aligned: true, ..plain }),
            Family::Holes => cut(Recipe { holes: 10, ..plain }),
            Family::Random => (random(seed, count), None),
            Family::Triples => (triples(seed, count), Some(1 << 20)),
            Family::Nested => nested(seed, count),
            Family::Trace => (trace(seed, count), None),
        }
    }
}

fn random(seed: u64, count: usize) -> Problem {
    let mut random = Random(seed);
    let mut problem = Problem::new();
    for _ in 0..count {
        let birth = random.below(count as u64);
        let (longest, largest) = (1 << random.below(9), 64 << random.below(11));
        let (life, size) = (1 + random.below(longest), 64 + random.below(largest));
        problem.push(BufferSpec::new(birth..birth + life, size));
    }
    problem
}

fn triples(seed: u64, count: usize) -> Problem {
    let mut random = Random(seed);
    let mut problem = Problem::new();
    let height = 1 << 20;
    // Birth and size of what is live, from the bottom up.
    let mut live = [(0, height / 2), (0, height / 4), (0, height / 4)];
    let mut now = 0;
    while problem.buffers.len() + 5 <= count {
        now += 1 + random.below(3);
        let first = random.below(2) as usize;
        let sum = live[first].1 + live[first + 1].1;
        for (birth, size) in &live[first..first + 2] {
            problem.push(BufferSpec::new(*birth..now, *size));
        }
        let lower = 1 + random.below(sum - 1);
        (live[first], live[first + 1]) = ((now, lower), (now, sum - lower));
    }
    for (birth, size) in live {
        problem.push(BufferSpec::new(birth..now + 1, size));
    }
    problem
}

fn nested(seed: u64, count: usize) -> (Problem, Option<u64>) {
    let mut random = Random(seed);
    let mut problem = Problem::new();
    let (mut stack, mut load, mut peak): (Vec<(u64, u64)>, u64, u64) = (Vec::new(), 0, 0);
    let mut now = 0;
    while problem.buffers.len() < count {
        now += 1;
        let pops = stack.len() as u64 > random.below(200);
        match if pops { stack.pop() } else { None } {
            Some((birth, size)) => {
                load -= size;
                problem.push(BufferSpec::new(birth..now, size));
            }
            None => {
                let size = 1 + random.below(1 << 16);
                stack.push((now, size));
                load += size;
                peak = peak.max(load);
            }
        }
    }
    // What is left lives to the end, so that the peak stays that of the stack.
    for (birth, size) in stack.into_iter().rev() {
        now += 1;
        problem.push(BufferSpec::new(birth..now, size));
    }
    (problem, Some(peak))
}

fn trace(seed: u64, count: usize) -> Problem {
    let mut random = Random(seed);
    let mut problem = Problem::new();
    // A layer has four buffers: what it leaves, two temporaries, and a gradient.
    let layers = count as u64 / 4;
    for layer in 0..layers {
        let (begin, back) = (3 * layer, 3 * (2 * layers - layer));
        let size = 1024 << random.below(8);
        problem.push(BufferSpec::new(begin..back + 1, size).with_align(64));
        problem.push(BufferSpec::new(begin..begin + 2, 4 * size + 64).with_align(64));
        problem.push(BufferSpec::new(begin + 1..begin + 3, size * 3 / 2).with_align(64));
        problem.push(BufferSpec::new(back..back + 4, size).with_align(64));
    }
    problem
}
