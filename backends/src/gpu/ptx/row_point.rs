//! A row of a kernel as it is computed: where it is, and what is kept of it.

use super::address::Vars;
use super::asm::Reg;
use super::async_copy::Own;

use crate::gpu::schedule::row_residency::RowLayout;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Row, Tile};
use cranelift_entity::SecondaryMap;

/// What is known while a kernel is written.
pub(crate) struct Point<'k> {
    pub(crate) layout: &'k RowLayout,
    pub(crate) rows: SecondaryMap<Row, Option<Reg>>,
    pub(crate) held: SecondaryMap<Tile, Held>,
    pub(crate) columns: Vec<Column>,
    /// The team's shared memory.
    pub(crate) memory: Option<Reg>,
    /// Where in it the arrays of this row are.
    pub(crate) slot: Option<Reg>,
    /// One past the last byte that all teams have for tiles.
    pub(crate) end: i64,
    pub(crate) vars: Vars,
    pub(crate) domain: Vec<IndexExpr>,
    pub(crate) lane: IndexExpr,
    pub(crate) warp: IndexExpr,
    pub(crate) live: Option<Reg>,
    pub(crate) leads: Reg,
}

/// A fold of columns: what each of a thread's elements has come to.
pub(crate) struct Column {
    pub(crate) stage: usize,
    pub(crate) sink: usize,
    pub(crate) dtype: DType,
    pub(crate) accs: Vec<Reg>,
}

impl Point<'_> {
    /// Takes room for what warps leave of a fold, past the tiles.
    pub(crate) fn room(&mut self, bytes: i64) -> i64 {
        let at = self.end;
        self.end += bytes;
        at
    }
}

/// The row that comes next.
pub(crate) struct Ahead<'a> {
    /// The variables with its number among them, and its coordinates.
    pub(crate) vars: Vars,
    pub(crate) point: Vec<IndexExpr>,
    /// Whether there is one.
    pub(crate) more: Reg,
    /// Where it goes.
    pub(crate) to: Reg,
    pub(crate) own: Own<'a>,
}

/// The elements of a tile that a thread has in registers.
#[derive(Clone, Default)]
pub(crate) struct Held {
    pub(crate) regs: Vec<Option<Reg>>,
    /// The first of two that share a register.
    pub(crate) half: Option<Reg>,
    /// Whether registers are written wherever there is an element, and were named before.
    pub(crate) named: bool,
}
