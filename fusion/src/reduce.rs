//! Reductions and scans: a stage that folds, then one that converts and stores.

use crate::lower::Lower;
use crate::step::{axes, convert, load};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Kernel, Param, Sink, Stage, Step, TileData, strict_runs};
use adfuse_ir::op::Monoid;
use adfuse_ir::{Inst, Value};
use smallvec::SmallVec;

/// Folds axes away: the domain is what is kept.
pub(crate) fn reduce(l: &Lower<'_>, i: Inst, monoid: Monoid) -> Vec<Step> {
    let f = l.f;
    let single = [f.attrs(i).int("axis")];
    let reduced = if monoid.is_arg() { &single } else { f.attrs(i).ints("axes") };
    let x = f.args(i)[0];
    let dims = l.dims(x).unwrap_or_default();
    let marks: Vec<bool> = (0..dims.len() as i64).map(|d| reduced.contains(&d)).collect();
    let (mut kernel, first) = over(l, i, &marks);
    let from = f.ty(x).dtype.compute();
    let to = if monoid.is_arg() { monoid.empty(from).dtype() } else { from };
    let row = kernel.rows.push(to);
    let runs = strict_runs(&dims, &marks);
    let fold = Sink::Reduce { monoid, runs, into: row };
    kernel.stages.push(Stage { sinks: vec![fold], ..first });
    finish(l, i, kernel, Extents::new(), Param::Row(row))
}

/// Folds along an axis: the domain is the other axes.
pub(crate) fn scan(l: &Lower<'_>, i: Inst, monoid: Monoid) -> Vec<Step> {
    let f = l.f;
    let axis = f.attrs(i).int("axis");
    let x = f.args(i)[0];
    let dims = l.dims(x).unwrap_or_default();
    let marks: Vec<bool> = (0..dims.len() as i64).map(|d| d == axis).collect();
    let (mut kernel, first) = over(l, i, &marks);
    let within = first.axes.clone();
    let dtype = f.ty(x).dtype.compute();
    let tile = kernel.tiles.push(TileData { dtype, dims: within.clone() });
    let reverse = f.attrs(i).flag("reverse");
    let fold = Sink::Scan { monoid, axis: 0, reverse, into: tile };
    kernel.stages.push(Stage { sinks: vec![fold], ..first });
    finish(l, i, kernel, within, Param::Tile(tile))
}

/// A kernel over the unmarked axes of the operand, and a stage over the marked ones that reads it in
/// the type it computes in.
fn over(l: &Lower<'_>, i: Inst, marks: &[bool]) -> (Kernel, Stage) {
    let x: Value = l.f.args(i)[0];
    let dims = l.dims(x).unwrap_or_default();
    let of = |mark: bool| -> Extents {
        dims.iter().zip(marks).filter(|&(_, &m)| m == mark).map(|(&n, _)| n).collect()
    };
    let domain = of(false);
    let stage = Stage {
        axes: of(true),
        params: vec![load(l.operand(x), places(marks, domain.len()))],
        program: convert(l.f.ty(x).dtype, l.f.ty(x).dtype.compute()),
        sinks: Vec::new(),
    };
    (Kernel { name: l.f.op(i).name().into(), domain, ..Kernel::default() }, stage)
}

/// The operand's coordinates, where unmarked axes are the domain and marked ones the stage's.
fn places(marks: &[bool], kept: usize) -> SmallVec<[IndexExpr; 4]> {
    let mut next = [0, kept];
    let place = |&mark: &bool| {
        let at = &mut next[usize::from(mark)];
        *at += 1;
        IndexExpr::axis(*at - 1)
    };
    marks.iter().map(place).collect()
}

/// Adds the stage that reads what was folded, converts it and stores it.
fn finish(l: &Lower<'_>, i: Inst, mut kernel: Kernel, within: Extents, folded: Param) -> Vec<Step> {
    let Some(out) = l.results_of(i).next() else { return Vec::new() };
    let x = l.f.args(i)[0];
    let from = match &folded {
        Param::Row(row) => kernel.rows[*row],
        _ => l.f.ty(x).dtype.compute(),
    };
    // A scan's axis lies between the axes of the domain; a reduction has none left.
    let rank = kernel.domain.len() + within.len();
    let index = match &folded {
        Param::Tile(_) => {
            let axis = l.f.attrs(i).int("axis");
            let marks: Vec<bool> = (0..rank as i64).map(|d| d == axis).collect();
            places(&marks, kernel.domain.len())
        }
        _ => axes(0, rank),
    };
    kernel.stages.push(Stage {
        axes: within,
        params: vec![folded],
        program: convert(from, l.program.buffers[out].dtype),
        sinks: vec![Sink::Store { buffer: out, index }],
    });
    vec![Step::Kernel(kernel)]
}
