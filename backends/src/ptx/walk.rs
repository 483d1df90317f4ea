//! The elements of a stage of a row: read, computed and put where they go, each by the thread that the lane
//! order gives it.

use super::ahead::Array;
use super::asm::{Class, Reg, listed};
use super::emit::{At, Emit, memory};
use super::flat::Neighbours;
use super::hold::{Hold, Reduction, pieces};
use super::launch::{Below, output_type};
use super::lower::{free, volume};
use super::part::{Part, neutral};
use super::place::{Vars, coordinates, resolved, value};
use super::prim::{class, constant, select};
use super::rows::{Ahead, Point};
use super::team::{Has, Piece};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Operand, Param, Sink, Stage, Tile};
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{DType, Fp};

/// Instructions of a loop's body that is not written out whole.
const BODY: i64 = 600;

/// The elements of a tile that a thread has in registers.
#[derive(Clone, Default)]
pub(super) struct Held {
    regs: Vec<Option<Reg>>,
    /// The first of two that share a register.
    half: Option<Reg>,
    /// Whether registers are written wherever there is an element, and were named before.
    named: bool,
}

impl Held {
    /// The one element of a tile without axes.
    pub(super) fn of(value: Reg) -> Held {
        Held { regs: vec![Some(value)], half: None, named: false }
    }

    pub(super) fn one(&self) -> Option<Reg> {
        self.regs.first().copied().flatten()
    }
}

/// A stage that is being written.
struct Walk<'a> {
    stage: &'a Stage,
    number: usize,
    program: ScalarProgram,
    folds: Vec<Reduction>,
    /// What a warp's pieces come to together, where they are not parts of their own.
    sums: Option<Vec<Part>>,
    /// Groups of neighbours that have a text of their own.
    text: i64,
    /// Groups whose loads are under way together.
    batch: i64,
    /// The arrays that are read here last, and the row whose arrays take their place.
    done: Vec<&'a Array>,
    next: Option<&'a Ahead<'a>>,
}

/// Some of the elements that a thread has.
struct Span {
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
    /// The number of its first element among all of the thread.
    cell: i64,
    /// What the parameters of each are.
    params: Vec<Vec<Option<Reg>>>,
}

pub(super) fn reductions(stage: &Stage) -> Vec<Reduction> {
    let of = |k: usize| match &stage.sinks[k] {
        Sink::Reduce { monoid, into, .. } => {
            Some(Reduction { monoid: *monoid, dtype: output_type(stage, k), into: *into })
        }
        _ => None,
    };
    (0..stage.sinks.len()).filter_map(of).collect()
}

