//! A kernel of dot products: the tiles that it reads, the block of sums that it computes, and the extension that it needs.

use adfuse_ir::DType;

/// Lines of a tile: rows of the left operand, columns of the right one.
pub(in crate::cpu) const LINES: usize = 16;

/// Bytes of the depth in a tile.
pub(super) const DEEP: usize = 64;

/// Bytes of a tile.
pub(super) const TILE: usize = LINES * DEEP;

/// Which operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cpu) enum OperandSide {
    Left,
    Right,
}

/// What a kernel is given: panels, and where the sums go.
pub(super) struct DotBlock {
    /// Two panels of rows.
    pub(super) left: [*const u8; 2],
    /// Bytes from a tile of rows to the next, and from a row of it to the next.
    pub(super) steps: [usize; 2],
    /// Two panels of columns.
    pub(super) right: [*const u8; 2],
    /// Tiles of a panel that are multiplied.
    pub(super) tiles: usize,
    /// Whether there are sums to add to.
    pub(super) adds: bool,
    pub(super) out: *mut u8,
    /// Bytes from one row of the sums to the next.
    pub(super) row: usize,
}

/// Products of one type of elements by one extension.
pub(in crate::cpu) struct DotKernel {
    /// The extension, and the name that it has in reports.
    pub(super) name: &'static str,
    pub(super) element: DType,
    /// For which operand the sign bits of integers are flipped when it is packed: the left operand of `vpdpbusd` is
    /// unsigned, the right one signed.
    pub(super) flipped: Option<OperandSide>,
    pub(super) available: fn() -> bool,
    /// Whether products of floats of 32 bits take longer on this processor. Only then is it used.
    pub(super) pays: fn() -> bool,
    /// Called before the first block of a thread's product, and after the last.
    pub(super) begin: unsafe fn(),
    pub(super) end: unsafe fn(),
    pub(super) block: unsafe fn(&DotBlock),
}
