//! The bytes in memory at each step of a schedule, as a segment tree: additions over ranges, maxima over ranges.

/// Numbers by place.
#[derive(Clone, Debug)]
pub(crate) struct PeakTree {
    /// A power of two, at least the number of places.
    width: usize,
    /// For each node the maximum under it, with what was added to it and below, without what was added above.
    most: Vec<u64>,
    added: Vec<u64>,
}

impl PeakTree {
    /// A tree of these numbers, which stay below 2^63 with all that is added.
    pub(crate) fn of(values: &[u64]) -> PeakTree {
        let width = values.len().next_power_of_two();
        let mut most = vec![0; 2 * width];
        most[width..width + values.len()].copy_from_slice(values);
        for node in (1..width).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        PeakTree { width, most, added: vec![0; 2 * width] }
    }

    /// Adds to the places from one to before another.
    pub(crate) fn add(&mut self, from: usize, to: usize, value: u64) {
        self.add_under(1, (0, self.width), (from, to), value);
    }

    /// The most at the places from one to before another; 0 if there are none.
    pub(crate) fn peak(&self, from: usize, to: usize) -> u64 {
        if from < to { self.peak_under(1, (0, self.width), (from, to)) } else { 0 }
    }

    fn add_under(
        &mut self,
        node: usize,
        under: (usize, usize),
        wanted: (usize, usize),
        value: u64,
    ) {
        if wanted.1 <= under.0 || under.1 <= wanted.0 {
            return;
        }
        if wanted.0 <= under.0 && under.1 <= wanted.1 {
            self.most[node] += value;
            self.added[node] += value;
            return;
        }
        let middle = under.0.midpoint(under.1);
        self.add_under(2 * node, (under.0, middle), wanted, value);
        self.add_under(2 * node + 1, (middle, under.1), wanted, value);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
    }

    fn peak_under(&self, node: usize, under: (usize, usize), wanted: (usize, usize)) -> u64 {
        if wanted.1 <= under.0 || under.1 <= wanted.0 {
            return 0;
        }
        if wanted.0 <= under.0 && under.1 <= wanted.1 {
            return self.most[node];
        }
        let middle = under.0.midpoint(under.1);
        let left = self.peak_under(2 * node, (under.0, middle), wanted);
        let right = self.peak_under(2 * node + 1, (middle, under.1), wanted);
        left.max(right) + self.added[node]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_are_those_of_a_list() {
        let mut state = 5u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for n in 1..20u64 {
            let mut values: Vec<u64> = (0..n).map(|_| random(50)).collect();
            let mut tree = PeakTree::of(&values);
            for _ in 0..40 {
                let (a, b) = (random(n + 1) as usize, random(n + 1) as usize);
                let (from, to) = (a.min(b), a.max(b));
                let value = random(9);
                tree.add(from, to, value);
                values[from..to].iter_mut().for_each(|v| *v += value);
                let (a, b) = (random(n + 1) as usize, random(n + 1) as usize);
                let (from, to) = (a.min(b), a.max(b));
                let most = values[from..to].iter().copied().max().unwrap_or(0);
                assert_eq!(tree.peak(from, to), most, "{values:?} {from} {to}");
            }
        }
    }
}
