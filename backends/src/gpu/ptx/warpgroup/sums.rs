//! The sums of a thread.

use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::schedule::warpgroup_tile::WarpgroupTile;

/// The sums of a thread: of each instruction of 64 rows, two neighbours of two rows for every 8 columns.
pub(super) struct Sums {
    pub(super) regs: Vec<Vec<Reg>>,
}

impl Sums {
    pub(super) fn new(asm: &mut Asm, tile: &WarpgroupTile) -> Sums {
        let each = tile.side[1] / 2;
        let mut of = |_| (0..each).map(|_| asm.fresh(Class::Single)).collect();
        Sums { regs: (0..tile.tall()).map(&mut of).collect() }
    }
}
