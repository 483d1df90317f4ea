//! Folds of arrays that sweeps have written: the orders of `order`, on raw memory.
//!
//! Every job here describes arrays - address, number and type of elements - and what to do with them. The code that
//! creates a job promises that the arrays are valid.
#![allow(unsafe_code)]

use super::element::{FoldElement, Folding};
use super::extremum::{beats, column_extrema, first_extremum, row_extrema};
use super::strict_folds::{BlockLanes, join_parts, lane_block, line, lines};
use super::strict_scans::{scan, scan_room};
use crate::reference::order::{CHAIN_BLOCK, LANE_BLOCK};
use adfuse_ir::kernel::{Extents, Order, Run};
use smallvec::SmallVec;

/// An array of `count` elements of the type that is folded.
#[derive(Clone, Copy)]
pub(super) struct ElementArray {
    pub(super) at: *mut u8,
    pub(super) count: usize,
}

impl ElementArray {
    /// # Safety
    /// There are as many elements of this type, aligned to it, and nobody writes them meanwhile.
    unsafe fn read<'a, T: FoldElement>(self) -> &'a [T] {
        match self.count {
            0 => &[],
            // SAFETY: as the caller promises.
            n => unsafe { std::slice::from_raw_parts(self.at.cast::<T>(), n) },
        }
    }

    /// # Safety
    /// As [`ElementArray::read`], and nobody else reads or writes them meanwhile.
    unsafe fn write<'a, T: FoldElement>(self) -> &'a mut [T] {
        match self.count {
            0 => &mut [],
            // SAFETY: as the caller promises.
            n => unsafe { std::slice::from_raw_parts_mut(self.at.cast::<T>(), n) },
        }
    }
}

/// Whole lines of `n` elements, each to one.
pub(super) struct LineFold {
    pub(super) values: ElementArray,
    pub(super) n: usize,
    pub(super) order: Order,
    pub(super) empty: u64,
    pub(super) out: ElementArray,
}

impl Folding for LineFold {
    fn with<T: FoldElement>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: `values` are what a sweep has left and `out` a row of the same worker.
        let (values, out) = unsafe { (self.values.read::<T>(), self.out.write::<T>()) };
        lines(values, self.n, self.order, combine, T::from_bits(self.empty), out);
    }
}

/// A run over the middle one of three axes, cut into parts of whole blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPartition {
    pub(super) outer: usize,
    pub(super) size: usize,
    pub(super) inner: usize,
    pub(super) order: Order,
    pub(super) blocks: usize,
}

impl BlockPartition {
    /// Rows that are not cut.
    pub(super) fn rows(outer: usize, size: usize) -> BlockPartition {
        BlockPartition { outer, size, inner: 1, order: Order::Lane, blocks: 1 }
    }

    /// Elements of the array of parts.
    pub(super) fn parts(&self) -> Option<usize> {
        self.outer.checked_mul(self.blocks.max(1))?.checked_mul(self.inner)
    }
}

/// Takes the values of places from `begin` on into the parts.
pub(super) struct AbsorbValues {
    pub(super) by: BlockPartition,
    pub(super) begin: usize,
    pub(super) values: ElementArray,
    pub(super) parts: ElementArray,
    /// Memory of the worker for the lanes of a block that is not done.
    pub(super) state: *mut u8,
}

/// Bytes of that memory.
pub(super) const STATE: usize = size_of::<BlockLanes<f64>>();

