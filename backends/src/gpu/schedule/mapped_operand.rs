//! An operand of a product as the copy engine brings it: axes of an array in memory, and where a tile lies along each.
//!
//! Lines and the depth of an operand may be several axes of the array each, such as the heads and the elements of what attention
//! gives. A tile never crosses from one line of axes to the next.

use super::operand_path::{along_depth, feed, first, whole};
use crate::gpu::launches::TensorMap;
use adfuse_ir::DType;
use adfuse_ir::kernel::{Buffer, Member, Program};
use smallvec::SmallVec;

/// Bytes of the depth of a step: one line of the pattern of banks.
pub(crate) const LINE: i64 = 128;
/// Neighbours of 16 bits that are aligned and copied together, and columns that a thread finishes together.
pub(crate) const NEIGHBOURS: i64 = 8;
/// Lines that a tile has at most; those of an inner axis are a multiple where there is an outer one.
const MOST_LINES: i64 = 256;

/// An operand as the copy engine sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MappedOperand {
    pub(crate) buffer: Buffer,
    /// The number of its first element.
    pub(crate) first: i64,
    /// Whether neighbours in memory are along the depth, not along its lines.
    pub(crate) along: bool,
    /// Its axes in memory, that of neighbours first.
    pub(crate) axes: SmallVec<[MappedAxis; 5]>,
}

/// An axis of an operand in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MappedAxis {
    pub(crate) extent: i64,
    /// Elements from one to the next.
    pub(crate) step: i64,
    pub(crate) place: AxisPlace,
}

/// What says where a tile lies along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AxisPlace {
    /// A number of lines or of elements of the depth.
    Run(AxisRun),
    /// The place in the batch, along its axis of this number.
    Batch(usize),
}

/// An axis of several that are lines together, or the depth: the number of the line is divided by `below`, and what is left by
/// the extent is the place, unless the axis is the outermost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AxisRun {
    pub(crate) depth: bool,
    /// The extents of the axes inside of it, multiplied.
    pub(crate) below: i64,
    pub(crate) outermost: bool,
}

impl MappedOperand {
    /// `None` where the copy engine does not take it.
    pub(crate) fn of(
        program: &Program,
        m: &Member,
        side: usize,
        dtype: DType,
    ) -> Option<MappedOperand> {
        let along = along_depth(program, m, side);
        let (feed, own) = feed(m, side);
        let (buffer, piece) = whole(program, feed, dtype)?;
        let (batch, lines) = (m.batch.len(), own.len());
        let rank = batch + lines + m.depth.len();
        let steps = program.buffers[buffer].steps(&piece.index, rank)?;
        let first = first(program, buffer, &piece.index, rank).filter(|&n| n >= 0)?;
        let line_axes = runs(&steps[batch..batch + lines], own, false)?;
        let deep_axes = runs(&steps[batch + lines..], &m.depth, true)?;
        let (near, far) = if along { (deep_axes, line_axes) } else { (line_axes, deep_axes) };
        let mut axes: SmallVec<[MappedAxis; 5]> = SmallVec::new();
        // Neighbours first, and then the far axis of which a tile has many.
        axes.push(*near.first()?);
        axes.push(*far.first()?);
        axes.extend(near.iter().skip(1).chain(far.iter().skip(1)).copied());
        for (k, (&extent, &step)) in m.batch.iter().zip(&steps).enumerate() {
            if extent != 1 && step != 0 {
                axes.push(MappedAxis { extent, step, place: AxisPlace::Batch(k) });
            }
        }
        // Tiles of columns have 192 lines too, which no power of two is a multiple of.
        let divides = side == 0 || !along || far_is_one(&axes);
        let box_lines = if along { MOST_LINES } else { LINE / dtype.bytes() as i64 };
        let mapped = divides && is_mapped(&axes, first, (dtype, box_lines));
        mapped.then_some(MappedOperand { buffer, first, along, axes })
    }

    /// Elements of a copied box along its axes: lines of 128 bytes, as many as a tile has of them, or 64 where lines lie along
    /// the tile's side.
    pub(crate) fn tile(&self, side: i64, deep: i64) -> Vec<u32> {
        let lines = if self.along { side } else { deep };
        let all = [deep, lines].into_iter().chain(self.axes.iter().skip(2).map(|_| 1));
        all.map(|n| u32::try_from(n).unwrap_or(u32::MAX)).collect()
    }
}

/// Whether the axis of many of a tile is all that its kind has.
fn far_is_one(axes: &[MappedAxis]) -> bool {
    let outermost = |axis: &MappedAxis| match axis.place {
        AxisPlace::Run(run) => run.outermost,
        AxisPlace::Batch(_) => true,
    };
    axes.get(1).is_some_and(outermost)
}

/// The axes that lines or the depth are in memory, the innermost first; neighbours that are one axis in memory are one.
fn runs(steps: &[i64], extents: &[i64], depth: bool) -> Option<SmallVec<[MappedAxis; 2]>> {
    let mut found: SmallVec<[(i64, i64); 2]> = SmallVec::new();
    for (&step, &extent) in steps.iter().zip(extents).rev().filter(|(_, n)| **n != 1) {
        match found.last_mut() {
            Some((n, inner)) if inner.checked_mul(*n) == Some(step) => {
                *n = n.checked_mul(extent)?
            }
            _ => found.push((extent, step)),
        }
    }
    let outermost = found.len().checked_sub(1)?;
    let mut below = 1i64;
    let mut axes = SmallVec::new();
    for (k, (extent, step)) in found.into_iter().enumerate() {
        let run = AxisRun { depth, below, outermost: k == outermost };
        axes.push(MappedAxis { extent, step, place: AxisPlace::Run(run) });
        below = below.checked_mul(extent)?;
    }
    Some(axes)
}

/// Whether an array with these axes is one for the copy engine, and tiles lie within its inner axes.
fn is_mapped(axes: &[MappedAxis], first: i64, (dtype, lines): (DType, i64)) -> bool {
    let most = 1i64 << 32;
    let deep = LINE / dtype.bytes() as i64;
    let fits = |n: i64| (1..most).contains(&n);
    // A tile takes this many of an axis that has another around it.
    let whole = |axis: &MappedAxis| match axis.place {
        AxisPlace::Run(AxisRun { outermost: false, depth, .. }) => {
            axis.extent % if depth { deep } else { lines } == 0
        }
        _ => true,
    };
    let Some((near, rest)) = axes.split_first() else { return false };
    axes.len() <= TensorMap::MOST_AXES
        && near.step == 1
        && first % NEIGHBOURS == 0
        && rest.iter().all(|axis| axis.step % NEIGHBOURS == 0)
        && axes.iter().all(|axis| fits(axis.extent) && fits(axis.step) && whole(axis))
}
