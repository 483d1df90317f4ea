//! Kernels that fold rows: a team of threads for each point, a warp or part of one where rows are short
//! and a block of warps where they are long.
//!
//! The lane order is the order of a warp: lane `l` takes elements `l`, `l + 32`, .. of a block of 1024, and the lanes
//! halve. What a stage keeps for a later one stays with the thread that computed it, in shared
//! memory, so that a row is read once.

use super::asm::{Class, Reg};
use super::emit::{At, Emit};
use super::launch::{Out, begun, output_type};
use super::lower::{Lowering, volume};
use super::part::{Part, neutral};
use super::place::{Vars, coordinates, resolved, value};
use super::prim::{class, constant, select};
use super::team::{BLOCK, Slots, Team, fitted};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Kernel, Param, Row, Sink, Stage, Tile};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic};
use cranelift_entity::SecondaryMap;

/// What is known while a kernel is written.
struct Point<'k> {
    kernel: &'k Kernel,
    team: Team,
    slots: Slots,
    rows: SecondaryMap<Row, Option<Reg>>,
    /// The team's shared memory.
    memory: Option<Reg>,
    /// One past the last byte that all teams have for tiles.
    end: i64,
    vars: Vars,
    domain: Vec<IndexExpr>,
    lane: IndexExpr,
    warp: IndexExpr,
    live: Option<Reg>,
    leads: Reg,
}

/// Launches a kernel.
pub(super) fn rows(low: &Lowering, out: &mut Out, kernel: &Kernel) -> Result<(), Diagnostic> {
    let longest = kernel.stages.iter().map(|s| volume(&s.axes)).max().unwrap_or(1);
    let mut team = Team::of(longest);
    let parts = kernel.stages.iter().map(|s| s.sinks.len() as i64).sum::<i64>() * 8 * 128;
    let room = i64::from(out.target.shared()) - if team.teams == 1 { parts } else { 0 };
    let (own, slots) = fitted(kernel, room)?;
    while team.teams > 1 && slots.bytes * team.teams > room.min(96 << 10) {
        team.teams /= 2;
    }
    let points = volume(&kernel.domain);
    let mut emit = begun(low, out);
    let threads = (team.threads * team.teams) as u32;
    let (id, live) = emit.thread(points * team.threads, threads, true);
    let mut vars = Vars::default();
    let thread = vars.push(id, points * team.threads);
    let point = thread.clone().floor_div(team.threads);
    let own_id = emit.asm.special("tid.x");
    let local = vars.push(own_id, threads.into());
    let within = local.clone().modulo(team.threads);
    let (lane, warp) = (within.clone().modulo(32.min(team.threads)), within.clone().floor_div(32));
    let memory = (slots.bytes > 0 || team.warps() > 1).then(|| {
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let number = resolved(&local.floor_div(team.threads), &emit.same(&vars), &vars);
        let number = value(&mut emit.asm, &number, &vars, &[]);
        let args = format!("{number}, {}, {base}", slots.bytes);
        emit.asm.pure(Class::Word, "mad.lo.s32", args)
    });
    let first = resolved(&within, &emit.same(&vars), &vars);
    let first = value(&mut emit.asm, &first, &vars, &[]);
    let leads = emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{first}, 0"));
    let leads = emit.all(Some(leads), live).unwrap_or(leads);
    let domain = coordinates(&point, &kernel.domain);
    let end = slots.bytes * team.teams;
    let rows = SecondaryMap::new();
    let mut p = Point {
        kernel: &own,
        team,
        slots,
        rows,
        memory,
        end,
        vars,
        domain,
        lane,
        warp,
        live,
        leads,
    };
    for stage in &own.stages {
        match stage.axes.is_empty() && !folds(stage) {
            true => alone(&mut emit, &mut p, stage),
            false => elements(&mut emit, &mut p, stage),
        }
    }
    let shared = u32::try_from(p.end).unwrap_or(u32::MAX);
    let blocks = (points - 1) / team.teams + 1;
    out.launch(&low.homes, emit, blocks, threads, shared)
}

fn folds(stage: &Stage) -> bool {
    stage.sinks.iter().any(|s| matches!(s, Sink::Reduce { .. }))
}

/// A stage of the point alone: every thread computes it, one stores.
fn alone(emit: &mut Emit<'_>, p: &mut Point<'_>, stage: &Stage) {
    let program = emit.written(&stage.program);
    let at = At { vars: &p.vars, coords: &p.domain };
    let rows = &p.rows;
    let values = emit.outputs(stage, &program, &at, &mut |emit, _, param| match param {
        Param::Row(r) => rows[*r],
        Param::Tile(t) => tile(emit, p, *t, None),
        _ => None,
    });
    let mut left = Vec::new();
    for (sink, value) in stage.sinks.iter().zip(values) {
        match sink {
            Sink::Store { buffer, index } => {
                emit.store(*buffer, index, value, &at, Some(p.leads));
            }
            Sink::Leave(r) => left.push((*r, value)),
            Sink::Keep(t) => keep(emit, p, *t, value, None, None),
            _ => {}
        }
    }
    left.into_iter().for_each(|(r, value)| p.rows[r] = Some(value));
}

