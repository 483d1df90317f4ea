//! Loop transformations of kernels: pure functions from kernel to kernel that keep every bit.

use super::buffer::Extents;
use super::stage::{Kernel, Param, Run, Schedule, Sink, Stage};
use super::verify::{Wrong, scheduled};
use crate::diag::{At, Diagnostic, Kind};
use crate::index::IndexExpr;
use crate::types::MAX_RANK;
use smallvec::SmallVec;

/// Reorders the axes of the domain: axis `k` of the result is axis `perm[k]` of the kernel.
///
/// # Errors
/// When `perm` does not name each axis of the domain once.
pub fn interchange(kernel: &Kernel, perm: &[usize]) -> Result<Kernel, Diagnostic> {
    let rank = kernel.domain.len();
    let mut places: SmallVec<[Option<u8>; 8]> = kernel.domain.iter().map(|_| None).collect();
    for (to, &from) in perm.iter().enumerate() {
        if let Some(place @ None) = places.get_mut(from) {
            *place = u8::try_from(to).ok();
        }
    }
    let places: Option<SmallVec<[u8; 8]>> = places.into_iter().collect();
    let Some(places) = places.filter(|_| perm.len() == rank) else {
        let m = format!("{perm:?} does not name each of {rank} axes once");
        return Err(wrong(kernel, Kind::Usage, m));
    };
    let moved = |a: u8| places.get(usize::from(a)).copied().unwrap_or(a);
    let mut changed = kernel.clone();
    changed.domain = perm.iter().map(|&a| kernel.domain[a]).collect();
    renamed(&mut changed, &|a| IndexExpr::Axis(moved(a)), &|a| SmallVec::from_iter([moved(a)]));
    let Schedule { order, tiles, vector } = &kernel.schedule;
    changed.schedule = Schedule {
        order: order.iter().map(|&a| moved(a)).collect(),
        tiles: if tiles.is_empty() {
            Extents::new()
        } else {
            perm.iter().filter_map(|&a| tiles.get(a).copied()).collect()
        },
        vector: vector.map(moved),
    };
    Ok(changed)
}

/// Splits an axis of the domain in two, `d = d * factor + d'`: tiles of this many places.
///
/// A tile of the schedule along the axis splits with it, and vectors along it run along the inner one.
///
/// # Errors
/// When there is no such axis, the factor does not divide its extent, the schedule's tile is neither a
/// multiple nor a divisor of the factor, or the kernel has as many axes as it may.
pub fn split(kernel: &Kernel, axis: usize, factor: i64) -> Result<Kernel, Diagnostic> {
    let refused = |kind, m: &str| Err(wrong(kernel, kind, format!("splitting d{axis}: {m}")));
    let Some(&n) = kernel.domain.get(axis) else {
        return refused(Kind::Usage, "the domain has no such axis");
    };
    if factor < 1 || n % factor != 0 {
        return refused(Kind::Usage, &format!("{factor} does not divide its extent {n}"));
    }
    let most = kernel.stages.iter().map(|s| s.axes.len()).max().unwrap_or(0);
    if kernel.domain.len() + most >= 2 * MAX_RANK {
        return refused(Kind::Limit, "the kernel has as many axes as it may");
    }
    let moved = |a: u8| if usize::from(a) > axis { a.saturating_add(1) } else { a };
    let (outer, inner) = (axis as u8, axis as u8 + 1);
    // Not folded, not even for a factor of 1: equal expressions must stay equal for the verifier.
    let sum = || {
        let outer = IndexExpr::Mul(Box::new(IndexExpr::Axis(outer)), factor);
        IndexExpr::Add(Box::new(outer), Box::new(IndexExpr::Axis(inner)))
    };
    let mut changed = kernel.clone();
    changed.domain[axis] = n / factor;
    changed.domain.insert(axis + 1, factor);
    let both = |a: u8| -> SmallVec<[u8; 2]> {
        match usize::from(a) == axis {
            true => SmallVec::from_iter([outer, inner]),
            false => SmallVec::from_iter([moved(a)]),
        }
    };
    let domain = changed.domain.clone();
    let long = |a: u8| domain.get(usize::from(a)).is_none_or(|&n| n != 1);
    let name = |a| if a == outer { sum() } else { IndexExpr::Axis(moved(a)) };
    renamed(&mut changed, &name, &|a| both(a).into_iter().filter(|&a| long(a)).collect());
    let schedule = &mut changed.schedule;
    schedule.order = kernel.schedule.order.iter().flat_map(|&a| both(a)).collect();
    schedule.vector = schedule.vector.map(|a| if a == outer { inner } else { moved(a) });
    if let Some(tile) = schedule.tiles.get_mut(axis) {
        let halves = match *tile {
            t if t % factor == 0 => (t / factor, factor),
            t if t >= 1 && factor % t == 0 => (1, t),
            t => return refused(Kind::Usage, &format!("{factor} does not fit its tiles of {t}")),
        };
        *tile = halves.0;
        schedule.tiles.insert(axis + 1, halves.1);
    }
    Ok(changed)
}