impl Folding for AbsorbValues {
    fn with<T: FoldElement>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: tasks take whole blocks, so that the parts which these places belong to are written
        // by one worker alone; the slice made here of the others' is not touched.
        let (values, parts) = unsafe { (self.values.read::<T>(), self.parts.at.cast::<T>()) };
        let BlockPartition { size, inner, order, blocks, .. } = self.by;
        let block = order.block() as usize;
        let whole = size * inner;
        let (mut place, mut rest) = (self.begin, values);
        while !rest.is_empty() {
            let (o, r) = (place / whole, place % whole);
            let whole_lines = rest.len() / whole;
            if (inner, blocks, r) == (1, 1, 0) && whole_lines > 0 {
                let (xs, after) = rest.split_at(whole_lines * whole);
                // SAFETY: there is a part for each line, and these lines are this task's.
                let to = unsafe { std::slice::from_raw_parts_mut(parts.add(o), whole_lines) };
                lines(xs, whole, order, combine, T::default(), to);
                (place, rest) = (place + xs.len(), after);
                continue;
            }
            let (i, j) = (r / inner, r % inner);
            let until = match inner {
                1 => (block - i % block).min(size - i),
                _ => inner - j,
            };
            let (xs, after) = rest.split_at(until.min(rest.len()));
            let part = (o * blocks + i / block) * inner + j;
            let many = if inner == 1 { 1 } else { xs.len() };
            // SAFETY: parts number `outer * blocks * inner`, and `part..part + many` are of one block.
            let to = unsafe { std::slice::from_raw_parts_mut(parts.add(part), many) };
            match (order, inner) {
                (Order::Lane, _) => {
                    let ends = i + xs.len() == size || (i + xs.len()) % LANE_BLOCK == 0;
                    if i % LANE_BLOCK == 0 && ends {
                        to[0] = lane_block(xs, combine);
                    } else {
                        // SAFETY: `state` has room for the lanes of the widest type.
                        let state = unsafe { &mut *self.state.cast::<BlockLanes<T>>() };
                        if i % LANE_BLOCK == 0 {
                            *state = BlockLanes::new();
                        }
                        state.take(xs, combine);
                        if ends {
                            to[0] = state.join(combine);
                        }
                    }
                }
                (Order::Chain, 1) => {
                    let mut xs = xs.iter().copied();
                    let first = if i % CHAIN_BLOCK == 0 { xs.next() } else { Some(to[0]) };
                    if let Some(first) = first {
                        to[0] = xs.fold(first, combine);
                    }
                }
                (Order::Chain, _) if i % CHAIN_BLOCK == 0 => to.copy_from_slice(xs),
                (Order::Chain, _) => {
                    to.iter_mut().zip(xs).for_each(|(a, &x)| *a = combine(*a, x));
                }
            }
            place += xs.len();
            rest = after;
        }
    }
}

/// Joins the parts, and puts the results, row-major, in an array of their own.
pub(super) struct JoinParts {
    pub(super) by: BlockPartition,
    pub(super) parts: ElementArray,
    pub(super) empty: u64,
    pub(super) out: ElementArray,
    /// Of the outermost axis and of the innermost: what is joined here. Others may join the rest at the
    /// same time.
    pub(super) outer: [usize; 2],
    pub(super) inner: [usize; 2],
}

impl Folding for JoinParts {
    fn with<T: FoldElement>(self, combine: impl Fn(T, T) -> T + Copy) {
        let BlockPartition { inner, blocks, .. } = self.by;
        let (parts, out) = (self.parts.at.cast::<T>(), self.out.at.cast::<T>());
        let [from, to] = self.inner;
        for o in self.outer[0]..self.outer[1] {
            // SAFETY: all points are done; there are `outer * blocks * inner` parts and `outer * inner`
            // results, and these columns of them are this call's alone.
            unsafe {
                let out = std::slice::from_raw_parts_mut(out.add(o * inner + from), to - from);
                if blocks == 0 {
                    out.fill(T::from_bits(self.empty));
                    continue;
                }
                if (blocks, inner) == (1, 1) {
                    out[0] = *parts.add(o);
                    continue;
                }
                let lines = parts.add(o * blocks * inner);
                join_parts(lines, [blocks, inner], self.inner, combine);
                out.copy_from_slice(std::slice::from_raw_parts(lines.add(from), to - from));
            }
        }
    }
}

/// Runs that fold an array, in terms of its places.
#[derive(Clone, Debug, Default)]
pub(super) struct FoldRuns {
    /// Extents of all axes.
    extents: Extents,
    /// The axes with those that fold last, from the last run to the first; `None` where they are so.
    order: Option<SmallVec<[usize; 8]>>,
    /// How many places are along and behind the axes that fold, where those are neighbours in order, but not the last.
    middle: Option<[usize; 2]>,
    /// How many places each run folds, and how.
    sizes: SmallVec<[(usize, Order); 2]>,
}