/// A stage over elements; whether it has a barrier.
///
/// Where a row comes next, its arrays are copied over those that are read here last, block by block.
pub(super) fn elements(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    number: usize,
    next: Option<&Ahead<'_>>,
) -> bool {
    let stage = &p.layout.kernel.stages[number];
    let n = volume(&stage.axes);
    let team = p.layout.team;
    let program = emit.written(&stage.program);
    let in_registers = |t: &Tile| p.layout.holds[*t] == Some(Hold::Registers);
    let registers = stage.sinks.iter().any(|s| match s {
        Sink::Keep(t) => in_registers(t),
        Sink::Fold { .. } => true,
        _ => false,
    }) || stage.params.iter().any(|p| match p {
        Param::Tile(t) => in_registers(t),
        _ => false,
    });
    let pieces = pieces(team, stage);
    let turns = pieces.iter().map(|p| p.turns).max().unwrap_or(1);
    let size = program.insts.len() as i64 + 1;
    let unrolled = registers || turns * team.width * size <= BODY;
    let loads =
        stage.params.iter().enumerate().filter(|(k, p)| {
            matches!(p, Param::Load(_) | Param::Tile(_)) && program.reads_param(*k)
        });
    let batch = p.layout.spare / (loads.count() as i64 + 1);
    let batch = (batch.clamp(2, 32) / team.width).max(1);
    let text = match unrolled {
        true => turns,
        false => BODY / (size * team.width),
    };
    let done = p.layout.arrays.iter().filter(|a| a.last == number);
    let done = if next.is_some() { done.collect() } else { Vec::new() };
    let folds = reductions(stage);
    // Where the order is free a warp joins its pieces before its lanes.
    let free = |f: &Reduction| emit.fp != Fp::Strict || free(f.monoid, f.dtype);
    let together = team.warps() > 1 && pieces.len() > 1 && folds.iter().all(free);
    let sums = together.then(|| folds.iter().map(|f| empty(emit, f)).collect());
    let walk = Walk { stage, number, program, folds, sums, text, batch, done, next };
    name_registers(emit, p, &walk, &pieces);
    if team.warps() == 1 {
        let Some(&piece) = pieces.first() else { return false };
        let start = IndexExpr::Const(0);
        let span = Span { vars: p.vars.clone(), start, turns: piece.turns, cell: 0 };
        let parts = walked(emit, p, &walk, &span);
        for (fold, part) in walk.folds.iter().zip(parts) {
            p.rows[fold.into] = Some(halved(emit, fold, part, team.threads.min(32)));
        }
        follows(emit, &walk, None, n);
        return false;
    }
    let blocks = match &walk.sums {
        Some(_) => team.warps(),
        None => (n + team.piece - 1) / team.piece,
    };
    let places: Vec<i64> = walk.folds.iter().map(|_| p.parts_of(blocks)).collect();
    // Whole blocks that every warp has are one text where registers are not named for each.
    let alike = pieces.iter().take_while(|p| p.has == Has::All).count();
    let looped = !registers && alike > 1;
    if looped {
        let (l, turn) = emit.repeat(alike as i64);
        let mut vars = p.vars.clone();
        let turn = vars.push(turn, alike as i64);
        let block = turn.times(team.warps()).sum(p.warp.clone());
        piece(emit, p, &walk, &places, &vars, block, team.piece, 0, n / team.piece);
        emit.again(l);
    }
    let mut cell = 0;
    for (k, own) in pieces.iter().enumerate() {
        if !(looped && k < alike) {
            pieced(emit, p, &walk, &places, own, cell, n);
        }
        cell += own.turns * team.width;
    }
    if walk.folds.is_empty() {
        return false;
    }
    if let Some(sums) = &walk.sums {
        let warp = resolved(&p.warp, &emit.same(&p.vars), &p.vars);
        let warp = value(&mut emit.asm, &warp, &p.vars, &[]);
        leave_parts(emit, p, &walk, sums.clone(), warp, &places);
    }
    emit.asm.emit("bar.sync 0");
    for (fold, &place) in walk.folds.iter().zip(&places) {
        let part = tree(emit, p, fold, place, blocks);
        p.rows[fold.into] = Some(part);
    }
    true
}

/// A block of each warp that has one.
fn pieced(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    places: &[i64],
    own: &Piece,
    cell: i64,
    n: i64,
) {
    let each = p.layout.team.piece;
    let block = p.warp.clone().plus(own.block);
    let Has::Some { full, rest } = own.has else {
        let vars = p.vars.clone();
        return piece(emit, p, walk, places, &vars, block, each, cell, n / each);
    };
    let number = resolved(&block, &emit.same(&p.vars), &p.vars);
    let number = value(&mut emit.asm, &number, &p.vars, &[]);
    if full > own.block {
        let test = format_args!("{number}, {full}").to_string();
        let here = emit.asm.pure(Class::Pred, "setp.lt.s32", test);
        emit.when(Some(here), |emit| {
            let mut vars = p.vars.clone();
            let block = vars.push(number, full);
            piece(emit, p, walk, places, &vars, block, each, cell, full);
        });
    }
    if rest > 0 {
        let test = format_args!("{number}, {full}").to_string();
        let here = emit.asm.pure(Class::Pred, "setp.eq.s32", test);
        emit.when(Some(here), |emit| {
            let vars = p.vars.clone();
            let block = IndexExpr::Const(full);
            piece(emit, p, walk, places, &vars, block, rest, cell, full + 1);
        });
    }
}

