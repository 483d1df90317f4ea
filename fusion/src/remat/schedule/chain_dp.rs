//! Where to save along a chain of segments: a dynamic program over ranges of segments and memory.
//!
//! A range begins with the inputs of its first segment in memory and none of it computed. Either its first segment runs
//! and keeps one of its sets for its backward part. Or segments run up to some boundary at which only the crossing
//! values are kept; the rest of the range continues from there, and the segments before it form a range of their own,
//! to be run again. This is the recursion of Beaumont et al. (*Optimal checkpointing for heterogeneous chains*, 2019),
//! with several sets for each segment.

/// One way to go through a block once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Keep {
    /// Units of memory that it keeps for the backward part.
    pub(crate) saved: u32,
    /// The time of what is computed again in the backward part.
    pub(crate) again: u64,
}

/// A block of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// The time of its forward part.
    pub(crate) time: u64,
    /// Of that, the time of what crosses its end: it need not run again where that is kept.
    pub(crate) end: u64,
    /// Units that cross its end.
    pub(crate) crossing: u32,
    /// Units that its backward part needs at once.
    pub(crate) needed: u32,
    /// What it may keep.
    pub(crate) keeps: Vec<Keep>,
}

/// What is done with a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainStep {
    /// The first block keeps this set, by number, and the rest follows.
    Keep(u32),
    /// All before this block runs and is let go but for what crosses.
    Restart(u32),
}

/// The answer for all stretches and all amounts of memory.
pub(crate) struct Chain<'l> {
    links: &'l [Link],
    units: u32,
    /// The time of running the blocks before one.
    before: Vec<u64>,
    /// For each stretch and amount the least time of running it, and [`NEVER`] if there is no way.
    least: Vec<u64>,
}

const NEVER: u64 = u64::MAX;

