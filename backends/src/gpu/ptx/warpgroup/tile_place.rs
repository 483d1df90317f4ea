//! Where a tile is; where the depth is cut into runs, which part of it is meant.

use crate::gpu::ptx::asm::{Asm, Class, Reg, made};

/// Which tile: its product, where there are several, its place in the batch, its first row and its first column.
#[derive(Clone, Copy)]
pub(super) struct TilePlace {
    pub(super) member: Option<Reg>,
    pub(super) batch: Reg,
    pub(super) first: [Reg; 2],
    /// Which of its steps, where the depth is cut into runs; otherwise all.
    pub(super) run: Option<RunSteps>,
}

/// Steps of a tile that a run has: from the first to before the end, as this part of the tile.
#[derive(Clone, Copy)]
pub(super) struct RunSteps {
    pub(super) first: Reg,
    pub(super) end: Reg,
    pub(super) part: Reg,
}

impl TilePlace {
    /// The first step of the depth.
    pub(super) fn first_step(&self, asm: &mut Asm) -> Reg {
        self.run.map_or_else(|| asm.word(0), |run| run.first)
    }

    /// Whether there is a step of this number, where a whole tile has `all`.
    pub(super) fn has_step(&self, asm: &mut Asm, step: Reg, all: i64) -> Reg {
        let end = self.run.map_or_else(|| all.to_string(), |run| run.end.to_string());
        made(asm, Class::Pred, "setp.lt.s32", format_args!("{step}, {end}"))
    }
}
