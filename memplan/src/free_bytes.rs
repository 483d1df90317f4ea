//! Free bytes in each section: what is free in all of a range, and taking it, in logarithmic time.

/// A tree over sections, each with a number of bytes that are free.
pub(crate) struct FreeBytes {
    /// The root is 1, the children of `k` are `2 * k` and `2 * k + 1`, and the leaves begin at their number. The least of a cell is without what is
    /// pending above it.
    least: Vec<i64>,
    /// What is added to all sections below a cell.
    pending: Vec<i64>,
    leaves: usize,
}

impl FreeBytes {
    pub(crate) fn new(free: &[i64]) -> Self {
        let leaves = free.len().next_power_of_two();
        let mut least = vec![i64::MAX / 2; 2 * leaves];
        least[leaves..leaves + free.len()].copy_from_slice(free);
        for at in (1..leaves).rev() {
            least[at] = least[2 * at].min(least[2 * at + 1]);
        }
        Self { least, pending: vec![0; 2 * leaves], leaves }
    }

    /// The least that is free in a section of `from..to`; a great number where there is none.
    pub(crate) fn least(&self, from: usize, to: usize) -> i64 {
        match from < to {
            true => self.least_below(1, (0, self.leaves), (from, to)),
            false => i64::MAX / 2,
        }
    }

    /// Takes as much in each section of `from..to`.
    pub(crate) fn take(&mut self, from: usize, to: usize, bytes: i64) {
        if bytes != 0 && from < to {
            self.take_below(1, (0, self.leaves), (from, to), bytes);
        }
    }

    fn least_below(&self, at: usize, cell: (usize, usize), range: (usize, usize)) -> i64 {
        if range.1 <= cell.0 || cell.1 <= range.0 {
            return i64::MAX / 2;
        }
        if range.0 <= cell.0 && cell.1 <= range.1 {
            return self.least[at];
        }
        let middle = cell.0 + (cell.1 - cell.0) / 2;
        let below = self.least_below(2 * at, (cell.0, middle), range).min(self.least_below(
            2 * at + 1,
            (middle, cell.1),
            range,
        ));
        below + self.pending[at]
    }

    fn take_below(&mut self, at: usize, cell: (usize, usize), range: (usize, usize), bytes: i64) {
        if range.1 <= cell.0 || cell.1 <= range.0 {
            return;
        }
        if range.0 <= cell.0 && cell.1 <= range.1 {
            self.least[at] -= bytes;
            self.pending[at] -= bytes;
            return;
        }
        let middle = cell.0 + (cell.1 - cell.0) / 2;
        self.take_below(2 * at, (cell.0, middle), range, bytes);
        self.take_below(2 * at + 1, (middle, cell.1), range, bytes);
        self.least[at] = self.least[2 * at].min(self.least[2 * at + 1]) + self.pending[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scatter::scatter;

    #[test]
    fn ranges_are_as_if_each_section_was_looked_at() {
        for count in [1, 2, 7, 64, 100] {
            let mut plain: Vec<i64> = (0..count).map(|k| (scatter(1, k) % 1000) as i64).collect();
            let mut tree = FreeBytes::new(&plain);
            for round in 0..200 {
                let ends = [2, 3].map(|seed| (scatter(seed, round) % (count + 1)) as usize);
                let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
                let least = plain[from..to].iter().copied().min();
                assert_eq!(tree.least(from, to), least.unwrap_or(i64::MAX / 2));
                let bytes = (scatter(4, round) % 100) as i64 - 50;
                plain[from..to].iter_mut().for_each(|free| *free -= bytes);
                tree.take(from, to, bytes);
            }
        }
    }
}