/// A block of the lane order, and its parts.
#[allow(clippy::too_many_arguments)]
fn piece(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    places: &[i64],
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
    let span = Span { vars, start, turns: team.turns(elements), cell };
    let parts = walked(emit, p, walk, &span);
    follows(emit, walk, Some((number, blocks)), elements);
    match &walk.sums {
        Some(sums) => sums.iter().zip(parts).for_each(|(&to, part)| emit.set_part(to, part)),
        None => leave_parts(emit, p, walk, parts, number, places),
    }
}

/// Leaves the parts of a warp's folds for all warps.
fn leave_parts(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    walk: &Walk<'_>,
    parts: Vec<Part>,
    number: Reg,
    places: &[i64],
) {
    let lane = resolved(&p.lane, &emit.same(&p.vars), &p.vars);
    let lane = value(&mut emit.asm, &lane, &p.vars, &[]);
    let lowest = emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{lane}, 0"));
    for ((fold, part), place) in walk.folds.iter().zip(parts).zip(places) {
        let part = halved(emit, fold, part, 32);
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let at = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{number}, 8, {base}"));
        let part = emit.plain(part, fold.dtype);
        let spelled = word(fold.dtype);
        emit.asm.emit(format_args!("@{lowest} st.shared.{spelled} [{at}+{place}], {part}"));
    }
}

/// Copies what comes next in the place of what was read here last: so many elements, those of the block of
/// this number where there are several.
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
            let units = a.units(elements);
            emit.copy_units(a, &next.own, &vars, &next.point, &block, units, next.to);
        }
    });
}

/// What a fold begins with, in registers that are written again.
fn empty(emit: &mut Emit<'_>, fold: &Reduction) -> Part {
    let part = emit.empty_part(fold.monoid, fold.dtype);
    emit.kept_part(part)
}

/// Joins what lanes have come to: all of them have the result.
fn halved(emit: &mut Emit<'_>, fold: &Reduction, part: Part, lanes: i64) -> Reg {
    let mut part = part.value;
    let mut half = lanes / 2;
    while half > 0 {
        let other = emit.exchanged(part, half as u32);
        part = emit.combine(fold.monoid, fold.dtype, part, other);
        half /= 2;
    }
    part
}

/// Elements of a stage; gives what its folds have come to in each lane.
fn walked(emit: &mut Emit<'_>, p: &mut Point<'_>, walk: &Walk<'_>, span: &Span) -> Vec<Part> {
    let begun = |emit: &mut Emit<'_>| -> Vec<Part> {
        match &walk.sums {
            Some(sums) => sums.clone(),
            None => walk.folds.iter().map(|f| empty(emit, f)).collect(),
        }
    };
    let batches = |emit: &mut Emit<'_>,
                   p: &mut Point<'_>,
                   places: Vec<(i64, Vars, IndexExpr)>,
                   now: &mut [Option<Part>]| {
        let mut left = places.as_slice();
        while !left.is_empty() {
            let (first, rest) = left.split_at(left.len().min(walk.batch as usize));
            batch(emit, p, walk, span, first, now);
            left = rest;
        }
    };
    if walk.text >= span.turns {
        let mut now: Vec<Option<Part>> = match &walk.sums {
            Some(sums) => sums.iter().map(|&part| Some(part)).collect(),
            None => vec![None; walk.folds.len()],
        };
        let places = (0..span.turns).map(|t| (t, span.vars.clone(), IndexExpr::Const(t)));
        batches(emit, p, places.collect(), &mut now);
        let found = walk.folds.iter().zip(now);
        return found
            .map(|(f, part)| part.unwrap_or_else(|| emit.empty_part(f.monoid, f.dtype)))
            .collect();
    }
    // A short block has turns that the text may not divide.
    let each = (1..=walk.text.max(1)).rev().find(|u| span.turns % u == 0).unwrap_or(1);
    let accs = begun(emit);
    let (l, turn) = emit.repeat(span.turns / each);
    let mut vars = span.vars.clone();
    let turn = vars.push(turn, span.turns / each);
    let places = (0..each).map(|u| (0, vars.clone(), turn.clone().times(each).plus(u)));
    let mut now: Vec<Option<Part>> = accs.iter().map(|&a| Some(a)).collect();
    batches(emit, p, places.collect(), &mut now);
    for (&acc, part) in accs.iter().zip(now) {
        part.into_iter().for_each(|part| emit.set_part(acc, part));
    }
    emit.again(l);
    accs
}

