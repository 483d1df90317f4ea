//! The balanced tree that joins parts of folds in memory.

use super::emit::At;
use super::fold::{Fold, Shape, blocks_of};
use super::launch::{Out, THREADS, begun, single};
use super::lower::{Join, Lowering, axes};
use super::part::Part;
use super::place::coordinates;
use adfuse_ir::DType;
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Order};

/// Parts that one thread joins.
const RADIX: i64 = 32;

/// Launches the joining of parts that are in memory, the last axes of their domain folded.
pub(super) fn join(low: &mut Lowering, out: &mut Out, join: &Join) -> Result<(), Diagnostic> {
    let Join { from, domain, folded, monoid, dtype, then } = join;
    let kept: Vec<usize> = (0..domain.len()).filter(|a| !folded.contains(a)).collect();
    let shape = Shape {
        count: folded.iter().map(|&a| domain[a]).product(),
        kept_extents: kept.iter().map(|&a| domain[a]).collect(),
        kept,
        axes: folded.clone(),
        order: Order::Lane,
    };
    let fold = Fold { monoid: *monoid, dtype: *dtype, then: then.clone(), parts: None };
    let count = shape.count;
    // As rows of parts, whatever the axes.
    let dims = Extents::from_iter([shape.results(), count]);
    let rows = low.alias(*from, dims);
    joined(low, out, domain, &shape, &fold, (rows, None), count)
}

/// Joins parts in the balanced tree, so many a thread, until one is left, and goes on with that.
pub(super) fn joined(
    low: &mut Lowering,
    out: &mut Out,
    domain: &Extents,
    shape: &Shape,
    fold: &Fold,
    parts: (Buffer, Option<Buffer>),
    blocks: i64,
) -> Result<(), Diagnostic> {
    let results = shape.results();
    let (mut from, mut count) = (parts, blocks);
    loop {
        let radix = RADIX.min((count as u64).next_power_of_two() as i64);
        let groups = (count + radix - 1) / radix;
        let to = (groups > 1).then(|| {
            let dims = match shape.order {
                Order::Lane => Extents::from_iter([results, groups]),
                Order::Chain => Extents::from_iter([groups, results]),
            };
            let value = low.temp(fold.dtype, dims.clone());
            (value, from.1.map(|_| low.temp(DType::I32, dims)))
        });
        level(low, out, domain, shape, fold, (from, count), to, radix)?;
        let Some(next) = to else { break };
        (from, count) = (next, groups);
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn level(
    low: &Lowering,
    out: &mut Out,
    domain: &Extents,
    shape: &Shape,
    fold: &Fold,
    (from, count): ((Buffer, Option<Buffer>), i64),
    to: Option<(Buffer, Option<Buffer>)>,
    radix: i64,
) -> Result<(), Diagnostic> {
    let results = shape.results();
    let groups = (count + radix - 1) / radix;
    let mut emit = begun(low, out);
    let (id, live) = emit.thread(groups * results, THREADS, false);
    emit.leave_unless(live);
    let (vars, thread) = single(id, groups * results);
    let (group, result) = match shape.order {
        Order::Lane => (thread.clone().modulo(groups), thread.floor_div(groups)),
        Order::Chain => (thread.clone().floor_div(results), thread.modulo(results)),
    };
    let pair = |part: &IndexExpr| match shape.order {
        Order::Lane => [result.clone(), part.clone()],
        Order::Chain => [part.clone(), result.clone()],
    };
    // All loads, then the tree.
    let mut parts = Vec::new();
    for r in 0..radix.min(count) {
        let number = group.clone().times(radix).plus(r);
        let mut own = vars.clone();
        let here = emit.below(&mut own, &number, count);
        let (valid, place) = (here.valid, here.place);
        let coords = pair(&place);
        let at = At { vars: &own, coords: &coords };
        let value = emit.element_of(from.0, &at);
        let place = from.1.map(|b| emit.element_of(b, &at));
        let part = Part { value, place };
        parts.push(emit.part_if(valid, part, fold.monoid, fold.dtype));
    }
    while parts.len() > 1 {
        let pairs: Vec<Vec<Part>> = parts.chunks(2).map(<[Part]>::to_vec).collect();
        parts = pairs
            .iter()
            .map(|pair| match *pair.as_slice() {
                [a, b] => emit.join(fold.monoid, fold.dtype, a, b),
                _ => pair[0],
            })
            .collect();
    }
    let Some(&part) = parts.first() else { return Ok(()) };
    match to {
        Some((values, places)) => {
            let coords = pair(&group);
            let at = At { vars: &vars, coords: &coords };
            emit.store(values, &axes(2), part.value, &at, None);
            if let (Some(b), Some(place)) = (places, part.place) {
                emit.store(b, &axes(2), place, &at, None);
            }
        }
        None => {
            let kept = coordinates(&result, &shape.kept_extents);
            let coords = shape.remaining(&kept, domain.len());
            let value = part.place.unwrap_or(part.value);
            emit.follow(&fold.then, value, &At { vars: &vars, coords: &coords });
        }
    }
    out.launch(&low.homes, emit, blocks_of(groups * results, THREADS), THREADS, 0)
}
