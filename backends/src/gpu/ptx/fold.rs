//! Flat loops that fold over points: parts in the strict order, by warps where the order is that of
//! lanes and by threads where it is a chain, and the tree that joins the parts.

use super::address::Vars;
use super::asm::{Class, Reg};
use super::elementwise::{Neighbours, neighbours};
use super::emit::{At, Emit};
use super::entry::{Out, begun, single};
use super::fold_order::{Fold, Shape};
use super::operands::constant;
use super::partial_fold::Part;
use super::tree_fold::joined;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::shape::{axes, free, load, only, output_type, volume};
use crate::gpu::schedule::work::{Flat, Lowering};
use crate::gpu::target::THREADS;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Order, Sink, Stage, Storage};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{SInst, SOp};
use adfuse_ir::{DType, Diagnostic};
use smallvec::SmallVec;

/// Lanes of a warp.
const LANES: i64 = 32;

/// The folds of a loop by their shapes, each with the numbers of their sinks.
fn shapes(flat: &Flat) -> Vec<(Shape, Vec<usize>)> {
    let mut found: Vec<(Shape, Vec<usize>)> = Vec::new();
    for (k, sink) in flat.stage.sinks.iter().enumerate() {
        let Sink::Fold { monoid, runs, .. } = sink else { continue };
        let dtype = output_type(&flat.stage, k);
        let shape = shape(&flat.domain, runs.first(), *monoid, dtype);
        match found.iter_mut().find(|(s, _)| *s == shape) {
            Some((_, list)) => list.push(k),
            None => found.push((shape, vec![k])),
        }
    }
    found
}

fn shape(domain: &[i64], run: Option<&adfuse_ir::kernel::Run>, monoid: Monoid, d: DType) -> Shape {
    let axes: Vec<usize> =
        run.map_or(Vec::new(), |r| r.axes.iter().map(|&a| usize::from(a)).collect());
    let kept: Vec<usize> = (0..domain.len()).filter(|a| !axes.contains(a)).collect();
    let count = axes.iter().fold(1i64, |n, &a| n.saturating_mul(domain[a]));
    let kept_extents: Extents = kept.iter().map(|&a| domain[a]).collect();
    let mut order = run.map_or(Order::Chain, |r| r.order);
    if free(monoid, d) {
        // In any order: by warps along the fastest axis, by threads along others.
        let fastest = domain.iter().rposition(|&n| n != 1);
        let along = fastest.is_some_and(|a| axes.contains(&a));
        order = if along && count > 8 { Order::Lane } else { Order::Chain };
    }
    Shape { axes, order, count, kept, kept_extents }
}

/// Launches a flat loop.
pub(crate) fn flat(low: &mut Lowering, out: &mut Out, flat: &Flat) -> Result<(), Diagnostic> {
    let shapes = shapes(flat);
    let stores: Vec<usize> = (0..flat.stage.sinks.len())
        .filter(|&k| matches!(flat.stage.sinks[k], Sink::Store { .. }))
        .collect();
    // Stores go with the first fold that comes by every point, or alone.
    let host = shapes.iter().position(|(s, _)| s.count > 0 && volume(&flat.domain) > 0);
    if host.is_none() && !stores.is_empty() {
        let stage = only(&flat.stage, &stores);
        let own = Flat { domain: flat.domain.clone(), stage };
        crate::gpu::ptx::elementwise::stores(low, out, &own)?;
    }
    for (n, (shape, folds)) in shapes.iter().enumerate() {
        let mut sinks = folds.clone();
        if host == Some(n) {
            sinks.extend(&stores);
        }
        let mut stage = only(&flat.stage, &sinks);
        if host.is_some_and(|host| host < n) {
            stage = again(low, &flat.stage, folds).unwrap_or(stage);
        }
        launch(low, out, &flat.domain, &stage, shape)?;
    }
    Ok(())
}

/// Folds of values that an earlier launch has stored, of what is in memory; `None` where one is not.
fn again(low: &Lowering, stage: &Stage, folds: &[usize]) -> Option<Stage> {
    let mut found = Stage::default();
    for (number, &k) in (0u32..).zip(folds) {
        let value = stage.program.outputs[k];
        let dtype = stage.program.insts[value].dtype;
        let stored =
            stage.sinks.iter().zip(&stage.program.outputs).find_map(|(sink, v)| match sink {
                Sink::Store { buffer, index } if *v == value => Some((*buffer, index.clone())),
                _ => None,
            });
        let (b, index) = stored?;
        // Packed elements have lost bits.
        let data = &low.program.buffers[b];
        if data.storage != Storage::Plain || data.dtype != dtype {
            return None;
        }
        found.params.push(load(b, index));
        found.program.params.push(dtype);
        let op = SOp::Param(number);
        let value = found.program.insts.push(SInst { op, args: SmallVec::new(), dtype });
        found.program.outputs.push(value);
        found.sinks.push(stage.sinks[k].clone());
    }
    Some(found)
}