/// The address in shared memory of an element of a tile: a register and a constant.
fn tile_place(emit: &mut Emit<'_>, p: &Point<'_>, t: Tile, place: Option<Reg>) -> Option<String> {
    let (offset, memory) = (p.slots.offsets[t]?, p.memory?);
    let size = p.kernel.tiles[t].dtype.bytes();
    let base = match place {
        None => memory,
        Some(place) => {
            let narrow = match place.class {
                Class::Long => emit.asm.pure(Class::Word, "cvt.u32.u64", place),
                _ => place,
            };
            emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{narrow}, {size}, {memory}"))
        }
    };
    Some(format!("[{base}+{offset}]"))
}

fn tile(emit: &mut Emit<'_>, p: &Point<'_>, t: Tile, place: Option<Reg>) -> Option<Reg> {
    let at = tile_place(emit, p, t, place)?;
    let dtype = p.kernel.tiles[t].dtype;
    let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
    let found = emit.asm.fresh(form);
    emit.asm.emit(format_args!("ld.shared.{} {found}, {at}", super::emit::memory(dtype)));
    Some(match dtype {
        DType::Bool => emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{found}, 0")),
        _ => found,
    })
}

fn keep(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    t: Tile,
    value: Reg,
    place: Option<Reg>,
    valid: Option<Reg>,
) {
    let Some(at) = tile_place(emit, p, t, place) else { return };
    let dtype = p.kernel.tiles[t].dtype;
    let value = emit.plain(value, dtype);
    let prefix = valid.map_or(String::new(), |p| format!("@{p} "));
    let spelled = match dtype {
        DType::I8 | DType::U8 | DType::Bool => "b8",
        d => super::emit::memory(d),
    };
    emit.asm.emit(format_args!("{prefix}st.shared.{spelled} {at}, {value}"));
}

/// One fold of a stage.
struct Fold {
    monoid: Monoid,
    dtype: DType,
    into: Row,
}

/// A stage over elements.
fn elements(emit: &mut Emit<'_>, p: &mut Point<'_>, stage: &Stage) {
    let n = volume(&stage.axes);
    let folds: Vec<Fold> = (0..stage.sinks.len())
        .filter_map(|k| match &stage.sinks[k] {
            Sink::Reduce { monoid, into, .. } => {
                Some(Fold { monoid: *monoid, dtype: output_type(stage, k), into: *into })
            }
            _ => None,
        })
        .collect();
    if p.team.warps() == 1 {
        let turns = (n + p.team.threads - 1) / p.team.threads;
        let start = IndexExpr::Const(0);
        let parts = walked(emit, p, stage, &folds, &p.vars.clone(), &start, turns);
        for (fold, part) in folds.iter().zip(parts) {
            p.rows[fold.into] = Some(part);
        }
        return;
    }
    let blocks = (n + BLOCK - 1) / BLOCK;
    let warps = p.team.warps();
    let places: Vec<i64> = folds.iter().map(|_| parts_of(p, blocks)).collect();
    let (l, turn) = emit.repeat((blocks + warps - 1) / warps);
    let mut vars = p.vars.clone();
    let turn = vars.push(turn, (blocks + warps - 1) / warps);
    let block = turn.times(warps).sum(p.warp.clone());
    let number = resolved(&block, &emit.same(&vars), &vars);
    let number = value(&mut emit.asm, &number, &vars, &[]);
    let here = (blocks % warps != 0)
        .then(|| emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{number}, {blocks}")));
    let lane = resolved(&p.lane, &emit.same(&vars), &vars);
    let lane = value(&mut emit.asm, &lane, &vars, &[]);
    emit.when(here, |emit| {
        let mut own = vars.clone();
        let block = own.push(number, blocks);
        let start = block.times(BLOCK);
        let turns = (n.min(BLOCK) + 31) / 32;
        let parts = walked(emit, p, stage, &folds, &own, &start, turns);
        let lowest = emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{lane}, 0"));
        for ((fold, part), place) in folds.iter().zip(parts).zip(&places) {
            let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
            let at = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{number}, 8, {base}"));
            let part = emit.plain(part, fold.dtype);
            let spelled = word(fold.dtype);
            emit.asm.emit(format_args!("@{lowest} st.shared.{spelled} [{at}+{place}], {part}"));
        }
    });
    emit.again(l);
    if folds.is_empty() {
        return;
    }
    emit.asm.emit("bar.sync 0");
    for (fold, &place) in folds.iter().zip(&places) {
        let part = tree(emit, p, fold, place, blocks);
        p.rows[fold.into] = Some(part);
    }
}

/// Takes room for the parts of a fold, past the tiles.
fn parts_of(p: &mut Point<'_>, blocks: i64) -> i64 {
    let at = p.end;
    p.end += (blocks * 8 + 15) / 16 * 16;
    at
}

/// How parts in shared memory are spelled: in whole words.
fn word(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::I64 => "b64",
        DType::F32 => "f32",
        _ => "b32",
    }
}

