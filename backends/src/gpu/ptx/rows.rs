//! Kernels that fold rows: a team of threads for each point, a warp or part of one where rows are short
//! and a block of warps where they are long.
//!
//! The lane order is the order of a warp: lane `l` takes elements `l`, `l + 32`, .. of a block of 1024, and the lanes
//! halve. What a stage keeps for a later one stays with the thread that computed it, so that a row is read
//! once. A team may walk several rows: a chain of consecutive rows, whose columns it folds, or rows a grid apart. In the
//! second case it prefetches the next row while it computes one.

use super::address::{Vars, resolved, value};
use super::asm::{Class, Reg};
use super::async_copy::Own;
use super::elementwise::Neighbours;
use super::emit::{At, Emit};
use super::entry::{Out, begun};
use super::row_hoist::hoisted;
use super::row_point::{Ahead, Column, Held, Point};
use super::row_walk::elements;
use super::tree_fold::joined;
use crate::gpu::schedule::column_folds::ColumnFold;
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::row_decision::RowWalk;
use crate::gpu::schedule::row_residency::pieces;
use crate::gpu::schedule::rows::{Chains, ScheduledRows};
use crate::gpu::schedule::shape::axes;
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Param, Sink, Stage, volume};
use cranelift_entity::SecondaryMap;

/// Launches a kernel.
pub(crate) fn rows(s: &GpuSchedule, out: &mut Out, rows: &ScheduledRows) -> Result<(), Diagnostic> {
    launch(s, out, rows)?;
    joined(s, out, &rows.trees)
}

/// How far a team's rows go: the numbers of launches, in registers.
struct Walked {
    /// The number of the row, among those along the columns or of all points.
    row: Reg,
    /// One past the last.
    end: Reg,
    /// From one row to the next.
    step: Reg,
}

fn launch(s: &GpuSchedule, out: &mut Out, rows: &ScheduledRows) -> Result<(), Diagnostic> {
    let ScheduledRows { layout, columns, chains, .. } = rows;
    let (kernel, team) = (&layout.kernel, layout.team);
    let points = volume(&kernel.domain);
    let mut emit = begun(s, out);
    let threads = team.block();
    let teams = match (layout.walk, columns) {
        (RowWalk::Chain(_), Some(c)) => c.chains() * volume(&extents(&kernel.domain, &c.kept)),
        _ => points,
    };
    let mut vars = Vars::default();
    let mut live = None;
    let number = match layout.walk {
        // A block has one team.
        RowWalk::Stride => emit.asm.special("ctaid.x"),
        _ => {
            let (id, within) = emit.thread(teams * team.threads, threads, true);
            live = within;
            let thread = vars.push(id, teams * team.threads);
            let team = resolved(&thread.floor_div(team.threads), &emit.same(&vars), &vars);
            value(&mut emit.asm, &team, &vars, &[])
        }
    };
    let mut vars = Vars::default();
    let own_id = emit.asm.special("tid.x");
    let local = vars.push(own_id, threads);
    let within = local.clone().modulo(team.threads);
    let (lane, warp) = (within.clone().modulo(32.min(team.threads)), within.clone().floor_div(32));
    let memory = (layout.bytes > 0 || team.warps() > 1).then(|| {
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let number = resolved(&local.floor_div(team.threads), &emit.same(&vars), &vars);
        let number = value(&mut emit.asm, &number, &vars, &[]);
        let args = format!("{number}, {}, {base}", layout.bytes);
        emit.asm.pure(Class::Word, "mad.lo.s32", args)
    });
    let first = resolved(&within, &emit.same(&vars), &vars);
    let first = value(&mut emit.asm, &first, &vars, &[]);
    let leads = emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{first}, 0"));
    if layout.walk != RowWalk::One && team.warps() == 1 {
        // Whole warps have nothing to do, and no barrier waits for them.
        emit.leave_unless(live.take());
    }
    let leads = emit.all(Some(leads), live).unwrap_or(leads);
    let mut p = Point {
        layout,
        rows: SecondaryMap::new(),
        held: SecondaryMap::new(),
        columns: Vec::new(),
        memory,
        slot: memory,
        end: layout.bytes * team.teams,
        vars,
        domain: Vec::new(),
        lane,
        warp,
        live,
        leads,
    };
    for c in chains {
        let cells = team.cells(volume(&kernel.stages[c.stage].axes));
        let accs = (0..cells).map(|_| {
            let part = emit.empty_part(c.fold.monoid, c.fold.dtype);
            emit.asm.copied(part.value)
        });
        let accs = accs.collect();
        p.columns.push(Column { stage: c.stage, sink: c.sink, dtype: c.fold.dtype, accs });
    }
    let mut blocks = (teams - 1) / team.teams + 1;
    match (layout.walk, columns) {
        (RowWalk::Chain(chain), Some(columns)) => {
            let others = volume(&extents(&kernel.domain, &columns.kept));
            let mut own = Vars::default();
            let number = own.push(number, teams);
            let of = |emit: &mut Emit<'_>, e: IndexExpr| {
                let e = resolved(&e, &emit.same(&own), &own);
                let found = value(&mut emit.asm, &e, &own, &[]);
                emit.asm.narrow(found)
            };
            let block = of(&mut emit, number.clone().floor_div(others));
            let other = of(&mut emit, number.modulo(others));
            let row = emit.asm.pure(Class::Word, "mul.lo.s32", format_args!("{block}, {chain}"));
            let end = emit.asm.pure(Class::Word, "add.s32", format_args!("{row}, {chain}"));
            let last = format!("{end}, {}", columns.count);
            let end = emit.asm.pure(Class::Word, "min.s32", last);
            let step = emit.asm.word(1);
            let other = p.vars.push(other, others);
            let at = |vars: &mut Vars, row: Reg| {
                let row = vars.push(row, columns.count);
                placed(&kernel.domain, columns, &row, &other)
            };
            several(&mut emit, &mut p, &Walked { row, end, step }, &at);
            for (k, c) in chains.iter().enumerate() {
                left(&mut emit, &mut p, c, k, block, &other, columns);
            }
        }
        (RowWalk::Stride, _) => {
            let step = emit.asm.special("nctaid.x");
            let end = emit.asm.word(points);
            let at = |vars: &mut Vars, row: Reg| {
                let row = vars.push(row, points);
                coordinates(&row, &kernel.domain)
            };
            several(&mut emit, &mut p, &Walked { row: number, end, step }, &at);
            blocks = points;
        }
        _ => {
            let point = p.vars.push(number, points);
            p.domain = coordinates(&point, &kernel.domain);
            stages(&mut emit, &mut p, None);
        }
    }
    let shared = u32::try_from(p.end).unwrap_or(u32::MAX);
    let grid = Grid { threads, resident: layout.resident };
    out.launch(&s.homes, emit, blocks, grid, shared)?;
    if let (RowWalk::Stride, Some(launch)) = (layout.walk, out.launches.last_mut()) {
        launch.resident = Some(layout.resident);
    }
    Ok(())
}