fn launch(
    low: &mut Lowering,
    out: &mut Out,
    domain: &Extents,
    stage: &Stage,
    shape: &Shape,
) -> Result<(), Diagnostic> {
    let results = shape.results();
    if results == 0 {
        return Ok(());
    }
    let blocks = shape.blocks();
    let mut folds = Vec::new();
    for (k, sink) in stage.sinks.iter().enumerate() {
        let Sink::Fold { monoid, then, .. } = sink else { continue };
        let dtype = output_type(stage, k);
        let parts = (blocks > 1).then(|| {
            // By lanes, parts of one result are neighbours; of chains, parts of neighbouring results are.
            let dims = match shape.order {
                Order::Lane => Extents::from_iter([results, blocks]),
                Order::Chain => Extents::from_iter([blocks, results]),
            };
            let value = low.temp(dtype, dims.clone());
            (value, monoid.is_arg().then(|| low.temp(DType::I32, dims)))
        });
        folds.push(Fold { monoid: *monoid, dtype, then: then.as_ref().clone(), parts });
    }
    match (shape.count, shape.order) {
        (0, _) => empty(low, out, domain, shape, &folds)?,
        (_, Order::Lane) => lanes(low, out, domain, stage, shape, &folds)?,
        (_, Order::Chain) => chains(low, out, domain, stage, shape, &folds)?,
    }
    for fold in &folds {
        if let Some(parts) = fold.parts {
            joined(low, out, domain, shape, fold, parts, blocks)?;
        }
    }
    Ok(())
}

/// Nothing is folded: the monoid's own value, and what follows.
fn empty(
    low: &Lowering,
    out: &mut Out,
    domain: &Extents,
    shape: &Shape,
    folds: &[Fold],
) -> Result<(), Diagnostic> {
    let results = shape.results();
    let mut emit = begun(low, out);
    let (id, live) = emit.thread(results, THREADS, false);
    emit.leave_unless(live);
    let (vars, place) = single(id, results);
    let kept = coordinates(&place, &shape.kept_extents);
    let coords = shape.remaining(&kept, domain.len());
    for fold in folds {
        let value = constant(&mut emit.asm, fold.monoid.empty(fold.dtype));
        emit.follow(&fold.then, value, &At { vars: &vars, coords: &coords });
    }
    out.launch(&low.homes, emit, blocks_of(results, THREADS), THREADS, 0)
}

pub(crate) fn blocks_of(threads: i64, per: u32) -> i64 {
    (threads - 1) / i64::from(per) + 1
}

/// How many turns are written one after the other in a loop: their loads are under way together.
fn unrolled(turns: i64, instructions: usize, most: i64) -> i64 {
    let heavy = (400 / (instructions as i64 + 1)).clamp(1, most);
    (1..=heavy).rev().find(|u| turns % u == 0).unwrap_or(1)
}

