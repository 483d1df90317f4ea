//! The elements of a stage of a row: read, computed and put where they go, each by the thread that the lane
//! order gives it.

use super::address::{Vars, resolved, value};
use super::asm::{Class, Reg};
use super::cross_warp::{folded_in_lanes, halved, leave_element, leave_parts, tree};
use super::elementwise::Neighbours;
use super::emit::{At, Emit};
use super::entry::Below;
use super::isel::outputs;
use super::operands::not;
use super::packed_extremes::with_pairs;
use super::partial_fold::Part;
use super::rough_exp::softmax_terms;
use super::row_group::{ShortGroup, group};
use super::row_match::is_among;
use super::row_point::{Ahead, Point};
use super::row_registers::{held, keep, name_registers, shared_row};
use crate::gpu::schedule::async_copy::RowArray;
use crate::gpu::schedule::cooperative_row::{Has, Piece};
use crate::gpu::schedule::place_match::PlaceMatch;
use crate::gpu::schedule::row_residency::{
    Reduction, Residency, parts_of_fold, pieces, reductions,
};
use crate::gpu::schedule::shape::free;
use adfuse_ir::Fp;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Param, Sink, Stage, volume};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::ScalarProgram;

/// A stage that is being written.
struct Walk<'a> {
    stage: &'a Stage,
    number: usize,
    program: ScalarProgram,
    /// The parameter with which places are compared, and the program without those comparisons.
    matched: Option<(usize, ScalarProgram)>,
    folds: Vec<Reduction>,
    /// Which outputs are terms of the sum of a softmax.
    terms: Vec<bool>,
    /// Where in shared memory what warps leave of each fold is.
    places: Vec<i64>,
    /// What a warp's pieces come to together, where they are not parts of their own.
    sums: Option<Vec<Part>>,
    /// Groups of neighbours that have a text of their own.
    text: i64,
    /// Groups whose loads are under way together.
    batch: i64,
    /// The arrays that are read here last, and the row whose arrays take their place.
    done: Vec<&'a RowArray>,
    next: Option<&'a Ahead<'a>>,
}

/// Some of the elements that a thread has.
#[derive(Clone)]
struct Span<'a> {
    /// What is computed of each.
    program: &'a ScalarProgram,
    vars: Vars,
    /// The place of the first lane's first group of neighbours.
    start: IndexExpr,
    turns: i64,
    /// The number of the first among all of the thread.
    cell: i64,
}

/// What is known of an element while others are read.
struct Read {
    near: Neighbours,
    /// The place of the group.
    here: Below,
    /// Which of them may be past the end of the row.
    short: Option<ShortGroup>,
    /// The number of its first element among all of the thread.
    cell: i64,
    /// What the parameters of each are.
    params: Vec<Vec<Option<Reg>>>,
}