/// Every warp joins all parts: neighbours first, in groups of 32, and then the groups.
fn tree(emit: &mut Emit<'_>, p: &Point<'_>, fold: &Fold, place: i64, blocks: i64) -> Reg {
    let lane = resolved(&p.lane, &emit.same(&p.vars), &p.vars);
    let lane = value(&mut emit.asm, &lane, &p.vars, &[]);
    let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
    let empty = constant(&mut emit.asm, neutral(fold.monoid, fold.dtype));
    let mut groups = Vec::new();
    for first in (0..blocks).step_by(32) {
        let left = (blocks - first).min(32);
        let most = emit.asm.pure(Class::Word, "min.s32", format_args!("{lane}, {}", left - 1));
        let at = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{most}, 8, {base}"));
        let form = if fold.dtype == DType::Bool { Class::Word } else { class(fold.dtype) };
        let raw = emit.asm.fresh(form);
        let offset = place + first * 8;
        emit.asm.emit(format_args!("ld.shared.{} {raw}, [{at}+{offset}]", word(fold.dtype)));
        let mut part = match fold.dtype {
            DType::Bool => emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{raw}, 0")),
            _ => raw,
        };
        if left < 32 {
            let there = emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{lane}, {left}"));
            part = select(&mut emit.asm, there, part, empty);
        }
        for bits in [1, 2, 4, 8, 16] {
            let other = emit.exchanged(part, bits);
            part = emit.combine(fold.monoid, fold.dtype, part, other);
        }
        groups.push(part);
    }
    while groups.len() > 1 {
        let pairs: Vec<Vec<Reg>> = groups.chunks(2).map(<[Reg]>::to_vec).collect();
        groups = pairs
            .iter()
            .map(|pair| match *pair.as_slice() {
                [a, b] => emit.combine(fold.monoid, fold.dtype, a, b),
                _ => pair[0],
            })
            .collect();
    }
    groups.pop().unwrap_or(empty)
}

/// Elements `start + turn * lanes + lane` of a stage; gives what its folds have come to, in all lanes.
fn walked(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    stage: &Stage,
    folds: &[Fold],
    vars: &Vars,
    start: &IndexExpr,
    turns: i64,
) -> Vec<Reg> {
    let n = volume(&stage.axes);
    let lanes = p.team.threads.min(32);
    let program = emit.written(&stage.program);
    // Large blocks leave fewer registers to a thread.
    let room = if p.team.threads > 512 { 200 } else { 600 };
    let unroll = (1..=(room / (program.insts.len() as i64 + 1)).clamp(1, 8))
        .rev()
        .find(|u| turns % u == 0)
        .unwrap_or(1);
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
        let number = turn.clone().times(unroll).plus(u).times(lanes);
        let place = start.clone().sum(number).sum(p.lane.clone());
        let mut own = inner.clone();
        let here = emit.below(&mut own, &place, n);
        let (place, reg, valid) = (here.place, here.number, here.valid);
        let mut coords = p.domain.clone();
        coords.extend(coordinates(&place, &stage.axes));
        let at = At { vars: &own, coords: &coords };
        let values = emit.outputs(stage, &program, &at, &mut |emit, _, param| match param {
            Param::Row(r) => p.rows[*r],
            Param::Tile(t) => tile(emit, p, *t, Some(reg)),
            _ => None,
        });
        let stored = emit.all(p.live, valid);
        let mut number = 0;
        for (sink, value) in stage.sinks.iter().zip(values) {
            match sink {
                Sink::Store { buffer, index } => emit.store(*buffer, index, value, &at, stored),
                Sink::Keep(t) => keep(emit, p, *t, value, Some(reg), valid),
                Sink::Reduce { .. } => {
                    let fold = &folds[number];
                    let part = Part { value, place: None };
                    let part = emit.part_if(valid, part, fold.monoid, fold.dtype);
                    now[number] = emit.join(fold.monoid, fold.dtype, now[number], part);
                    number += 1;
                }
                _ => {}
            }
        }
    }
    for (&acc, &part) in accs.iter().zip(&now) {
        emit.set_part(acc, part);
    }
    emit.again(l);
    let mut results = Vec::new();
    for (fold, &acc) in folds.iter().zip(&accs) {
        let mut part = acc.value;
        let mut half = lanes / 2;
        while half > 0 {
            let other = emit.exchanged(part, half as u32);
            part = emit.combine(fold.monoid, fold.dtype, part, other);
            half /= 2;
        }
        results.push(part);
    }
    results
}
