//! The strict order as loops that compilers vectorise: safe, of any vector width, the same bits.
//!
//! Benchmarks measure these; `adfuse_backends::reference::order` defines the order.
//!
//! Accumulators begin at -0, and absent elements are -0: `-0 + x` is `x`, bit for bit, so this is
//! "begin with the first" and "skip the absent" without a branch.

use core::ops::Add;

/// A float with the identity of its addition.
pub(crate) trait Float: Copy + Add<Output = Self> + Default + Send + Sync + 'static {
    /// Negative zero.
    const NEG_ZERO: Self;
    /// Rounds from f64.
    fn from_f64(x: f64) -> Self;
    /// Exact.
    fn to_f64(self) -> f64;
}

macro_rules! float {
    ($t:ident) => {
        impl Float for $t {
            const NEG_ZERO: Self = -0.0;
            fn from_f64(x: f64) -> Self {
                x as Self
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    };
}
float!(f32);
float!(f64);

#[inline(always)]
fn add_into<T: Float, const L: usize>(acc: &mut [T; L], xs: &[T; L]) {
    for l in 0..L {
        acc[l] = acc[l] + xs[l];
    }
}

/// Halves `L` lanes down to one.
#[inline(always)]
pub(crate) fn halve<T: Float, const L: usize>(mut lanes: [T; L]) -> T {
    let mut half = L / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = lanes[l] + lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The lanes of `W` runs side by side, each of `each` elements: `W` times the independent chains.
///
/// Not inlined: next to the halving, the compiler splits the lanes into pairs.
#[inline(never)]
fn lanes<T: Float, const L: usize, const W: usize>(xs: &[T], each: usize) -> [[T; L]; W] {
    let runs: [&[[T; L]]; W] = core::array::from_fn(|w| xs[w * each..][..each].as_chunks::<L>().0);
    let mut acc = [[T::NEG_ZERO; L]; W];
    for i in 0..each / L {
        for (acc, run) in acc.iter_mut().zip(runs) {
            add_into(acc, &run[i]);
        }
    }
    let rest = each % L;
    for (w, acc) in acc.iter_mut().enumerate() {
        let tail = &xs[(w + 1) * each - rest..][..rest];
        for (a, &x) in acc.iter_mut().zip(tail) {
            *a = *a + x;
        }
    }
    acc
}

#[inline(never)]
fn halve_at<T: Float, const L: usize>(lanes: &[T; L]) -> T {
    halve(*lanes)
}

/// One block over `L` lanes.
#[inline(always)]
pub(crate) fn block<T: Float, const L: usize>(xs: &[T]) -> T {
    halve_at(&lanes::<T, L, 1>(xs, xs.len())[0])
}

/// `W` full blocks of `B` side by side.
#[inline(always)]
fn blocks<T: Float, const L: usize, const B: usize, const W: usize>(xs: &[T]) -> [T; W] {
    let acc = lanes::<T, L, W>(xs, B);
    core::array::from_fn(|w| halve_at(&acc[w]))
}

/// The balanced tree, streaming, without allocation.
struct Tree<T> {
    count: usize,
    stack: [T; 64],
    len: usize,
}

impl<T: Float> Tree<T> {
    #[inline(always)]
    fn new() -> Self {
        Self { count: 0, stack: [T::NEG_ZERO; 64], len: 0 }
    }

    #[inline(always)]
    fn push(&mut self, mut node: T) {
        self.count += 1;
        for _ in 0..self.count.trailing_zeros() {
            self.len -= 1;
            node = self.stack[self.len] + node;
        }
        self.stack[self.len] = node;
        self.len += 1;
    }

    #[inline(always)]
    fn finish(mut self) -> T {
        let Some(last) = self.len.checked_sub(1) else { return T::default() };
        let mut node = self.stack[last];
        self.len = last;
        while self.len > 0 {
            self.len -= 1;
            node = self.stack[self.len] + node;
        }
        node
    }
}

/// Sum in the lane order with `L` lanes, blocks of `B`, `W` blocks at a time.
#[inline(never)]
pub(crate) fn sum<T: Float, const L: usize, const B: usize, const W: usize>(xs: &[T]) -> T {
    if xs.len() <= B {
        return if xs.is_empty() { T::default() } else { block::<T, L>(xs) };
    }
    let mut tree = Tree::new();
    let mut groups = xs.chunks_exact(B * W);
    for group in groups.by_ref() {
        if W == 1 {
            tree.push(block::<T, L>(&group[..B]));
        } else {
            for part in blocks::<T, L, B, W>(group) {
                tree.push(part);
            }
        }
    }
    for tail in groups.remainder().chunks(B) {
        tree.push(block::<T, L>(tail));
    }
    tree.finish()
}

/// The best free order: `L` lanes over everything, no blocks.
#[inline(never)]
pub(crate) fn sum_free<T: Float, const L: usize>(xs: &[T]) -> T {
    block::<T, L>(xs)
}

/// Adds the rows of a panel to `acc` in ascending order, four at a time.
#[inline(never)]
fn add_rows<T: Float>(acc: &mut [T], panel: &[T]) {
    let columns = acc.len();
    let mut quads = panel.chunks_exact(4 * columns);
    for quad in quads.by_ref() {
        let (a, rest) = quad.split_at(columns);
        let (b, rest) = rest.split_at(columns);
        let (c, d) = rest.split_at(columns);
        for ((((o, &a), &b), &c), &d) in acc.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *o = (((*o + a) + b) + c) + d;
        }
    }
    for row in quads.remainder().chunks_exact(columns) {
        for (o, &x) in acc.iter_mut().zip(row) {
            *o = *o + x;
        }
    }
}

/// Sums of the columns of `xs`, row-major `[rows, columns]`: chains of `B` rows, joined in the
/// balanced tree. `scratch` keeps one row of sums per tree level.
#[inline(never)]
pub(crate) fn sum_columns<T: Float, const B: usize>(
    xs: &[T],
    columns: usize,
    out: &mut [T],
    scratch: &mut Vec<T>,
) {
    let mut depth = 0;
    for (index, panel) in xs.chunks(B * columns).enumerate() {
        if scratch.len() < (depth + 1) * columns {
            scratch.resize((depth + 1) * columns, T::NEG_ZERO);
        }
        let top = &mut scratch[depth * columns..][..columns];
        top.fill(T::NEG_ZERO);
        add_rows(top, panel);
        depth += 1;
        for _ in 0..(index + 1).trailing_zeros() {
            depth -= 1;
            join_rows(&mut scratch[(depth - 1) * columns..][..2 * columns]);
        }
    }
    while depth > 1 {
        depth -= 1;
        join_rows(&mut scratch[(depth - 1) * columns..][..2 * columns]);
    }
    out.copy_from_slice(&scratch[..columns]);
}

fn join_rows<T: Float>(rows: &mut [T]) {
    let (left, right) = rows.split_at_mut(rows.len() / 2);
    for (l, &r) in left.iter_mut().zip(&*right) {
        *l = *l + r;
    }
}

/// Column sums in the best free order tried: one accumulator row, four rows at a time.
#[inline(never)]
pub(crate) fn sum_columns_free<T: Float>(xs: &[T], columns: usize, out: &mut [T]) {
    out.fill(T::NEG_ZERO);
    let mut quads = xs.chunks_exact(4 * columns);
    for quad in quads.by_ref() {
        let (a, rest) = quad.split_at(columns);
        let (b, rest) = rest.split_at(columns);
        let (c, d) = rest.split_at(columns);
        for ((((o, &a), &b), &c), &d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *o = *o + ((a + b) + (c + d));
        }
    }
    for row in quads.remainder().chunks_exact(columns) {
        for (o, &x) in out.iter_mut().zip(row) {
            *o = *o + x;
        }
    }
}

/// One group of the scan.
#[inline(always)]
fn scan_group<T: Float>(x: [T; 32]) -> [T; 32] {
    #[inline(always)]
    fn step<T: Float, const D: usize>(x: [T; 32]) -> [T; 32] {
        let mut y = x;
        for i in D..32 {
            y[i] = x[i - D] + x[i];
        }
        y
    }
    step::<T, 16>(step::<T, 8>(step::<T, 4>(step::<T, 2>(step::<T, 1>(x)))))
}

/// Inclusive prefix sums in the order of the scan: `out` and `xs` have the same length.
///
/// The upper levels are carried along: a level's running group is finished when it has 32 parts.
#[inline(never)]
pub(crate) fn cumsum<T: Float>(xs: &[T], out: &mut [T]) {
    assert_eq!(xs.len(), out.len());
    // Blocks of 32 groups; their own offsets come from the scan of the blocks' totals.
    let (groups, rest) = xs.as_chunks::<32>();
    let (out_groups, out_rest) = out.as_chunks_mut::<32>();
    for (o, g) in out_groups.iter_mut().zip(groups) {
        *o = scan_group(*g);
    }
    let mut tail = [T::NEG_ZERO; 32];
    tail[..rest.len()].copy_from_slice(rest);
    out_rest.copy_from_slice(&scan_group(tail)[..rest.len()]);
    if xs.len() <= 32 {
        return;
    }
    let lasts: Vec<T> = out_groups.iter().map(|g| g[31]).collect();
    let mut before = vec![T::NEG_ZERO; lasts.len()];
    cumsum(&lasts, &mut before);
    for (g, &b) in out_groups[1..].iter_mut().zip(&before) {
        for x in g {
            *x = b + *x;
        }
    }
    if let Some(&b) = before.last() {
        for x in out_rest {
            *x = b + *x;
        }
    }
}

/// The same, streaming: two passes over a block of 1024 that stays in the first-level cache.
#[inline(never)]
pub(crate) fn cumsum_blocked<T: Float>(xs: &[T], out: &mut [T]) {
    assert_eq!(xs.len(), out.len());
    let full = xs.len() / 1024;
    if full == 0 {
        return cumsum(xs, out);
    }
    // Totals of blocks, scanned in groups of 32 as they come: `upper` holds, per level above the
    // block, the group's parts so far.
    let mut totals: Vec<T> = Vec::with_capacity(full);
    let mut group_lasts: Vec<T> = Vec::new(); // per 32 blocks
    let mut group_scan: Vec<T> = Vec::new();
    let mut offset: Option<T> = None; // scan of the blocks' totals before this block
    let mut last = T::NEG_ZERO; // scan of the groups' totals before this block
    for b in 0..full {
        let (src, _) = xs[b * 1024..][..1024].as_chunks::<32>();
        let (dst, _) = out[b * 1024..][..1024].as_chunks_mut::<32>();
        let mut lasts = [T::NEG_ZERO; 32];
        for g in 0..32 {
            let y = scan_group(src[g]);
            lasts[g] = y[31];
            dst[g] = y;
        }
        let lasts = scan_group(lasts);
        let mut befores = [T::NEG_ZERO; 32];
        for g in 0..32 {
            befores[g] = if g == 0 {
                last
            } else {
                match offset {
                    Some(o) => o + lasts[g - 1],
                    None => lasts[g - 1],
                }
            };
        }
        last = match offset {
            Some(o) => o + lasts[31],
            None => lasts[31],
        };
        for g in 0..32 {
            for x in &mut dst[g] {
                *x = befores[g] + *x;
            }
        }
        totals.push(lasts[31]);
        // Offset of the next block: the scan of the totals so far.
        let start = b / 32 * 32;
        let mut parts = [T::NEG_ZERO; 32];
        parts[..=b - start].copy_from_slice(&totals[start..=b]);
        let inside = scan_group(parts)[b - start];
        let outer = if start == 0 { None } else { Some(group_scan[b / 32 - 1]) };
        offset = Some(match outer {
            Some(o) => o + inside,
            None => inside,
        });
        if b % 32 == 31 {
            group_lasts.push(inside);
            group_scan.resize(group_lasts.len(), T::NEG_ZERO);
            cumsum(&group_lasts, &mut group_scan);
        }
    }
    let rest = &xs[full * 1024..];
    let out_rest = &mut out[full * 1024..];
    if rest.is_empty() {
        return;
    }
    let mut lasts = [T::NEG_ZERO; 32];
    for (g, (src, dst)) in rest.chunks(32).zip(out_rest.chunks_mut(32)).enumerate() {
        let mut parts = [T::NEG_ZERO; 32];
        parts[..src.len()].copy_from_slice(src);
        let y = scan_group(parts);
        lasts[g] = y[31];
        dst.copy_from_slice(&y[..src.len()]);
    }
    let lasts = scan_group(lasts);
    let o = offset.expect("a block before");
    for (g, dst) in out_rest.chunks_mut(32).enumerate() {
        let before = if g == 0 { last } else { o + lasts[g - 1] };
        for x in dst {
            *x = before + *x;
        }
    }
}