fn extents(domain: &Extents, which: &[usize]) -> Extents {
    which.iter().map(|&a| domain[a]).collect()
}

/// The coordinates of a point, of those along the columns and of the others.
fn placed(
    domain: &Extents,
    columns: &ColumnFold,
    row: &IndexExpr,
    other: &IndexExpr,
) -> Vec<IndexExpr> {
    let mut at = vec![IndexExpr::Const(0); domain.len()];
    let along = coordinates(row, &extents(domain, &columns.axes));
    for (&a, e) in columns.axes.iter().zip(along) {
        at[a] = e;
    }
    let kept = coordinates(other, &extents(domain, &columns.kept));
    for (&a, e) in columns.kept.iter().zip(kept) {
        at[a] = e;
    }
    at
}

/// Rows one after the other.
fn several(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walked: &Walked,
    at: &dyn Fn(&mut Vars, Reg) -> Vec<IndexExpr>,
) {
    let layout = p.layout;
    let row = emit.asm.copied(walked.row);
    let (lane, warp) = (p.lane.clone(), p.warp.clone());
    let turn = (layout.copies > 1).then(|| {
        let zero = emit.asm.word(0);
        emit.asm.copied(zero)
    });
    if let (true, Some(memory)) = (layout.copies > 0, p.memory) {
        // By the number that stays: what is known of it is known in the loop, too.
        let mut vars = p.vars.clone();
        let point = at(&mut vars, walked.row);
        let own = Own { team: layout.team, lane: &lane, warp: &warp };
        for a in &layout.arrays {
            emit.copy_ahead(a, &own, &vars, &point, memory);
        }
    }
    let before = p.vars.clone();
    p.domain = at(&mut p.vars, row);
    hoisted(emit, p);
    let label = emit.asm.label();
    emit.asm.turn(&label);
    emit.asm.open();
    let next = emit.asm.pure(Class::Word, "add.s32", format_args!("{row}, {}", walked.step));
    let more = format!("{next}, {}", walked.end);
    let more = emit.asm.pure(Class::Pred, "setp.lt.s32", more);
    let ahead = match (layout.copies, p.memory) {
        (0, _) | (_, None) => None,
        (copies, Some(memory)) => {
            emit.copied();
            let mut to = memory;
            if let (2, Some(turn)) = (copies, turn) {
                let asm = &mut emit.asm;
                let args = format!("{turn}, {}, {memory}", layout.ahead);
                p.slot = Some(asm.pure(Class::Word, "mad.lo.s32", args));
                let other = asm.pure(Class::Word, "xor.b32", format_args!("{turn}, 1"));
                let args = format!("{other}, {}, {memory}", layout.ahead);
                to = asm.pure(Class::Word, "mad.lo.s32", args);
            }
            let mut vars = before.clone();
            let point = at(&mut vars, next);
            let own = Own { team: layout.team, lane: &lane, warp: &warp };
            let ahead = Ahead { vars, point, more, to, own };
            if copies == 2 {
                emit.when(Some(more), |emit| {
                    for a in &layout.arrays {
                        emit.copy_ahead(a, &ahead.own, &ahead.vars, &ahead.point, to);
                    }
                });
            }
            Some(ahead)
        }
    };
    let barriers = stages(emit, p, ahead.as_ref().filter(|_| layout.copies == 1));
    if barriers == 1 {
        // The parts of this row are read before those of the next are written.
        emit.asm.emit("bar.sync 0");
    }
    if let Some(turn) = turn {
        emit.asm.emit(format_args!("xor.b32 {turn}, {turn}, 1"));
    }
    let again = emit.asm.copied(more);
    emit.asm.set(row, next);
    emit.asm.close();
    emit.asm.emit(format_args!("@{again} bra {label}"));
    p.vars = before;
    p.slot = p.memory;
}

