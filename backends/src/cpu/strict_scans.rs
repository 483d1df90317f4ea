//! Scans in the strict order: as in `reference::order`, in place, along lines and along columns.

use super::element::FoldElement;
use crate::reference::order::SCAN_GROUP;

/// Columns that are scanned side by side: so few that the ends of their groups fit into the room of one line.
const COLUMNS: usize = 16;

/// Elements beside a line of `n` that [`scan`] works in.
pub(super) fn scan_room(n: usize) -> usize {
    // More than the ends of the groups of all columns of a strip, their groups, .., which are half of a line.
    n + n / (SCAN_GROUP - 1) + 1
}

/// Inclusive scan along the middle of three axes, in place. `work` has [`scan_room`] elements.
pub(super) fn scan<T: FoldElement>(
    xs: &mut [T],
    [extent, inner]: [usize; 2],
    reverse: bool,
    work: &mut [T],
    combine: impl Fn(T, T) -> T + Copy,
) {
    for rows in xs.chunks_exact_mut((extent * inner).max(1)) {
        match (inner, reverse) {
            (1, false) => scan_line(rows, work, combine),
            (1, true) => {
                rows.reverse();
                scan_line(rows, work, combine);
                rows.reverse();
            }
            _ => {
                for first in (0..inner).step_by(COLUMNS) {
                    let width = COLUMNS.min(inner - first);
                    let strip = ColumnStrip { extent, pitch: inner, first, width, reverse };
                    scan_columns(rows, strip, work, combine);
                }
            }
        }
    }
}

/// As the definition says it, with the ends of groups in memory that is given.
fn scan_line<T: FoldElement>(xs: &mut [T], ends: &mut [T], combine: impl Fn(T, T) -> T + Copy) {
    let (groups, tail) = xs.as_chunks_mut::<SCAN_GROUP>();
    for group in groups {
        add_apart::<T, 1>(group, combine);
        add_apart::<T, 2>(group, combine);
        add_apart::<T, 4>(group, combine);
        add_apart::<T, 8>(group, combine);
        add_apart::<T, 16>(group, combine);
    }
    let mut d = 1;
    while d < tail.len() {
        for i in (d..tail.len()).rev() {
            tail[i] = combine(tail[i - d], tail[i]);
        }
        d *= 2;
    }
    if xs.len() <= SCAN_GROUP {
        return;
    }
    let (mine, further) = ends.split_at_mut(xs.len() / SCAN_GROUP);
    let groups = xs.chunks_exact(SCAN_GROUP);
    mine.iter_mut().zip(groups).for_each(|(end, group)| *end = group[SCAN_GROUP - 1]);
    scan_line(mine, further, combine);
    for (group, &before) in xs.chunks_mut(SCAN_GROUP).skip(1).zip(&*mine) {
        group.iter_mut().for_each(|x| *x = combine(before, *x));
    }
}

/// Combines each element of a group with that `D` before it, as vectors: the number is known when this is compiled.
fn add_apart<T: FoldElement, const D: usize>(
    group: &mut [T; SCAN_GROUP],
    combine: impl Fn(T, T) -> T,
) {
    let before = *group;
    group[D..].iter_mut().zip(&before).for_each(|(x, &a)| *x = combine(a, *x));
}

/// Neighbouring columns of rows that are `pitch` elements apart, from the first row to the last or the other way.
#[derive(Clone, Copy)]
struct ColumnStrip {
    extent: usize,
    pitch: usize,
    first: usize,
    width: usize,
    reverse: bool,
}

impl ColumnStrip {
    /// Where the columns of a row begin.
    fn at(&self, k: usize) -> usize {
        let row = if self.reverse { self.extent - 1 - k } else { k };
        row * self.pitch + self.first
    }

    /// The columns of two rows.
    fn rows<'a, T>(&self, xs: &'a mut [T], [a, b]: [usize; 2]) -> (&'a [T], &'a mut [T]) {
        let (a, b, n) = (self.at(a), self.at(b), self.width);
        if a < b {
            let (low, high) = xs.split_at_mut(b);
            (&low[a..a + n], &mut high[..n])
        } else {
            let (low, high) = xs.split_at_mut(a);
            (&high[..n], &mut low[b..b + n])
        }
    }
}

/// Columns side by side, each as a line.
fn scan_columns<T: FoldElement>(
    xs: &mut [T],
    strip: ColumnStrip,
    ends: &mut [T],
    combine: impl Fn(T, T) -> T + Copy,
) {
    for begin in (0..strip.extent).step_by(SCAN_GROUP) {
        let end = (begin + SCAN_GROUP).min(strip.extent);
        let mut d = 1;
        while d < end - begin {
            for k in (begin + d..end).rev() {
                let (a, x) = strip.rows(xs, [k - d, k]);
                x.iter_mut().zip(a).for_each(|(x, &a)| *x = combine(a, *x));
            }
            d *= 2;
        }
    }
    if strip.extent <= SCAN_GROUP {
        return;
    }
    let (extent, width) = (strip.extent / SCAN_GROUP, strip.width);
    let (mine, further) = ends.split_at_mut(extent * width);
    for (k, end) in mine.chunks_exact_mut(width).enumerate() {
        let at = strip.at((k + 1) * SCAN_GROUP - 1);
        end.copy_from_slice(&xs[at..at + width]);
    }
    let groups = ColumnStrip { extent, pitch: width, first: 0, width, reverse: false };
    scan_columns(mine, groups, further, combine);
    for k in SCAN_GROUP..strip.extent {
        let before = &mine[(k / SCAN_GROUP - 1) * width..];
        let at = strip.at(k);
        let row = xs[at..at + width].iter_mut();
        row.zip(before).for_each(|(x, &before)| *x = combine(before, *x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::strict_folds::tests::{add, numbers};
    use crate::reference::order;

    #[test]
    fn scans_are_the_definition() {
        for extent in [0, 1, 2, 31, 32, 33, 64, 65, 1000, 1024, 1025, 40_000] {
            for (inner, reverse) in
                [(1, false), (1, true), (3, false), (3, true), (16, true), (37, false)]
            {
                let xs = numbers(extent * inner);
                let mut found = xs.clone();
                let mut work = vec![0.0; scan_room(extent)];
                scan(&mut found, [extent, inner], reverse, &mut work, add);
                for j in 0..inner {
                    let mut line: Vec<f32> = (0..extent).map(|k| xs[k * inner + j]).collect();
                    if reverse {
                        line.reverse();
                    }
                    order::scan(&mut line, add);
                    if reverse {
                        line.reverse();
                    }
                    let found = found.iter().skip(j).step_by(inner).copied();
                    assert!(found.eq(line), "{extent}, {inner}, {reverse}");
                }
            }
        }
    }
}