/// A stage over elements; whether it has a barrier.
///
/// Where a row comes next, its arrays are copied over those that are read here last, block by block.
pub(crate) fn elements(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    number: usize,
    next: Option<&Ahead<'_>>,
) -> bool {
    let stage = &p.layout.kernel.stages[number];
    let n = volume(&stage.axes);
    let team = p.layout.team;
    let program = emit.written(&stage.program);
    let registers = p.layout.has_registers(stage);
    let pieces = pieces(team, stage);
    let unroll = p.layout.unrolls.iter().find(|u| u.stage == number);
    let (text, batch) = unroll.map_or((1, 1), |u| (u.text, u.inflight));
    let done = p.layout.arrays.iter().filter(|a| a.last == number);
    let done = if next.is_some() { done.collect() } else { Vec::new() };
    let folds = reductions(stage, team.width);
    // Where the order is free a warp joins its pieces before its lanes.
    let free = |f: &Reduction| emit.fp != Fp::Strict || free(f.monoid, f.dtype);
    let together = team.warps() > 1 && pieces.len() > 1 && folds.iter().all(free);
    let sums = together.then(|| begun(emit, &folds));
    let blocks = match &sums {
        Some(_) => team.warps(),
        None => (n + team.piece - 1) / team.piece,
    };
    let mut places = Vec::new();
    for fold in folds.iter().filter(|_| team.warps() > 1) {
        let most = (blocks * 8 + 15) / 16 * 16;
        places.push(p.room(most.max(parts_of_fold(team, n, fold, emit.fp))));
    }
    let program = with_pairs(stage, &folds, program);
    let matched = unroll.and_then(|u| u.matched).and_then(|param| {
        let found = PlaceMatch::of(stage, p.layout.kernel.domain.len())?;
        let without = emit.written(&found.without(&stage.program));
        Some((param, with_pairs(stage, &folds, without)))
    });
    let terms = softmax_terms(&p.layout.kernel, number);
    let walk = Walk {
        stage,
        number,
        program,
        matched,
        folds,
        terms,
        places,
        sums,
        text,
        batch,
        done,
        next,
    };
    name_registers(emit, p, stage, &pieces);
    if team.warps() == 1 {
        let Some(&piece) = pieces.first() else { return false };
        let start = IndexExpr::Const(0);
        let (program, vars) = (&walk.program, p.vars.clone());
        let span = Span { program, vars, start, turns: piece.turns, cell: 0 };
        let parts = walked(emit, p, &walk, &span);
        let parts = emit.unpaired(&walk.folds, parts);
        for (fold, part) in walk.folds.iter().zip(parts) {
            p.rows[fold.into] = Some(halved(emit, fold, part, team.threads.min(32)));
        }
        follows(emit, &walk, None, n);
        return false;
    }
    // Whole blocks that every warp has are one text where registers are not named for each.
    let alike = pieces.iter().take_while(|p| p.has == Has::All).count();
    let looped = !registers && alike > 1;
    if looped {
        let (l, turn) = emit.repeat(alike as i64);
        let mut vars = p.vars.clone();
        let turn = vars.push(turn, alike as i64);
        let block = turn.times(team.warps()).sum(p.warp.clone());
        piece(emit, p, &walk, &vars, block, team.piece, 0, n / team.piece);
        emit.again(l);
    }
    let mut cell = 0;
    for (k, own) in pieces.iter().enumerate() {
        if !(looped && k < alike) {
            // Sums are written again: what a piece has added is not known to the next.
            emit.asm.open();
            pieced(emit, p, &walk, own, cell, n);
            emit.asm.close();
        }
        cell += own.turns * team.width;
    }
    if walk.folds.is_empty() {
        return false;
    }
    if let Some(sums) = &walk.sums {
        let warp = resolved(&p.warp, &emit.same(&p.vars), &p.vars);
        let warp = value(&mut emit.asm, &warp, &p.vars, &[]);
        let sums = emit.unpaired(&walk.folds, sums.clone());
        leave_parts(emit, p, &walk.folds, sums, warp, &walk.places);
    }
    emit.asm.emit("bar.sync 0");
    for (fold, &place) in walk.folds.iter().zip(&walk.places) {
        let part = match fold.in_lanes(team, emit.fp) {
            true => folded_in_lanes(emit, p, fold, place, n),
            false => tree(emit, p, fold, place, blocks),
        };
        p.rows[fold.into] = Some(part);
    }
    true
}

/// A block of each warp that has one.
fn pieced(emit: &mut Emit<'_>, p: &mut Point<'_>, walk: &Walk<'_>, own: &Piece, cell: i64, n: i64) {
    let each = p.layout.team.piece;
    let block = p.warp.clone().plus(own.block);
    let Has::Some { full, rest } = own.has else {
        let vars = p.vars.clone();
        return piece(emit, p, walk, &vars, block, each, cell, n / each);
    };
    let number = resolved(&block, &emit.same(&p.vars), &p.vars);
    let number = value(&mut emit.asm, &number, &p.vars, &[]);
    if full > own.block {
        let test = format_args!("{number}, {full}").to_string();
        let here = emit.asm.pure(Class::Pred, "setp.lt.s32", test);
        emit.when(Some(here), |emit| {
            let mut vars = p.vars.clone();
            let block = vars.push(number, full);
            piece(emit, p, walk, &vars, block, each, cell, full);
        });
    }
    if rest > 0 {
        let test = format_args!("{number}, {full}").to_string();
        let here = emit.asm.pure(Class::Pred, "setp.eq.s32", test);
        emit.when(Some(here), |emit| {
            let vars = p.vars.clone();
            let block = IndexExpr::Const(full);
            piece(emit, p, walk, &vars, block, rest, cell, full + 1);
        });
    }
}

