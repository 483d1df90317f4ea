//! The balanced tree that joins partial results of folds in memory: launches, and how threads share each.

use super::fold_order::{FoldResult, FoldShape, Parts};
use super::grid::{Grid, THREADS};
use super::text::{DecisionLine, Reader, Writer};
use super::work::{Join, Lowering};
use crate::gpu::target::GpuTarget;
use adfuse_ir::DType;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Extents, Order};

/// How parts are shared by threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    pub(crate) grid: Grid,
    /// Parts that one thread joins.
    pub(crate) radix: i64,
}

impl Default for Tree {
    fn default() -> Tree {
        // All loads of a thread are under way together: more take too many registers.
        Tree { grid: Grid::of(THREADS), radix: 32 }
    }
}

impl Tree {
    /// Errs for threads and parts that form no aligned groups.
    pub(crate) fn check(&self, target: &GpuTarget) -> Result<(), String> {
        let power = |n: i64| n.count_ones() == 1;
        if !power(self.radix) || self.radix > 64 || !power(self.grid.threads) {
            let (radix, threads) = (self.radix, self.grid.threads);
            return Err(format!("a tree is not joined by {threads} threads of {radix} parts"));
        }
        self.grid.check(target)
    }
}

impl DecisionLine for Tree {
    fn write(&self, to: &mut Writer) {
        let Grid { threads, resident } = self.grid;
        to.line("tree", &[("parts", &self.radix), ("threads", &threads), ("resident", &resident)]);
    }

    fn read(from: &mut Reader<'_>) -> Result<Tree, Diagnostic> {
        let line = from.line("tree", &["parts", "threads", "resident"])?;
        Ok(Tree { grid: Grid::of_line(&line)?, radix: line.int("parts")? })
    }
}

/// How threads of a block share parts: aligned groups, of which each is a subtree.
pub(crate) struct TreeSplit {
    /// Parts of a thread.
    pub(crate) each: i64,
    /// Threads of a block that join theirs.
    pub(crate) groups: i64,
    /// Results of a block.
    pub(crate) results: i64,
    /// Parts that a block joins into one.
    pub(crate) parts: i64,
}

impl TreeSplit {
    fn of(count: i64, tree: &Tree) -> TreeSplit {
        let each = tree.radix.min((count as u64).next_power_of_two() as i64);
        let threads = tree.grid.threads;
        let groups = (((count + each - 1) / each) as u64).next_power_of_two() as i64;
        let groups = groups.min(threads);
        TreeSplit { each, groups, results: threads / groups, parts: each * groups }
    }
}

/// A launch of a tree.
pub(crate) struct TreeLevel {
    pub(crate) from: Parts,
    /// Parts of a result.
    pub(crate) count: i64,
    /// Where the parts of the next launch go; the last one has results.
    pub(crate) to: Option<Parts>,
    pub(crate) split: TreeSplit,
}

impl TreeLevel {
    /// Blocks along the parts that are left, and along the results.
    pub(crate) fn blocks(&self, shape: &FoldShape) -> [i64; 2] {
        let TreeSplit { parts, results, .. } = self.split;
        [(self.count + parts - 1) / parts, (shape.results() + results - 1) / results]
    }
}

/// The launches that join the parts of one fold.
pub(crate) struct TreeFold {
    pub(crate) domain: Extents,
    pub(crate) shape: FoldShape,
    pub(crate) fold: FoldResult,
    pub(crate) tree: Tree,
    pub(crate) levels: Vec<TreeLevel>,
}

/// The parts of a launch of a fold, and how it goes on.
pub(crate) fn joined(
    low: &mut Lowering,
    domain: &Extents,
    (shape, fold): (&FoldShape, &FoldResult),
    (parts, count): (Parts, i64),
    tree: Tree,
) -> TreeFold {
    let results = shape.results();
    let (mut from, mut count) = (parts, count);
    let mut levels = Vec::new();
    loop {
        let split = TreeSplit::of(count, &tree);
        let tops = (count + split.parts - 1) / split.parts;
        let to = (tops > 1).then(|| {
            let dims = match shape.order {
                Order::Lane => Extents::from_iter([results, tops]),
                Order::Chain => Extents::from_iter([tops, results]),
            };
            let value = low.temp(fold.dtype, dims.clone());
            (value, from.1.map(|_| low.temp(DType::I32, dims)))
        });
        levels.push(TreeLevel { from, count, to, split });
        let Some(next) = to else { break };
        (from, count) = (next, tops);
    }
    TreeFold { domain: domain.clone(), shape: shape.clone(), fold: fold.clone(), tree, levels }
}

/// The joining of parts that are in memory, the last axes of their domain folded.
pub(crate) fn of_join(low: &mut Lowering, join: &Join, tree: Tree) -> TreeFold {
    let Join { from, domain, folded, monoid, dtype, then } = join;
    let kept: Vec<usize> = (0..domain.len()).filter(|a| !folded.contains(a)).collect();
    let shape = FoldShape {
        count: folded.iter().map(|&a| domain[a]).product(),
        kept_extents: kept.iter().map(|&a| domain[a]).collect(),
        kept,
        axes: folded.clone(),
        order: Order::Lane,
        any: false,
        block: Order::Lane.block() as i64,
    };
    let fold = FoldResult { monoid: *monoid, dtype: *dtype, then: then.clone(), parts: None };
    let count = shape.count;
    // As rows of parts, whatever the axes.
    let dims = Extents::from_iter([shape.results(), count]);
    let rows = low.alias(*from, dims);
    joined(low, domain, (&shape, &fold), ((rows, None), count), tree)
}
