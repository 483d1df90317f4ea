//! What the threads of a warp or a block do together on the [machine](crate::machine).

use crate::instructions::{Does, Entry, Way};
use crate::machine::{LANES, Piece, State, Thread, aligned, stop};
use adfuse::ir::{DType, Literal};

/// Does what the lanes of a warp do together, where all that are left are there; whether they were.
pub(crate) fn together(entry: &Entry, warp: &mut [Thread], shared: &mut Piece) -> bool {
    let left: Vec<usize> = (0..warp.len()).filter(|&k| warp[k].state != State::Done).collect();
    if left.is_empty() || left.iter().any(|&k| warp[k].state != State::Lanes) {
        let some = left.iter().any(|&k| warp[k].state == State::Lanes);
        assert!(!some, "lanes wait for others that are elsewhere");
        return false;
    }
    let at = warp[left[0]].at;
    assert!(left.iter().all(|&k| warp[k].at == at), "lanes meet at different places");
    let inst = &entry.insts[at];
    let given: Vec<Vec<u64>> =
        warp.iter().map(|t| inst.from.iter().map(|&r| t.registers[r]).collect()).collect();
    if matches!(inst.does, Does::Multiply(_) | Does::Matrices { .. }) {
        assert_eq!(left.len(), LANES, "lanes have left: {}", inst.text);
    }
    for &k in &left {
        let results = match &inst.does {
            Does::Multiply(elements) => multiplied(*elements, &given, k),
            Does::Matrices { turned, offset } => {
                let mut half = |matrix: usize, line: usize, place: usize| {
                    let at = given[matrix * 8 + line][0].wrapping_add(*offset as u64);
                    aligned(inst, at, 16);
                    let found = shared.load(at as usize + 2 * place, 2, warp[k].who);
                    found.unwrap_or_else(|| stop(inst, at, &warp[k]))
                };
                let mut word = |n: usize| match turned {
                    false => half(n, k / 4, k % 4 * 2) | half(n, k / 4, k % 4 * 2 + 1) << 16,
                    true => half(n, k % 4 * 2, k / 4) | half(n, k % 4 * 2 + 1, k / 4) << 16,
                };
                (0..4).map(&mut word).collect()
            }
            Does::Vote => {
                let votes = left.iter().filter(|&&j| given[j][0] != 0).map(|&j| 1u64 << j);
                vec![votes.sum()]
            }
            Does::Shuffle(way) => {
                let by = given[k][1] as usize;
                let other = match way {
                    Way::Butterfly => Some(k ^ by),
                    Way::Up => k.checked_sub(by),
                    Way::Index => Some(by % LANES),
                };
                if let Some(j) = other {
                    assert!(left.contains(&j), "a lane that has left: {}", inst.text);
                }
                vec![given[other.unwrap_or(k)][0], other.is_some().into()]
            }
            _ => Vec::new(),
        };
        for (&to, result) in inst.to.iter().zip(results) {
            warp[k].registers[to] = result;
        }
        // What lanes exchange keeps no accesses apart; a barrier of the warp does.
        warp[k].who.together += u64::from(matches!(inst.does, Does::Together));
        warp[k].at += 1;
        warp[k].state = State::Runs;
    }
    true
}

/// The sums that a lane has of 16 rows and 8 columns: of two rows, two neighbouring columns each. Registers have an `f32` of the
/// depth each, whose lower bits are not looked at, or two neighbours of 16 bits.
fn multiplied(elements: Option<DType>, given: &[Vec<u64>], lane: usize) -> Vec<u64> {
    let single = |bits: u64| f32::from_bits(bits as u32);
    let each = |bits: u64| match elements {
        None => vec![f64::from(single(bits & 0xffff_e000))],
        Some(dtype) => [bits & 0xffff, bits >> 16 & 0xffff]
            .map(|half| Literal::from_bits(dtype, half).to_f64())
            .to_vec(),
    };
    let sum = |n: usize| {
        let (row, col) = (lane / 4 + n / 2 * 8, lane % 4 * 2 + n % 2);
        let products = (0..8).map(|k| {
            let a = given[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2];
            let b = given[col * 4 + k % 4][4 + k / 4];
            each(a).iter().zip(each(b)).map(|(a, b)| a * b).sum::<f64>()
        });
        let all = products.sum::<f64>() + f64::from(single(given[lane][6 + n]));
        u64::from((all as f32).to_bits())
    };
    (0..4).map(sum).collect()
}

/// Lets all threads go on that wait for each other.
pub(crate) fn barrier(all: &mut [Thread], entry: &str) {
    let waiting = |t: &&mut Thread| t.state == State::Block;
    let at: Vec<usize> = all.iter_mut().filter(waiting).map(|t| t.at).collect();
    assert!(at.windows(2).all(|p| p[0] == p[1]), "{entry}: threads meet at different barriers");
    for t in all.iter_mut().filter(|t| t.state == State::Block) {
        t.who.barriers += 1;
        t.at += 1;
        t.state = State::Runs;
    }
}