/// By warps, or parts of warps where fewer elements fold: each lane takes what the lane order gives it.
fn lanes(
    low: &Lowering,
    out: &mut Out,
    domain: &Extents,
    stage: &Stage,
    shape: &Shape,
    folds: &[Fold],
) -> Result<(), Diagnostic> {
    let (n, blocks, results) = (shape.count, shape.blocks(), shape.results());
    let team = (n.min(LANES) as u64).next_power_of_two() as i64;
    let turns = (n.min(shape.block()) + team - 1) / team;
    let teams = results * blocks;
    let mut emit = begun(low, out);
    let (id, live) = emit.thread(teams * team, THREADS, true);
    let mut vars = Vars::default();
    let thread = vars.push(id, teams * team);
    let (which, lane) = (thread.clone().floor_div(team), thread.modulo(team));
    let (result, block) = (which.clone().floor_div(blocks), which.modulo(blocks));
    let kept = coordinates(&result, &shape.kept_extents);
    let program = emit.written(&stage.program);
    let unroll = unrolled(turns, program.insts.len(), 8);
    let accs: Vec<Part> = folds
        .iter()
        .map(|f| {
            let part = emit.empty_part(f.monoid, f.dtype);
            emit.kept_part(part)
        })
        .collect();
    let (l, turn) = emit.repeat(turns / unroll);
    let mut inner = vars.clone();
    let turn = inner.push(turn, turns / unroll);
    let mut now = accs.clone();
    for u in 0..unroll {
        let number = turn.clone().times(unroll).plus(u);
        let first = block.clone().times(turns).sum(number).times(team);
        let mut own = inner.clone();
        let here = emit.below(&mut own, &first.sum(lane.clone()), n);
        let (place, valid, reg) = (here.place, here.valid, Some(here.number));
        let coords = shape.coords(&kept, &place, domain);
        let at = At { vars: &own, coords: &coords };
        let values = emit.outputs(stage, &program, &at, &mut |_, _, _| None);
        let stored = emit.all(live, valid);
        sinks(&mut emit, stage, folds, &values, &at, stored, valid, reg, &mut now);
    }
    for (&acc, &part) in accs.iter().zip(&now) {
        emit.set_part(acc, part);
    }
    emit.again(l);
    let mut results_now = Vec::new();
    for (fold, &acc) in folds.iter().zip(&accs) {
        let mut part = acc;
        let mut half = team / 2;
        while half > 0 {
            let other = emit.exchanged_part(part, half as u32);
            part = emit.join(fold.monoid, fold.dtype, part, other);
            half /= 2;
        }
        results_now.push(part);
    }
    let first = crate::gpu::ptx::address::resolved(&lane, &emit.same(&vars), &vars);
    let x = crate::gpu::ptx::address::value(&mut emit.asm, &first, &vars, &[]);
    let s = if x.class == Class::Long { "s64" } else { "s32" };
    let leads = emit.asm.pure(Class::Pred, &format!("setp.eq.{s}"), format_args!("{x}, 0"));
    let leads = emit.all(Some(leads), live);
    emit.when(leads, |emit| {
        finish(emit, domain, shape, folds, &results_now, &vars, &kept, [&result, &block]);
    });
    out.launch(&low.homes, emit, blocks_of(teams * team, THREADS), THREADS, 0)
}

/// What becomes of the values at one point: stored, or joined with what there is.
#[allow(clippy::too_many_arguments)]
fn sinks(
    emit: &mut Emit<'_>,
    stage: &Stage,
    folds: &[Fold],
    values: &[Reg],
    at: &At<'_>,
    stored: Option<Reg>,
    valid: Option<Reg>,
    place: Option<Reg>,
    now: &mut [Part],
) {
    let mut number = 0;
    for (sink, &value) in stage.sinks.iter().zip(values) {
        match sink {
            Sink::Store { buffer, index } => emit.store(*buffer, index, value, at, stored),
            Sink::Fold { .. } => {
                let fold = &folds[number];
                let place = match (fold.monoid.is_arg(), place) {
                    (true, Some(p)) if p.class == Class::Long => {
                        Some(emit.asm.pure(Class::Word, "cvt.u32.u64", p))
                    }
                    (true, p) => p,
                    _ => None,
                };
                let part = Part { value, place };
                let part = emit.part_if(valid, part, fold.monoid, fold.dtype);
                now[number] = emit.join(fold.monoid, fold.dtype, now[number], part);
                number += 1;
            }
            _ => {}
        }
    }
}

/// Stores parts, or goes on with results.
#[allow(clippy::too_many_arguments)]
fn finish(
    emit: &mut Emit<'_>,
    domain: &Extents,
    shape: &Shape,
    folds: &[Fold],
    parts: &[Part],
    vars: &Vars,
    kept: &[IndexExpr],
    [result, block]: [&IndexExpr; 2],
) {
    let pair = match shape.order {
        Order::Lane => [result.clone(), block.clone()],
        Order::Chain => [block.clone(), result.clone()],
    };
    let remaining = shape.remaining(kept, domain.len());
    for (fold, part) in folds.iter().zip(parts) {
        match fold.parts {
            Some((values, places)) => {
                let at = At { vars, coords: &pair };
                emit.store(values, &axes(2), part.value, &at, None);
                if let (Some(b), Some(place)) = (places, part.place) {
                    emit.store(b, &axes(2), place, &at, None);
                }
            }
            None => {
                let value = part.place.unwrap_or(part.value);
                emit.follow(&fold.then, value, &At { vars, coords: &remaining });
            }
        }
    }
}