impl FoldRuns {
    /// These runs over coordinates of these extents.
    pub(super) fn new(extents: &[i64], runs: &[Run]) -> FoldRuns {
        let axes = |r: &Run| r.axes.iter().map(|&a| usize::from(a)).collect::<Vec<_>>();
        let folded: Vec<usize> = runs.iter().rev().flat_map(axes).collect();
        let kept = (0..extents.len()).filter(|a| !folded.contains(a));
        let order: SmallVec<[usize; 8]> = kept.chain(folded.iter().copied()).collect();
        // Axes of extent 1 may be anywhere.
        let long = order.iter().filter(|&&a| extents[a] != 1);
        let ordered = long.clone().zip(long.skip(1)).all(|(a, b)| a < b);
        let size = |r: &Run| axes(r).iter().map(|&a| extents[a] as usize).product();
        let places = |axes: &[i64]| axes.iter().map(|&n| n as usize).product();
        let middle = match (folded.first(), folded.last()) {
            (Some(&a), Some(&b)) if !ordered && folded.iter().copied().eq(a..=b) => {
                Some([&extents[a..=b], &extents[b + 1..]].map(places))
            }
            _ => None,
        };
        FoldRuns {
            extents: extents.into(),
            order: (!ordered).then_some(order),
            middle,
            sizes: runs.iter().map(|r| (size(r), r.order)).collect(),
        }
    }

    /// Whether the axes are in the order in which they fold.
    pub(super) fn ordered(&self) -> bool {
        self.order.is_none()
    }

    /// Elements beside the array that [`ArrayFold`] works in.
    pub(super) fn room(&self, elements: i64) -> i64 {
        if self.order.is_some() { elements } else { 0 }
    }
}

/// Folds an array, whatever the order of its runs, and puts the results, row-major over what remains, in
/// another. The array is used up.
pub(super) struct ArrayFold<'a> {
    pub(super) values: ElementArray,
    pub(super) runs: &'a FoldRuns,
    pub(super) empty: u64,
    /// The greatest or the least, for the two that give places.
    pub(super) places: Option<bool>,
    /// Room for as many elements as [`FoldRuns::room`] says.
    pub(super) work: *mut u8,
    pub(super) out: ElementArray,
}

impl Folding for ArrayFold<'_> {
    fn with<T: FoldElement>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: all values are there, and used by nobody else any more.
        let mut values = unsafe { self.values.write::<T>() };
        if let (Some(max), Some([n, inner])) = (self.places, self.runs.middle)
            && !values.is_empty()
        {
            let best = ElementArray { at: self.work, count: inner };
            // SAFETY: the results of these two are `i32`, and there is room for the best of each column.
            let (best, out) = unsafe { (best.write::<T>(), self.out.write::<i32>()) };
            return column_extrema(max, values, n, best, out);
        }
        if let Some(order) = &self.runs.order {
            let room = ElementArray { at: self.work, count: values.len() };
            // SAFETY: there is so much room, as `FoldRuns::room` has said.
            let work = unsafe { room.write::<T>() };
            permute(values, &self.runs.extents, order, work);
            values = work;
        }
        let sizes = &self.runs.sizes;
        let all: usize = sizes.iter().map(|(n, _)| n).product();
        if let Some(max) = self.places {
            // SAFETY: the results of these two are `i32`.
            let out = unsafe { self.out.write::<i32>() };
            return row_extrema(max, values, all, out);
        }
        // SAFETY: `out` is an array of its own.
        let out = unsafe { self.out.write::<T>() };
        let empty = T::from_bits(self.empty);
        if all == 0 {
            // Runs over neutral values give one again, and there may be any number of those.
            return out.fill(empty);
        }
        for (k, &(n, order)) in sizes.iter().enumerate() {
            let lines = out.len() * sizes[k + 1..].iter().map(|(n, _)| n).product::<usize>();
            // A line is read before its result is put where an earlier one was.
            for i in 0..lines {
                values[i] = line(&values[i * n..(i + 1) * n], order, combine, empty);
            }
        }
        out.copy_from_slice(&values[..out.len()]);
    }
}