/// A block of the lane order, and its parts.
#[allow(clippy::too_many_arguments)]
fn piece(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    vars: &Vars,
    block: IndexExpr,
    elements: i64,
    cell: i64,
    blocks: i64,
) {
    let team = p.layout.team;
    let mut vars = vars.clone();
    let number = resolved(&block, &emit.same(&vars), &vars);
    let number = value(&mut emit.asm, &number, &vars, &[]);
    let block = match block {
        IndexExpr::Const(_) => block,
        _ => vars.push(number, blocks),
    };
    let start = block.times(team.piece / team.width);
    let span = Span { program: &walk.program, vars, start, turns: team.turns(elements), cell };
    let parts = walked(emit, p, walk, &span);
    follows(emit, walk, Some((number, blocks)), elements);
    match &walk.sums {
        Some(sums) => sums.iter().zip(parts).for_each(|(&to, part)| emit.set_part(to, part)),
        None => {
            let parts = emit.unpaired(&walk.folds, parts);
            leave_parts(emit, p, &walk.folds, parts, number, &walk.places);
        }
    }
}

/// Starts the asynchronous copy of the next row over what this stage has just read. `elements` is the number of elements; `block`
/// is the number of the block of the row where rows have several.
fn follows(emit: &mut Emit<'_>, walk: &Walk<'_>, block: Option<(Reg, i64)>, elements: i64) {
    let Some(next) = walk.next.filter(|_| !walk.done.is_empty()) else { return };
    // All lanes have read what is written over.
    emit.asm.emit("bar.warp.sync 0xffffffff");
    emit.when(Some(next.more), |emit| {
        let mut vars = next.vars.clone();
        let block = match block {
            Some((number, blocks)) => vars.push(number, blocks),
            None => IndexExpr::Const(0),
        };
        for a in &walk.done {
            emit.copy_units(a, &next.own, &vars, &next.point, &block, elements, next.to);
        }
    });
}

/// What folds begin with, in registers that are written again.
fn begun(emit: &mut Emit<'_>, folds: &[Reduction]) -> Vec<Part> {
    let mut of = |fold: &Reduction| {
        let part = emit.empty_fold(fold);
        emit.kept_part(part)
    };
    folds.iter().map(&mut of).collect()
}

/// Elements of a stage; gives what its folds have come to in each lane.
fn walked(emit: &mut Emit<'_>, p: &mut Point<'_>, walk: &Walk<'_>, span: &Span<'_>) -> Vec<Part> {
    let whole = walk.text >= span.turns;
    if whole && walk.matched.is_none() {
        let mut now: Vec<Option<Part>> = match &walk.sums {
            Some(sums) => sums.iter().map(|&part| Some(part)).collect(),
            None => vec![None; walk.folds.len()],
        };
        let places = (0..span.turns).map(|t| (t, span.vars.clone(), IndexExpr::Const(t)));
        batches(emit, p, walk, span, &places.collect::<Vec<_>>(), &mut now);
        let found = walk.folds.iter().zip(now);
        return found.map(|(f, part)| part.unwrap_or_else(|| emit.empty_fold(f))).collect();
    }
    // A short block has turns that the text may not divide.
    let most = walk.text.clamp(1, span.turns.max(1));
    let each = (1..=most).rev().find(|u| span.turns % u == 0).unwrap_or(1);
    let accs: Vec<Part> = match &walk.sums {
        Some(sums) => sums.clone(),
        None => begun(emit, &walk.folds),
    };
    let mut vars = span.vars.clone();
    let looped = (!whole).then(|| emit.repeat(span.turns / each));
    let first = match &looped {
        Some((_, turn)) => vars.push(*turn, span.turns / each).times(each),
        None => IndexExpr::Const(0),
    };
    match &walk.matched {
        None => added(emit, p, walk, span, (&vars, &first, each), &accs),
        Some((param, without)) => {
            let team = p.layout.team;
            let lanes = team.threads.min(32);
            let place = span.start.clone().sum(first.clone().times(lanes)).times(team.width);
            let count = each * lanes * team.width;
            let near = is_among(emit, p, (walk.stage, *param), &vars, (&place, count));
            let far = not(&mut emit.asm, near);
            let other = Span { program: without, ..span.clone() };
            for (span, when) in [(&other, far), (span, near)] {
                emit.when(Some(when), |emit| {
                    added(emit, p, walk, span, (&vars, &first, each), &accs);
                });
            }
        }
    }
    if let Some((l, _)) = looped {
        emit.again(l);
    }
    accs
}

