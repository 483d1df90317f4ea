//! Folding what sweeps have left in arrays: the orders of `order`, on memory known by its address.
//!
//! Every job here is a description of arrays - where they are, how many elements they have, of which
//! type - and what becomes of them. Whoever makes one promises that the arrays are there.
#![allow(unsafe_code)]

use super::element::{Element, Folding, first_extremum};
use super::order::{Lanes, Tree, join_parts, lane_block, line, push_blocks, scan};
use crate::reference::order::{CHAIN_BLOCK, LANE_BLOCK, reduce_axis};
use adfuse_ir::kernel::{Extents, Order, Run};

/// An array of `count` elements of the type that is folded.
#[derive(Clone, Copy)]
pub(super) struct Many {
    pub(super) at: *mut u8,
    pub(super) count: usize,
}

impl Many {
    /// # Safety
    /// There are as many elements of this type, aligned to it, and nobody writes them meanwhile.
    unsafe fn read<'a, T: Element>(self) -> &'a [T] {
        match self.count {
            0 => &[],
            // SAFETY: as the caller promises.
            n => unsafe { std::slice::from_raw_parts(self.at.cast::<T>(), n) },
        }
    }

    /// # Safety
    /// As [`Many::read`], and nobody else reads or writes them meanwhile.
    unsafe fn write<'a, T: Element>(self) -> &'a mut [T] {
        match self.count {
            0 => &mut [],
            // SAFETY: as the caller promises.
            n => unsafe { std::slice::from_raw_parts_mut(self.at.cast::<T>(), n) },
        }
    }
}

/// Whole lines of `n` elements, each to one.
pub(super) struct Lines {
    pub(super) values: Many,
    pub(super) n: usize,
    pub(super) order: Order,
    pub(super) empty: u64,
    pub(super) out: Many,
}

impl Folding for Lines {
    fn with<T: Element>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: `values` are what a sweep has left and `out` a row of the same worker.
        let (values, out) = unsafe { (self.values.read::<T>(), self.out.write::<T>()) };
        let empty = T::from_bits(self.empty);
        if self.n == 0 {
            return out.fill(empty);
        }
        for (line_of, out) in values.chunks_exact(self.n).zip(out) {
            *out = line(line_of, self.order, combine, empty);
        }
    }
}

/// The parts of a piece of a line that is too long to be kept: whole blocks, but for the last piece.
pub(super) struct Blocks {
    pub(super) values: Many,
    pub(super) order: Order,
    pub(super) parts: Many,
}

impl Folding for Blocks {
    fn with<T: Element>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: as for `Lines`.
        let (values, parts) = unsafe { (self.values.read::<T>(), self.parts.write::<T>()) };
        let block = self.order.block() as usize;
        for (xs, part) in values.chunks(block).zip(parts) {
            let mut tree = Tree::new();
            push_blocks(&mut tree, xs, self.order, combine);
            *part = tree.finish(combine).unwrap_or_default();
        }
    }
}

/// A run over the middle one of three axes, cut into parts of whole blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parted {
    pub(super) outer: usize,
    pub(super) size: usize,
    pub(super) inner: usize,
    pub(super) order: Order,
    pub(super) blocks: usize,
}

impl Parted {
    /// Elements of the array of parts, of which the results are the first.
    pub(super) fn parts(&self) -> Option<usize> {
        self.outer.checked_mul(self.blocks.max(1))?.checked_mul(self.inner)
    }
}

/// Takes the values of places from `begin` on into the parts.
pub(super) struct Absorb {
    pub(super) by: Parted,
    pub(super) begin: usize,
    pub(super) values: Many,
    pub(super) parts: Many,
    /// Memory of the worker for the lanes of a block that is not done.
    pub(super) state: *mut u8,
}

/// Bytes of that memory.
pub(super) const STATE: usize = size_of::<Lanes<f64>>();

