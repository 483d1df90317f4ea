//! Pieces of elementwise work in one launch: each has a range of the blocks and code of its own, which a block finds by
//! bisection of its number.

use super::asm::{Class, Reg};
use super::elementwise::body;
use super::emit::Emit;
use super::entry::{Out, begun};
use crate::gpu::schedule::elementwise::Elementwise;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::volume;
use adfuse_ir::Diagnostic;

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
    let mut emit = begun(s);
    let block = emit.asm.special("ctaid.x");
    halves(&mut emit, block, &ranges);
    out.launch(&s.homes, emit, blocks, grid, 0)
}

/// Writes the code of consecutive ranges of blocks, each of which begins with a number.
fn halves(emit: &mut Emit<'_>, block: Reg, ranges: &[(i64, &Elementwise)]) {
    if let [(first, e)] = *ranges {
        emit.asm.begin_part(first);
        body(emit, e);
        return emit.asm.end_part();
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let Some((first, _)) = high.first() else { return };
    let later = emit.asm.fresh(Class::Pred);
    emit.asm.emit(format_args!("setp.ge.u32 {later}, {block}, {first}"));
    let label = emit.asm.label();
    emit.asm.emit(format_args!("@{later} bra {label}"));
    halves(emit, block, low);
    emit.asm.place(&label);
    halves(emit, block, high);
}