/// The neighbours of a group among those of a stage's row, and where the group is.
fn group(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    stage: &Stage,
    mut vars: Vars,
    place: &IndexExpr,
) -> (Below, Neighbours) {
    let width = p.layout.team.width;
    let here = emit.below(&mut vars, place, volume(&stage.axes) / width);
    let coords = |u: i64| {
        let mut at = p.domain.clone();
        at.extend(coordinates(&here.place.clone().times(width).plus(u), &stage.axes));
        at
    };
    let coords = (0..width).map(coords).collect();
    (here, Neighbours { vars, coords })
}

/// Some groups of neighbours: all are read, then all are computed.
fn batch(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    span: &Span,
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
        let (here, near) = group(emit, p, walk.stage, vars.clone(), &place);
        let cell = span.cell + turn * width;
        let mut rows = emit.loaded_where(walk.stage, &near, &|k| arrays[k].is_none());
        for (k, param) in walk.stage.params.iter().enumerate() {
            if walk.program.reads_param(k)
                && let Some(found) = shared_row(emit, p, arrays[k], param, &here, &near.vars)
            {
                rows.insert(k, found);
            }
        }
        let mut params = Vec::new();
        for (u, coords) in near.coords.iter().enumerate() {
            let at = At { vars: &near.vars, coords };
            let known: &Point<'_> = p;
            let given = &mut |emit: &mut Emit<'_>, k: usize, param: &Param| match param {
                Param::Row(r) => known.rows[*r],
                Param::Tile(t) if known.layout.holds[*t] == Some(Hold::Registers) => {
                    held(emit, known, *t, cell as usize + u)
                }
                _ => match rows.get(&k) {
                    Some(row) => row.get(u).copied(),
                    // What chooses places and nothing else.
                    None => shared_row(emit, known, arrays[k], param, &here, &near.vars)
                        .and_then(|row| row.get(u).copied()),
                },
            };
            params.push(emit.params(&walk.stage.params, &walk.program, &at, given).0);
        }
        reads.push(Read { near, here, cell, params });
    }
    for read in reads {
        let mut values: Vec<Vec<Reg>> = vec![Vec::new(); walk.stage.sinks.len()];
        for params in &read.params {
            let found = super::prim::outputs(&mut emit.asm, &walk.program, params);
            values.iter_mut().zip(found).for_each(|(list, value)| list.push(value));
        }
        put(emit, p, walk, span, &read, &values, now);
    }
}

