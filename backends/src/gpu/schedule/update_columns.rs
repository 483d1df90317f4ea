//! Of a scatter, which axes of the updates are axes of the result: rows and columns of the result, of
//! which updates choose the rows alone.

use super::index::{coordinates, data_of};
use super::work::Lowering;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Param, Scatter, volume};

/// The axes of the updates that are axes of the result and choose no place otherwise, and what those are
/// of the result. What is left of the result are rows: each update is of one.
pub(crate) struct UpdateColumns {
    /// Axes of the updates, each with the axis of the result that it is.
    pub(crate) axes: Vec<(usize, usize)>,
    pub(crate) extents: Extents,
    /// Axes of the updates that are none, and their extents.
    others: Vec<usize>,
    other_extents: Extents,
    /// Axes of the result that are none, and their extents.
    pub(crate) row_axes: Vec<usize>,
    pub(crate) row_extents: Extents,
}

impl UpdateColumns {
    pub(crate) fn of(low: &Lowering, scatter: &Scatter) -> UpdateColumns {
        let rank = scatter.domain.len();
        let mut chooses = vec![false; rank];
        let mut bare: Vec<Option<usize>> = vec![None; rank];
        let mut data = vec![false; scatter.params.len()];
        let mut found = |e: &IndexExpr, chooses: &mut Vec<bool>| {
            coordinates_of(e, &mut |a| chooses[a] = true);
            data_of(e, &mut |p| data[p] = true);
        };
        for (d, e) in scatter.index.iter().enumerate() {
            match e {
                IndexExpr::Axis(a) if bare[usize::from(*a)].is_none() => {
                    bare[usize::from(*a)] = Some(d);
                }
                e => found(e, &mut chooses),
            }
        }
        scatter.guards.iter().for_each(|g| found(&g.expr, &mut chooses));
        // A parameter is read at places that earlier ones choose.
        for p in (0..data.len()).rev().filter(|&p| data[p]).collect::<Vec<_>>() {
            of_param(&scatter.params, p, &mut chooses);
        }
        let axes: Vec<(usize, usize)> =
            (0..rank).filter(|&a| !chooses[a]).filter_map(|a| Some((a, bare[a]?))).collect();
        let others: Vec<usize> = (0..rank).filter(|a| !axes.iter().any(|(b, _)| a == b)).collect();
        let dims = &low.program.buffers[scatter.out].dims;
        let row_axes: Vec<usize> =
            (0..dims.len()).filter(|d| !axes.iter().any(|(_, e)| d == e)).collect();
        UpdateColumns {
            extents: axes.iter().map(|&(a, _)| scatter.domain[a]).collect(),
            other_extents: others.iter().map(|&a| scatter.domain[a]).collect(),
            row_extents: row_axes.iter().map(|&d| dims[d]).collect(),
            axes,
            others,
            row_axes,
        }
    }

    /// Updates of one column.
    pub(crate) fn updates(&self) -> i64 {
        volume(&self.other_extents)
    }

    pub(crate) fn rows(&self) -> i64 {
        volume(&self.row_extents)
    }

    /// UpdateColumns that a thread has: as many as are in one access where they are neighbours.
    pub(crate) fn near(&self, dtype: DType) -> i64 {
        let last = self.extents.last().copied().unwrap_or(1);
        match dtype.bytes() {
            4 if last % 4 == 0 => 4,
            8 if last % 2 == 0 => 2,
            _ => 1,
        }
    }

    /// Coordinates of one of the columns of a group.
    pub(crate) fn column(&self, group: &IndexExpr, near: i64, number: i64) -> Vec<IndexExpr> {
        let mut groups = self.extents.clone();
        if let Some(last) = groups.last_mut() {
            *last /= near;
        }
        let mut at = coordinates(group, &groups);
        if let Some(last) = at.last_mut() {
            *last = last.clone().times(near).plus(number);
        }
        at
    }

    /// Coordinates of an update.
    pub(crate) fn update(&self, column: &[IndexExpr], number: &IndexExpr) -> Vec<IndexExpr> {
        let mut at = vec![IndexExpr::Const(0); self.axes.len() + self.others.len()];
        for (&(a, _), e) in self.axes.iter().zip(column) {
            at[a] = e.clone();
        }
        for (&a, e) in self.others.iter().zip(coordinates(number, &self.other_extents)) {
            at[a] = e;
        }
        at
    }

    /// Coordinates of an element of the result.
    pub(crate) fn element(&self, column: &[IndexExpr], row: &IndexExpr) -> Vec<IndexExpr> {
        let mut at = vec![IndexExpr::Const(0); self.axes.len() + self.row_axes.len()];
        for (&(_, d), e) in self.axes.iter().zip(column) {
            at[d] = e.clone();
        }
        for (&d, e) in self.row_axes.iter().zip(coordinates(row, &self.row_extents)) {
            at[d] = e;
        }
        at
    }
}

/// The coordinates that an expression has.
fn coordinates_of(e: &IndexExpr, found: &mut dyn FnMut(usize)) {
    match e {
        IndexExpr::Axis(a) => found(usize::from(*a)),
        IndexExpr::Const(_) | IndexExpr::Data { .. } => {}
        IndexExpr::Add(a, b) => {
            coordinates_of(a, found);
            coordinates_of(b, found);
        }
        IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => {
            coordinates_of(a, found);
        }
    }
}

/// The coordinates by which a parameter's value is chosen, and those of what it reads places from.
fn of_param(params: &[Param], p: usize, chooses: &mut Vec<bool>) {
    let mut data = Vec::new();
    let mut of = |e: &IndexExpr| {
        coordinates_of(e, &mut |a| chooses[a] = true);
        data_of(e, &mut |p| data.push(p));
    };
    params.get(p).into_iter().flat_map(Param::expressions).for_each(&mut of);
    // Parameters read earlier ones alone.
    for q in data.into_iter().filter(|&q| q < p) {
        of_param(params, q, chooses);
    }
}
