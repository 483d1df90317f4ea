//! The strict orders over slices: as in `reference::order`, but without allocation.
#![allow(unsafe_code)]

use super::element::FoldElement;
use crate::reference::order::{CHAIN_BLOCK, LANE_BLOCK, LANES};
use adfuse_ir::kernel::Order;

/// Levels of a tree over as many parts as there may be.
const LEVELS: usize = 64;

/// The balanced tree over parts that arrive one after the other.
pub(super) struct FoldTree<T> {
    count: u64,
    stack: [T; LEVELS],
    held: usize,
}

impl<T: Copy + Default> FoldTree<T> {
    pub(super) fn new() -> FoldTree<T> {
        FoldTree { count: 0, stack: [T::default(); LEVELS], held: 0 }
    }

    pub(super) fn push(&mut self, part: T, combine: impl Fn(T, T) -> T) {
        self.count += 1;
        let mut node = part;
        for _ in 0..self.count.trailing_zeros() {
            self.held -= 1;
            node = combine(self.stack[self.held], node);
        }
        self.stack[self.held] = node;
        self.held += 1;
    }

    pub(super) fn finish(&self, combine: impl Fn(T, T) -> T) -> Option<T> {
        let (&last, rest) = self.stack[..self.held].split_last()?;
        Some(rest.iter().rev().fold(last, |node, &left| combine(left, node)))
    }
}

/// One block of the lane order, of 1 to 1024 elements.
pub(super) fn lane_block<T: FoldElement>(xs: &[T], combine: impl Fn(T, T) -> T + Copy) -> T {
    let Some((first, rest)) = xs.split_first_chunk::<LANES>() else {
        return match xs.len() {
            16.. => short::<T, 16>(xs, combine),
            8.. => short::<T, 8>(xs, combine),
            4.. => short::<T, 4>(xs, combine),
            2.. => short::<T, 2>(xs, combine),
            _ => xs.first().copied().unwrap_or_default(),
        };
    };
    let mut a = *first;
    let rows = rest.chunks_exact(LANES);
    let tail = rows.remainder();
    for row in rows {
        a.iter_mut().zip(row).for_each(|(a, &x)| *a = combine(*a, x));
    }
    a.iter_mut().zip(tail).for_each(|(a, &x)| *a = combine(*a, x));
    join_lanes(a, combine)
}

/// A block of `N` elements, a power of two, and fewer than `N` after them, which is less than it takes to fill the lanes. `N` is
/// known when this is compiled, so the lanes stay in registers.
fn short<T: FoldElement, const N: usize>(xs: &[T], combine: impl Fn(T, T) -> T + Copy) -> T {
    let mut a = [T::default(); LANES];
    let Some((first, rest)) = xs.split_first_chunk::<N>() else { return a[0] };
    a[..N].copy_from_slice(first);
    a[..N].iter_mut().zip(rest).for_each(|(a, &x)| *a = combine(*a, x));
    if N > 8 {
        halve::<T, 8>(&mut a, combine);
    }
    if N > 4 {
        halve::<T, 4>(&mut a, combine);
    }
    if N > 2 {
        halve::<T, 2>(&mut a, combine);
    }
    combine(a[0], a[1])
}

/// Halves full lanes until one is left.
fn join_lanes<T: FoldElement>(mut a: [T; LANES], combine: impl Fn(T, T) -> T + Copy) -> T {
    halve::<T, 16>(&mut a, combine);
    halve::<T, 8>(&mut a, combine);
    halve::<T, 4>(&mut a, combine);
    halve::<T, 2>(&mut a, combine);
    combine(a[0], a[1])
}

/// Combines `H` lanes with the next `H`, as vectors: the number is known when this is compiled.
fn halve<T: FoldElement, const H: usize>(a: &mut [T; LANES], combine: impl Fn(T, T) -> T) {
    let (left, right) = a.split_at_mut(H);
    left.iter_mut().zip(&right[..H]).for_each(|(a, &b)| *a = combine(*a, b));
}

/// The 32 lanes of a block that is not done yet.
#[derive(Clone, Copy)]
pub(super) struct BlockLanes<T> {
    lanes: [T; LANES],
    pub(super) taken: usize,
}

impl<T: FoldElement> BlockLanes<T> {
    pub(super) fn new() -> BlockLanes<T> {
        BlockLanes { lanes: [T::default(); LANES], taken: 0 }
    }

    /// Takes the next elements of the block.
    pub(super) fn take(&mut self, mut xs: &[T], combine: impl Fn(T, T) -> T + Copy) {
        while !xs.is_empty() && self.taken < LANES {
            let n = xs.len().min(LANES - self.taken);
            self.lanes[self.taken..self.taken + n].copy_from_slice(&xs[..n]);
            self.taken += n;
            xs = &xs[n..];
        }
        let lane = self.taken % LANES;
        let head = xs.len().min((LANES - lane) % LANES);
        for (a, &x) in self.lanes[lane..].iter_mut().zip(&xs[..head]) {
            *a = combine(*a, x);
        }
        let mut lanes = self.lanes;
        let rows = xs[head..].chunks_exact(LANES);
        let tail = rows.remainder();
        for row in rows {
            for (a, &x) in lanes.iter_mut().zip(row) {
                *a = combine(*a, x);
            }
        }
        for (a, &x) in lanes.iter_mut().zip(tail) {
            *a = combine(*a, x);
        }
        self.lanes = lanes;
        self.taken += xs.len();
    }

