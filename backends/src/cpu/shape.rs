//! Arithmetic of extents: which folds are in the order of the points, and where they may be divided.

use super::codegen::fold::folds;
use super::fold::BlockPartition;
use crate::runtime::host_memory::too_much;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Extents, Kernel, Order, Run, Sink, Stage};

/// The cost of reading and storing an element, in primitives.
pub(super) const ACCESS: i64 = 6;

/// Elements of a tensor of these extents.
pub(super) fn checked_volume(extents: &[i64]) -> Result<i64, Diagnostic> {
    if extents.contains(&0) {
        return Ok(0);
    }
    let product = extents.iter().try_fold(1i64, |all, &n| all.checked_mul(n));
    product.filter(|&n| n < 1 << 60).ok_or_else(|| too_much(u64::MAX))
}

/// The order in which runs fold all of these axes, where they do so one place after the other.
pub(super) fn covers(runs: &[Run], axes: &[i64]) -> Option<Order> {
    let long = axes.iter().enumerate().filter(|(_, n)| **n != 1).map(|(a, _)| a);
    match runs {
        [] => Some(Order::Lane),
        [run] => run.axes.iter().map(|&a| usize::from(a)).eq(long).then_some(run.order),
        _ => None,
    }
}

/// The first run as one over the middle of three axes; `None` where its places are not in order.
pub(super) fn parted(runs: &[Run], extents: &[i64]) -> Result<Option<BlockPartition>, Diagnostic> {
    let Some(run) = runs.first() else {
        let outer = checked_volume(extents)? as usize;
        let order = Order::Chain;
        return Ok(Some(BlockPartition { outer, size: 1, inner: 1, order, blocks: 1 }));
    };
    let long: Vec<usize> = (0..extents.len()).filter(|&a| extents[a] != 1).collect();
    let axes: Vec<usize> = run.axes.iter().map(|&a| usize::from(a)).collect();
    let Some(at) = long.windows(axes.len()).position(|w| w == axes) else { return Ok(None) };
    let size_of = |axes: &[usize]| {
        checked_volume(&axes.iter().map(|&a| extents[a]).collect::<Vec<_>>()).map(|n| n as usize)
    };
    let (outer, size, inner) =
        (size_of(&long[..at])?, size_of(&axes)?, size_of(&long[at + axes.len()..])?);
    if run.order == Order::Lane && inner != 1 {
        return Ok(None);
    }
    let blocks = size.div_ceil(run.order.block() as usize);
    Ok(Some(BlockPartition { outer, size, inner, order: run.order, blocks }))
}

/// What is left of the axes after the first run.
pub(super) fn left(axes: &[i64], runs: &[Run]) -> Extents {
    let mut left: Extents = axes.into();
    let first = runs.first().into_iter().flat_map(|r| &r.axes);
    first.for_each(|&a| left[usize::from(a)] = 1);
    left
}

/// Values of a fold over the domain that are kept until all points are done, at most: more are folded block
/// by block as they come.
const KEPT: i64 = 1 << 14;

/// Elements of a row for which one value is little.
const ROW: i64 = 64;

/// Whether what a stage folds over the domain is a value for each of a few rows. Those are kept, since
/// tasks that take whole blocks of 1024 rows would be few.
pub(super) fn of_rows(kernel: &Kernel, stage: &Stage) -> Result<bool, Diagnostic> {
    let mut longest = 1;
    for s in &kernel.stages {
        longest = longest.max(checked_volume(&s.axes)?);
    }
    Ok(checked_volume(&stage.axes)? == 1
        && longest >= ROW
        && checked_volume(&kernel.domain)? <= KEPT)
}

/// A fold that the code of a sweep does block by block.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeFold {
    pub(super) by: BlockPartition,
    /// The first of the axes that fold first, by their numbers in the sweep, and one past the last.
    pub(super) axes: [usize; 2],
}

/// Shorter lines take longer in code, one after the other, than in Rust, from an array that is computed as
/// if it were one line.
const SHORT: i64 = 16;

/// Which sinks of a stage fold in code. Their first runs have to be of neighbouring axes, along lines or over
/// columns that are not short, of values that vectors hold; those of one sweep along lines are all along the
/// same.
pub(super) fn in_code(kernel: &Kernel, stage: &Stage) -> Result<Vec<Option<CodeFold>>, Diagnostic> {
    let domain = &kernel.domain;
    let kept = of_rows(kernel, stage)?;
    let all: Extents = domain.iter().chain(&stage.axes).copied().collect();
    let mut lines: Option<[usize; 2]> = None;
    let mut found = Vec::new();
    for (sink, &v) in stage.sinks.iter().zip(&stage.program.outputs) {
        let (monoid, runs, first) = match sink {
            Sink::Reduce { monoid, runs, .. } => (*monoid, runs, domain.len()),
            Sink::Fold { monoid, runs, .. } if !kept => (*monoid, runs, 0),
            Sink::Fold { .. }
            | Sink::Store { .. }
            | Sink::Keep(_)
            | Sink::Leave(_)
            | Sink::Scan { .. } => {
                found.push(None);
                continue;
            }
        };
        let here = parted(runs, &all[first..])?;
        let ends = runs.first().and_then(|r| Some((*r.axes.first()?, *r.axes.last()?)));
        let (Some(by), Some((from, to))) = (here, ends) else {
            found.push(None);
            continue;
        };
        let axes = [first + usize::from(from), first + usize::from(to) + 1];
        let last = |axes: &[i64]| axes.iter().rev().find(|n| **n != 1).copied().unwrap_or(1);
        let fits = match (by.order, by.inner) {
            (Order::Lane, _) => {
                last(&all[axes[0]..axes[1]]) >= SHORT && lines.is_none_or(|l| l == axes)
            }
            (Order::Chain, 1) => false,
            (Order::Chain, _) => last(&all[axes[1]..]) >= SHORT,
        };
        let full = !all.contains(&0);
        let fits = fits && full && folds(monoid, stage.program.insts[v].dtype);
        if fits && by.order == Order::Lane {
            lines = Some(axes);
        }
        found.push(fits.then_some(CodeFold { by, axes }));
    }
    Ok(found)
}

/// The least number of points, a multiple of `grain`, after which no block of a fold is cut, of `volume`
/// places each; `None` where there is none.
pub(super) fn granule(grain: i64, by: &BlockPartition, volume: i64) -> Option<i64> {
    let line = i64::try_from(by.size.checked_mul(by.inner)?).ok()?;
    let block = i64::try_from(by.inner.checked_mul(by.order.block() as usize)?).ok()?;
    // Where there is nothing, nothing is cut.
    if line <= 0 || volume <= 0 {
        return Some(grain);
    }
    let unit = match by.blocks {
        0 | 1 => line,
        _ if by.outer == 1 || line % block == 0 => block,
        _ => line,
    };
    let points = unit / gcd(unit, volume);
    let all = (grain / gcd(grain, points)).checked_mul(points)?;
    (all < 1 << 50).then_some(all)
}

/// The greatest common divisor; what 0 is divided by does not matter.
pub(super) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
