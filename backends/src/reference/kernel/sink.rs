//! Where the outputs of a stage go.

use super::super::order::{reduce_axis, scan};
use super::super::reduce::{first_extremum, with_combine};
use super::{Kept, OUTSIDE, Run, coordinates, internal, joined, offset, reserve, volume};
use crate::reference::Tensor;
use adfuse_ir::kernel::{Kernel, Run as AxisRun, Sink, Stage};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic, Literal};

impl Run<'_> {
    /// Puts output `k` of a stage, for all points and axes, where it goes.
    pub(super) fn sink(
        &mut self,
        kernel: &Kernel,
        stage: &Stage,
        k: usize,
        values: Vec<u64>,
        kept: &mut Kept,
    ) -> Result<(), Diagnostic> {
        match &stage.sinks[k] {
            Sink::Store { buffer, index } => {
                let ty = self.ty(*buffer)?;
                let dims = &self.program.buffers[*buffer].dims;
                let total = volume(dims)?;
                let mut bits = reserve(total)?;
                bits.resize(total as usize, 0);
                let extents = joined(&kernel.domain, &stage.axes);
                for (place, value) in (0..).zip(values) {
                    let at = coordinates(&extents, place);
                    let to = offset(index.iter().map(|e| e.eval(&at, &[])), dims)?;
                    let slot = bits.get_mut(to).ok_or_else(|| internal(OUTSIDE))?;
                    *slot = Literal::from_bits(ty.dtype, value).bits();
                }
                let dims = dims.clone();
                self.tensors[*buffer] = Some(Tensor { dtype: ty.dtype, dims, bits });
            }
            Sink::Reduce { monoid, runs, into } => {
                let dtype = stage.program.insts[stage.program.outputs[k]].dtype;
                let points = volume(&kernel.domain)?;
                kept.rows[*into] = reduce(*monoid, dtype, runs, &stage.axes, points, values);
            }
            Sink::Scan { monoid, axis, reverse, into } => {
                let mut values = values;
                let axis = *axis as usize;
                let size = |axes: &[i64]| axes.iter().map(|&n| n as usize).product::<usize>();
                let (extent, inner) =
                    (size(&stage.axes[axis..=axis]), size(&stage.axes[axis + 1..]));
                with_combine(*monoid, kernel.tiles[*into].dtype, |combine| {
                    for line in 0..values.len() / extent.max(1) {
                        let start = line / inner * extent * inner + line % inner;
                        let place =
                            |k: usize| start + inner * if *reverse { extent - 1 - k } else { k };
                        let mut run: Vec<u64> = (0..extent).map(|k| values[place(k)]).collect();
                        scan(&mut run, combine);
                        for (k, v) in run.into_iter().enumerate() {
                            values[place(k)] = v;
                        }
                    }
                });
                kept.tiles[*into] = values;
            }
            Sink::Keep(tile) => kept.tiles[*tile] = values,
        }
        Ok(())
    }
}

/// Folds the axes at every point of the domain, run by run.
fn reduce(
    monoid: Monoid,
    dtype: DType,
    runs: &[AxisRun],
    axes: &[i64],
    points: u64,
    values: Vec<u64>,
) -> Vec<u64> {
    let points = points as usize;
    let size = |axes: &[i64]| axes.iter().map(|&n| n as usize).product::<usize>();
    if monoid.is_arg() {
        let n = size(axes);
        let best = |p: usize| first_extremum(monoid, dtype, n, |k| values[p * n + k]) as u64;
        return (0..points).map(best).collect();
    }
    let empty = monoid.empty(dtype).bits();
    let extent = |run: &AxisRun| run.axes.iter().map(|&a| axes[a as usize] as usize).product();
    let extents: Vec<usize> = runs.iter().map(extent).collect();
    with_combine(monoid, dtype, |combine| {
        let mut values = values;
        // The last run is folded first: what remains outside of it are the runs to come.
        for (k, run) in runs.iter().enumerate() {
            let outer = points * extents[k + 1..].iter().product::<usize>();
            values = reduce_axis(&values, [outer, extents[k], 1], run.order, combine, empty);
        }
        values
    })
}
