//! The strict floating-point order: its definition, in plain scalar code.
//!
//! Every function here *is* the definition: an engine is right when its result has the same bits
//! (all NaNs being equal). Nothing depends on the vector width, the thread count or the memory
//! layout; element indices are logical ones.
//!
//! The reductions take any `combine`. `combine(a, b)` always has the lower indices in `a`.

use adfuse_ir::kernel::Order;

/// Partial results a block of the lane order keeps.
pub const LANES: usize = 32;
/// Elements in a block of the lane order.
pub const LANE_BLOCK: usize = 1024;
/// Elements in a block of the chain order.
pub const CHAIN_BLOCK: usize = 64;
/// Products in a chunk of a contraction.
pub const CONTRACT_CHUNK: usize = 512;
/// Elements in a group of a scan.
pub const SCAN_GROUP: usize = 32;

/// Joins partial results in the balanced tree: neighbours pair up, level by level, and the last of
/// an odd level moves up unchanged. `None` for no parts.
///
/// Equally: the left subtree of `n > 1` parts holds the largest power of two below `n`.
pub fn join_tree<T: Copy>(mut parts: Vec<T>, combine: impl Fn(T, T) -> T) -> Option<T> {
    while parts.len() > 1 {
        parts = parts
            .chunks(2)
            .map(|pair| match *pair {
                [a, b] => combine(a, b),
                _ => pair[0],
            })
            .collect();
    }
    parts.first().copied()
}

/// The balanced tree of [`join_tree`] for parts that arrive one after the other; it keeps one
/// partial result per level.
#[derive(Clone, Debug)]
pub struct TreeJoin<T> {
    count: usize,
    stack: Vec<T>,
}

impl<T: Copy> Default for TreeJoin<T> {
    fn default() -> Self {
        Self { count: 0, stack: Vec::new() }
    }
}

impl<T: Copy> TreeJoin<T> {
    /// Appends the next part.
    pub fn push(&mut self, part: T, combine: impl Fn(T, T) -> T) {
        self.count += 1;
        let mut node = part;
        for _ in 0..self.count.trailing_zeros() {
            let left = self.stack.pop().expect("one node per set bit of the count");
            node = combine(left, node);
        }
        self.stack.push(node);
    }

    /// The root; `None` without parts.
    pub fn finish(mut self, combine: impl Fn(T, T) -> T) -> Option<T> {
        let mut node = self.stack.pop()?;
        while let Some(left) = self.stack.pop() {
            node = combine(left, node);
        }
        Some(node)
    }
}

/// One block of the lane order: lane `l` folds elements `l`, `l + 32`, .. ascending, beginning with
/// its first; then the upper half of the lanes folds into the lower, 16, 8, 4, 2, 1. A lane
/// without an element is absent: whatever would combine with it stays as it is.
fn reduce_lane_block<T: Copy>(block: &[T], combine: &impl Fn(T, T) -> T) -> Option<T> {
    let mut lanes = block.get(..LANES.min(block.len()))?.to_vec();
    for (i, &x) in block.iter().enumerate().skip(LANES) {
        lanes[i % LANES] = combine(lanes[i % LANES], x);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            if l + half < lanes.len() {
                lanes[l] = combine(lanes[l], lanes[l + half]);
            }
        }
        lanes.truncate(half);
        half /= 2;
    }
    lanes.first().copied()
}

/// Reduces in the lane order: blocks of 1024, each over 32 lanes, joined in the balanced tree.
pub fn reduce_lane_blocked<T: Copy>(xs: &[T], combine: impl Fn(T, T) -> T, empty: T) -> T {
    let blocks = xs.chunks(LANE_BLOCK).filter_map(|block| reduce_lane_block(block, &combine));
    join_tree(blocks.collect(), &combine).unwrap_or(empty)
}

/// Reduces in the chain order: blocks of 64, each a fold ascending that begins with its first
/// element, joined in the balanced tree.
pub fn reduce_chain_blocked<T: Copy>(
    xs: impl IntoIterator<Item = T>,
    combine: impl Fn(T, T) -> T,
    empty: T,
) -> T {
    let mut xs = xs.into_iter();
    let mut tree = TreeJoin::default();
    while let Some(block) = xs.by_ref().take(CHAIN_BLOCK).reduce(&combine) {
        tree.push(block, &combine);
    }
    tree.finish(&combine).unwrap_or(empty)
}