impl<'l> Chain<'l> {
    /// Solves a chain for all amounts of memory up to `units`.
    pub(crate) fn solve(links: &'l [Link], units: u32) -> Chain<'l> {
        let n = links.len();
        let mut before = vec![0u64];
        before.extend(links.iter().scan(0u64, |sum, l| {
            *sum = sum.saturating_add(l.time);
            Some(*sum)
        }));
        let least = vec![NEVER; n * n * (units as usize + 1)];
        let mut chain = Chain { links, units, before, least };
        let mut times = vec![NEVER; units as usize + 1];
        for length in 1..=n {
            for from in 0..=n - length {
                let to = from + length;
                chain.segment(from, to, &mut times);
                let place = chain.place(from, to, 0);
                chain.least[place..place + times.len()].copy_from_slice(&times);
            }
        }
        chain
    }

    fn place(&self, from: usize, to: usize, m: u32) -> usize {
        (from * self.links.len() + to - 1) * (self.units as usize + 1) + m as usize
    }

    /// The least time of the stretch from one block to before another; none has none.
    fn least(&self, from: usize, to: usize, m: u32) -> u64 {
        if from == to { 0 } else { self.least[self.place(from, to, m)] }
    }

    /// The least time of all within so much memory, if there is a way.
    pub(crate) fn time(&self, m: u32) -> Option<u64> {
        Some(self.least(0, self.links.len(), m)).filter(|&t| t != NEVER)
    }

    /// The least time of a stretch for all amounts of memory, from those of shorter ones.
    fn segment(&self, from: usize, to: usize, times: &mut [u64]) {
        times.fill(NEVER);
        for keep in &self.links[from].keeps {
            for (m, time) in times.iter_mut().enumerate() {
                *time = (*time).min(self.keeping(from, to, m as u32, *keep));
            }
        }
        for at in from + 1..to {
            let crossing = self.links[at - 1].crossing as usize;
            let Some(times) = times.get_mut(crossing..) else { continue };
            let run = self.before[at] - self.before[from];
            let rest = &self.least[self.place(at, to, 0)..][..times.len()];
            let again = &self.least[self.place(from, at, 0) + crossing..][..times.len()];
            for ((time, rest), again) in times.iter_mut().zip(rest).zip(again) {
                *time = (*time).min(run.saturating_add(*rest).saturating_add(*again));
            }
        }
    }

    /// The best way through a stretch: keeping a set, where that is as good as a restart.
    pub(crate) fn choose(&self, from: usize, to: usize, m: u32) -> ChainStep {
        let best = self.least(from, to, m);
        let keeps = &self.links[from].keeps;
        if let Some(k) = keeps.iter().position(|keep| self.keeping(from, to, m, *keep) == best) {
            return ChainStep::Keep(k as u32);
        }
        let restart = |at: &usize| {
            let Some(left) = m.checked_sub(self.links[at - 1].crossing) else { return false };
            let run = self.before[*at] - self.before[from];
            let (rest, again) = (self.least(*at, to, left), self.least(from, *at, m));
            run.saturating_add(rest).saturating_add(again) == best
        };
        ChainStep::Restart((from + 1..to).find(restart).unwrap_or(to) as u32)
    }

    /// The time if the first block keeps a set.
    fn keeping(&self, from: usize, to: usize, m: u32, keep: Keep) -> u64 {
        let link = &self.links[from];
        if link.needed > m {
            return NEVER;
        }
        let (run, rest) = match from + 1 == to {
            // A stretch that is not at the end of the chain runs again, while what crosses its end is
            // there.
            true if to < self.links.len() => (link.time - link.end, 0),
            true => (link.time, 0),
            false => (link.time, self.after_keeping(from, to, m, keep)),
        };
        run.saturating_add(keep.again).saturating_add(rest)
    }

    fn after_keeping(&self, from: usize, to: usize, m: u32, keep: Keep) -> u64 {
        let taken = keep.saved.saturating_add(self.links[from].crossing);
        m.checked_sub(taken).map_or(NEVER, |left| self.least(from + 1, to, left))
    }

    /// What is left after a block kept a set.
    pub(crate) fn left(&self, from: usize, m: u32, keep: u32) -> u32 {
        let link = &self.links[from];
        let keep = link.keeps[keep as usize];
        m.saturating_sub(keep.saved.saturating_add(link.crossing))
    }

    /// What is left while all from a block on is done, after a restart.
    pub(crate) fn left_after(&self, at: usize, m: u32) -> u32 {
        m.saturating_sub(self.links[at - 1].crossing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Blocks that take 1 and whose values are a unit each.
    fn even(n: usize) -> Vec<Link> {
        let keeps = vec![Keep { saved: 0, again: 0 }];
        vec![Link { time: 1, end: 1, crossing: 1, needed: 1, keeps }; n]
    }

    /// The least time by trying everything: from any value that is there, blocks run and leave any of
    /// their values; a block is done when its value and the one before are there.
    fn tried(n: usize, m: u32) -> Option<u64> {
        // Values as bits, that of the input always set; and the blocks that are not done.
        let mut open = BTreeSet::from([(0u64, 1u32, n)]);
        let mut seen: BTreeMap<(u32, usize), u64> = BTreeMap::new();
        while let Some((time, there, left)) = open.pop_first() {
            if left == 0 {
                return Some(time);
            }
            if seen.insert((there, left), time).is_some_and(|t| t <= time) {
                continue;
            }
            if there >> (left - 1) & 3 == 3 {
                open.insert((time, there & !(1 << left), left - 1));
            }
            for from in (0..left).filter(|k| there >> k & 1 == 1) {
                for to in from + 1..=left {
                    for new in 0..1u32 << (to - from) {
                        for gone in 0..=there >> 1 {
                            let kept = (there & !(gone << 1)) | new << (from + 1);
                            if (kept >> 1).count_ones() <= m {
                                open.insert((time + (to - from) as u64, kept, left));
                            }
                        }
                    }
                }
            }
        }
        None
    }

    #[test]
    fn even_chains_take_the_least_time_there_is() {
        for n in 1..6usize {
            let links = even(n);
            let chain = Chain::solve(&links, n as u32);
            for m in 0..=n as u32 {
                assert_eq!(chain.time(m), tried(n, m), "{n} blocks, {m} units");
            }
        }
    }

    #[test]
    fn sets_with_less_to_save_are_taken_where_memory_is_short() {
        let keeps = vec![Keep { saved: 4, again: 0 }, Keep { saved: 1, again: 3 }];
        let links = vec![Link { time: 10, end: 2, crossing: 1, needed: 4, keeps }; 3];
        let chain = Chain::solve(&links, 20);
        // The last block needs 4; those before keep 5 or 2 until then.
        let times: Vec<_> = [14, 13, 11, 10, 8, 7].map(|m| chain.time(m)).into();
        assert_eq!(times, [Some(30), Some(33), Some(33), Some(36), Some(36), Some(41)]);
        assert_eq!(chain.time(3), None);
    }
}
