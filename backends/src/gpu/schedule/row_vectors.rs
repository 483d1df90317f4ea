//! Vectors of rows whose length is no multiple of them: the last group of neighbours of a row is short.

use super::index::{has_data, whole};
use super::vectorize::VectorLanes;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Kernel, Param, Program, Sink, Stage, volume};

/// Whether threads may have groups of `width` neighbours of every row, though the last group of a row is short.
///
/// What a row has beyond its domain is read and written as vectors in all other groups: rows begin at multiples of `width` in
/// memory, as those of aligned rows do.
pub(crate) fn takes_short_groups(program: &Program, kernel: &Kernel, width: i64) -> bool {
    let own = kernel.stages.iter().filter(|s| !s.axes.is_empty());
    let folds = |s: &Stage| s.sinks.iter().any(|k| matches!(k, Sink::Fold { .. }));
    let mut stages = own.clone();
    !own.clone().any(folds) && stages.all(|s| stage_takes(program, kernel, s, width))
}

fn stage_takes(program: &Program, kernel: &Kernel, stage: &Stage, width: i64) -> bool {
    let n = volume(&stage.axes);
    if n % width == 0 {
        return true;
    }
    let rank = kernel.domain.len();
    let [along] = (0..stage.axes.len()).filter(|&a| stage.axes[a] != 1).collect::<Vec<_>>()[..]
    else {
        return false;
    };
    let row = rank + along;
    let mut extents: Vec<i64> = kernel.domain.iter().chain(&stage.axes).copied().collect();
    extents[row] = n / width;
    let coords = (0..width).map(|u| {
        let mut at: Vec<IndexExpr> = (0..extents.len()).map(IndexExpr::axis).collect();
        at[row] = IndexExpr::axis(row).times(width).plus(u);
        at
    });
    let lanes = VectorLanes { coords: &coords.collect::<Vec<_>>(), extents: &extents };
    // Arrays without an axis of the domain are read by every row, out of the cache: one element at a time does.
    let of_rows = |index: &[IndexExpr]| {
        let reads = |a: usize| index.iter().any(|e| e.shares(&IndexExpr::axis(a)));
        reads(row) && (0..rank).any(|a| kernel.domain[a] > 1 && reads(a))
    };
    let fits = |b: Buffer, index: &[IndexExpr]| {
        !of_rows(index) || lanes.aligned(program, b, index).is_some()
    };
    let loads = stage.params.iter().all(|param| match param {
        Param::Load(pieces) => match whole(param) {
            Some((b, piece)) => fits(b, &piece.index),
            None => !pieces.iter().any(|p| of_rows(&p.index) || p.index.iter().any(has_data)),
        },
        _ => true,
    });
    loads
        && stage.sinks.iter().all(|sink| match sink {
            Sink::Store { buffer, index } => fits(*buffer, index),
            _ => true,
        })
}
