//! Which steps of a graph follow which: all of them one after the other, but for ranges in which a step follows only those
//! whose memory it meets.
//!
//! The memory is that of the layout, so that a step waits for values that it needs and for memory that is used again. What
//! the layout keeps apart (`ArenaLayout::apart`) decides how much waits for memory alone; bits do not depend on it.

use super::memory_range::MemoryRange;
use super::place::{Place, Places, aligned};
use super::work::Work;
use adfuse_ir::kernel::{Program, Step};
use std::ops::Range;

/// The memory that a step reads, and that it writes, its scratch included. `None` for what the host drives, and for
/// whatever touches all.
pub(crate) type StepMemoryUse = Option<(Vec<MemoryRange>, Vec<MemoryRange>)>;

/// For each step the steps that it directly follows; what these follow is left out.
pub(crate) type StepOrder = Vec<Vec<usize>>;

/// The memory that a step reads and writes, its scratch included; `None` for what the host drives.
pub(crate) fn memory_use(
    (program, places): (&Program, &Places),
    (n, step, work): (usize, &Step, &Work),
    scratch: u64,
) -> StepMemoryUse {
    let range = |b| MemoryRange::new(places.of(b), program.buffers[b].bytes());
    let is_some = |range: &MemoryRange| !range.is_empty();
    let reads = step.reads().map(range).filter(is_some).collect();
    let place = MemoryRange::new(Place::DeviceBlock(aligned(places.scratch[n])), scratch);
    let writes = step.writes().map(range).chain([place]).filter(is_some).collect();
    work.is_straight().then_some((reads, writes))
}

/// The order of steps that use this memory. Steps outside of all ranges follow all before them, and are followed by all after them.
pub(crate) fn step_order(used: &[StepMemoryUse], ranges: &[Range<usize>]) -> StepOrder {
    let mut order: StepOrder = Vec::with_capacity(used.len());
    // Steps that nothing follows yet.
    let mut last: Vec<usize> = Vec::new();
    for n in 0..used.len() {
        let range = ranges.iter().find(|range| range.contains(&n));
        let follows = match (range, &used[n]) {
            // What came before the range is done before any of its steps begins.
            (Some(range), Some(own)) if range.start < n => {
                let mut met = met_before(own, used, (range.start, n), &order);
                if met.is_empty() {
                    met.clone_from(&order[range.start]);
                }
                met
            }
            _ => last.clone(),
        };
        last.retain(|k| !follows.contains(k));
        last.push(n);
        order.push(follows);
    }
    order
}

/// The steps from one on, before another, whose memory it meets, without those that others of them follow.
fn met_before(
    (reads, writes): &(Vec<MemoryRange>, Vec<MemoryRange>),
    used: &[StepMemoryUse],
    (start, n): (usize, usize),
    order: &StepOrder,
) -> Vec<usize> {
    let meet =
        |a: &[MemoryRange], b: &[MemoryRange]| a.iter().any(|x| b.iter().any(|y| x.meets(y)));
    let mut is_before = vec![false; n - start];
    let mut met = Vec::new();
    for k in (start..n).rev() {
        let waits = !is_before[k - start]
            && used[k].as_ref().is_none_or(|(read, written)| {
                meet(written, reads) || meet(written, writes) || meet(read, writes)
            });
        if waits {
            met.push(k);
        }
        if waits || is_before[k - start] {
            for &before in order[k].iter().filter(|&&before| before >= start) {
                is_before[before - start] = true;
            }
        }
    }
    met.reverse();
    met
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(from: u64) -> MemoryRange {
        MemoryRange::new(Place::DeviceBlock(from), 8)
    }

    fn step(reads: &[u64], writes: &[u64]) -> StepMemoryUse {
        let all = |places: &[u64]| places.iter().map(|&from| at(from)).collect();
        Some((all(reads), all(writes)))
    }

    #[test]
    fn steps_follow_those_whose_memory_they_meet() {
        let used = [
            step(&[], &[0]),
            // Both read what step 0 wrote; the third what the first of them has, the fourth writes over what was read.
            step(&[0], &[8]),
            step(&[0], &[16]),
            step(&[8], &[24]),
            step(&[16], &[0]),
            step(&[24], &[32]),
            // Nothing of it is in the range: it follows what the range follows.
            step(&[64], &[72]),
            step(&[32], &[40]),
        ];
        let chain: StepOrder =
            (0..8).map(|n: usize| n.checked_sub(1).into_iter().collect()).collect();
        assert_eq!(step_order(&used, &[]), chain);
        let due: [&[usize]; 8] = [&[], &[0], &[0], &[1], &[1, 2], &[3], &[0], &[4, 5, 6]];
        let range = 1..7;
        assert_eq!(step_order(&used, std::slice::from_ref(&range)), due);
        // What touches everything waits for all, and all for it.
        let mut host = used.to_vec();
        host[3] = None;
        let due: [&[usize]; 8] = [&[], &[0], &[0], &[1, 2], &[3], &[4], &[5], &[6]];
        assert_eq!(step_order(&host, &[1..3, 4..5]), due);
    }

    /// In any order that follows the graph, no two steps that meet change places.
    #[test]
    fn whatever_meets_is_ordered() {
        let mut seed = 7u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let count = 2 + random(30) as usize;
            let used: Vec<StepMemoryUse> = (0..count)
                .map(|_| {
                    let places = |random: &mut dyn FnMut(u64) -> u64, most: u64| -> Vec<u64> {
                        (0..random(most)).map(|_| 4 * random(20)).collect()
                    };
                    let (reads, writes) = (places(&mut random, 4), places(&mut random, 3));
                    (random(12) > 0).then(|| step(&reads, &writes)).flatten()
                })
                .collect();
            let start = random(count as u64) as usize;
            let end = start + random((count - start) as u64 + 1) as usize;
            let is_straight = (start..end).all(|n| used[n].is_some());
            let range = Some(start..end).filter(|_| is_straight && end > start);
            let ranges: Vec<Range<usize>> = range.into_iter().collect();
            let order = step_order(&used, &ranges);
            let mut before = vec![vec![false; count]; count];
            for n in 0..count {
                for &k in &order[n] {
                    let earlier = before[k].clone();
                    before[n].iter_mut().zip(earlier).for_each(|(own, of)| *own |= of);
                    before[n][k] = true;
                }
            }
            for n in 0..count {
                for k in 0..n {
                    let beside = ranges.iter().any(|r| r.contains(&n) && r.contains(&k));
                    let meets = match (&used[n], &used[k]) {
                        (Some((r, w)), Some((read, written))) => {
                            let meet = |a: &[MemoryRange], b: &[MemoryRange]| {
                                a.iter().any(|x| b.iter().any(|y| x.meets(y)))
                            };
                            meet(written, r) || meet(written, w) || meet(read, w)
                        }
                        _ => true,
                    };
                    if !beside || meets {
                        assert!(before[n][k], "{n} does not follow {k}: {order:?}");
                    }
                }
            }
        }
    }
}