/// Adds `each` groups of neighbours, from group `first` on, to what folds have come to.
fn added(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    span: &Span<'_>,
    (vars, first, each): (&Vars, &IndexExpr, i64),
    accs: &[Part],
) {
    let places: Vec<_> = (0..each).map(|u| (0, vars.clone(), first.clone().plus(u))).collect();
    let mut now: Vec<Option<Part>> = accs.iter().map(|&a| Some(a)).collect();
    batches(emit, p, walk, span, &places, &mut now);
    for (&acc, part) in accs.iter().zip(now) {
        part.into_iter().for_each(|part| emit.set_part(acc, part));
    }
}

/// Groups of neighbours, as many at a time as have their loads under way together.
fn batches(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    span: &Span<'_>,
    places: &[(i64, Vars, IndexExpr)],
    now: &mut [Option<Part>],
) {
    for some in places.chunks(walk.batch.max(1) as usize) {
        batch(emit, p, walk, span, some, now);
    }
}

/// Some groups of neighbours: all are read, then all are computed.
fn batch(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    span: &Span<'_>,
    places: &[(i64, Vars, IndexExpr)],
    now: &mut [Option<Part>],
) {
    let team = p.layout.team;
    let (lanes, width) = (team.threads.min(32), team.width);
    let arrays = &p.layout.reads[walk.number];
    let mut reads = Vec::new();
    for (turn, vars, number) in places {
        let first = number.clone().times(lanes).sum(p.lane.clone());
        let place = span.start.clone().sum(first);
        let (here, mut near, short) = group(emit, p, walk.stage, vars.clone(), &place);
        let cell = span.cell + turn * width;
        // A vector would go beyond the row.
        let mut rows =
            emit.loaded_where(walk.stage, &near, &|k| arrays[k].is_none() && short.is_none());
        for (k, param) in walk.stage.params.iter().enumerate() {
            if span.program.reads_param(k)
                && let Some(found) = shared_row(emit, p, arrays[k], param, &here, &near.vars)
            {
                rows.insert(k, found);
            }
        }
        let read_at = match &short {
            Some(short) => short.read_at(emit, p, (&here, &mut near), &walk.stage.axes),
            None => near.coords.clone(),
        };
        let mut params = Vec::new();
        for (u, coords) in read_at.iter().enumerate() {
            let at = At { vars: &near.vars, coords };
            let known: &Point<'_> = p;
            let given = &mut |emit: &mut Emit<'_>, k: usize, param: &Param| match param {
                Param::Row(r) => known.rows[*r],
                Param::Tile(t) if known.layout.residency[*t] == Some(Residency::Registers) => {
                    held(emit, known, *t, cell as usize + u)
                }
                _ => match rows.get(&k) {
                    Some(row) => row.get(u).copied(),
                    // What chooses places and nothing else.
                    None => shared_row(emit, known, arrays[k], param, &here, &near.vars)
                        .and_then(|row| row.get(u).copied()),
                },
            };
            params.push(emit.params(&walk.stage.params, span.program, &at, given).0);
        }
        reads.push(Read { near, here, short, cell, params });
    }
    let paired = emit.asm.paired(span.program);
    emit.asm.terms.clone_from(&walk.terms);
    // Groups of one element are computed two at a time.
    let together = if paired.is_some() && width % 2 == 1 { 2 } else { 1 };
    for some in reads.chunks(together) {
        let elements: Vec<_> = some.iter().flat_map(|read| &read.params).collect();
        let found = match &paired {
            Some(paired) => paired.outputs_of(&mut emit.asm, &elements),
            None => {
                let of = |params: &&Vec<Option<Reg>>| outputs(&mut emit.asm, span.program, params);
                elements.iter().map(of).collect()
            }
        };
        let mut found = found.into_iter();
        for read in some {
            let mut values: Vec<Vec<Reg>> = vec![Vec::new(); walk.stage.sinks.len()];
            for one in found.by_ref().take(read.params.len()) {
                values.iter_mut().zip(one).for_each(|(list, value)| list.push(value));
            }
            put(emit, p, walk, span, read, &values, now);
        }
    }
    emit.asm.terms.clear();
}

