//! Windows that tiles read where they are. What a step of the depth adds to the place of an element is the same for all rows or
//! columns, so a chunk of the depth is a table of offsets (M. Dukhan, "The Indirect Convolution Algorithm", 2019): nothing is
//! copied, but for rows and columns some of whose elements are not there.
#![allow(unsafe_code)]

use super::window::{
    CopyLines, Forms, InteriorRange, PlacedWindow, Window, WindowWalk, plus, times,
};
use crate::reference::order::CONTRACT_CHUNK;
use std::ops::Range;

/// Offsets of a window's elements along a chunk of the depth, in elements.
pub(super) struct DepthOffsets<'a> {
    /// One for each step.
    pub(super) all: &'a [isize],
    /// The rows or columns all of whose elements are there.
    inside: InteriorRange,
}

/// Room for the offsets of a chunk.
pub(super) type OffsetTable = [isize; CONTRACT_CHUNK];

impl<'a> DepthOffsets<'a> {
    /// Those of a window from its depth on, at most a chunk of them.
    pub(super) fn of(w: &PlacedWindow<'_>, depth: usize, table: &'a mut OffsetTable) -> Self {
        let table = &mut table[..depth.min(CONTRACT_CHUNK)];
        let Window { depth: axes, guards, elements, .. } = w.window;
        let steps = axes.last().map_or(Forms::default(), |a| a.steps);
        let mut inside = InteriorRange::everywhere(guards.len());
        let mut walk = WindowWalk::new(axes, w.depth);
        let mut done = 0;
        while done < table.len() {
            let count = walk.along().min(table.len() - done);
            let (mut offset, step) = (walk.forms[0] as isize, steps[0] as isize);
            for to in &mut table[done..done + count] {
                *to = offset;
                offset = offset.wrapping_add(step);
            }
            let last = plus(walk.forms, times(steps, count as i64 - 1));
            inside.narrow([&walk.forms, &last], guards, *elements);
            walk.go(count);
            done += count;
        }
        DepthOffsets { all: table, inside }
    }

    /// Where the rows of a tile begin, those from the window's place on; absent ones are the last one once more. `None` where
    /// an element is not there.
    pub(super) fn rows<T, const R: usize>(
        &self,
        w: &PlacedWindow<'_>,
        rows: usize,
    ) -> Option<[*const T; R]> {
        let mut begin = [std::ptr::null(); R];
        let mut walk = WindowWalk::new(&w.window.free, w.free);
        let mut at = w.at.cast::<T>();
        for (i, to) in begin.iter_mut().enumerate() {
            if i < rows {
                let base = plus(w.first, walk.forms);
                if !self.inside.holds(&base) {
                    return None;
                }
                at = w.at.cast::<T>().wrapping_offset(base[0] as isize);
                walk.go(1);
            }
            *to = at;
        }
        Some(begin)
    }
}

/// Columns of all vectors of `lanes` that a window's columns are read in, also where vectors overlap; `None` where lines of
/// neighbours are shorter than a vector.
pub(super) fn columns_of_vectors(
    w: &PlacedWindow<'_>,
    columns: usize,
    lanes: usize,
) -> Option<usize> {
    let last = w.window.free.last()?;
    let line = last.extent as usize;
    let each = line.div_ceil(lanes) * lanes;
    (last.steps[0] == 1 && line >= lanes).then(|| columns.saturating_mul(each) / line)
}

/// Columns that a vector has: neighbours in memory at each step of the depth.
#[derive(Clone)]
pub(super) struct ColumnVector {
    /// Forms of the vector's first column.
    base: Forms,
    /// Its columns that are wanted, and the number of the first of these among all.
    pub(super) columns: Range<usize>,
    pub(super) at: usize,
}

impl ColumnVector {
    /// It, with no column that is wanted.
    pub(super) fn without_columns(&self) -> ColumnVector {
        ColumnVector { columns: 0..0, ..self.clone() }
    }
}

/// The columns of a window, from its place on, in vectors of `L`. The last vector of a line of neighbours begins before the
/// end of the one before it where fewer columns are left, so no vector reaches beyond its line.
pub(super) struct ColumnVectors<'a, const L: usize> {
    window: PlacedWindow<'a>,
    walk: WindowWalk<'a>,
    steps: Forms,
    next: usize,
    count: usize,
}

impl<'a, const L: usize> ColumnVectors<'a, L> {
    /// Of `count` columns; `None` where lines of neighbours are shorter than a vector.
    pub(super) fn of(window: PlacedWindow<'a>, count: usize) -> Option<ColumnVectors<'a, L>> {
        columns_of_vectors(&window, count, L)?;
        let steps = window.window.free.last()?.steps;
        let walk = WindowWalk::new(&window.window.free, window.free);
        Some(ColumnVectors { window, walk, steps, next: 0, count })
    }

    /// Where the first column of a vector begins; `None` where an element of it is not there.
    pub(super) fn place<T>(&self, v: &ColumnVector, by: &DepthOffsets<'_>) -> Option<*const T> {
        let end = plus(v.base, times(self.steps, L as i64 - 1));
        let there = by.inside.holds(&v.base) && by.inside.holds(&end);
        there.then(|| self.window.at.cast::<T>().wrapping_offset(v.base[0] as isize))
    }

    /// Packs the wanted columns of a vector, for `depth` steps, in lines of `L`; others are 0. Columns stay where the vector has
    /// them: with columns that move, loops over short depths took 11 % longer, also where nothing is packed.
    ///
    /// # Safety
    /// As of [`CopyLines::copy`].
    #[inline(always)]
    pub(super) unsafe fn pack<T: Copy + Default, I: CopyLines>(
        &self,
        v: &ColumnVector,
        depth: usize,
        to: *mut T,
    ) {
        let count = v.columns.len();
        // SAFETY: as the caller promises.
        unsafe {
            if count < L {
                std::slice::from_raw_parts_mut(to, depth * L).fill(T::default());
            }
            let first = to.wrapping_add(v.columns.start);
            I::copy(self.window.from(v.at, 0), false, [count, depth], first, L);
        }
    }
}

impl<const L: usize> Iterator for ColumnVectors<'_, L> {
    type Item = ColumnVector;

    fn next(&mut self) -> Option<ColumnVector> {
        if self.next == self.count {
            return None;
        }
        let left = self.walk.along();
        let skipped = L.saturating_sub(left);
        let count = (L - skipped).min(self.count - self.next);
        let base = plus(self.window.first, self.walk.forms);
        let base = plus(base, times(self.steps, -(skipped as i64)));
        let found = ColumnVector { base, columns: skipped..skipped + count, at: self.next };
        self.walk.go(count);
        self.next += count;
        Some(found)
    }
}
