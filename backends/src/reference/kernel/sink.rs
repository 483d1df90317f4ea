//! Where the outputs of a stage go.

use super::reserve;
use super::state::{
    KernelState, OUTSIDE, ProgramRun, coordinates, internal, joined, offset, volume,
};
use crate::reference::order::{reduce_axis, scan};
use crate::reference::reduce::{first_extremum, with_combine};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Run as AxisRun, Sink, Stage};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic};

impl ProgramRun<'_> {
    /// Puts output `k` of a stage, for all points and axes, where it goes.
    pub(super) fn sink(
        &mut self,
        domain: &[i64],
        stage: &Stage,
        k: usize,
        values: Vec<u64>,
        kept: &mut KernelState,
    ) -> Result<(), Diagnostic> {
        let dtype = stage.program.insts[stage.program.outputs[k]].dtype;
        let extents = joined(domain, &stage.axes);
        match &stage.sinks[k] {
            Sink::Store { buffer, index } => self.store(*buffer, index, &extents, values)?,
            Sink::Fold { monoid, runs, then } => {
                let (remaining, sums) = fold(*monoid, dtype, runs, &extents, &values)?;
                self.stage(&remaining, then, &mut KernelState { sums, ..KernelState::default() })?;
            }
            Sink::Reduce { monoid, runs, into } => {
                let axis = |&a: &u8| a + domain.len() as u8;
                let over = |r: &AxisRun| AxisRun { axes: r.axes.iter().map(axis).collect(), ..*r };
                let runs: Vec<AxisRun> = runs.iter().map(over).collect();
                kept.rows[*into] = fold(*monoid, dtype, &runs, &extents, &values)?.1;
            }
            Sink::Leave(into) => kept.rows[*into] = values,
            Sink::Scan { monoid, axis, reverse, into } => {
                let mut values = values;
                let axis = *axis as usize;
                let size = |axes: &[i64]| axes.iter().map(|&n| n as usize).product::<usize>();
                let (extent, inner) =
                    (size(&stage.axes[axis..=axis]), size(&stage.axes[axis + 1..]));
                with_combine(*monoid, dtype, |combine| {
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

    /// Puts values, row-major over coordinates of these extents, at the places of an index.
    fn store(
        &mut self,
        buffer: Buffer,
        index: &[IndexExpr],
        extents: &[i64],
        values: Vec<u64>,
    ) -> Result<(), Diagnostic> {
        let dims = &self.program.buffers[buffer].dims;
        let total = volume(dims)?;
        let mut bits = reserve(total)?;
        bits.resize(total as usize, 0);
        for (place, value) in (0..).zip(values) {
            let at = coordinates(extents, place);
            let to = offset(index.iter().map(|e| e.eval(&at, &[])), dims)?;
            *bits.get_mut(to).ok_or_else(|| internal(OUTSIDE))? = value;
        }
        self.put(buffer, bits)
    }
}

/// Folds the coordinates that runs name, run by run, first to last. Gives the extents of what remains,
/// 1 where a coordinate is folded, and the results row-major over those.
fn fold(
    monoid: Monoid,
    dtype: DType,
    runs: &[AxisRun],
    extents: &[i64],
    values: &[u64],
) -> Result<(Extents, Vec<u64>), Diagnostic> {
    let folded: Vec<usize> =
        runs.iter().rev().flat_map(|r| r.axes.iter().map(|&a| usize::from(a))).collect();
    let mut remaining = Extents::from(extents);
    folded.iter().for_each(|&a| remaining[a] = 1);
    let points = volume(&remaining)?;
    let kept = (0..extents.len()).filter(|a| !folded.contains(a));
    let order: Vec<usize> = kept.chain(folded.iter().copied()).collect();
    let gathered = permuted(extents, &order, values)?;
    let sizes: Vec<Extents> =
        runs.iter().map(|r| r.axes.iter().map(|&a| extents[usize::from(a)]).collect()).collect();
    let sizes: Vec<usize> =
        sizes.iter().map(|s| volume(s).map(|n| n as usize)).collect::<Result<_, _>>()?;
    // Of no elements there may be any number of results: that there is room for them.
    let outer = |k: usize| sizes[k + 1..].iter().fold(points, |n, &s| n.saturating_mul(s as u64));
    reserve((0..sizes.len()).map(outer).chain([points]).max().unwrap_or(points))?;
    Ok((remaining, reduce(monoid, dtype, runs, &sizes, points as usize, gathered)))
}

/// The values with their axes in another order.
fn permuted(extents: &[i64], order: &[usize], values: &[u64]) -> Result<Vec<u64>, Diagnostic> {
    if order.is_sorted() {
        return Ok(values.to_vec());
    }
    let mut found = reserve(values.len() as u64)?;
    let outer: Extents = order.iter().map(|&a| extents[a]).collect();
    for place in 0..values.len() as u64 {
        let mut at = Extents::from(extents);
        for (&a, x) in order.iter().zip(coordinates(&outer, place)) {
            at[a] = x;
        }
        let from = offset(at.iter().copied(), extents)?;
        found.push(*values.get(from).ok_or_else(|| internal(OUTSIDE))?);
    }
    Ok(found)
}

/// Folds runs of these extents at every point; values are row-major over the points, the last run,
/// .. and the first, which folds first.
fn reduce(
    monoid: Monoid,
    dtype: DType,
    runs: &[AxisRun],
    extents: &[usize],
    points: usize,
    values: Vec<u64>,
) -> Vec<u64> {
    if monoid.is_arg() {
        let n = extents.iter().product();
        let best = |p: usize| first_extremum(monoid, dtype, n, |k| values[p * n + k]) as u64;
        return (0..points).map(best).collect();
    }
    let empty = monoid.empty(dtype).bits();
    with_combine(monoid, dtype, |combine| {
        let mut values = values;
        // What remains outside of a run are the runs to come.
        for (k, run) in runs.iter().enumerate() {
            let outer = points * extents[k + 1..].iter().product::<usize>();
            values = reduce_axis(&values, [outer, extents[k], 1], run.order, combine, empty);
        }
        values
    })
}
