//! Folds: what is folded, and in which order.

use super::index::coordinates;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Order, Stage, volume};
use adfuse_ir::op::Monoid;

/// How the folds of a launch run: over which axes, in which order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoldShape {
    /// Folded axes, the slowest first.
    pub(crate) axes: Vec<usize>,
    pub(crate) order: Order,
    /// Whether elements may fold in other orders than that one.
    pub(crate) any: bool,
    /// Elements that a warp or a thread folds into a part.
    pub(crate) block: i64,
    /// Elements that fold into one result.
    pub(crate) count: i64,
    /// The axes that remain.
    pub(crate) kept: Vec<usize>,
    /// Extents of those.
    pub(crate) kept_extents: Extents,
}

/// Partial results in memory, and their places where those are what is folded.
pub(crate) type Parts = (Buffer, Option<Buffer>);

/// One fold of a launch.
#[derive(Clone)]
pub(crate) struct FoldResult {
    pub(crate) monoid: Monoid,
    pub(crate) dtype: DType,
    pub(crate) then: Stage,
    /// Where its parts go, and their places, where there are several.
    pub(crate) parts: Option<Parts>,
}

impl FoldShape {
    pub(crate) fn blocks(&self) -> i64 {
        (self.count + self.block - 1) / self.block.max(1)
    }

    pub(crate) fn results(&self) -> i64 {
        volume(&self.kept_extents)
    }

    /// All coordinates, of those of the remaining axes and of a place in the run.
    pub(crate) fn coords(
        &self,
        kept: &[IndexExpr],
        place: &IndexExpr,
        domain: &[i64],
    ) -> Vec<IndexExpr> {
        let extents: Vec<i64> = self.axes.iter().map(|&a| domain[a]).collect();
        let folded = coordinates(place, &extents);
        let mut at = vec![IndexExpr::Const(0); domain.len()];
        for (&a, e) in self.kept.iter().zip(kept) {
            at[a] = e.clone();
        }
        for (&a, e) in self.axes.iter().zip(folded) {
            at[a] = e;
        }
        at
    }

    /// All coordinates of `width` neighbours along the fastest folded axis: those of a group, by its place in the run.
    pub(crate) fn near(
        &self,
        kept: &[IndexExpr],
        group: &IndexExpr,
        (domain, width): (&[i64], i64),
    ) -> Vec<Vec<IndexExpr>> {
        let Some(last) = self.fastest(domain) else {
            return vec![self.coords(kept, group, domain)];
        };
        let mut groups = domain.to_vec();
        groups[last] /= width;
        let first = self.coords(kept, group, &groups);
        let of = |j: i64| {
            let mut at = first.clone();
            at[last] = at[last].clone().times(width).plus(j);
            at
        };
        (0..width).map(of).collect()
    }

    /// The folded axis along which places of the run are neighbours.
    pub(crate) fn fastest(&self, domain: &[i64]) -> Option<usize> {
        self.axes.iter().rev().find(|&&a| domain[a] != 1).copied()
    }

    /// The coordinates at which results are, 0 along what is folded.
    pub(crate) fn remaining(&self, kept: &[IndexExpr], rank: usize) -> Vec<IndexExpr> {
        let mut at = vec![IndexExpr::Const(0); rank];
        for (&a, e) in self.kept.iter().zip(kept) {
            at[a] = e.clone();
        }
        at
    }
}