/// Reduces the axes marked in `reduced` of a row-major array.
///
/// Axes of size 1 are dropped first. Neighbouring reduced axes then count as one axis, row-major.
/// The resulting axes reduce one at a time, last first: in the lane order where no kept element
/// follows, in the chain order otherwise. The result is row-major over the kept axes.
///
/// # Panics
/// When `reduced` and `shape` differ in length, or `xs` does not have the shape's element count.
pub fn reduce_axes<T: Copy>(
    xs: &[T],
    shape: &[usize],
    reduced: &[bool],
    combine: impl Fn(T, T) -> T,
    empty: T,
) -> Vec<T> {
    assert_eq!(shape.len(), reduced.len(), "one mark per axis");
    assert_eq!(shape.iter().product::<usize>(), xs.len(), "elements of the shape");
    // Alternating runs of reduced and kept axes, each as one axis.
    let mut runs: Vec<(usize, bool)> = Vec::new();
    for (&size, &reduce) in shape.iter().zip(reduced).filter(|&(&size, _)| size != 1) {
        match runs.last_mut() {
            Some((run, same)) if *same == reduce => *run *= size,
            _ => runs.push((size, reduce)),
        }
    }
    let mut values = xs.to_vec();
    let mut inner = 1;
    for at in (0..runs.len()).rev() {
        let (size, reduce) = runs[at];
        if !reduce {
            inner *= size;
            continue;
        }
        let outer: usize = runs[..at].iter().map(|run| run.0).product();
        let order = if inner == 1 { Order::Lane } else { Order::Chain };
        values = reduce_axis(&values, [outer, size, inner], order, &combine, empty);
    }
    values
}

/// Reduces the middle one of three axes of a row-major array, in the given order.
pub fn reduce_axis<T: Copy>(
    values: &[T],
    [outer, size, inner]: [usize; 3],
    order: Order,
    combine: impl Fn(T, T) -> T,
    empty: T,
) -> Vec<T> {
    let reduced = |out: usize| {
        let start = out / inner * size * inner + out % inner;
        let axis = (0..size).map(|i| values[start + i * inner]);
        match order {
            Order::Lane => reduce_lane_blocked(&axis.collect::<Vec<_>>(), &combine, empty),
            Order::Chain => reduce_chain_blocked(axis, &combine, empty),
        }
    };
    (0..outer * inner).map(reduced).collect()
}

/// One element of a contraction over `k` products: chunks of 512, each a chain of `fma` ascending
/// from `zero`; the chunk sums add up ascending, beginning with the first. `zero` when `k` is 0.
///
/// `fma(i, acc)` is `lhs[i] * rhs[i] + acc`, rounded once.
pub fn contract<T: Copy>(
    k: usize,
    zero: T,
    fma: impl Fn(usize, T) -> T,
    add: impl Fn(T, T) -> T,
) -> T {
    (0..k)
        .step_by(CONTRACT_CHUNK)
        .map(|first| {
            let chunk = first..k.min(first + CONTRACT_CHUNK);
            chunk.fold(zero, |acc, i| fma(i, acc))
        })
        .reduce(add)
        .unwrap_or(zero)
}

/// Inclusive scan in place, in groups of 32.
///
/// Within a group, for d = 1, 2, 4, 8, 16 in turn, every element at `i >= d` becomes
/// `combine(element i - d, element i)`, all at once. The last elements of the groups are then
/// scanned by the same rule, and each group after the first becomes
/// `combine(scanned last of the group before, element)`.
pub fn scan<T: Copy>(xs: &mut [T], combine: impl Fn(T, T) -> T) {
    scan_dyn(xs, &combine);
}