impl Folding for Absorb {
    fn with<T: Element>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: tasks take whole blocks, so that the parts which these places belong to are written
        // by one worker alone; the slice made here of the others' is not touched.
        let (values, parts) = unsafe { (self.values.read::<T>(), self.parts.at.cast::<T>()) };
        let Parted { size, inner, order, blocks, .. } = self.by;
        let block = order.block() as usize;
        let whole = size * inner;
        let (mut place, mut rest) = (self.begin, values);
        while !rest.is_empty() {
            let (o, r) = (place / whole, place % whole);
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
                        let state = unsafe { &mut *self.state.cast::<Lanes<T>>() };
                        if i % LANE_BLOCK == 0 {
                            *state = Lanes::new();
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

/// Joins the parts, leaving the results in the first of them.
pub(super) struct Join {
    pub(super) by: Parted,
    pub(super) parts: Many,
    pub(super) empty: u64,
}

impl Folding for Join {
    fn with<T: Element>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: all points are done.
        let parts = unsafe { self.parts.write::<T>() };
        let Parted { outer, inner, blocks, .. } = self.by;
        if blocks == 0 {
            return parts.fill(T::from_bits(self.empty));
        }
        for (o, lines) in parts.chunks_exact_mut((blocks * inner).max(1)).enumerate() {
            debug_assert!(o < outer);
            join_parts(lines, blocks, inner, combine);
        }
        for o in 1..outer {
            parts.copy_within(o * blocks * inner..(o * blocks + 1) * inner, o * inner);
        }
    }
}

/// Folds an array over coordinates of these extents, whatever the order of its runs, and puts the
/// results, row-major over what remains, at its beginning. Takes memory while it does.
pub(super) struct Whole<'a> {
    pub(super) values: Many,
    pub(super) extents: &'a [i64],
    pub(super) runs: &'a [Run],
    pub(super) empty: u64,
    /// The greatest or the least, for the two that give places.
    pub(super) places: Option<bool>,
    pub(super) out: Many,
}

impl Folding for Whole<'_> {
    fn with<T: Element>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: all values are there, and `out` is not in use before this is done with them.
        let values = unsafe { self.values.read::<T>() };
        let axes = |r: &Run| r.axes.iter().map(|&a| usize::from(a)).collect::<Vec<_>>();
        let folded: Vec<usize> = self.runs.iter().rev().flat_map(axes).collect();
        let kept = (0..self.extents.len()).filter(|a| !folded.contains(a));
        let order: Vec<usize> = kept.chain(folded.iter().copied()).collect();
        let mut values = permuted(values, self.extents, &order);
        let sizes: Vec<usize> = self
            .runs
            .iter()
            .map(|r| axes(r).iter().map(|&a| self.extents[a] as usize).product())
            .collect();
        let all: usize = sizes.iter().product();
        if let Some(max) = self.places {
            // SAFETY: the results of these two are `i32`.
            let out = unsafe { self.out.write::<i32>() };
            for (k, out) in out.iter_mut().enumerate() {
                *out = first_extremum(max, &values[k * all..(k + 1) * all]);
            }
            return;
        }
        // SAFETY: as above.
        let out = unsafe { self.out.write::<T>() };
        let empty = T::from_bits(self.empty);
        if all == 0 {
            // Runs over neutral values give one again, and there may be any number of those.
            return out.fill(empty);
        }
        for (k, run) in self.runs.iter().enumerate() {
            let outer = out.len() * sizes[k + 1..].iter().product::<usize>();
            values = reduce_axis(&values, [outer, sizes[k], 1], run.order, combine, empty);
        }
        out.copy_from_slice(&values);
    }
}

/// The values with their axes in another order.
fn permuted<T: Element>(values: &[T], extents: &[i64], order: &[usize]) -> Vec<T> {
    let mut strides: Extents = extents.iter().map(|_| 1).collect();
    for k in (1..extents.len()).rev() {
        strides[k - 1] = strides[k] * extents[k];
    }
    let mut found = Vec::with_capacity(values.len());
    let mut at: Vec<i64> = vec![0; order.len()];
    let mut place = 0i64;
    for _ in 0..values.len() {
        found.push(values[place as usize]);
        for k in (0..order.len()).rev() {
            let a = order[k];
            at[k] += 1;
            place += strides[a];
            if at[k] < extents[a] {
                break;
            }
            place -= strides[a] * extents[a];
            at[k] = 0;
        }
    }
    found
}

/// Scans tiles along one axis, in place.
pub(super) struct Scan {
    pub(super) values: Many,
    pub(super) extent: usize,
    pub(super) inner: usize,
    pub(super) reverse: bool,
}

impl Folding for Scan {
    fn with<T: Element>(self, combine: impl Fn(T, T) -> T + Copy) {
        // SAFETY: the tile is the worker's own.
        let values = unsafe { self.values.write::<T>() };
        scan(values, [self.extent, self.inner], self.reverse, combine);
    }
}