/// All stages at one point; how many barriers they have.
fn stages(emit: &mut Emit<'_>, p: &mut Point<'_>, ahead: Option<&Ahead<'_>>) -> usize {
    let layout = p.layout;
    let mut barriers = 0;
    for (s, stage) in layout.kernel.stages.iter().enumerate() {
        // What a stage has loaded is not held for the next: that loads it again where it is not kept.
        emit.asm.open();
        match layout.is_shared(stage) {
            true => barriers += usize::from(elements(emit, p, s, ahead)),
            false => alone(emit, p, stage),
        }
        emit.asm.close();
    }
    barriers
}

/// A stage of the point alone: every thread computes it, one stores.
fn alone(emit: &mut Emit<'_>, p: &mut Point<'_>, stage: &Stage) {
    let program = emit.written(&stage.program);
    let at = At { vars: &p.vars, coords: &p.domain };
    let known: &Point<'_> = p;
    let values = emit.outputs(stage, &program, &at, &mut |_, _, param| match param {
        Param::Row(r) => known.rows[*r],
        Param::Tile(t) => known.held[*t].one(),
        _ => None,
    });
    for (sink, value) in stage.sinks.iter().zip(values) {
        match sink {
            Sink::Store { buffer, index } => {
                let at = At { vars: &p.vars, coords: &p.domain };
                emit.store(*buffer, index, value, &at, Some(p.leads));
            }
            Sink::Leave(r) => p.rows[*r] = Some(value),
            Sink::Keep(t) => p.held[*t] = Held::of(value),
            _ => {}
        }
    }
}

/// Stores what a chain's columns have come to, or goes on with it where there is one chain.
fn left(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    chains: &Chains,
    k: usize,
    block: Reg,
    other: &IndexExpr,
    columns: &ColumnFold,
) {
    let stage = &p.layout.kernel.stages[chains.stage];
    let n = volume(&stage.axes);
    let team = p.layout.team;
    let mut cell = 0;
    for piece in pieces(team, stage) {
        let first = p.warp.clone().plus(piece.block).times(team.piece / team.width);
        for turn in 0..piece.turns {
            let lane = p.lane.clone().plus(turn * team.threads.min(32));
            let mut vars = p.vars.clone();
            let here = emit.below(&mut vars, &first.clone().sum(lane), n / team.width);
            let values = &p.columns[k].accs[cell..cell + team.width as usize];
            cell += values.len();
            let block = vars.push(block, columns.chains());
            let place = |u: i64| here.place.clone().times(team.width).plus(u);
            let result = |u: i64| other.clone().times(n).sum(place(u));
            match chains.fold.parts {
                Some((parts, _)) => {
                    let coords = (0..team.width).map(|u| vec![block.clone(), result(u)]).collect();
                    let near = Neighbours { vars, coords };
                    emit.store_row(parts, &axes(2), values, &near, here.valid);
                }
                None => {
                    for (u, &value) in (0..).zip(values) {
                        let kept = coordinates(&result(u), &chains.shape.kept_extents);
                        let coords = chains.shape.remaining(&kept, chains.domain.len());
                        emit.when(here.valid, |emit| {
                            let at = At { vars: &vars, coords: &coords };
                            emit.follow(&chains.fold.then, value, &at);
                        });
                    }
                }
            }
        }
    }
}