    /// Halves the lanes until one is left.
    pub(super) fn join(&self, combine: impl Fn(T, T) -> T + Copy) -> T {
        let mut a = self.lanes;
        if self.taken >= LANES {
            return join_lanes(a, combine);
        }
        let mut w = self.taken.min(LANES);
        let mut h = LANES / 2;
        while h > 0 {
            for l in 0..h {
                if l + h < w {
                    a[l] = combine(a[l], a[l + h]);
                }
            }
            w = w.min(h);
            h /= 2;
        }
        a[0]
    }
}

fn chain_block<T: FoldElement>(xs: &[T], combine: impl Fn(T, T) -> T) -> T {
    xs.iter().copied().reduce(combine).unwrap_or_default()
}

/// Adds the blocks of a piece of a line to its tree. Every piece but the last is of whole blocks.
pub(super) fn push_blocks<T: FoldElement>(
    tree: &mut FoldTree<T>,
    xs: &[T],
    order: Order,
    combine: impl Fn(T, T) -> T + Copy,
) {
    match order {
        Order::Lane => {
            xs.chunks(LANE_BLOCK).for_each(|b| tree.push(lane_block(b, combine), combine));
        }
        Order::Chain => {
            xs.chunks(CHAIN_BLOCK).for_each(|b| tree.push(chain_block(b, combine), combine));
        }
    }
}

/// A whole line that is in memory.
pub(super) fn line<T: FoldElement>(
    xs: &[T],
    order: Order,
    combine: impl Fn(T, T) -> T + Copy,
    empty: T,
) -> T {
    let block = order.block() as usize;
    if xs.len() <= block && !xs.is_empty() {
        return match order {
            Order::Lane => lane_block(xs, combine),
            Order::Chain => chain_block(xs, combine),
        };
    }
    let mut tree = FoldTree::new();
    push_blocks(&mut tree, xs, order, combine);
    tree.finish(combine).unwrap_or(empty)
}

/// Lines that are folded side by side. An operation waits for the one before it in its own line only, so eight lines keep a
/// processor's adders busy, and the lanes of short lines need not be put together to vectors.
pub(super) const ABREAST: usize = 8;

/// Whole lines of `n` elements each, one result for each line.
pub(super) fn lines<T: FoldElement>(
    xs: &[T],
    n: usize,
    order: Order,
    combine: impl Fn(T, T) -> T + Copy,
    empty: T,
    out: &mut [T],
) {
    if n == 0 {
        return out.fill(empty);
    }
    let (xs, out) = (&xs[..n * out.len()], out);
    let abreast = match order {
        Order::Chain => chains(xs, n, combine, out),
        Order::Lane if n < LANES => short_lines(xs, n, combine, out),
        Order::Lane => 0,
    };
    let (xs, out) = (&xs[n * abreast..], &mut out[abreast..]);
    for (xs, out) in xs.chunks_exact(n).zip(out) {
        *out = line(xs, order, combine, empty);
    }
}

/// Lines of `n` elements, at least one, in the chain order, as many as are folded side by side; gives how many.
fn chains<T: FoldElement>(
    xs: &[T],
    n: usize,
    combine: impl Fn(T, T) -> T + Copy,
    out: &mut [T],
) -> usize {
    let both = |a: [T; ABREAST], b: [T; ABREAST]| std::array::from_fn(|k| combine(a[k], b[k]));
    let (groups, _) = out.as_chunks_mut::<ABREAST>();
    for (xs, out) in xs.chunks_exact(n * ABREAST).zip(&mut *groups) {
        let of: [&[T]; ABREAST] = std::array::from_fn(|k| &xs[k * n..(k + 1) * n]);
        let block = |from: usize| {
            let until = (from + CHAIN_BLOCK).min(n);
            let of = of.map(|xs| &xs[from..until]);
            let mut all: [T; ABREAST] = of.map(|xs| xs[0]);
            for i in 1..until - from {
                all.iter_mut().zip(of).for_each(|(a, xs)| *a = combine(*a, xs[i]));
            }
            all
        };
        *out = if n <= CHAIN_BLOCK {
            block(0)
        } else {
            let mut tree = FoldTree::new();
            (0..n).step_by(CHAIN_BLOCK).for_each(|from| tree.push(block(from), both));
            tree.finish(both).unwrap_or_default()
        };
    }
    ABREAST * groups.len()
}

