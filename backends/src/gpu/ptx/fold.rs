//! Flat loops that fold over points: parts in the strict order, by warps where the order is that of
//! lanes and by threads where it is a chain, and the tree that joins the parts.

use super::address::Vars;
use super::asm::{Class, Reg};
use super::elementwise::Neighbours;
use super::emit::{At, Emit};
use super::entry::{Out, begun, single};
use super::operands::constant;
use super::partial_fold::Part;
use super::tree_fold::joined;
use crate::gpu::schedule::fold::{FoldDecision, FoldLoop, ScheduledFold};
use crate::gpu::schedule::fold_order::{FoldResult, FoldShape};
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::axes;
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Order, Sink, Stage};
use adfuse_ir::scalar::ScalarProgram;

/// Launches a flat loop with folds, and what joins their parts.
pub(crate) fn fold(s: &GpuSchedule, out: &mut Out, f: &ScheduledFold) -> Result<(), Diagnostic> {
    match (f.shape.count, f.shape.order) {
        (0, _) => empty(s, out, f)?,
        (_, Order::Lane) => lanes(s, out, f)?,
        (_, Order::Chain) => chains(s, out, f)?,
    }
    joined(s, out, &f.trees)
}

/// Nothing is folded: the monoid's own value, and what follows.
fn empty(s: &GpuSchedule, out: &mut Out, f: &ScheduledFold) -> Result<(), Diagnostic> {
    let ScheduledFold { domain, shape, folds, .. } = f;
    let grid = f.decision.grid;
    let results = shape.results();
    let mut emit = begun(s, out);
    let (id, live) = emit.thread(results, grid.threads, false);
    emit.leave_unless(live);
    let (vars, place) = single(id, results);
    let kept = coordinates(&place, &shape.kept_extents);
    let coords = shape.remaining(&kept, domain.len());
    for fold in folds {
        let value = constant(&mut emit.asm, fold.monoid.empty(fold.dtype));
        emit.follow(&fold.then, value, &At { vars: &vars, coords: &coords });
    }
    out.launch(&s.homes, emit, grid.blocks(results), grid, 0)
}

