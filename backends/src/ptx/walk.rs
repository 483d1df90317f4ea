//! The elements of a stage of a row: read, computed and put where they go, each by the thread that the lane
//! order gives it.

use super::ahead::Array;
use super::asm::{Class, Reg};
use super::emit::{At, Emit, memory};
use super::hold::{Hold, Reduction, pieces};
use super::launch::{Below, output_type};
use super::lower::volume;
use super::part::{Part, neutral};
use super::place::{Vars, coordinates, resolved, value};
use super::prim::{class, constant, select};
use super::rows::{Ahead, Point};
use super::team::{Has, Piece};
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Param, Sink, Stage, Tile};
use adfuse_ir::scalar::ScalarProgram;

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
    /// Whether each element has a text of its own.
    unrolled: bool,
    /// Elements whose loads are under way together.
    batch: i64,
    /// The arrays that are read here last, and the row whose arrays take their place.
    done: Vec<&'a Array>,
    next: Option<&'a Ahead<'a>>,
}

/// Some of the elements that a thread has.
struct Span {
    vars: Vars,
    /// The place of the first lane's first.
    start: IndexExpr,
    turns: i64,
    /// The number of the first among all of the thread.
    cell: i64,
}

/// What is known of an element while others are read.
struct Read {
    vars: Vars,
    coords: Vec<IndexExpr>,
    here: Below,
    cell: i64,
    params: Vec<Option<Reg>>,
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
    let unrolled = registers || turns * size <= BODY;
    let divides = |u: &i64| turns % u == 0;
    let batch = match unrolled {
        true => {
            let loads = |(k, p): (usize, &Param)| {
                matches!(p, Param::Load(_) | Param::Tile(_)) && program.reads_param(k)
            };
            let loads = stage.params.iter().enumerate().filter(|&(k, p)| loads((k, p))).count();
            (p.layout.spare / (loads as i64 + 1)).clamp(2, 32)
        }
        // Large blocks leave fewer registers to a thread.
        false => {
            let room = if team.block() > 512 { BODY / 3 } else { BODY };
            (1..=(room / size).clamp(1, 8)).rev().find(divides).unwrap_or(1)
        }
    };
    let done = p.layout.arrays.iter().filter(|a| a.last == number);
    let done = if next.is_some() { done.collect() } else { Vec::new() };
    let folds = reductions(stage);
    let walk = Walk { stage, number, program, folds, unrolled, batch, done, next };
    name_registers(emit, p, &walk, &pieces);
    if team.warps() == 1 {
        let Some(&piece) = pieces.first() else { return false };
        let start = IndexExpr::Const(0);
        let span = Span { vars: p.vars.clone(), start, turns: piece.turns, cell: 0 };
        let parts = walked(emit, p, &walk, &span);
        for (fold, part) in walk.folds.iter().zip(parts) {
            p.rows[fold.into] = Some(part);
        }
        follows(emit, &walk, None, n);
        return false;
    }
    let blocks = (n + team.piece - 1) / team.piece;
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
        cell += own.turns;
    }
    if walk.folds.is_empty() {
        return false;
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
    let turns = (elements + 31) / 32;
    let mut vars = vars.clone();
    let number = resolved(&block, &emit.same(&vars), &vars);
    let number = value(&mut emit.asm, &number, &vars, &[]);
    let block = match block {
        IndexExpr::Const(_) => block,
        _ => vars.push(number, blocks),
    };
    let span = Span { vars, start: block.times(p.layout.team.piece), turns, cell };
    let parts = walked(emit, p, walk, &span);
    follows(emit, walk, Some((number, blocks)), elements);
    let lane = resolved(&p.lane, &emit.same(&p.vars), &p.vars);
    let lane = value(&mut emit.asm, &lane, &p.vars, &[]);
    let lowest = emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{lane}, 0"));
    for ((fold, part), place) in walk.folds.iter().zip(parts).zip(places) {
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

/// Elements of a stage; gives what its folds have come to, in all lanes.
fn walked(emit: &mut Emit<'_>, p: &mut Point<'_>, walk: &Walk<'_>, span: &Span) -> Vec<Reg> {
    let lanes = p.layout.team.threads.min(32);
    let mut now: Vec<Option<Part>> = vec![None; walk.folds.len()];
    if walk.unrolled {
        let mut first = 0;
        while first < span.turns {
            let cells: Vec<i64> = (first..span.turns.min(first + walk.batch)).collect();
            let places = cells.iter().map(|&c| (c, span.vars.clone(), IndexExpr::Const(c)));
            batch(emit, p, walk, span, places.collect(), &mut now);
            first += walk.batch;
        }
    } else {
        // A short block has turns that the batch may not divide.
        let each = (1..=walk.batch).rev().find(|u| span.turns % u == 0).unwrap_or(1);
        let accs: Vec<Part> = walk
            .folds
            .iter()
            .map(|f| {
                let part = emit.empty_part(f.monoid, f.dtype);
                emit.kept_part(part)
            })
            .collect();
        let (l, turn) = emit.repeat(span.turns / each);
        let mut vars = span.vars.clone();
        let turn = vars.push(turn, span.turns / each);
        let places = (0..each).map(|u| (0, vars.clone(), turn.clone().times(each).plus(u)));
        let mut found: Vec<Option<Part>> = accs.iter().map(|&a| Some(a)).collect();
        batch(emit, p, walk, span, places.collect(), &mut found);
        for (&acc, part) in accs.iter().zip(found) {
            part.into_iter().for_each(|part| emit.set_part(acc, part));
        }
        emit.again(l);
        now = accs.into_iter().map(Some).collect();
    }
    let mut results = Vec::new();
    for (fold, acc) in walk.folds.iter().zip(now) {
        let part = acc.unwrap_or_else(|| emit.empty_part(fold.monoid, fold.dtype));
        let mut part = part.value;
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

/// Some elements: all are read, then all are computed.
fn batch(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    span: &Span,
    places: Vec<(i64, Vars, IndexExpr)>,
    now: &mut [Option<Part>],
) {
    let n = volume(&walk.stage.axes);
    let lanes = p.layout.team.threads.min(32);
    let mut reads = Vec::new();
    for (turn, mut vars, number) in places {
        let place = span.start.clone().sum(number.times(lanes)).sum(p.lane.clone());
        let here = emit.below(&mut vars, &place, n);
        let mut coords = p.domain.clone();
        coords.extend(coordinates(&here.place, &walk.stage.axes));
        let cell = span.cell + turn;
        let at = At { vars: &vars, coords: &coords };
        let known: &Point<'_> = p;
        let (params, _) =
            emit.params(&walk.stage.params, &walk.program, &at, &mut |emit, k, param| match param {
                Param::Row(r) => known.rows[*r],
                Param::Tile(t) => tile(emit, known, *t, cell, &here, &vars),
                Param::Load(_) => known.layout.reads[walk.number][k]
                    .and_then(|a| ahead(emit, known, a, &here, &vars, walk.program.params[k])),
                _ => None,
            });
        reads.push(Read { vars, coords, here, cell, params });
    }
    for read in reads {
        let values = super::prim::outputs(&mut emit.asm, &walk.program, &read.params);
        put(emit, p, walk, span, &read, &values, now);
    }
}

/// What becomes of the values of an element.
fn put(
    emit: &mut Emit<'_>,
    p: &mut Point<'_>,
    walk: &Walk<'_>,
    span: &Span,
    read: &Read,
    values: &[Reg],
    now: &mut [Option<Part>],
) {
    let at = At { vars: &read.vars, coords: &read.coords };
    let valid = read.here.valid;
    let stored = emit.all(p.live, valid);
    let mut number = 0;
    for (k, (sink, &value)) in walk.stage.sinks.iter().zip(values).enumerate() {
        match sink {
            Sink::Store { buffer, index } => emit.store(*buffer, index, value, &at, stored),
            Sink::Keep(t) => {
                let last = read.cell + 1 == span.cell + span.turns;
                keep(emit, p, *t, value, read, last);
            }
            Sink::Reduce { .. } => {
                let fold = &walk.folds[number];
                let part = Part { value, place: None };
                let part = emit.part_if(valid, part, fold.monoid, fold.dtype);
                now[number] = Some(match now[number] {
                    Some(before) => emit.join(fold.monoid, fold.dtype, before, part),
                    None => part,
                });
                number += 1;
            }
            // What lanes past the end add is in no result.
            Sink::Fold { monoid, .. } => {
                let found = p.columns.iter().position(|c| (c.stage, c.sink) == (walk.number, k));
                let Some(c) = found else { continue };
                let (acc, dtype) = (p.columns[c].accs[read.cell as usize], p.columns[c].dtype);
                let sum = emit.combine(*monoid, dtype, acc, value);
                emit.asm.set(acc, sum);
            }
            _ => {}
        }
    }
}

/// Names the registers of tiles that this stage keeps, where not all threads have every element.
fn name_registers(emit: &mut Emit<'_>, p: &mut Point<'_>, walk: &Walk<'_>, pieces: &[Piece]) {
    let named = pieces.iter().any(|p| p.has != Has::All);
    let cells: i64 = pieces.iter().map(|p| p.turns).sum();
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

/// Keeps an element of a tile.
fn keep(emit: &mut Emit<'_>, p: &mut Point<'_>, t: Tile, value: Reg, read: &Read, last: bool) {
    let dtype = p.layout.kernel.tiles[t].dtype;
    match p.layout.holds[t] {
        Some(Hold::Registers) => {
            hold(&mut emit.asm, &mut p.held[t], dtype, value, read.cell as usize, last)
        }
        Some(Hold::Shared(offset)) => {
            let Some(base) = p.memory else { return };
            let size = dtype.bytes() as i64;
            let at = emit.shared_address(&read.here.place, size, base, offset, &read.vars);
            let value = emit.plain(value, dtype);
            let prefix = read.here.valid.map_or(String::new(), |p| format!("@{p} "));
            let spelled = match dtype {
                DType::I8 | DType::U8 | DType::Bool => "b8",
                d => memory(d),
            };
            emit.asm.emit(format_args!("{prefix}st.shared.{spelled} {at}, {value}"));
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

/// An element of a tile.
fn tile(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    t: Tile,
    cell: i64,
    here: &Below,
    vars: &Vars,
) -> Option<Reg> {
    let dtype = p.layout.kernel.tiles[t].dtype;
    match p.layout.holds[t]? {
        Hold::Ahead(a) => ahead(emit, p, a, here, vars, dtype),
        Hold::Shared(offset) => {
            let size = dtype.bytes() as i64;
            let at = emit.shared_address(&here.place, size, p.memory?, offset, vars);
            Some(emit.load_shared(dtype, &at))
        }
        Hold::Registers => {
            let asm = &mut emit.asm;
            let cell = cell as usize;
            match dtype {
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
    }
}

/// An element of an array that was copied ahead.
fn ahead(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    a: usize,
    here: &Below,
    vars: &Vars,
    dtype: DType,
) -> Option<Reg> {
    let array = &p.layout.arrays[a];
    let at = emit.shared_address(&here.place, array.size, p.slot?, array.offset, vars);
    Some(emit.load_shared(dtype, &at))
}

impl Emit<'_> {
    fn load_shared(&mut self, dtype: DType, at: &str) -> Reg {
        let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
        // What is there changes: each load is its own.
        let found = self.asm.fresh(form);
        self.asm.emit(format_args!("ld.shared.{} {found}, {at}", memory(dtype)));
        match dtype {
            DType::Bool => self.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{found}, 0")),
            _ => found,
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
                    vars.push(number, n / team.piece).times(team.piece)
                }
            };
            for turn in 0..own.turns {
                let lanes = team.threads.min(32);
                let place = start.clone().plus(turn * lanes).sum(p.lane.clone());
                let mut vars = vars.clone();
                let here = emit.below(&mut vars, &place, n);
                let mut coords = p.domain.clone();
                coords.extend(coordinates(&here.place, &stage.axes));
                let at = At { vars: &vars, coords: &coords };
                emit.load(loads, stage.program.params[k], &at, &[]);
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