/// Lines of `n` elements, fewer than there are lanes, in the lane order, as many as are folded side by side; gives how many.
fn short_lines<T: FoldElement>(
    xs: &[T],
    n: usize,
    combine: impl Fn(T, T) -> T + Copy,
    out: &mut [T],
) -> usize {
    let mut lanes = [[T::default(); ABREAST]; LANES];
    let lanes = &mut lanes[..n];
    let (groups, _) = out.as_chunks_mut::<ABREAST>();
    for (xs, out) in xs.chunks_exact(n * ABREAST).zip(&mut *groups) {
        for (l, lane) in lanes.iter_mut().enumerate() {
            lane.iter_mut().enumerate().for_each(|(k, x)| *x = xs[k * n + l]);
        }
        let mut width = n;
        for half in [16, 8, 4, 2, 1].into_iter().filter(|&half| half < n) {
            let (left, right) = lanes.split_at_mut(half);
            let there = width.saturating_sub(half);
            for (left, right) in left.iter_mut().zip(&*right).take(there) {
                left.iter_mut().zip(right).for_each(|(a, &b)| *a = combine(*a, b));
            }
            width = width.min(half);
        }
        *out = lanes[0];
    }
    ABREAST * groups.len()
}

/// Joins `parts` lines of the balanced tree, `inner` elements apart, at columns `from..to`, leaving the
/// results in the first line.
///
/// # Safety
/// `xs` must point to this many lines, and nobody else may use these columns meanwhile.
pub(super) unsafe fn join_parts<T: FoldElement>(
    xs: *mut T,
    [parts, inner]: [usize; 2],
    [from, to]: [usize; 2],
    combine: impl Fn(T, T) -> T,
) {
    // SAFETY: lines are below `parts` and columns below `inner`, as the caller promises.
    let line = |k: usize| unsafe {
        std::slice::from_raw_parts_mut(xs.add(k * inner + from), to.saturating_sub(from))
    };
    let mut n = parts;
    while n > 1 {
        for k in 0..n / 2 {
            let (left, right) = (line(2 * k), line(2 * k + 1));
            match k {
                // In its own place.
                0 => left.iter_mut().zip(right).for_each(|(a, b)| *a = combine(*a, *b)),
                _ => {
                    let joined = left.iter().zip(right.iter()).map(|(a, b)| combine(*a, *b));
                    line(k).iter_mut().zip(joined).for_each(|(to, x)| *to = x);
                }
            }
        }
        if n % 2 == 1 {
            line(n / 2).copy_from_slice(line(n - 1));
        }
        n = n.div_ceil(2);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::reference::order;

    pub(in crate::cpu) fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 7919 % 1013) as f32 - 500.0) * 0.37).collect()
    }

    pub(in crate::cpu) fn add(a: f32, b: f32) -> f32 {
        a + b
    }

    #[test]
    fn lines_are_the_definition() {
        for n in (0..=66).chain([1000, 1024, 1025, 2048, 5000, 70_000]) {
            let xs = numbers(n);
            assert_eq!(line(&xs, Order::Lane, add, 0.0), order::reduce_lane_blocked(&xs, add, 0.0));
            let chain = order::reduce_chain_blocked(xs.iter().copied(), add, 0.0);
            assert_eq!(line(&xs, Order::Chain, add, 0.0), chain, "{n}");
        }
    }

    #[test]
    fn lines_side_by_side_are_the_definition() {
        for n in (1..35).chain([63, 64, 65, 128, 200]) {
            for count in [1, 7, 8, 9, 16, 20] {
                for order in [Order::Chain, Order::Lane] {
                    let xs = numbers(n * count);
                    let mut out = vec![0.0; count];
                    lines(&xs, n, order, add, 0.0, &mut out);
                    let each = xs.chunks(n).map(|xs| match order {
                        Order::Chain => order::reduce_chain_blocked(xs.iter().copied(), add, 0.0),
                        Order::Lane => order::reduce_lane_blocked(xs, add, 0.0),
                    });
                    assert!(each.eq(out.iter().copied()), "{count} lines of {n}");
                }
            }
        }
        let mut none = [1.0; 9];
        lines(&[], 0, Order::Chain, add, 0.0, &mut none);
        assert_eq!(none, [0.0; 9]);
    }

    #[test]
    fn lanes_may_be_taken_in_any_pieces() {
        let xs = numbers(1024);
        for piece in [1, 3, 31, 32, 33, 100] {
            let mut lanes = BlockLanes::new();
            xs.chunks(piece).for_each(|p| lanes.take(p, add));
            assert_eq!(lanes.join(add), lane_block(&xs, add), "{piece}");
        }
    }

    #[test]
    fn parts_join_in_the_tree() {
        for parts in 1..40 {
            let xs = numbers(parts * 3);
            let mut joined = xs.clone();
            // SAFETY: there are this many lines of three.
            unsafe { join_parts(joined.as_mut_ptr(), [parts, 3], [0, 2], add) };
            // SAFETY: as above.
            unsafe { join_parts(joined.as_mut_ptr(), [parts, 3], [2, 3], add) };
            for j in 0..3 {
                let column: Vec<f32> = (0..parts).map(|p| xs[p * 3 + j]).collect();
                assert_eq!(Some(joined[j]), order::join_tree(column, add), "{parts}");
            }
        }
    }
}