/// By warps, or parts of warps where fewer elements fold: each lane takes what the lane order gives it.
fn lanes(s: &GpuSchedule, out: &mut Out, f: &ScheduledFold) -> Result<(), Diagnostic> {
    let ScheduledFold { domain, stage, shape, folds, .. } = f;
    let FoldDecision { grid, unroll, width, .. } = f.decision;
    let (groups, blocks, results) = (shape.count / width, shape.blocks(), shape.results());
    let (team, turns) = (FoldLoop::team(shape, width), FoldLoop::turns(shape, width));
    let teams = results * blocks;
    let mut emit = begun(s, out);
    let (id, live) = emit.thread(teams * team, grid.threads, true);
    let mut vars = Vars::default();
    let thread = vars.push(id, teams * team);
    let (which, lane) = (thread.clone().floor_div(team), thread.modulo(team));
    let (result, block) = (which.clone().floor_div(blocks), which.modulo(blocks));
    let kept = coordinates(&result, &shape.kept_extents);
    let program = emit.written(&stage.program);
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
    let mut now = vec![accs.clone()];
    for u in 0..unroll {
        let number = turn.clone().times(unroll).plus(u);
        let first = block.clone().times(turns).sum(number).times(team);
        let mut own = inner.clone();
        let here = emit.below(&mut own, &first.sum(lane.clone()), groups);
        let (place, valid) = (here.number, here.valid);
        if width == 1 {
            let coords = shape.coords(&kept, &here.place, domain);
            let at = At { vars: &own, coords: &coords };
            let values = emit.outputs(stage, &program, &at, &mut |_, _, _| None);
            let when = PointConditions { stored: emit.all(live, valid), valid };
            sinks(&mut emit, stage, folds, &values, &at, when, Some(place), &mut now[0]);
            continue;
        }
        let when = PointConditions { stored: emit.all(live, valid), valid };
        let coords = shape.near(&kept, &here.place, (domain, width));
        let near = Neighbours { coords, vars: own };
        folded(&mut emit, (stage, folds, &program), &near, when, Some(place), &mut now);
    }
    for (&acc, &part) in accs.iter().zip(&now[0]) {
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
    let width = if x.class == Class::Long { "s64" } else { "s32" };
    let leads = emit.asm.pure(Class::Pred, &format!("setp.eq.{width}"), format_args!("{x}, 0"));
    let leads = emit.all(Some(leads), live);
    emit.when(leads, |emit| {
        finish(emit, domain, shape, folds, &results_now, &vars, &kept, [&result, &block]);
    });
    out.launch(&s.homes, emit, grid.blocks(teams * team), grid, 0)
}

/// Under which conditions values are stored and folded.
#[derive(Clone, Copy)]
struct PointConditions {
    stored: Option<Reg>,
    valid: Option<Reg>,
}

/// What becomes of the values at neighbouring points: stored as a row, or joined with what there is, by the points in turn.
fn folded(
    emit: &mut Emit<'_>,
    (stage, folds, program): (&Stage, &[FoldResult], &ScalarProgram),
    near: &Neighbours,
    when: PointConditions,
    place: Option<Reg>,
    now: &mut [Vec<Part>],
) {
    let loaded = emit.loaded(stage, near);
    let is_fold = |sink: &&Sink| matches!(sink, Sink::Fold { .. });
    let sums: Vec<Sink> = stage.sinks.iter().filter(is_fold).cloned().collect();
    let folding = Stage { sinks: sums, ..Stage::default() };
    let mut stored: Vec<Vec<Reg>> = vec![Vec::new(); stage.sinks.len()];
    for (j, coords) in near.coords.iter().enumerate() {
        let at = At { vars: &near.vars, coords };
        let values = emit.outputs(stage, program, &at, &mut |_, k, _| {
            loaded.get(&k).and_then(|regs| regs.get(j)).copied()
        });
        let mut only_folds = Vec::new();
        for (k, (sink, &value)) in stage.sinks.iter().zip(&values).enumerate() {
            match sink {
                Sink::Fold { .. } => only_folds.push(value),
                _ => stored[k].push(value),
            }
        }
        let own = j % now.len().max(1);
        sinks(emit, &folding, folds, &only_folds, &at, when, place, &mut now[own]);
    }
    for (sink, values) in stage.sinks.iter().zip(&stored) {
        if let Sink::Store { buffer, index } = sink {
            emit.store_row(*buffer, index, values, near, when.stored);
        }
    }
}

/// What becomes of the values at one point: stored, or joined with what there is.
#[allow(clippy::too_many_arguments)]
fn sinks(
    emit: &mut Emit<'_>,
    stage: &Stage,
    folds: &[FoldResult],
    values: &[Reg],
    at: &At<'_>,
    PointConditions { stored, valid }: PointConditions,
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
    shape: &FoldShape,
    folds: &[FoldResult],
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
fn chains(s: &GpuSchedule, out: &mut Out, f: &ScheduledFold) -> Result<(), Diagnostic> {
    let ScheduledFold { domain, stage, shape, folds, .. } = f;
    let FoldDecision { grid, unroll, width, .. } = f.decision;
    let (n, blocks, results) = (shape.count, shape.blocks(), shape.results());
    let turns = FoldLoop::turns(shape, 1);
    let mut emit = begun(s, out);
    let program = emit.written(&stage.program);
    let groups = results / width;
    let total = groups * blocks;
    let (id, live) = emit.thread(total, grid.threads, false);
    emit.leave_unless(live);
    let (vars, thread) = single(id, total);
    let (block, group) = (thread.clone().floor_div(groups), thread.modulo(groups));
    let Some(kept) = columns(&vars, &group, &shape.kept_extents, width) else { return Ok(()) };
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
        let near = Neighbours { vars: own, coords };
        let when = PointConditions { stored: valid, valid };
        folded(&mut emit, (stage, folds, &program), &near, when, reg, &mut now);
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
    out.launch(&s.homes, emit, grid.blocks(total), grid, 0)
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