fn scan_dyn<T: Copy>(xs: &mut [T], combine: &dyn Fn(T, T) -> T) {
    for group in xs.chunks_mut(SCAN_GROUP) {
        let mut d = 1;
        while d < SCAN_GROUP {
            for i in (d..group.len()).rev() {
                group[i] = combine(group[i - d], group[i]);
            }
            d *= 2;
        }
    }
    if xs.len() <= SCAN_GROUP {
        return;
    }
    let mut lasts: Vec<T> =
        xs.chunks_exact(SCAN_GROUP).map(|group| group[SCAN_GROUP - 1]).collect();
    scan_dyn(&mut lasts, combine);
    for (group, &before) in xs.chunks_mut(SCAN_GROUP).skip(1).zip(&lasts) {
        for x in group {
            *x = combine(before, *x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(xs: &[String]) -> String {
        reduce_lane_blocked(
            &xs.iter().map(String::as_str).map(leak).collect::<Vec<_>>(),
            |a, b| leak(&format!("({a} {b})")),
            "",
        )
        .to_owned()
    }

    fn leak(s: &str) -> &'static str {
        Box::leak(s.to_owned().into_boxed_str())
    }

    fn names(n: usize) -> Vec<&'static str> {
        (0..n).map(|i| leak(&i.to_string())).collect()
    }

    fn pair(a: &'static str, b: &'static str) -> &'static str {
        leak(&format!("({a} {b})"))
    }

    #[test]
    fn tree_is_pairs_level_by_level() {
        let expected = [
            "0",
            "(0 1)",
            "((0 1) 2)",
            "((0 1) (2 3))",
            "(((0 1) (2 3)) 4)",
            "(((0 1) (2 3)) (4 5))",
            "(((0 1) (2 3)) ((4 5) 6))",
        ];
        for (n, want) in (1..).zip(expected) {
            assert_eq!(join_tree(names(n), pair), Some(want));
        }
        assert_eq!(join_tree(names(0), pair), None);
    }

    #[test]
    fn streaming_tree_is_the_tree() {
        for n in 0..70 {
            let mut tree = TreeJoin::default();
            for name in names(n) {
                tree.push(name, pair);
            }
            assert_eq!(tree.finish(pair), join_tree(names(n), pair), "{n} parts");
        }
    }

    #[test]
    fn absent_lanes_are_skipped() {
        let names: Vec<String> = (0..3).map(|i| i.to_string()).collect();
        assert_eq!(show(&names[..0]), "");
        assert_eq!(show(&names[..1]), "0");
        assert_eq!(show(&names), "((0 2) 1)");
    }

    #[test]
    fn lanes_stride_and_halve() {
        let names: Vec<String> = (0..34).map(|i| i.to_string()).collect();
        let text = show(&names);
        assert!(text.contains("((0 32) 16)"), "{text}");
        assert!(text.contains("((1 33) 17)"), "{text}");
        assert!(text.contains("((2 18) (10 26))"), "{text}");
    }

    #[test]
    fn signed_zeros() {
        let add = |a: f32, b: f32| a + b;
        for n in [1, 2, 31, 33, 1025, 5000] {
            let zeros = vec![-0.0; n];
            assert!(reduce_lane_blocked(&zeros, add, 0.0).is_sign_negative());
            assert!(reduce_chain_blocked(zeros, add, 0.0).is_sign_negative());
        }
        assert!(reduce_lane_blocked(&[], add, 0.0).is_sign_positive());
        // A contraction begins at +0, so that only an underflow gives -0.
        let dot = |a: f32, b: f32| contract(1, 0.0, |_, acc| a.mul_add(b, acc), add);
        assert!(dot(-0.0, 1.0).is_sign_positive());
        assert!(dot(-1e-30, 1e-30).is_sign_negative());
    }

    #[test]
    fn axes_merge_and_unit_axes_vanish() {
        let add = |a: f32, b: f32| a + b;
        let xs: Vec<f32> = (0..6000).map(|i| (i as f32 * 0.37).sin()).collect();
        let flat = reduce_lane_blocked(&xs, add, 0.0);
        for shape in [&[6000][..], &[60, 100], &[10, 20, 30], &[1, 6000, 1]] {
            let all = reduce_axes(&xs, shape, &vec![true; shape.len()], add, 0.0);
            assert_eq!(all, [flat], "{shape:?}");
        }
        let columns = reduce_axes(&xs, &[200, 30], &[true, false], add, 0.0);
        let column = reduce_chain_blocked(xs.iter().copied().step_by(30), add, 0.0);
        assert_eq!((columns.len(), columns[0]), (30, column));
        let around = reduce_axes(&xs, &[20, 3, 100], &[true, false, true], add, 0.0);
        let rows: Vec<f32> = xs.chunks(100).map(|r| reduce_lane_blocked(r, add, 0.0)).collect();
        assert_eq!(around[1], reduce_chain_blocked(rows[1..].iter().copied().step_by(3), add, 0.0));
    }

    #[test]
    fn empty_axes() {
        let add = |a: f32, b: f32| a + b;
        assert_eq!(reduce_axes(&[], &[2, 0], &[false, true], add, 0.0), [0.0; 2]);
        assert_eq!(reduce_axes(&[], &[0, 2], &[true, false], add, 0.0), [0.0; 2]);
        assert_eq!(reduce_axes(&[], &[0, 2], &[false, true], add, 0.0), [0.0; 0]);
    }

    #[test]
    fn contraction_chunks() {
        let text = |k| {
            contract(
                k,
                "0",
                |i, acc| leak(&format!("{acc}+{i}")),
                |a, b| leak(&format!("[{a}][{b}]")),
            )
        };
        assert_eq!(text(0), "0");
        assert_eq!(text(3), "0+0+1+2");
        assert!(text(513).ends_with("+511][0+512]"));
    }

    #[test]
    fn scan_matches_integers_and_nests() {
        for n in [0, 1, 2, 31, 32, 33, 1000, 1024, 1025, 33_000] {
            let mut xs: Vec<u64> = (1..=n).collect();
            scan(&mut xs, |a, b| a + b);
            assert!(xs.iter().zip(1..).all(|(&x, i)| x == i * (i + 1) / 2), "{n}");
        }
        let mut xs = names(4);
        scan(&mut xs, pair);
        assert_eq!(xs, ["0", "(0 1)", "(0 (1 2))", "((0 1) (2 3))"]);
    }
}