/// Lets vectors run along a coordinate.
///
/// # Errors
/// When the coordinate is not there, or is folded one element after the other. That a packed buffer is
/// packed along it is checked with the program.
pub fn vectorize(kernel: &Kernel, coordinate: usize) -> Result<Kernel, Diagnostic> {
    let mut changed = kernel.clone();
    let Ok(vector) = u8::try_from(coordinate) else {
        return Err(wrong(kernel, Kind::Usage, format!("there is no coordinate d{coordinate}")));
    };
    changed.schedule.vector = Some(vector);
    match scheduled(&changed) {
        Ok(()) => Ok(changed),
        Err(Wrong { kind, message }) => Err(wrong(kernel, kind, message)),
    }
}

fn wrong(kernel: &Kernel, kind: Kind, message: String) -> Diagnostic {
    let at = At { inst: Some(format!("kernel @{}", kernel.name).into()), ..At::default() };
    Diagnostic::new(at, kind, message)
}

/// Gives coordinates other names: `name` in expressions, `axes` where folds name them.
pub(super) fn renamed(
    kernel: &mut Kernel,
    name: &dyn Fn(u8) -> IndexExpr,
    axes: &dyn Fn(u8) -> SmallVec<[u8; 2]>,
) {
    kernel.stages.iter_mut().for_each(|stage| renamed_in(stage, name, axes));
}

pub(super) fn renamed_in(
    stage: &mut Stage,
    name: &dyn Fn(u8) -> IndexExpr,
    axes: &dyn Fn(u8) -> SmallVec<[u8; 2]>,
) {
    let params = stage.params.iter_mut().flat_map(Param::expressions_mut);
    params.for_each(|e| *e = expr(e, name));
    for sink in &mut stage.sinks {
        match sink {
            Sink::Store { index, .. } => index.iter_mut().for_each(|e| *e = expr(e, name)),
            Sink::Fold { runs, then, .. } => {
                renamed_in(then, name, axes);
                for run in runs.iter_mut() {
                    run.axes = run.axes.iter().flat_map(|&a| axes(a)).collect();
                }
                runs.retain(|run: &mut Run| !run.axes.is_empty());
            }
            // These name axes of the stage by their number among them.
            Sink::Reduce { .. } | Sink::Scan { .. } | Sink::Keep(_) | Sink::Leave(_) => {}
        }
    }
}

fn expr(e: &IndexExpr, name: &dyn Fn(u8) -> IndexExpr) -> IndexExpr {
    let inner = |a: &IndexExpr| Box::new(expr(a, name));
    match e {
        IndexExpr::Axis(a) => name(*a),
        IndexExpr::Const(_) | IndexExpr::Data { .. } => e.clone(),
        IndexExpr::Add(a, b) => IndexExpr::Add(inner(a), inner(b)),
        IndexExpr::Mul(a, c) => IndexExpr::Mul(inner(a), *c),
        IndexExpr::FloorDiv(a, c) => IndexExpr::FloorDiv(inner(a), *c),
        IndexExpr::Mod(a, c) => IndexExpr::Mod(inner(a), *c),
    }
}