/// By threads: each takes a block of a chain, for neighbouring results.
fn chains(
    low: &Lowering,
    out: &mut Out,
    domain: &Extents,
    stage: &Stage,
    shape: &Shape,
    folds: &[Fold],
) -> Result<(), Diagnostic> {
    let (n, blocks, results) = (shape.count, shape.blocks(), shape.results());
    let turns = n.min(shape.block());
    let mut emit = begun(low, out);
    let program = emit.written(&stage.program);
    let width = chain_width(&emit, domain, stage, shape, program.insts.len());
    let groups = results / width;
    let total = groups * blocks;
    let (id, live) = emit.thread(total, THREADS, false);
    emit.leave_unless(live);
    let (vars, thread) = single(id, total);
    let (block, group) = (thread.clone().floor_div(groups), thread.modulo(groups));
    let Some(kept) = columns(&vars, &group, &shape.kept_extents, width) else { return Ok(()) };
    let unroll =
        unrolled(turns, program.insts.len() * width as usize, if width > 1 { 4 } else { 8 });
    let mut accs: Vec<Vec<Part>> = Vec::new();
    for _ in 0..width {
        let mut list = Vec::new();
        for f in folds {
            let part = emit.empty_part(f.monoid, f.dtype);
            list.push(emit.kept_part(part));
        }
        accs.push(list);
    }
    let (l, turn) = emit.repeat(turns / unroll);
    let mut inner = vars.clone();
    let turn = inner.push(turn, turns / unroll);
    let mut now = accs.clone();
    for u in 0..unroll {
        let number = turn.clone().times(unroll).plus(u);
        let mut own = inner.clone();
        let here = emit.below(&mut own, &block.clone().times(turns).sum(number), n);
        let (place, valid, reg) = (here.place, here.valid, Some(here.number));
        let coords: Vec<Vec<IndexExpr>> =
            kept.iter().map(|kept| shape.coords(kept, &place, domain)).collect();
        let near = Neighbours { vars: own.clone(), coords };
        let loaded = emit.loaded(stage, &near);
        let mut stored: Vec<Vec<Reg>> = vec![Vec::new(); stage.sinks.len()];
        for (j, coords) in near.coords.iter().enumerate() {
            let at = At { vars: &own, coords };
            let values = emit.outputs(stage, &program, &at, &mut |_, k, _| {
                loaded.get(&k).and_then(|regs| regs.get(j)).copied()
            });
            let folding = Stage {
                sinks: stage
                    .sinks
                    .iter()
                    .filter(|s| matches!(s, Sink::Fold { .. }))
                    .cloned()
                    .collect(),
                ..Stage::default()
            };
            let mut only_folds = Vec::new();
            for (k, (sink, &value)) in stage.sinks.iter().zip(&values).enumerate() {
                match sink {
                    Sink::Fold { .. } => only_folds.push(value),
                    _ => stored[k].push(value),
                }
            }
            sinks(&mut emit, &folding, folds, &only_folds, &at, None, valid, reg, &mut now[j]);
        }
        for (sink, values) in stage.sinks.iter().zip(&stored) {
            if let Sink::Store { buffer, index } = sink {
                emit.store_row(*buffer, index, values, &near, valid);
            }
        }
    }
    for (accs, now) in accs.iter().zip(&now) {
        for (&acc, &part) in accs.iter().zip(now) {
            emit.set_part(acc, part);
        }
    }
    emit.again(l);
    for (j, (kept, parts)) in kept.iter().zip(&accs).enumerate() {
        let result = group.clone().times(width).plus(j as i64);
        finish(&mut emit, domain, shape, folds, parts, &vars, kept, [&result, &block]);
    }
    out.launch(&low.homes, emit, blocks_of(total, THREADS), THREADS, 0)
}

/// The coordinates that remain, of neighbouring results.
fn columns(
    vars: &Vars,
    group: &IndexExpr,
    extents: &[i64],
    width: i64,
) -> Option<Vec<Vec<IndexExpr>>> {
    let _ = vars;
    let last = extents.iter().rposition(|&n| n != 1);
    let Some(last) = last.filter(|&a| extents[a] % width == 0) else {
        return (width == 1).then(|| vec![coordinates(group, extents)]);
    };
    let mut groups = extents.to_vec();
    groups[last] /= width;
    let of = |j: i64| {
        let mut at = coordinates(group, &groups);
        at[last] = at[last].clone().times(width).plus(j);
        at
    };
    Some((0..width).map(of).collect())
}

/// How many neighbouring results a thread has: four where they are in a row in memory, and threads
/// enough are left.
fn chain_width(
    emit: &Emit<'_>,
    domain: &Extents,
    stage: &Stage,
    shape: &Shape,
    instructions: usize,
) -> i64 {
    let last = domain.iter().rposition(|&n| n != 1);
    let fits = last.is_some_and(|a| shape.kept.contains(&a) && domain[a] % 4 == 0);
    let threads = shape.results() / 4 * shape.blocks();
    let alone = stage.sinks.iter().filter(|s| matches!(s, Sink::Fold { .. })).count() <= 2;
    if !fits || !alone || threads < 1 << 15 || instructions > 150 {
        return 1;
    }
    let mut scratch = Emit::new(emit.program, emit.fp);
    let group = scratch.asm.fresh(Class::Word);
    match neighbours(group, domain, 4) {
        Some(n) if scratch.in_rows(stage, &n) > 0 => 4,
        _ => 1,
    }
}