/// The values with their axes in another order.
fn permute<T: FoldElement>(values: &[T], extents: &[i64], order: &[usize], to: &mut [T]) {
    let stride = |a: usize| extents[a + 1..].iter().product::<i64>();
    let steps: SmallVec<[(i64, i64); 16]> =
        order.iter().map(|&a| (extents[a], stride(a))).collect();
    let Some((&(length, step), outer)) = steps.split_last().filter(|_| !to.is_empty()) else {
        // A single element, or none.
        return to.copy_from_slice(values);
    };
    let mut at: SmallVec<[i64; 16]> = outer.iter().map(|_| 0).collect();
    let mut place = 0;
    for line in to.chunks_exact_mut(length as usize) {
        let from = values[place as usize..].iter().step_by(step as usize);
        line.iter_mut().zip(from).for_each(|(to, &x)| *to = x);
        for (at, &(extent, stride)) in at.iter_mut().zip(outer).rev() {
            *at += 1;
            place += stride;
            if *at < extent {
                break;
            }
            place -= stride * extent;
            *at = 0;
        }
    }
}

/// Takes the next piece of a line into the place of its first extremum.
pub(super) struct Extremum {
    pub(super) max: bool,
    pub(super) values: ElementArray,
    /// The place of the first of them.
    pub(super) first: usize,
    /// The best value so far.
    pub(super) best: ElementArray,
    /// Its place.
    pub(super) out: ElementArray,
}

impl Folding for Extremum {
    fn with<T: FoldElement>(self, _: impl Fn(T, T) -> T + Copy) {
        // SAFETY: the values, the best of them and its place are the worker's own.
        let (values, best, out) =
            unsafe { (self.values.read::<T>(), self.best.write::<T>(), self.out.write::<i32>()) };
        take_piece(self.max, values, self.first, &mut best[0], &mut out[0]);
    }
}

/// Takes the piece of a line that begins at place `first` into the best value of the line and its place.
fn take_piece<T: FoldElement>(max: bool, values: &[T], first: usize, best: &mut T, out: &mut i32) {
    if values.is_empty() {
        return;
    }
    let place = first_extremum(max, values);
    let value = values[place as usize];
    if first == 0 || beats(max, value, *best) {
        *best = value;
        *out = (first as i32).wrapping_add(place);
    }
}

/// Takes the values of places from `begin` on into the first extrema of rows of `size` places. The rows are gone through in order,
/// and all of a row by one worker.
pub(super) struct AbsorbPlaces {
    pub(super) max: bool,
    pub(super) size: usize,
    pub(super) begin: usize,
    pub(super) values: ElementArray,
    /// Memory of the worker for the best value of a row that is not done.
    pub(super) best: *mut u8,
    /// The places of all rows.
    pub(super) out: ElementArray,
}

impl Folding for AbsorbPlaces {
    fn with<T: FoldElement>(self, _: impl Fn(T, T) -> T + Copy) {
        let (size, out) = (self.size, self.out.at.cast::<i32>());
        // SAFETY: the values are the worker's own.
        let (mut place, mut rest) = (self.begin, unsafe { self.values.read::<T>() });
        while !rest.is_empty() {
            let (row, first) = (place / size, place % size);
            let rows = if first == 0 { rest.len() / size } else { 0 };
            let (values, after) = match rows {
                0 => rest.split_at((size - first).min(rest.len())),
                _ => rest.split_at(rows * size),
            };
            // SAFETY: tasks take whole rows, so that the places of these rows are this worker's alone, and there is one for each
            // row. The best value is in memory of the worker that has room for the widest type.
            let (best, out) = unsafe {
                let out = std::slice::from_raw_parts_mut(out.add(row), rows.max(1));
                (&mut *self.best.cast::<T>(), out)
            };
            match rows {
                0 => take_piece(self.max, values, first, best, &mut out[0]),
                _ => row_extrema(self.max, values, size, out),
            }
            place += values.len();
            rest = after;
        }
    }
}

/// Scans tiles along one axis, in place.
pub(super) struct TileScan {
    pub(super) values: ElementArray,
    pub(super) extent: usize,
    pub(super) inner: usize,
    pub(super) reverse: bool,
    /// Room for [`scan_room`] elements.
    pub(super) work: *mut u8,
}

impl Folding for TileScan {
    fn with<T: FoldElement>(self, combine: impl Fn(T, T) -> T + Copy) {
        let work = ElementArray { at: self.work, count: scan_room(self.extent) };
        // SAFETY: the tile and the room are the worker's own.
        let (values, work) = unsafe { (self.values.write::<T>(), work.write::<T>()) };
        scan(values, [self.extent, self.inner], self.reverse, work, combine);
    }
}