/// What becomes of the values of neighbours.
fn put(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    span: &Span,
    read: &Read,
    values: &[Vec<Reg>],
    now: &mut [Option<Part>],
) {
    let valid = read.here.valid;
    let stored = emit.all(p.live, valid);
    let mut number = 0;
    for (k, (sink, values)) in walk.stage.sinks.iter().zip(values).enumerate() {
        match sink {
            Sink::Store { buffer, index } => {
                emit.store_row(*buffer, index, values, &read.near, stored)
            }
            Sink::Keep(t) => {
                let end = span.cell + span.turns * p.layout.team.width;
                keep(emit, p, *t, values, read, end as usize);
            }
            Sink::Reduce { .. } => {
                let fold = &walk.folds[number];
                for &value in values {
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

/// Names the registers of tiles that this stage keeps, where not all threads have every element.
fn name_registers(emit: &mut Emit<'_>, p: &mut Point<'_>, walk: &Walk<'_>, pieces: &[Piece]) {
    let named = pieces.iter().any(|p| p.has != Has::All);
    let cells: i64 = pieces.iter().map(|own| own.turns * p.layout.team.width).sum();
    for sink in &walk.stage.sinks {
        let Sink::Keep(t) = sink else { continue };
        if p.layout.holds[*t] != Some(Hold::Registers) {
            continue;
        }
        let dtype = p.layout.kernel.tiles[*t].dtype;
        let (each, form) = match dtype {
            DType::Bool => (32, Class::Word),
            d if d.bytes() == 2 => (2, Class::Word),
            d => (1, class(d)),
        };
        let words = (cells + each - 1) / each;
        let regs = (0..words).map(|_| match (dtype, named) {
            (DType::Bool, _) => {
                let zero = emit.asm.word(0);
                Some(emit.asm.copied(zero))
            }
            (_, true) => Some(emit.asm.fresh(form)),
            _ => None,
        });
        p.held[*t] = Held { regs: regs.collect(), half: None, named };
    }
}

/// Keeps neighbours of a tile; `end` is one past the number of the last element that is kept with them.
fn keep(emit: &mut Emit<'_>, p: &mut Point<'_>, t: Tile, values: &[Reg], read: &Read, end: usize) {
    let dtype = p.layout.kernel.tiles[t].dtype;
    match p.layout.holds[t] {
        Some(Hold::Registers) => {
            for (cell, &value) in (read.cell as usize..).zip(values) {
                hold(&mut emit.asm, &mut p.held[t], dtype, value, cell, cell + 1 == end);
            }
        }
        Some(Hold::Shared(offset)) => {
            let Some(base) = p.memory else { return };
            let first = read.here.place.clone().times(p.layout.team.width);
            let at = (&first, base, offset);
            emit.store_shared(dtype, values, at, &read.near.vars, read.here.valid);
        }
        // It is there already, or nobody reads it.
        Some(Hold::Ahead(_)) | None => {}
    }
}

fn hold(
    asm: &mut super::asm::Asm,
    held: &mut Held,
    dtype: DType,
    value: Reg,
    cell: usize,
    last: bool,
) {
    let mut set = |asm: &mut super::asm::Asm, place: usize, value: Reg| match held.regs[place] {
        Some(reg) if held.named => asm.set(reg, value),
        _ => held.regs[place] = Some(value),
    };
    match dtype {
        DType::Bool => {
            let bit = asm.pure(
                Class::Word,
                "selp.b32",
                format_args!("{}, 0, {value}", 1u32 << (cell % 32)),
            );
            if let Some(word) = held.regs[cell / 32] {
                asm.emit(format_args!("or.b32 {word}, {word}, {bit}"));
            }
        }
        d if d.bytes() == 2 => match (held.half.take(), last) {
            (None, false) => held.half = Some(value),
            (low, _) => {
                let low = low.unwrap_or(value);
                let pair = asm.fresh(Class::Word);
                asm.emit(format_args!("mov.b32 {pair}, {{{low}, {value}}}"));
                set(asm, cell / 2, pair);
            }
        },
        _ => set(asm, cell, value),
    }
}

/// An element of a tile that is in registers.
fn held(emit: &mut Emit<'_>, p: &Point<'_>, t: Tile, cell: usize) -> Option<Reg> {
    let asm = &mut emit.asm;
    match p.layout.kernel.tiles[t].dtype {
        DType::Bool => {
            let word = (*p.held[t].regs.get(cell / 32)?)?;
            let bit = 1u32 << (cell % 32);
            let bit = asm.pure(Class::Word, "and.b32", format_args!("{word}, {bit}"));
            Some(asm.pure(Class::Pred, "setp.ne.s32", format_args!("{bit}, 0")))
        }
        d if d.bytes() == 2 => {
            let pair = (*p.held[t].regs.get(cell / 2)?)?;
            let word = match cell % 2 {
                0 => pair,
                _ => asm.pure(Class::Word, "shr.u32", format_args!("{pair}, 16")),
            };
            Some(asm.pure(Class::Half, "cvt.u16.u32", word))
        }
        _ => *p.held[t].regs.get(cell)?,
    }
}

/// Neighbours of what is in shared memory: of a tile, or of an array that was copied ahead.
fn shared_row(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    array: Option<usize>,
    param: &Param,
    here: &Below,
    vars: &Vars,
) -> Option<Vec<Reg>> {
    let copied = |a: usize| {
        let array = &p.layout.arrays[a];
        Some((p.slot?, array.offset))
    };
    let (dtype, (base, offset)) = match param {
        Param::Load(pieces) => {
            let Operand::Buffer(b) = pieces.first()?.from else { return None };
            (emit.program.buffers[b].dtype, copied(array?)?)
        }
        Param::Tile(t) => {
            let place = match p.layout.holds[*t]? {
                Hold::Registers => return None,
                Hold::Shared(offset) => (p.memory?, offset),
                Hold::Ahead(a) => copied(a)?,
            };
            (p.layout.kernel.tiles[*t].dtype, place)
        }
        _ => return None,
    };
    let width = p.layout.team.width;
    let first = here.place.clone().times(width);
    Some(emit.load_shared(dtype, width, (&first, base, offset), vars))
}

/// Elements of one access to shared memory: 16 bytes at most.
fn step(dtype: DType, width: i64) -> i64 {
    width.min(16 / dtype.bytes() as i64).min(4)
}

impl Emit<'_> {
    /// Neighbours in shared memory. What is there changes: each load is its own.
    fn load_shared(
        &mut self,
        dtype: DType,
        width: i64,
        (first, base, offset): (&IndexExpr, Reg, i64),
        vars: &Vars,
    ) -> Vec<Reg> {
        let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
        let size = dtype.bytes() as i64;
        let mut found = Vec::new();
        let step = step(dtype, width);
        for j in (0..width).step_by(step as usize) {
            let at = self.shared_address(&first.clone().plus(j), size, base, offset, vars);
            let halves = size == 2 && step > 1;
            let (form, count) = if halves { (Class::Word, step / 2) } else { (form, step) };
            let regs: Vec<Reg> = (0..count).map(|_| self.asm.fresh(form)).collect();
            let spelled = if halves { "b32" } else { memory(dtype) };
            let vector = if count > 1 { format!(".v{count}") } else { String::new() };
            let list = listed(&regs);
            self.asm.emit(format_args!("ld.shared{vector}.{spelled} {list}, {at}"));
            for reg in regs {
                match dtype {
                    _ if halves => found.extend(self.asm.pure_row(Class::Half, 2, "mov.b32", reg)),
                    DType::Bool => {
                        let args = format_args!("{reg}, 0");
                        found.push(self.asm.pure(Class::Pred, "setp.ne.s32", args));
                    }
                    _ => found.push(reg),
                }
            }
        }
        found
    }

    /// Stores neighbours into shared memory.
    fn store_shared(
        &mut self,
        dtype: DType,
        values: &[Reg],
        (first, base, offset): (&IndexExpr, Reg, i64),
        vars: &Vars,
        when: Option<Reg>,
    ) {
        let prefix = when.map_or(String::new(), |p| format!("@{p} "));
        let size = dtype.bytes() as i64;
        let step = step(dtype, values.len() as i64) as usize;
        for (part, j) in values.chunks(step).zip((0i64..).step_by(step)) {
            let at = self.shared_address(&first.clone().plus(j), size, base, offset, vars);
            let regs: Vec<Reg> = part.iter().map(|&v| self.plain(v, dtype)).collect();
            let halves = size == 2 && step > 1;
            let regs = match halves {
                true => {
                    let pair = |p: &[Reg]| self.asm.pure(Class::Word, "mov.b32", listed(p));
                    regs.chunks(2).map(pair).collect()
                }
                false => regs,
            };
            let spelled = match dtype {
                _ if halves => "b32",
                DType::I8 | DType::U8 | DType::Bool => "b8",
                d => memory(d),
            };
            let vector = if regs.len() > 1 { format!(".v{}", regs.len()) } else { String::new() };
            let list = listed(&regs);
            self.asm.emit(format_args!("{prefix}st.shared{vector}.{spelled} {at}, {list}"));
        }
    }
}

/// Does the loads that give the same for every row, before the first: what asks for them again is given
/// what they gave.
pub(super) fn once(emit: &mut Emit<'_>, p: &Point<'_>) {
    let (layout, team) = (p.layout, p.layout.team);
    for &(s, k) in &layout.once {
        let stage = &layout.kernel.stages[s];
        let n = volume(&stage.axes);
        let Some(Param::Load(loads)) = stage.params.get(k) else { continue };
        for own in pieces(team, stage) {
            let mut vars = p.vars.clone();
            let start = match team.warps() {
                1 => IndexExpr::Const(0),
                _ => {
                    let block = p.warp.clone().plus(own.block);
                    let number = resolved(&block, &emit.same(&vars), &vars);
                    let number = value(&mut emit.asm, &number, &vars, &[]);
                    vars.push(number, n / team.piece).times(team.piece / team.width)
                }
            };
            for turn in 0..own.turns {
                let lanes = team.threads.min(32);
                let place = start.clone().plus(turn * lanes).sum(p.lane.clone());
                let (_, near) = group(emit, p, stage, vars.clone(), &place);
                if emit.loaded_where(stage, &near, &|other| other == k).is_empty() {
                    for coords in &near.coords {
                        let at = At { vars: &near.vars, coords };
                        emit.load(loads, stage.program.params[k], &at, &[]);
                    }
                }
            }
        }
    }
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
fn tree(emit: &mut Emit<'_>, p: &Point<'_>, fold: &Reduction, place: i64, blocks: i64) -> Reg {
    let lane = resolved(&p.lane, &emit.same(&p.vars), &p.vars);
    let lane = value(&mut emit.asm, &lane, &p.vars, &[]);
    let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
    let empty = constant(&mut emit.asm, neutral(fold.monoid, fold.dtype));
    let mut groups = Vec::new();
    for first in (0..blocks).step_by(32) {
        let left = (blocks - first).min(32);
        // As many lanes as there are parts, and again: all have the result.
        let group = (left as u64).next_power_of_two();
        let own = emit.asm.pure(Class::Word, "and.b32", format_args!("{lane}, {}", group - 1));
        let most = emit.asm.pure(Class::Word, "min.s32", format_args!("{own}, {}", left - 1));
        let at = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{most}, 8, {base}"));
        let form = if fold.dtype == DType::Bool { Class::Word } else { class(fold.dtype) };
        let raw = emit.asm.fresh(form);
        let offset = place + first * 8;
        emit.asm.emit(format_args!("ld.shared.{} {raw}, [{at}+{offset}]", word(fold.dtype)));
        let mut part = match fold.dtype {
            DType::Bool => emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{raw}, 0")),
            _ => raw,
        };
        if (left as u64) < group {
            let there = emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{own}, {left}"));
            part = select(&mut emit.asm, there, part, empty);
        }
        let mut distance = 1;
        while distance < left {
            let other = emit.exchanged(part, distance as u32);
            part = emit.combine(fold.monoid, fold.dtype, part, other);
            distance *= 2;
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
