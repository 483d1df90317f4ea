//! Pieces of elementwise work in one launch: each has a range of the blocks.

use super::block_ranges::in_ranges;
use super::elementwise::body;
use super::entry::{Out, begun};
use crate::gpu::schedule::elementwise::Elementwise;
use crate::gpu::schedule::program::GpuSchedule;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::volume;

/// Launches loops whose sinks all store, at the same time. There are two at least, with blocks of equal threads.
pub(crate) fn stores(
    s: &GpuSchedule,
    out: &mut Out,
    pieces: &[&Elementwise],
) -> Result<(), Diagnostic> {
    let Some(grid) = pieces.first().map(|e| e.vectors.grid) else { return Ok(()) };
    let mut ranges = Vec::with_capacity(pieces.len());
    let mut blocks = 0;
    for e in pieces {
        let own = grid.blocks(volume(&e.flat.domain) / e.vectors.width);
        ranges.push((blocks, *e));
        blocks += own;
    }
    let mut emit = begun(s, out);
    in_ranges(&mut emit, &ranges, |emit, e| {
        body(emit, e);
    });
    out.launch(&s.homes, emit, blocks, grid, 0)
}
