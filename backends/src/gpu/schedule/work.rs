//! The work of a step: what becomes one launch or a few, as data.

use super::attention::AttentionForm;
use super::convolution::WindowForm;
use super::user_call::CallWork;
use super::warpgroup_form::WarpgroupWork;
use crate::gpu::target::GpuTarget;
use crate::runtime::functions::Registry;
use adfuse_ir::kernel::{Buffer, Extents, Kernel, Member, ProductTimes, Program, Scatter, Stage};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic, Fp};
use cranelift_entity::SecondaryMap;

/// A loop over points, in any order, with one stage that has no axes: stores, and folds of one run each.
#[derive(Clone)]
pub(crate) struct Flat {
    pub(crate) domain: Extents,
    pub(crate) stage: Stage,
}

/// What a step is made of.
pub(crate) enum Work {
    Flat(Flat),
    /// A kernel whose folds are rows in the lane order, or columns of its rows.
    Rows(Kernel),
    Scan(Scan),
    Join(Join),
    /// Elements of one buffer, at the places they have in memory, into the words of a packed one.
    Pack {
        from: Buffer,
        to: Buffer,
    },
    /// A contraction whose sums are stored.
    Product(Member),
    /// A contraction that warpgroups multiply, and where the parts of its sums of columns go.
    Warpgroup(Box<WarpgroupWork>),
    /// A contraction of windows, whose sums are stored.
    Convolution(Box<(Member, WindowForm)>),
    Scatter(Scatter),
    Sort(Sort),
    Attention(AttentionForm),
    /// A kernel of the user's.
    Call(Box<CallWork>),
}

/// Elements of a group of a scan, by the order of `docs/fp.md`: groups are scanned, then their last elements.
pub(crate) const SCAN_GROUP: i64 = 32;

/// Partial results along the middle one of three axes, in place.
pub(crate) struct Scan {
    pub(crate) buffer: Buffer,
    pub(crate) extents: [i64; 3],
    pub(crate) monoid: Monoid,
    pub(crate) reverse: bool,
    /// Buffers for the last elements of groups, a level each.
    pub(crate) lasts: Vec<Buffer>,
}

/// Parts of folds, joined in the balanced tree: of each point one part, folded over its last axes.
pub(crate) struct Join {
    pub(crate) from: Buffer,
    pub(crate) domain: Extents,
    pub(crate) folded: Vec<usize>,
    pub(crate) monoid: Monoid,
    pub(crate) dtype: DType,
    pub(crate) then: Stage,
}

/// Where a buffer of the lowered program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Home {
    /// Where the given program has it.
    #[default]
    Given,
    /// The caller's array of a buffer.
    Caller(Buffer),
    /// This offset in the scratch of its step, in bytes.
    Scratch(u64),
}

/// The work of one step.
#[derive(Default)]
pub(crate) struct Lowered {
    pub(crate) works: Vec<Work>,
    pub(crate) scratch: u64,
}

/// Lowers steps one after the other.
pub(crate) struct Lowering {
    /// The mode, by which folds may go in other orders.
    pub(crate) fp: Fp,
    pub(crate) target: GpuTarget,
    /// The user functions.
    pub(crate) functions: Option<Registry>,
    /// Times of products that were measured.
    pub(crate) products: ProductTimes,
    /// The given program with the buffers that were added.
    pub(crate) program: Program,
    pub(crate) homes: SecondaryMap<Buffer, Home>,
    /// Whether a loop or a branch runs the program.
    pub(crate) in_block: bool,
    pub(crate) step: Lowered,
    pub(crate) problem: Option<Diagnostic>,
}

/// Lines to put in order.
#[derive(Clone, Copy)]
pub(crate) struct Sort {
    pub(crate) from: SortSource,
    pub(crate) lines: i64,
    /// Entries of a line.
    pub(crate) long: i64,
    /// Bits of the keys.
    pub(crate) bits: u32,
    /// Entries that are wanted of each line: the first.
    pub(crate) count: i64,
    pub(crate) to: SortDestination,
}

/// What is sorted.
#[derive(Clone, Copy)]
pub(crate) enum SortSource {
    /// Elements along an axis; other axes number the lines.
    Elements { buffer: Buffer, axis: usize, descending: bool },
    /// Keys, a row for each line, and what goes with them: their places, where it is nothing else.
    Keys { keys: Buffer, with: Option<Buffer> },
}

/// What becomes of it.
#[derive(Clone, Copy)]
pub(crate) enum SortDestination {
    /// What goes with the keys is stored along an axis.
    Places { buffer: Buffer, axis: usize },
    /// Keys and what goes with them, a row for each line.
    Entries { keys: Buffer, with: Buffer },
}
