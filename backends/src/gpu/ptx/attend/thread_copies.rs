//! Copies of the tiles that threads multiply, and what is read of single rows.

use super::AttendPass;
use super::tile::{LineBounds, SharedTile, TileCopy, made};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention_tiles::FloatTile;
use adfuse_ir::kernel::Buffer;

impl AttendPass<'_> {
    /// How a block copies lines of an owner, a head or a group of heads, into a tile; there are `lines` of them.
    pub(super) fn copy_of(
        &self,
        emit: &mut Emit<'_>,
        (buffer, owner, lines): (Buffer, Reg, i64),
        to: &FloatTile,
    ) -> TileCopy {
        let to = SharedTile::floats(to);
        let at = self.head_at(emit, buffer, owner, lines, to.elements * 4);
        TileCopy::new(&mut emit.asm, to, (at, lines), self.tile.grid().threads)
    }
}

/// Begins to copy both tiles of a step from a line on, the first one first, when all threads have read those of the step before.
/// Lines that are not within bounds are 0.
pub(super) fn begin_step(asm: &mut Asm, copies: &[TileCopy; 2], (line, bounds): (Reg, LineBounds)) {
    asm.emit("bar.sync 0");
    for copy in copies {
        copy.copy_within(asm, (line, bounds), None);
        asm.emit("cp.async.commit_group");
    }
}

/// Waits until all threads have their parts of a step's tiles, but for this many that were begun last.
pub(super) fn wait_step(asm: &mut Asm, but: usize) {
    asm.emit(format_args!("cp.async.wait_group {but}"));
    asm.emit("bar.sync 0");
}

/// The number of a row of a head whose numbers begin at `base`; that of the last row where the row does not exist.
pub(super) fn number_of_row(asm: &mut Asm, base: Reg, row: Reg, rows: i64) -> Reg {
    let row = made(asm, Class::Word, "min.s32", format_args!("{row}, {}", rows - 1));
    let at = made(asm, Class::Long, "mad.wide.s32", format_args!("{row}, 4, {base}"));
    made(asm, Class::Single, "ld.global.nc.f32", format_args!("[{at}]"))
}
