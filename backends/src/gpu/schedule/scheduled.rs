//! Pieces of work with the decisions made for them, and their names and lines as text.

use super::attention::ScheduledAttention;
use super::bundle::SharedLaunches;
use super::elementwise::Elementwise;
use super::fold::ScheduledFold;
use super::grid::Grid;
use super::product::{ScheduledProduct, ScheduledWindows};
use super::rows::ScheduledRows;
use super::scatter::ScheduledScatter;
use super::sort::ScheduledSort;
use super::text::{DecisionLine, Writer};
use super::transpose_tile::ScheduledTranspose;
use super::tree_fold::{Tree, TreeFold};
use super::user_call::CallWork;
use super::warpgroup::WarpgroupProduct;
use super::work::Scan;
use adfuse_ir::kernel::Buffer;

/// A piece of work with its decisions.
pub(crate) enum Scheduled {
    Elementwise(Elementwise),
    Transpose(ScheduledTranspose),
    Fold(Box<ScheduledFold>),
    Rows(Box<ScheduledRows>),
    Join {
        fold: Box<TreeFold>,
        tree: Tree,
    },
    Scan {
        scan: Scan,
        grid: Grid,
    },
    Pack {
        from: Buffer,
        to: Buffer,
        grid: Grid,
    },
    Product(Box<ScheduledProduct>),
    Warpgroup(Box<WarpgroupProduct>),
    Convolution(Box<ScheduledWindows>),
    Scatter(Box<ScheduledScatter>),
    Sort(ScheduledSort),
    Attention(Box<ScheduledAttention>),
    Call(Box<CallWork>),
    /// The last of a bundle: which of the pieces before it share a launch.
    Bundle(SharedLaunches),
}

impl Scheduled {
    /// Its name in text.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Scheduled::Elementwise(_) => "elementwise",
            Scheduled::Transpose(_) => "transpose",
            Scheduled::Fold(_) => "fold",
            Scheduled::Rows(_) => "rows",
            Scheduled::Join { .. } => "join",
            Scheduled::Scan { .. } => "scan",
            Scheduled::Pack { .. } => "pack",
            Scheduled::Product(_) => "product",
            Scheduled::Warpgroup(_) => "warpgroup",
            Scheduled::Convolution(_) => "convolution",
            Scheduled::Scatter(_) => "scatter",
            Scheduled::Sort(_) => "sort",
            Scheduled::Attention(_) => "attention",
            Scheduled::Call(_) => "call",
            Scheduled::Bundle(_) => "bundle",
        }
    }

    /// Adds the lines of its decisions.
    pub(crate) fn write(&self, to: &mut Writer) {
        match self {
            Scheduled::Elementwise(e) => e.vectors.write(to),
            Scheduled::Transpose(t) => t.tile.write(to),
            Scheduled::Fold(fold) => fold.decision.write(to),
            Scheduled::Rows(rows) => rows.decision.write(to),
            Scheduled::Join { tree, .. } => tree.write(to),
            Scheduled::Scan { grid, .. } | Scheduled::Pack { grid, .. } => grid.write(to),
            Scheduled::Product(product) => product.decision.write(to),
            Scheduled::Warpgroup(product) => product.tile.write(to),
            Scheduled::Convolution(product) => product.tile.write(to),
            Scheduled::Scatter(scatter) => scatter.decision.write(to),
            Scheduled::Sort(sort) => sort.decision.write(to),
            Scheduled::Attention(attention) => attention.decision.write(to),
            Scheduled::Call(call) => call.launch.write(to),
            Scheduled::Bundle(launches) => launches.write(to),
        }
    }
}
