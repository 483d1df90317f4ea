//! Turns schedules into loops: rewrites a kernel so that its coordinates are the loops of its schedule.

use super::schedule::{interchange, renamed, renamed_in, split};
use super::stage::{Kernel, Schedule, Sink, Stage};
use crate::diag::Diagnostic;
use crate::index::IndexExpr;
use smallvec::SmallVec;

/// The kernels that, one after the other, do what a kernel does, each in the order of its coordinates:
/// the first is the outermost loop, vectors run along the last, and nothing is left of the schedule.
///
/// A kernel without a schedule is the only one. There are several where tiles do not divide an extent:
/// the last places of an axis, fewer than a tile, are a kernel of their own. Each writes a part of what
/// the kernel writes, so that they verify together and not alone.
///
/// # Errors
/// Where the schedule does not fit the kernel, which no verified one does.
pub fn loops(kernel: &Kernel) -> Result<SmallVec<[Kernel; 1]>, Diagnostic> {
    let mut made = SmallVec::new();
    if kernel.schedule == Schedule::default() {
        made.push(kernel.clone());
        return Ok(made);
    }
    for part in parts(kernel) {
        made.push(match scanned_together(&part) {
            Some(axis) => abreast(part, axis)?,
            None => walked(part)?,
        });
    }
    Ok(made)
}

/// Parts of a domain whose tiles divide their extents, in the order of their first points.
pub(super) fn parts(kernel: &Kernel) -> Vec<Kernel> {
    let mut parts = vec![kernel.clone()];
    for (axis, (&tile, &n)) in kernel.schedule.tiles.iter().zip(&kernel.domain).enumerate() {
        let rest = n % tile.max(1);
        if rest == 0 {
            continue;
        }
        let both = |part: &Kernel| [range(part, axis, 0, n - rest), range(part, axis, n - rest, n)];
        parts = parts.iter().flat_map(both).filter(|p| p.domain[axis] > 0).collect();
    }
    parts
}

/// The kernel at places `from..to` of an axis.
fn range(kernel: &Kernel, axis: usize, from: i64, to: i64) -> Kernel {
    let mut part = kernel.clone();
    part.domain[axis] = to - from;
    if let Some(tile) = part.schedule.tiles.get_mut(axis) {
        *tile = (*tile).min(to - from).max(1);
    }
    if from > 0 {
        let name = |a: u8| match usize::from(a) == axis {
            true => IndexExpr::axis(axis).plus(from),
            false => IndexExpr::Axis(a),
        };
        renamed(&mut part, &name, &|a| SmallVec::from_iter([a]));
    }
    part
}

/// The one axis with tiles whose points are scanned together.
fn scanned_together(kernel: &Kernel) -> Option<usize> {
    let Schedule { order, tiles, vector } = &kernel.schedule;
    let mut tiled = (0..tiles.len()).filter(|&a| tiles[a] > 1);
    let axis = tiled.next().filter(|_| order.is_empty() && vector.is_none())?;
    (tiled.next().is_none() && kernel.scans_abreast()).then_some(axis)
}

/// A kernel with scans whose tile divides its extent, with the points of the tile along the last axis of each stage: strip
/// mining. What was scanned point by point goes through rows of neighbours.
fn abreast(mut kernel: Kernel, axis: usize) -> Result<Kernel, Diagnostic> {
    let Schedule { tiles, .. } = std::mem::take(&mut kernel.schedule);
    let mut points = axis;
    if tiles[axis] < kernel.domain[axis] {
        kernel = split(&kernel, axis, tiles[axis])?;
        points += 1;
    }
    let last = kernel.domain.len() - 1;
    let order: SmallVec<[usize; 8]> = (0..=last).filter(|&a| a != points).chain([points]).collect();
    let mut kernel = interchange(&kernel, &order)?;
    let tile = kernel.domain.remove(last);
    for stage in &mut kernel.stages {
        let own = stage.axes.len();
        let place = |a: u8| match usize::from(a) {
            k if k == last => (last + own) as u8,
            k if k > last => a - 1,
            _ => a,
        };
        renamed_in(stage, &|a| IndexExpr::Axis(place(a)), &|a| SmallVec::from_iter([place(a)]));
        stage.axes.push(tile);
    }
    kernel.tiles.values_mut().for_each(|data| data.dims.push(tile));
    Ok(kernel)
}

/// A kernel whose tiles divide their extents, with its loops in order.
fn walked(mut kernel: Kernel) -> Result<Kernel, Diagnostic> {
    let rank = kernel.domain.len();
    let Schedule { order, tiles, vector } = std::mem::take(&mut kernel.schedule);
    if let Some(axis) = vector.and_then(|c| usize::from(c).checked_sub(rank)) {
        kernel.stages.iter_mut().for_each(|stage| innermost(stage, rank, axis));
    }
    let order: SmallVec<[usize; 8]> = match order.is_empty() {
        true => (0..rank).collect(),
        false => order.iter().map(|&a| a.into()).collect(),
    };
    // Where each axis is among the loops over tiles, and where among those within one.
    let mut halves: SmallVec<[[Option<usize>; 2]; 8]> =
        (0..rank).map(|a| [Some(a), None]).collect();
    for axis in (0..rank).rev() {
        match tiles.get(axis) {
            None | Some(1) => {}
            Some(&tile) if tile < kernel.domain[axis] => {
                kernel = split(&kernel, axis, tile)?;
                halves[axis][1] = Some(axis + 1);
                halves[axis + 1..].iter_mut().flatten().flatten().for_each(|place| *place += 1);
            }
            Some(_) => halves[axis] = [None, Some(axis)],
        }
    }
    let mut within = order.clone();
    if let Some(v) = vector.map(usize::from).filter(|&v| v < rank) {
        within.retain(|a| *a != v);
        within.push(v);
        // An axis that has no tiles has all its places within each one.
        if let [whole @ Some(_), None] = halves[v] {
            halves[v] = [None, whole];
        }
    }
    let outer = order.iter().filter_map(|&a| halves[a][0]);
    let within = within.iter().filter_map(|&a| halves[a][1]);
    let loops: SmallVec<[usize; 8]> = outer.chain(within).collect();
    match loops.iter().enumerate().all(|(k, &a)| k == a) {
        true => Ok(kernel),
        false => interchange(&kernel, &loops),
    }
}

/// Makes an axis of a stage its last. `rank` is the number of the domain's axes.
fn innermost(stage: &mut Stage, rank: usize, axis: usize) {
    let Some(last) = stage.axes.len().checked_sub(1).filter(|&last| axis < last) else { return };
    let n = stage.axes.remove(axis);
    stage.axes.push(n);
    let moved = |a: u8| match usize::from(a) {
        k if k == axis => last as u8,
        k if k > axis => a - 1,
        _ => a,
    };
    // Of all coordinates, the domain's first.
    let place = |a: u8| match usize::from(a).checked_sub(rank) {
        Some(k) => rank as u8 + moved(k as u8),
        None => a,
    };
    renamed_in(stage, &|a| IndexExpr::Axis(place(a)), &|a| SmallVec::from_iter([place(a)]));
    for sink in &mut stage.sinks {
        match sink {
            Sink::Reduce { runs, .. } => {
                runs.iter_mut().flat_map(|r| &mut r.axes).for_each(|a| *a = moved(*a));
            }
            Sink::Scan { axis, .. } => *axis = moved(*axis),
            Sink::Store { .. } | Sink::Fold { .. } | Sink::Keep(_) | Sink::Leave(_) => {}
        }
    }
}
