//! Steps that an engine may run at the same time, and how long their memory is kept apart.

use super::in_place::Lives;
use std::ops::Range;

/// Steps of which an engine may begin one before those before it are done. What one of them uses keeps its memory for some
/// steps more, so that these wait for no memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpacedSteps {
    /// The steps, by their numbers.
    pub steps: Range<usize>,
    /// For how many steps after its last use memory is used for nothing else, as far as the range goes.
    pub apart: usize,
}

impl SpacedSteps {
    /// The last step at which what step `n` uses has its memory.
    fn last(&self, n: usize) -> usize {
        n.saturating_add(self.apart).min(self.steps.end.saturating_sub(1)).max(n)
    }
}

/// The last step at which the memory that step `n` uses is used for nothing else: `n` itself outside of all ranges, which
/// are in order.
pub fn spaced_until(ranges: &[SpacedSteps], n: usize) -> usize {
    let at = ranges.partition_point(|range| range.steps.end <= n);
    let found = ranges.get(at).filter(|range| range.steps.contains(&n));
    found.map_or(n, |range| range.last(n))
}

/// Live ranges with the steps for which memory is kept.
pub fn spaced_lives(mut lives: Lives, ranges: &[SpacedSteps]) -> Lives {
    for life in lives.values_mut().filter_map(Option::as_mut) {
        life.1 = spaced_until(ranges, life.1);
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_to_the_end_of_the_range_at_most() {
        let ranges = [
            SpacedSteps { steps: 2..6, apart: 2 },
            SpacedSteps { steps: 6..7, apart: 9 },
            SpacedSteps { steps: 8..20, apart: 100 },
        ];
        let found: Vec<usize> = (0..10).map(|n| spaced_until(&ranges, n)).collect();
        assert_eq!(found, [0, 1, 4, 5, 5, 5, 6, 7, 19, 19]);
    }
}