/// What becomes of the values of neighbours.
fn put(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    span: &Span<'_>,
    read: &Read,
    values: &[Vec<Reg>],
    now: &mut [Option<Part>],
) {
    let valid = read.here.valid;
    let stored = emit.all(p.live, valid);
    let mut number = 0;
    for (k, (sink, values)) in walk.stage.sinks.iter().zip(values).enumerate() {
        match sink {
            Sink::Store { buffer, index } => match &read.short {
                Some(short) => short.store(emit, (*buffer, index), values, (&read.near, stored)),
                None => emit.store_row(*buffer, index, values, &read.near, stored),
            },
            Sink::Keep(t) => {
                let end = span.cell + span.turns * p.layout.team.width;
                let cells = [read.cell as usize, end as usize];
                keep(emit, p, *t, values, (&read.here, &read.near.vars), cells);
            }
            Sink::Reduce { .. } => {
                let fold = &walk.folds[number];
                let dtype = fold.pairs.unwrap_or(fold.dtype);
                let within =
                    read.short.map(|short| short.within(emit, (fold.monoid, dtype), values));
                let values = within.as_ref().unwrap_or(values);
                if let Some(narrow) = fold.pairs {
                    for pair in values.chunks_exact(2) {
                        let halves = [pair[0], pair[1]];
                        let of = (fold, narrow);
                        now[number] = Some(emit.with_pair(of, now[number], halves, valid));
                    }
                    number += 1;
                    continue;
                }
                if fold.in_lanes(p.layout.team, emit.fp) {
                    for &value in values {
                        leave_element(emit, fold, walk.places[number], value, &read.here);
                    }
                    number += 1;
                    continue;
                }
                // A constant that is added a second time changes nothing.
                let output = span.program.constant(span.program.outputs[k]);
                let once = output.is_some_and(|c| {
                    fold.monoid != Monoid::Sum && fold.monoid != Monoid::Prod || c.to_f64() == 0.0
                });
                let different = if once { 1 } else { values.len() };
                for &value in &values[..different] {
                    let part = Part { value, place: None };
                    let part = emit.part_if(valid, part, fold.monoid, fold.dtype);
                    now[number] = Some(match now[number] {
                        Some(before) => emit.join(fold.monoid, fold.dtype, before, part),
                        None => part,
                    });
                }
                number += 1;
            }
            // What lanes past the end add is in no result.
            Sink::Fold { monoid, .. } => {
                let found = p.columns.iter().position(|c| (c.stage, c.sink) == (walk.number, k));
                let Some(c) = found else { continue };
                for (u, &value) in values.iter().enumerate() {
                    let column = &p.columns[c];
                    let (acc, dtype) = (column.accs[read.cell as usize + u], column.dtype);
                    let sum = emit.combine(*monoid, dtype, acc, value);
                    emit.asm.set(acc, sum);
                }
            }
            _ => {}
        }
    }
}
